//! A write that a controller intended, and the state that the cluster should show.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use setpoint::Instant;

use crate::fields::{Change, Comparison, Mismatch, are_equivalent};
use crate::target::Target;

/// The verb of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Creates an object.
    Create,
    /// Replaces an object or a subresource.
    Update,
    /// Changes some fields.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes the objects of a kind.
    DeleteCollection,
    /// Evicts a pod.
    Evict,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Evict => "evict",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A write that was not sent.
#[derive(Clone, Debug)]
pub(crate) struct Intention {
    pub(crate) controller: Arc<str>,
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    pub(crate) expected: Expected,
    /// The owner for which it was made.
    pub(crate) input: Option<Input>,
    pub(crate) at: Instant,
    /// When it was last intended.
    pub(crate) last: Instant,
    pub(crate) time: Timestamp,
    /// How often it was intended.
    pub(crate) count: u64,
    /// The difference that it was reported as.
    pub(crate) reported: Option<u64>,
    /// When its controller was first woken again since the write was last intended.
    pub(crate) challenged: Option<Instant>,
}

/// An owner at the time of the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) uid: String,
    pub(crate) generation: i64,
}

/// The state that the cluster should show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    /// An object with these fields.
    Created(Arc<Value>),
    /// These changes of an object.
    Changed { base: Base, changes: Vec<Change> },
    /// The object is gone, or terminating unless it has to be gone immediately.
    Gone { uid: String, at_once: bool },
    /// All objects are terminating.
    Emptied,
}

/// The object that a change started from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) is_being_deleted: bool,
}

/// The result of an intention.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Matched,
    /// Its input has changed since.
    Superseded,
    /// The cluster shows something else.
    Differs(Vec<Mismatch>),
    /// The cluster does not show it.
    NotDone,
}

impl Base {
    pub(crate) fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
            is_being_deleted: is_being_deleted(object),
        }
    }
}

impl Intention {
    /// Whether it replaces another one of the same controller, so that only the later one counts.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        let same_part = || self.target.subresource == other.target.subresource;
        let overlap = || match (&self.expected, &other.expected) {
            (Expected::Changed { changes, .. }, Expected::Changed { changes: others, .. }) => {
                changes.iter().any(|one| others.iter().any(|other| one.path.overlaps(&other.path)))
            }
            (mine, theirs) => std::mem::discriminant(mine) == std::mem::discriminant(theirs),
        };
        self.controller == other.controller && same_part() && overlap()
    }

    /// Whether it equals another one except for times. The times in a status change with every reconcile.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        match (&self.expected, &other.expected) {
            (Expected::Changed { base, changes }, Expected::Changed { base: other, changes: others }) => {
                let pairs = changes.iter().zip(others);
                base == other && changes.len() == others.len() && pairs.into_iter().all(|(a, b)| a.is_like(b))
            }
            (Expected::Created(object), Expected::Created(other)) => are_equivalent(object, other),
            (mine, theirs) => mine == theirs,
        }
    }

    /// Whether a live object shows it.
    pub(crate) fn is_matched_by(&self, live: &Value, comparison: Comparison) -> bool {
        match &self.expected {
            Expected::Created(object) => comparison.of_object(object, live).is_empty(),
            Expected::Changed { base, changes } => {
                uid(live) == base.uid && comparison.of_changes(changes, live).is_empty()
            }
            Expected::Gone { uid: gone, at_once } => {
                uid(live) != gone || (!at_once && is_being_deleted(live))
            }
            Expected::Emptied => false,
        }
    }

    /// Whether it is shown by the object's absence.
    pub(crate) fn is_matched_by_absence(&self) -> bool {
        match &self.expected {
            Expected::Created(_) => false,
            // Removing the last finalizer of an object that is being deleted removes it.
            Expected::Changed { base, .. } => base.is_being_deleted,
            Expected::Gone { .. } | Expected::Emptied => true,
        }
    }

    /// Evaluates the intention against the live object when its window has ended.
    pub(crate) fn evaluate(&self, live: Option<&Value>, comparison: Comparison) -> Verdict {
        let Some(live) = live else {
            return match (&self.expected, self.is_matched_by_absence()) {
                (_, true) => Verdict::Matched,
                (Expected::Created(_), _) => Verdict::NotDone,
                _ => Verdict::Superseded,
            };
        };
        if self.is_matched_by(live, comparison) {
            return Verdict::Matched;
        }
        match &self.expected {
            Expected::Created(object) => Verdict::Differs(comparison.of_object(object, live)),
            Expected::Changed { base, changes } => evaluate_changes(base, changes, live, comparison),
            Expected::Gone { .. } | Expected::Emptied => Verdict::NotDone,
        }
    }
}

fn evaluate_changes(base: &Base, changes: &[Change], live: &Value, comparison: Comparison) -> Verdict {
    let now = Base::of(live);
    if now != *base {
        return Verdict::Superseded;
    }
    // The controller saw that the field had changed, and would have changed it again.
    let mut differs = comparison.of_changes(changes, live);
    differs.retain(|one| !one.moved);
    match differs.is_empty() {
        true => Verdict::Superseded,
        false => Verdict::Differs(differs),
    }
}

pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub(crate) fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns the controller reference of an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == Value::Bool(true))
}
