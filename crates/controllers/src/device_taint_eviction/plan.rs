//! When the pods of a claim must be evicted. Pure.

use jiff::{SignedDuration, Timestamp};

use setpoint_device::{Taint, Toleration};

use super::view::Allocated;

/// Returns the earliest time at which a device taint is no longer tolerated.
pub(super) fn eviction_time(
    devices: &[Allocated],
    mut taints_of: impl FnMut(&Allocated) -> Vec<Taint>,
) -> Option<Timestamp> {
    let times = devices.iter().flat_map(|device| {
        let taints = taints_of(device);
        taints.into_iter().filter_map(|taint| untolerated_at(&taint, &device.tolerations)).collect::<Vec<_>>()
    });
    times.min()
}

/// Returns when a taint is no longer tolerated, or `None` if it always is.
fn untolerated_at(taint: &Taint, tolerations: &[Toleration]) -> Option<Timestamp> {
    let added = taint.time_added?;
    let mut shortest: Option<i64> = None;
    for toleration in tolerations.iter().filter(|one| one.effect == "NoExecute" && one.tolerates(taint)) {
        let seconds = toleration.toleration_seconds?.max(0);
        shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
    }
    added.checked_add(SignedDuration::from_secs(shortest.unwrap_or(0))).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Object;
    use setpoint_device::RuleLister;

    use super::*;
    use crate::device_taint_eviction::devices::taints_of;
    use crate::workload::fixtures::{at, cached};

    fn device(tolerations: Value) -> Allocated {
        let device = json!({"driver": "d", "pool": "p", "device": "a", "tolerations": tolerations});
        serde_json::from_value(device).expect("a device")
    }

    fn slice(name: &str, generation: i64, taints: Value) -> Value {
        let devices = json!([{"name": "a", "taints": taints}]);
        json!({"metadata": {"name": name}, "spec": {"driver": "d", "pool": {"name": "p", "generation": generation},
            "devices": devices}})
    }

    #[track_caller]
    fn check(tolerations: Value, slices: &[Value], rules: &[Value], expected: Option<i64>) {
        let slices: Vec<_> = slices.iter().map(|slice| cached(slice.clone())).collect();
        let object = |rule: &Value| Object::from_json(rule.to_string().into()).expect("a rule");
        let rules =
            RuleLister::from_objects(rules.iter().map(object).collect(), Vec::new()).read().expect("rules");
        let device = device(tolerations);
        let time = eviction_time(&[device], |device| taints_of(device, &slices, &rules, |_, _| ()));
        assert_eq!(time, expected.map(at));
    }

    #[test]
    fn pods_are_evicted_when_a_taint_is_no_longer_tolerated() {
        let taint = |effect: &str, added: i64| json!([{"key": "k", "value": "v", "effect": effect, "timeAdded": at(added)}]);
        let tainted = [slice("s", 1, taint("NoExecute", 10))];
        check(json!([]), &tainted, &[], Some(10));
        check(json!([]), &[slice("s", 1, taint("NoSchedule", 10))], &[], None);
        check(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]), &tainted, &[], None);
        let a_while = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]);
        check(a_while, &tainted, &[], Some(40));
        let other = json!([{"key": "k", "operator": "Equal", "value": "w", "effect": "NoExecute"}]);
        check(other, &tainted, &[], Some(10));
        // A toleration without the effect `NoExecute` does not help.
        check(json!([{"key": "k", "operator": "Exists"}]), &tainted, &[], Some(10));
        // Older generations of the pool are ignored.
        check(json!([]), &[tainted[0].clone(), slice("t", 2, json!([]))], &[], None);
    }

    #[test]
    fn rules_taint_the_devices_that_they_select() {
        let rule = |selector: Value| {
            json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector,
            "taint": {"key": "k", "effect": "NoExecute", "timeAdded": at(5)}}})
        };
        let plain = [slice("s", 1, json!([]))];
        check(json!([]), &plain, &[rule(json!({"driver": "d", "device": "a"}))], Some(5));
        check(json!([]), &plain, &[rule(json!({}))], Some(5));
        check(json!([]), &plain, &[rule(json!({"device": "b"}))], None);
        check(json!([]), &plain, &[rule(Value::Null)], Some(5));
        check(json!([]), &plain, &[rule(json!({"deviceClassName": "not-there"}))], None);
        check(json!([]), &[], &[rule(json!({}))], None);
    }
}
