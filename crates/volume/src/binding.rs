//! The writes of a binding. Pure.
//!
//! ```text
//!  volume: its claim ─► volume: phase Bound ─► claim: its volume ─► claim: phase Bound
//! ```
//!
//! The volume is written first, so that no other claim gets it. Invariant: each step is skipped if it is already done,
//! so a partial binding can be completed by anyone.

use serde_json::{Map, Value, json};
use setpoint::{Cached, Kind, UpdateBody};

use crate::{BIND_COMPLETED, BOUND_BY_CONTROLLER, Claim, Volume, storage};

/// The volume annotation with the claim's capacity before a resize.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// Returns the volume bound to this claim, or `None` if it is already.
pub fn volume_bound_to<'a>(volume: &'a Cached<Volume>, claim: &Cached<Claim>) -> Option<UpdateBody<'a>> {
    let reference = volume.spec.claim_ref.as_ref();
    let bound = reference.is_some_and(|one| one.names(claim.key()) && one.uid == claim.meta().uid);
    let mark = !volume.is_for(claim) && !volume.metadata.has(BOUND_BY_CONTROLLER);
    if bound && !mark {
        return None;
    }
    let mut edit = UpdateBody::of(volume.object());
    if !bound {
        edit = edit.set(&["spec", "claimRef"], &reference_to(claim));
    }
    if mark {
        edit = edit.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], &"yes");
    }
    Some(edit)
}

/// Returns a volume's reference to its claim.
pub fn reference_to(claim: &Cached<Claim>) -> Value {
    let kind = Kind::of::<Claim>();
    json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(), "namespace": claim.key().namespace(),
        "name": claim.key().name(), "uid": claim.meta().uid, "resourceVersion": claim.meta().resource_version,
    })
}

/// Returns the volume unbound: still reserved if the user reserved it, otherwise available to all.
pub fn unbound_volume(volume: &Cached<Volume>) -> UpdateBody<'_> {
    let edit = UpdateBody::of(volume.object());
    if volume.metadata.has(BOUND_BY_CONTROLLER) {
        let edit = edit.remove(&["spec", "claimRef"]);
        let only = volume.metadata.annotations.as_ref().is_some_and(|all| all.len() == 1);
        let path: &[&str] = if only {
            &["metadata", "annotations"]
        } else {
            &["metadata", "annotations", BOUND_BY_CONTROLLER]
        };
        edit.remove(path)
    } else {
        edit.remove(&["spec", "claimRef", "uid"])
    }
}

/// Returns the volume in this phase, or `None` if it is already.
pub fn volume_in_phase<'a>(volume: &'a Cached<Volume>, phase: &str, message: &str) -> Option<UpdateBody<'a>> {
    if &*volume.status.phase == phase {
        return None;
    }
    let edit = UpdateBody::of(volume.object()).set(&["status", "phase"], &phase);
    Some(match message {
        "" => edit.remove(&["status", "message"]),
        message => edit.set(&["status", "message"], &message),
    })
}

/// Returns the claim bound to this volume, or `None` if it is already.
pub fn claim_with<'a>(claim: &'a Cached<Claim>, volume: &Cached<Volume>) -> Option<UpdateBody<'a>> {
    let named = &*claim.spec.volume_name == volume.key().name();
    if named && claim.was_bound() {
        return None;
    }
    let mut edit = UpdateBody::of(claim.object());
    if !named {
        edit = edit.set(&["spec", "volumeName"], &volume.key().name());
        if !claim.metadata.has(BOUND_BY_CONTROLLER) {
            edit = edit.set(&["metadata", "annotations", BOUND_BY_CONTROLLER], &"yes");
        }
    }
    if !claim.was_bound() {
        edit = edit.set(&["metadata", "annotations", BIND_COMPLETED], &"yes");
    }
    Some(edit)
}

/// Returns the claim with the status for this volume, or `None` if nothing changes.
pub fn status_with<'a>(claim: &'a Cached<Claim>, volume: &Cached<Volume>) -> Option<UpdateBody<'a>> {
    let status = &claim.status;
    let mut changes = Map::new();
    if status.access_modes != volume.spec.access_modes {
        changes.insert("accessModes".into(), json!(volume.spec.access_modes));
    }
    // The status of a bound claim may differ from its volume on purpose, while its file system is being resized.
    if &*status.phase != "Bound" {
        changes.insert("phase".into(), json!("Bound"));
        changes.extend(capacity(claim, volume).map(|capacity| ("capacity".into(), capacity)));
        let (has, shall) =
            (&status.current_volume_attributes_class_name, &volume.spec.volume_attributes_class_name);
        if &*status.phase == "Pending" && has != shall {
            changes.insert("currentVolumeAttributesClassName".into(), json!(shall));
        }
    }
    (!changes.is_empty()).then(|| changed_status(claim, &changes))
}

