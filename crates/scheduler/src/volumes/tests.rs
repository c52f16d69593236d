//! Small clusters with claims and volumes.

use serde_json::{Value, json};
use setpoint::Object;

use super::*;
use crate::ledger::Ledger;
use crate::view::{NodeView, Pod};

fn object(value: Value) -> Object {
    Object::from_json(value.to_string().into()).expect("an object")
}

fn claim(name: &str, spec: Value, annotations: Value) -> Object {
    let mut spec = spec;
    spec["resources"] = json!({"requests": {"storage": "1Gi"}});
    let metadata = json!({"name": name, "namespace": "ns", "uid": name, "annotations": annotations});
    object(json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}))
}

fn bound(name: &str, volume: &str) -> Object {
    claim(name, json!({"volumeName": volume}), json!({"pv.kubernetes.io/bind-completed": "yes"}))
}

fn volume(name: &str, class: &str, zone: Option<&str>, labels: Value) -> Object {
    let affinity = zone.map(|zone| {
        let zone = json!([{"key": "zone", "operator": "In", "values": [zone]}]);
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": zone}]}})
    });
    object(json!({"metadata": {"name": name, "labels": labels}, "status": {"phase": "Available"},
        "spec": {"storageClassName": class, "capacity": {"storage": "1Gi"}, "nodeAffinity": affinity}}))
}

fn class(name: &str, provisioner: &str, mode: &str) -> Object {
    object(json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}))
}

fn pod(claims: &[&str]) -> Pod {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}))
        .collect();
    let metadata = json!({"name": "p", "namespace": "ns", "uid": "p"});
    Pod::new(object(json!({"metadata": metadata, "spec": {"volumes": volumes}}))).expect("a pod")
}

/// Nodes in zones a and b.
fn nodes() -> Ledger {
    let mut ledger = Ledger::default();
    for (name, zone) in [("m", "a"), ("n", "b")] {
        let labels = json!({"zone": zone, "topology.kubernetes.io/zone": zone});
        let node = object(json!({"metadata": {"name": name, "labels": labels}}));
        ledger.put_node(&node, node.view::<NodeView>().expect("a node"));
    }
    ledger
}

/// Checks what keeps a pod off each node, or off all of them.
#[track_caller]
fn check(pod: &Pod, caches: &VolumeCaches, expected: Result<[&str; 2], &str>) {
    let ledger = nodes();
    match (VolumeNeeds::of(pod, &ledger, caches), expected) {
        (Err(refusal), Err(expected)) => assert_eq!(refusal, expected),
        (Ok(needs), Ok(expected)) => {
            let reasons = |node| {
                let obstacle = needs.as_ref()?.obstacle(ledger.node(node).expect("a node"))?;
                Some(obstacle.reasons.join(" and "))
            };
            assert_eq!(["m", "n"].map(|node| reasons(node).unwrap_or_default()), expected);
        }
        (Err(refusal), Ok(_)) => panic!("refused: {refusal}"),
        (Ok(_), Err(expected)) => panic!("not refused: {expected}"),
    }
}

fn caches(claims: Vec<Object>, volumes: Vec<Object>) -> VolumeCaches {
    let classes = vec![
        class("now", "d", "Immediate"),
        class("later", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        class("made", "d", "WaitForFirstConsumer"),
    ];
    VolumeCaches::from_objects(claims, volumes, classes)
}

const NO_MATCH: &str = "node(s) didn't find available persistent volumes to bind";

#[test]
fn a_pod_without_usable_claims_fits_nowhere() {
    let wants = |spec: Value| caches(vec![claim("c", spec, json!({}))], vec![]);
    check(&pod(&[]), &wants(json!({})), Ok(["", ""]));
    check(&pod(&["d"]), &wants(json!({})), Err("persistentvolumeclaim \"d\" not found"));
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    check(&pod(&["c"]), &wants(json!({})), Err(unbound));
    check(&pod(&["c"]), &wants(json!({"storageClassName": "now"})), Err(unbound));
    check(&pod(&["c"]), &wants(json!({"storageClassName": "later", "volumeName": "v"})), Err(unbound));
    check(&pod(&["c"]), &caches(vec![bound("c", "v")], vec![]), Err("persistentvolume \"v\" not found"));
    let lost = object(json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"volumeName": "v"},
        "status": {"phase": "Lost"}}));
    let message = "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"";
    check(&pod(&["c"]), &caches(vec![lost], vec![]), Err(message));
}

#[test]
fn a_pod_goes_where_its_bound_volume_is_accessible() {
    let at = |zone, labels| caches(vec![bound("c", "v")], vec![volume("v", "", zone, labels)]);
    check(&pod(&["c"]), &at(None, json!({})), Ok(["", ""]));
    let far = "node(s) didn't match PersistentVolume's node affinity";
    check(&pod(&["c"]), &at(Some("a"), json!({})), Ok(["", far]));
    let zone = "node(s) had no available volume zone";
    check(&pod(&["c"]), &at(None, json!({"topology.kubernetes.io/zone": "b"})), Ok([zone, ""]));
    check(&pod(&["c"]), &at(None, json!({"failure-domain.beta.kubernetes.io/zone": "a__b"})), Ok(["", ""]));
}

#[test]
fn a_delayed_claim_gets_a_volume_that_is_accessible_from_the_node() {
    let wants = |class: &str, annotations: Value| claim("c", json!({"storageClassName": class}), annotations);
    let none = || json!({});
    check(&pod(&["c"]), &caches(vec![wants("later", none())], vec![]), Ok([NO_MATCH, NO_MATCH]));
    let near = volume("v", "later", Some("b"), none());
    check(&pod(&["c"]), &caches(vec![wants("later", none())], vec![near]), Ok([NO_MATCH, ""]));
    check(&pod(&["c"]), &caches(vec![wants("made", none())], vec![]), Ok(["", ""]));
    let selected = json!({"volume.kubernetes.io/selected-node": "m"});
    check(&pod(&["c"]), &caches(vec![wants("made", selected)], vec![]), Ok(["", NO_MATCH]));
    let two = vec![wants("later", none()), claim("d", json!({"storageClassName": "later"}), none())];
    let one = vec![volume("v", "later", None, none())];
    check(&pod(&["c", "d"]), &caches(two, one), Ok([NO_MATCH, NO_MATCH]));
}

#[test]
fn the_volume_chosen_for_a_claim_is_written_and_assumed_at_once() {
    let wants = |name: &str, class: &str| claim(name, json!({"storageClassName": class}), json!({}));
    let all =
        caches(vec![wants("c", "later"), wants("d", "made")], vec![volume("v", "later", None, json!({}))]);
    let ledger = nodes();
    let prepare = || {
        let pod = pod(&["c", "d"]);
        let needs = VolumeNeeds::of(&pod, &ledger, &all).expect("it can fit").expect("it has claims");
        Preparation::of(&needs, ledger.node("m").expect("a node"))
    };
    let preparation = prepare();
    let written: Value = preparation.volumes[0].decode().expect("JSON");
    assert_eq!(written["spec"]["claimRef"]["name"], "c");
    let asked: Value = preparation.claims[0].decode().expect("JSON");
    assert_eq!(asked["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "m");
    preparation.assume(&all);
    check(&pod(&["c"]), &all, Ok(["", ""]));
    check(&pod(&["d"]), &all, Ok(["", NO_MATCH]));
    let again = prepare();
    assert!(
        again.volumes.is_empty() && again.claims.is_empty() && !again.is_empty(),
        "only to be waited for"
    );
    preparation.forget(&all);
    assert_eq!(prepare().volumes.len(), 1);
}
