//! How objects of a kind are defaulted, prepared for storage, expired and deleted.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use crate::auth::User;
use crate::json::Json;
use crate::kind::Subresource;

/// The steps in an object's life. By default each does nothing.
pub trait Lifecycle: Send + Sync + 'static {
    /// Sets default values, as v1.34's defaulting functions do. Idempotent.
    fn default(&self, object: &mut Value) {
        let _ = object;
    }

    /// Runs before validation of a create: drops what clients may not set.
    fn prepare_for_create(&self, object: &mut Value) {
        let _ = object;
    }

    /// Runs before validation of an update: restores what this endpoint does not change.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        let _ = (new, old);
    }

    /// Runs before validation of a status update: restores what that endpoint does not change.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let _ = (new, old);
    }

    /// Runs before validation of a subresource update (`status`, `finalize`, `ephemeralcontainers`, `resize`):
    /// restores what that endpoint does not change.
    fn prepare_for_subresource_update(&self, subresource: Subresource, new: &mut Value, old: &Value) {
        match subresource {
            Subresource::Status => self.prepare_for_status_update(new, old),
            _ => self.prepare_for_update(new, old),
        }
    }

    /// Records who made a change, and when, in kinds that track this. Runs after preparation.
    fn stamp(&self, object: &mut Value, old: Option<&Value>, user: &User, now: Timestamp) {
        let _ = (object, old, user, now);
    }

    /// Runs after validation, when the name is known: establishes the invariants of a stored object.
    fn canonicalize(&self, object: &mut Value) {
        let _ = object;
    }

    /// Returns the object for tracking field ownership, if it is more than what was sent and defaulted: v1.34 defaults
    /// some kinds before it updates managed fields.
    fn owned(&self, object: &Value) -> Option<Value> {
        let _ = object;
        None
    }

    /// Returns the fields that an endpoint restores after every write, if they differ from the usual ones. Field
    /// managers never own them there.
    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        let _ = subresource;
        None
    }

    /// Whether a change increments `metadata.generation`: by default any change outside metadata and status.
    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        let counted = |object: &Value, other: &Value| {
            let fields = object.as_object().into_iter().flatten();
            let mut fields = fields.filter(|(field, _)| !UNCOUNTED.contains(&field.as_str()));
            fields.any(|(field, value)| value != other.at(field))
        };
        counted(new, old) || counted(old, new)
    }

    /// Computes the objects of a virtual kind (in one namespace, or all) on request.
    fn computed<'a>(&'a self, namespace: Option<&'a str>) -> Option<BoxFuture<'a, Vec<Value>>> {
        let _ = namespace;
        None
    }

    /// Returns the lifetime of an object, for kinds that expire (Events: one hour).
    fn time_to_live(&self, object: &Value, now: Timestamp) -> Option<Duration> {
        let _ = (object, now);
        None
    }

    /// Returns the grace period in seconds, given the client's request: `Some` makes the deletion wait for the kubelet
    /// (pods), `None` removes the object immediately.
    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let _ = (object, requested);
        None
    }

    /// Marks an object at its first deletion if that takes more than a timestamp, and returns whether it does: such an
    /// object (a namespace) is removed only after its controller has released it.
    fn terminate(&self, object: &mut Value) -> bool {
        let _ = object;
        false
    }

    /// Whether something besides `metadata.finalizers` blocks the deletion (`spec.finalizers`).
    fn holds_deletion(&self, object: &Value) -> bool {
        let _ = object;
        false
    }

    /// Returns why the object with this name cannot be deleted, if the server depends on it.
    fn refuses_deletion(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }
}

/// Fields that never affect the generation.
const UNCOUNTED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
