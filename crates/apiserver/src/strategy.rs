//! What a kind does differently from every other: defaults, preparation, validation, deletion.
//!
//! Objects are JSON values that have already been checked against their schema, so a strategy may
//! rely on types (a list is a list) but not on presence. They are in the version of the kind's entry,
//! whatever version they are stored in. Every method is pure.
//!
//! ```text
//!  create: default ─► prepare_for_create ─► stamp ─► name generated ─► validate ─► warnings ─► canonicalize ─► commit
//!  update: default ─► prepare_for_update ─► stamp ─► validate_update ─► warnings ─► canonicalize ─► commit
//!  status, finalize, ephemeralcontainers, resize: the same with prepare_for_subresource_update, …
//! ```

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use crate::auth::User;
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;

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

    /// Notes who made a change, and when, in kinds whose objects say so. Comes after preparation.
    fn stamp(&self, object: &mut Value, old: Option<&Value>, user: &User, now: Timestamp) {
        let _ = (object, old, user, now);
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

    /// Before validation of a status update: restores what that endpoint does not change.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        restore_all_but_status(new, old);
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let _ = (new, old);
        Errors::default()
    }

    /// Before validation of an update through an endpoint of its own (`status`, `finalize`,
    /// `ephemeralcontainers`, `resize`): restores what that endpoint does not change.
    fn prepare_for_subresource_update(&self, subresource: Subresource, new: &mut Value, old: &Value) {
        match subresource {
            Subresource::Status => self.prepare_for_status_update(new, old),
            _ => self.prepare_for_update(new, old),
        }
    }

    fn validate_subresource_update(&self, subresource: Subresource, new: &Value, old: &Value) -> Errors {
        match subresource {
            Subresource::Status => self.validate_status_update(new, old),
            _ => self.validate_update(new, old),
        }
    }

    /// What is wrong with a change at an endpoint. What was wrong already and stays so is let be, and told of in
    /// `warnings`.
    fn validate_change(
        &self,
        subresource: Option<Subresource>,
        new: &Value,
        old: &Value,
        warnings: &mut Vec<String>,
    ) -> Errors {
        let _ = warnings;
        match subresource {
            None | Some(Subresource::Scale) => self.validate_update(new, old),
            Some(subresource) => self.validate_subresource_update(subresource, new, old),
        }
    }

    /// The fields that an endpoint restores after every write, where they are not those that it restores for
    /// most kinds: nobody gets to own them there.
    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        let _ = subresource;
        None
    }

    /// After validation, when the name is known: what always holds of a stored object of this kind.
    fn canonicalize(&self, object: &mut Value) {
        let _ = object;
    }

    /// Whether `metadata.generation` starts at 1 and counts changes. The server leaves the generation of
    /// other kinds as it is.
    fn counts_generations(&self) -> bool {
        true
    }

    /// Whether a change counts in `metadata.generation`: by default any change outside metadata and status.
    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        let counted = |object: &Value, other: &Value| {
            let fields = object.as_object().into_iter().flatten();
            let mut fields = fields.filter(|(field, _)| !UNCOUNTED.contains(&field.as_str()));
            fields.any(|(field, value)| value != other.at(field))
        };
        counted(new, old) || counted(old, new)
    }

    /// Which names are allowed.
    fn names(&self) -> NameRule {
        NameRule::Subdomain
    }

    /// Whether an object that has no name gets one of its own.
    fn names_itself(&self) -> bool {
        false
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

    /// What those are told who delete without naming a policy, where that may surprise them.
    fn warning_of_default_propagation(&self) -> Option<&'static str> {
        None
    }

    /// The objects of a kind that has none stored, those of a namespace or all: they are made up when they are
    /// asked for.
    fn made_up<'a>(&'a self, _namespace: Option<&'a str>) -> Option<BoxFuture<'a, Vec<Value>>> {
        None
    }

    /// What a create of this kind does: most kinds store an object.
    fn creation(&self) -> Creation {
        Creation::Object
    }

    /// Marks an object at its first deletion where that takes more than a timestamp, and returns whether it
    /// does: such an object (a namespace) is not removed before an agent of its own has let go of it.
    fn terminate(&self, object: &mut Value) -> bool {
        let _ = object;
        false
    }

    /// Whether something beside `metadata.finalizers` holds a deleted object back (`spec.finalizers`).
    fn holds_deletion(&self, object: &Value) -> bool {
        let _ = object;
        false
    }

    /// Why an object of this name is never deleted by itself, for those that the server cannot do without.
    fn refuses_deletion(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// Whether objects of this kind define kinds.
    fn defines_kinds(&self) -> bool {
        false
    }

    /// Whether the answer to a deletion is the deleted object instead of a status.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// Whether clients are told so; of namespaces they are not.
    fn says_it_returns_deleted(&self) -> bool {
        self.returns_deleted()
    }

    /// What is said of a field that lists and watches cannot select by.
    fn refuses_field(&self, field: &str) -> String {
        format!("field label not supported: {field}")
    }

    /// Warnings for the client about a valid object.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let _ = (new, old);
        Vec::new()
    }

    /// What a table says of an object's row beside its cells (`conditions` of the row).
    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        let _ = object;
        Vec::new()
    }

    /// Where a table has an object's row: the lowest first, those of one rank by name.
    fn row_rank(&self, object: &Value) -> i64 {
        let _ = object;
        0
    }

    /// Whether tables have their rows in an order of the kind's own ([`row_rank`](Self::row_rank)).
    fn ranks_rows(&self) -> bool {
        false
    }

    /// How long an object lives, for kinds that expire (Events: one hour).
    fn time_to_live(&self, object: &Value, now: Timestamp) -> Option<std::time::Duration> {
        let _ = (object, now);
        None
    }
}

/// What never counts in a generation.
const UNCOUNTED: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// What most status endpoints do: keep everything as it is but the status, and of the metadata only what
/// the server itself looks after.
pub fn restore_all_but_status(new: &mut Value, old: &Value) {
    let fields: Vec<String> =
        [&*new, old].into_iter().filter_map(Value::as_object).flat_map(|map| map.keys().cloned()).collect();
    for field in fields.iter().filter(|field| !matches!(field.as_str(), "metadata" | "status")) {
        new.restore(field, old);
    }
    let metadata = new.object_mut("metadata");
    for field in [
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        metadata.restore(field, old.at("metadata"));
    }
}

/// What a create does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// Stores an object of the kind.
    Object,
    /// Assigns a pod to a node, and stores nothing of its own.
    Binding,
    /// Answers a question, and stores nothing.
    Answer(Question),
}

/// What clients ask about users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    WhoAmI,
    WhoseToken,
    MayI,
    MaySubject,
    /// The same in one namespace.
    MaySubjectHere,
    WhatMayI,
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
    /// An address, written in the standard way (IPAddresses).
    Address,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultPropagation {
    Background,
    Orphan,
}
