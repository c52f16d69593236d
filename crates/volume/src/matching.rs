//! Which volume satisfies a claim. Pure.
//!
//! Invariants: a volume that belongs to another claim is never used. Among volumes with the same access modes, one
//! reserved for the claim wins, otherwise the smallest.

use std::collections::BTreeMap;

use setpoint::Cached;

use crate::{Claim, Volume};

const FILESYSTEM: &str = "Filesystem";

/// Returns the volume that the controller binds a claim to: among those with the fewest sufficient access modes, the
/// one reserved for it or else the smallest. If `delayed`, the scheduler decides unless there is a reservation.
pub fn best<'a>(
    claim: &Cached<Claim>,
    volumes: &'a [Cached<Volume>],
    delayed: bool,
) -> Option<&'a Cached<Volume>> {
    let mut by_modes: BTreeMap<_, Vec<&Cached<Volume>>> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| has_modes(volume, claim)) {
        let modes = volume.access_modes();
        by_modes.entry((modes.len(), modes)).or_default().push(volume);
    }
    by_modes.values().find_map(|volumes| {
        let reserved = volumes.iter().find(|volume| volume.is_for(claim) && could_match(volume, claim));
        reserved.copied().or_else(|| smallest(claim, volumes.iter().copied().filter(|_| !delayed)))
    })
}

/// Returns the volume that the scheduler binds a claim to on a node. `reaches` tells which volumes the node can access.
pub fn best_on_node<'a>(
    claim: &Cached<Claim>,
    volumes: impl Iterator<Item = &'a Cached<Volume>> + Clone,
    reaches: impl Fn(&Volume) -> bool,
) -> Option<&'a Cached<Volume>> {
    let mut reserved = volumes.clone().filter(|volume| volume.is_for(claim) && could_match(volume, claim));
    if let Some(reserved) = reserved.next() {
        return Some(reserved).filter(|volume| reaches(volume));
    }
    smallest(claim, volumes.filter(|volume| reaches(volume) && has_modes(volume, claim)))
}

/// Returns the smallest available volume that satisfies the claim.
fn smallest<'a>(
    claim: &Cached<Claim>,
    volumes: impl Iterator<Item = &'a Cached<Volume>>,
) -> Option<&'a Cached<Volume>> {
    let selected = |volume: &Cached<Volume>| {
        claim.spec.selector.as_ref().is_none_or(|selector| selector.matches(&volume.meta().labels))
    };
    volumes
        .filter(|volume| volume.spec.claim_ref.is_none() && &*volume.status.phase == "Available")
        .filter(|volume| volume.class() == claim.class() && selected(volume) && could_match(volume, claim))
        .min_by_key(|volume| volume.size())
}

/// Whether a volume is large enough, of the right mode, and not being deleted.
fn could_match(volume: &Cached<Volume>, claim: &Cached<Claim>) -> bool {
    volume.size() >= claim.requested()
        && same_mode(volume, claim)
        && same_attributes(volume, claim)
        && !volume.meta().is_being_deleted()
}

