//! What a kind does differently from every other: defaults, preparation, validation, deletion.
//!
//! Objects are JSON values that have already been checked against their schema, so a strategy may
//! rely on types (a list is a list) but not on presence. Every method is pure.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::Errors;

/// How a kind behaves. Every method has the behaviour of a plain kind (a ConfigMap) by default.
pub trait Strategy: Send + Sync + 'static {
    /// Fills in what the client left out, as v1.34's defaulting functions do. Idempotent.
    fn default(&self, object: &mut Value) {
        let _ = object;
    }

    /// Before validation of a create: drops what clients may not set (status).
    fn prepare_for_create(&self, object: &mut Value) {
        let _ = object;
    }

    /// What is wrong with a new object, beyond its metadata, which the server checks for every kind.
    fn validate(&self, object: &Value) -> Errors {
        let _ = object;
        Errors::default()
    }

    /// Before validation of an update: restores what this endpoint does not change (status).
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        let _ = (new, old);
    }

    /// What is wrong with a change; includes what [`validate`](Self::validate) finds where v1.34 does so.
    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = old;
        self.validate(new)
    }

    /// Before validation of a status update: restores everything but status (the server keeps metadata
    /// rules: labels, annotations and finalizers may not change here, managedFields may).
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let status = new.get_mut("status").map(Value::take);
        *new = old.clone();
        match (new.as_object_mut(), status) {
            (Some(object), Some(status)) => _ = object.insert("status".into(), status),
            (Some(object), None) => _ = object.remove("status"),
            (None, _) => {}
        }
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = (new, old);
        Errors::default()
    }

    /// Whether `metadata.generation` counts changes of the object outside metadata and status.
    fn counts_generations(&self) -> bool {
        true
    }

    /// Which names are allowed.
    fn names(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether an update of an absent object creates it.
    fn create_on_update(&self) -> bool {
        false
    }

    /// Whether an update may leave out the resource version.
    fn unconditional_update(&self) -> bool {
        true
    }

    /// How long a deletion waits for the object's own agent, given what the client asked for: `Some`
    /// seconds make the deletion graceful (pods), `None` removes at once.
    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let _ = (object, requested);
        None
    }

    /// The propagation policy of a delete that does not name one.
    fn default_propagation(&self) -> DefaultPropagation {
        DefaultPropagation::Background
    }

    /// Warnings for the client about a valid object.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let _ = (new, old);
        Vec::new()
    }

    /// How long an object lives, for kinds that expire (Events: one hour).
    fn time_to_live(&self, object: &Value, now: Timestamp) -> Option<std::time::Duration> {
        let _ = (object, now);
        None
    }
}

/// The rule that names of a kind follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain (most kinds).
    Subdomain,
    /// A DNS label (namespaces).
    Label,
    /// An RFC 1035 label (services).
    Label1035,
    /// Anything that fits one path segment (RBAC).
    PathSegment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultPropagation {
    Background,
    Orphan,
}
