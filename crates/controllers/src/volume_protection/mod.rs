//! Protection of claims, volumes and VolumeAttributesClasses that are in use.
//!
//! Owns: the finalizers `kubernetes.io/pvc-protection`, `kubernetes.io/pv-protection` and
//! `kubernetes.io/vac-protection`.
//! Watches: claims, volumes, attributes classes, pods.
//! Writes: the finalizers of claims, volumes and attributes classes.
//!
//! ```text
//!  claims.rs    protected while a pod on a node uses it
//!  volumes.rs   protected while it is bound
//!  classes.rs   protected while a claim or volume uses it
//! ```
//!
//! Invariant: the finalizer is always set, and only removed from an object that is being deleted and not in use.

pub(crate) mod claims;
pub(crate) mod classes;
pub(crate) mod volumes;

use setpoint::client::{Optional, Subresource};
use setpoint::finalizer::{FinalizerAction, finalizer_action};
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Event, Kind, Object, Outcome, ReconcileError, UpdateBody};

/// Whether an object's finalizer needs a change, provided that the object is not in use.
fn is_due(object: &Object, finalizer: &str) -> bool {
    matches!(finalizer_action(object.meta(), finalizer), FinalizerAction::Ensure | FinalizerAction::CleanUp)
}

/// Whether an event concerns an object whose finalizer needs a change.
fn concerns(event: &Event, finalizer: &str) -> bool {
    !matches!(event, Event::Deleted { .. }) && is_due(event.object(), finalizer)
}

/// Returns the new finalizers of an object, or `None` if nothing changes. `in_use` is only called if needed.
fn change(object: &Object, finalizer: &str, in_use: impl FnOnce() -> bool) -> Option<Vec<String>> {
    let all = object.meta().finalizers.iter().map(ToString::to_string);
    match finalizer_action(object.meta(), finalizer) {
        FinalizerAction::Ensure => Some(all.chain([finalizer.to_owned()]).collect()),
        FinalizerAction::CleanUp if !in_use() => Some(all.filter(|name| name != finalizer).collect()),
        _ => None,
    }
}

/// Writes the finalizers, if they change. Uses an update, since the roles of these controllers allow no patch.
async fn make(
    client: &Client,
    kind: &Kind,
    object: &Object,
    finalizers: Option<Vec<String>>,
) -> Result<Outcome, ReconcileError> {
    if let Some(finalizers) = finalizers {
        let edit = UpdateBody::of(object).set(&["metadata", "finalizers"], &finalizers);
        let updated = client.update(kind, object.key(), Subresource::None, &edit).await.optional();
        updated.attempting(format!("update the finalizers of {} {}", kind.kind(), object.key()))?;
    }
    Ok(Outcome::Settled)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_finalizer_is_added_at_once_and_removed_with_the_last_user() {
        let check = |finalizers: Value, deleted: Value, in_use: bool, expected: Option<Value>| {
            let object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1",
                "finalizers": finalizers, "deletionTimestamp": deleted}});
            let object = Object::from_json(object.to_string().into()).expect("an object");
            assert_eq!(change(&object, "p", || in_use).map(|finalizers| json!(finalizers)), expected);
        };
        let going = || json!("2025-01-01T00:00:00Z");
        check(json!([]), Value::Null, true, Some(json!(["p"])));
        check(json!(["x"]), Value::Null, false, Some(json!(["x", "p"])));
        check(json!(["p"]), Value::Null, false, None);
        check(json!(["p"]), going(), true, None);
        check(json!(["p", "x"]), going(), false, Some(json!(["x"])));
        check(json!(["p"]), going(), false, Some(json!([])));
        check(json!(["x"]), going(), false, None);
    }
}