/// Returns the capacity for the status of a claim that is being bound, or `None` if it is correct.
fn capacity(claim: &Claim, volume: &Volume) -> Option<Value> {
    let whole = volume.spec.capacity.as_ref()?;
    if let Some(before) = volume.metadata.get(PRE_RESIZE_CAPACITY) {
        let before = match setpoint_quantity::Quantity::parse(before) {
            Ok(_) => json!(before),
            Err(_) => whole.get("storage")?.clone(),
        };
        let mut recorded = claim.status.capacity.clone().unwrap_or_default();
        recorded.insert("storage".into(), before);
        return Some(json!(recorded));
    }
    let recorded = claim.status.capacity.as_ref().filter(|recorded| recorded.contains_key("storage"));
    let same = recorded.is_some_and(|recorded| storage(recorded) == storage(whole));
    (!same).then(|| json!(whole))
}

/// Returns the claim with the status for no volume, or `None` if nothing changes.
pub fn status_without<'a>(claim: &'a Cached<Claim>, phase: &str) -> Option<UpdateBody<'a>> {
    let status = &claim.status;
    let mut changes = Map::new();
    if &*status.phase != phase {
        changes.insert("phase".into(), json!(phase));
    }
    let mut reset = |field: &str, recorded: bool| {
        if recorded {
            changes.insert(field.into(), Value::Null);
        }
    };
    reset("accessModes", status.access_modes.is_some());
    reset("capacity", status.capacity.is_some());
    reset("currentVolumeAttributesClassName", status.current_volume_attributes_class_name.is_some());
    (!changes.is_empty()).then(|| changed_status(claim, &changes))
}

/// Returns the claim with some status fields replaced; `null` removes one.
fn changed_status<'a>(claim: &'a Cached<Claim>, changes: &Map<String, Value>) -> UpdateBody<'a> {
    changes.iter().fold(UpdateBody::of(claim.object()), |edit, (field, value)| match value {
        Value::Null => edit.remove(&["status", field]),
        value => edit.set(&["status", field], value),
    })
}

#[cfg(test)]
mod tests {
    use setpoint::Object;

    use super::*;

    fn cached<V: setpoint::View>(value: Value) -> Cached<V> {
        Cached::new(Object::from_json(value.to_string().into()).expect("an object")).expect("an object")
    }

    fn claim(status: Value) -> Cached<Claim> {
        cached(json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {}, "status": status}))
    }

    fn volume(metadata: Value, claim_ref: Value) -> Cached<Volume> {
        let mut metadata = metadata;
        metadata["name"] = json!("v");
        cached(json!({"metadata": metadata, "status": {"phase": "Available"}, "spec": {"claimRef": claim_ref,
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}))
    }

    fn value(edit: Option<UpdateBody<'_>>) -> Option<Value> {
        edit.map(|edit| serde_json::to_value(edit).expect("an edit of JSON"))
    }

    #[test]
    fn a_volume_is_marked_unless_the_user_reserved_it() {
        let claim = claim(json!({}));
        let free = volume(json!({}), Value::Null);
        let bound = value(volume_bound_to(&free, &claim)).expect("a change");
        assert_eq!(bound["metadata"]["annotations"], json!({BOUND_BY_CONTROLLER: "yes"}));
        assert_eq!(bound["spec"]["claimRef"], reference_to(&claim));
        assert!(volume_bound_to(&cached(bound), &claim).is_none(), "once is enough");
        let reserved = volume(json!({}), json!({"namespace": "ns", "name": "c"}));
        let bound = value(volume_bound_to(&reserved, &claim)).expect("a change");
        assert_eq!(bound["metadata"], json!({"name": "v"}));
        assert_eq!(bound["spec"]["claimRef"]["uid"], "u");
    }

    #[test]
    fn an_unbound_volume_keeps_the_reservation_of_its_user() {
        let reserved = volume(json!({}), json!({"namespace": "ns", "name": "c", "uid": "u"}));
        let unbound = value(Some(unbound_volume(&reserved))).expect("a change");
        assert_eq!(unbound["spec"]["claimRef"], json!({"namespace": "ns", "name": "c"}));
        let ours = volume(json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}}), json!({"name": "c"}));
        let unbound = value(Some(unbound_volume(&ours))).expect("a change");
        assert_eq!(
            (&unbound["metadata"], &unbound["spec"]["claimRef"]),
            (&json!({"name": "v"}), &Value::Null)
        );
        let annotations = json!({"annotations": {BOUND_BY_CONTROLLER: "yes", "a": "b"}});
        let unbound =
            value(Some(unbound_volume(&volume(annotations, json!({"name": "c"}))))).expect("a change");
        assert_eq!(unbound["metadata"]["annotations"], json!({"a": "b"}));
    }

    #[test]
    fn a_bound_claim_reports_the_capacity_and_access_modes_of_its_volume() {
        let volume = volume(json!({}), Value::Null);
        let pending = claim(json!({"phase": "Pending"}));
        let expected =
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        assert_eq!(value(status_with(&pending, &volume)).expect("a change")["status"], expected);
        assert!(status_with(&claim(expected), &volume).is_none());
        let smaller =
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}});
        assert!(status_with(&claim(smaller), &volume).is_none(), "its file system may have to grow yet");
    }

    #[test]
    fn an_unbound_claim_has_no_volume_fields() {
        let recorded =
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        let lost = value(status_without(&claim(recorded), "Lost")).expect("a change");
        assert_eq!(lost["status"], json!({"phase": "Lost"}));
        assert!(status_without(&claim(json!({"phase": "Pending"})), "Pending").is_none());
    }
}