/// Returns why a volume named by a claim cannot be bound to it, or `None` if it can.
pub fn objection(volume: &Cached<Volume>, claim: &Cached<Claim>) -> Option<String> {
    let objection = if volume.meta().is_being_deleted() {
        return Some(format!("the volume is marked for deletion {:?}", volume.key().name()));
    } else if volume.size().value() < claim.requested().value() {
        "requested PV is too small"
    } else if volume.class() != claim.class() {
        "storageClassName does not match"
    } else if !same_attributes(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if !same_mode(volume, claim) {
        "incompatible volumeMode"
    } else if !has_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(objection.to_owned())
}

/// Whether both have the same volume mode.
pub fn same_mode(volume: &Volume, claim: &Claim) -> bool {
    let of = |mode: &Option<Box<str>>| mode.clone().unwrap_or_else(|| FILESYSTEM.into());
    of(&volume.spec.volume_mode) == of(&claim.spec.volume_mode)
}

fn same_attributes(volume: &Volume, claim: &Claim) -> bool {
    let of = |class: &Option<Box<str>>| class.clone().unwrap_or_default();
    of(&volume.spec.volume_attributes_class_name) == of(&claim.spec.volume_attributes_class_name)
}

fn has_modes(volume: &Volume, claim: &Claim) -> bool {
    claim.access_modes().iter().all(|mode| volume.access_modes().contains(mode))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use setpoint::Object;

    use super::*;

    fn merged(mut base: Value, over: Value) -> Value {
        match (&mut base, over) {
            (Value::Object(base), Value::Object(over)) => {
                for (key, value) in over {
                    let old = base.remove(&key).unwrap_or(Value::Null);
                    base.insert(key, merged(old, value));
                }
            }
            (base, over) => *base = over,
        }
        base
    }

    fn claim(over: Value) -> Cached<Claim> {
        let base = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}}});
        Cached::new(Object::from_json(merged(base, over).to_string().into()).expect("a claim"))
            .expect("a claim")
    }

    fn volume(name: &str, over: Value) -> Cached<Volume> {
        let base = json!({"metadata": {"name": name}, "status": {"phase": "Available"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "s", "capacity": {"storage": "1Gi"}}});
        let object = Object::from_json(merged(base, over).to_string().into()).expect("a volume");
        Cached::new(object).expect("a volume")
    }

    fn sized(name: &str, size: &str) -> Cached<Volume> {
        volume(name, json!({"spec": {"capacity": {"storage": size}}}))
    }

    #[track_caller]
    fn check(claim: &Cached<Claim>, volumes: &[Cached<Volume>], expected: Option<&str>) {
        let found = best(claim, volumes, false).map(|volume| volume.key().name().to_owned());
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn the_smallest_volume_that_is_large_enough_is_chosen() {
        let volumes = [sized("a", "5Gi"), sized("b", "1Gi"), sized("c", "512Mi"), sized("d", "2Gi")];
        check(&claim(json!({})), &volumes, Some("b"));
        check(
            &claim(json!({"spec": {"resources": {"requests": {"storage": "1500Mi"}}}})),
            &volumes,
            Some("d"),
        );
        check(&claim(json!({"spec": {"resources": {"requests": {"storage": "6Gi"}}}})), &volumes, None);
    }

    #[test]
    fn a_volume_that_differs_in_a_required_field_does_not_match() {
        let none = |over: Value| check(&claim(json!({})), &[volume("v", over)], None);
        none(json!({"spec": {"storageClassName": "t"}}));
        none(json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "t"}}}));
        none(json!({"spec": {"accessModes": ["ReadOnlyMany"]}}));
        none(json!({"spec": {"volumeMode": "Block"}}));
        none(json!({"spec": {"volumeAttributesClassName": "fast"}}));
        none(json!({"status": {"phase": "Released"}}));
        none(json!({"status": {"phase": "Pending"}}));
        none(json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}}));
        none(json!({"spec": {"claimRef": {"namespace": "ns", "name": "other"}}}));
        none(json!({"spec": {"claimRef": {"namespace": "ns", "name": "c", "uid": "old"}}}));
        check(&claim(json!({})), &[volume("v", json!({"spec": {"volumeMode": "Filesystem"}}))], Some("v"));
        let selecting = claim(json!({"spec": {"selector": {"matchLabels": {"tier": "gold"}}}}));
        check(&selecting, &[volume("v", json!({}))], None);
        check(&selecting, &[volume("v", json!({"metadata": {"labels": {"tier": "gold"}}}))], Some("v"));
    }

    #[test]
    fn a_reserved_volume_matches_whatever_its_class_phase_and_labels() {
        let reserved = json!({"spec": {"storageClassName": "t", "capacity": {"storage": "9Gi"},
            "claimRef": {"namespace": "ns", "name": "c"}}, "status": {"phase": "Pending"}});
        check(&claim(json!({})), &[sized("a", "1Gi"), volume("v", reserved.clone())], Some("v"));
        assert!(best(&claim(json!({})), &[volume("v", reserved)], true).is_some());
        let small =
            json!({"spec": {"capacity": {"storage": "1Mi"}, "claimRef": {"namespace": "ns", "name": "c"}}});
        check(&claim(json!({})), &[volume("v", small)], None);
    }

    #[test]
    fn fewer_access_modes_come_first() {
        let many = volume("many", json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}));
        check(&claim(json!({})), &[many.clone(), sized("one", "9Gi")], Some("one"));
        check(
            &claim(json!({"spec": {"accessModes": ["ReadWriteMany"]}})),
            &[many, sized("one", "9Gi")],
            Some("many"),
        );
    }

    #[test]
    fn a_delayed_claim_is_left_to_the_scheduler() {
        assert!(best(&claim(json!({})), &[sized("a", "1Gi")], true).is_none());
    }

    #[test]
    fn on_a_node_only_accessible_volumes_match() {
        let volumes = [sized("a", "1Gi"), sized("b", "2Gi")];
        let find = |claim: &Cached<Claim>, volumes: &[Cached<Volume>], reached: &str| {
            let capacity =
                |volume: &Volume| volume.spec.capacity.clone().expect("a capacity")["storage"] == reached;
            best_on_node(claim, volumes.iter(), capacity).map(|volume| volume.key().name().to_owned())
        };
        assert_eq!(find(&claim(json!({})), &volumes, "2Gi").as_deref(), Some("b"));
        assert_eq!(find(&claim(json!({})), &volumes, "3Gi"), None);
        let reserved = volume("r", json!({"spec": {"claimRef": {"namespace": "ns", "name": "c"}}}));
        let volumes = [sized("a", "2Gi"), reserved];
        assert_eq!(find(&claim(json!({})), &volumes, "2Gi"), None, "the reserved one is out of reach");
        assert_eq!(find(&claim(json!({})), &volumes, "1Gi").as_deref(), Some("r"));
    }

    #[test]
    fn the_objections_to_a_named_volume_are_v134s() {
        let check = |over: Value, expected: Option<&str>| {
            assert_eq!(objection(&volume("v", over), &claim(json!({}))).as_deref(), expected);
        };
        check(json!({}), None);
        check(json!({"spec": {"capacity": {"storage": "1Mi"}}}), Some("requested PV is too small"));
        check(json!({"spec": {"storageClassName": ""}}), Some("storageClassName does not match"));
        check(json!({"spec": {"volumeMode": "Block"}}), Some("incompatible volumeMode"));
        check(json!({"spec": {"accessModes": ["ReadOnlyMany"]}}), Some("incompatible accessMode"));
        let deleted = json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}});
        check(deleted, Some("the volume is marked for deletion \"v\""));
    }
}
