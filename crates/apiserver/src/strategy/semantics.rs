//! What is the same for every object of a kind, as data.

use serde_json::Value;

use crate::json::{Json, JsonMut};
use crate::kind::Subresource;

/// The constants of a kind; the default is a ConfigMap's.
#[derive(Clone, Copy)]
pub struct Semantics {
    /// Which names are allowed.
    pub names: NameRule,
    /// Whether an object without a name gets a generated one.
    pub generates_names: bool,
    /// Whether `metadata.generation` starts at 1 and counts changes. The server leaves the generation of
    /// other kinds as it is.
    pub counts_generations: bool,
    /// Whether an update of an absent object creates it.
    pub create_on_update: bool,
    /// Whether an update may leave out the resource version.
    pub unconditional_update: bool,
    /// The status, if it is written through an endpoint of its own.
    pub status: Option<StatusEndpoint>,
    /// What a create does: most kinds store an object.
    pub creation: Creation,
    pub deletion: Deletion,
    /// Whether objects of this kind define kinds.
    pub defines_kinds: bool,
}

impl Default for Semantics {
    fn default() -> Self {
        Self {
            names: NameRule::Subdomain,
            generates_names: false,
            counts_generations: true,
            create_on_update: false,
            unconditional_update: true,
            status: None,
            creation: Creation::Object,
            deletion: Deletion::default(),
            defines_kinds: false,
        }
    }
}

impl Semantics {
    /// A kind with a spec and a status, which starts like this and is written at its own endpoint.
    pub fn with_status(initial: fn() -> Value) -> Self {
        Self {
            status: Some(StatusEndpoint { initial: Initial::Value(initial), kept: Kept::Spec }),
            ..Self::default()
        }
    }

    /// The same, with a status endpoint that changes nothing but the status.
    pub fn with_strict_status(initial: fn() -> Value) -> Self {
        Self {
            status: Some(StatusEndpoint { initial: Initial::Value(initial), kept: Kept::AllButStatus }),
            ..Self::default()
        }
    }

    /// Before a create: the status is the server's to start.
    pub fn prepare_for_create(&self, object: &mut Value) {
        if let Some(status) = &self.status {
            status.start(object);
        }
    }

    /// Before an update: each endpoint changes its own part. Endpoints other than these two are the business of
    /// the kinds that have them.
    pub fn prepare_for_update(&self, subresource: Option<Subresource>, new: &mut Value, old: &Value) {
        match (subresource, &self.status) {
            (None | Some(Subresource::Scale), Some(_)) => new.restore("status", old),
            (Some(Subresource::Status), Some(status)) => status.kept.restore(new, old),
            (Some(Subresource::Status), None) => Kept::AllButStatus.restore(new, old),
            _ => {}
        }
    }
}

/// A status that is written through an endpoint of its own.
#[derive(Clone, Copy)]
pub struct StatusEndpoint {
    /// The status of a new object.
    pub initial: Initial,
    /// What a write to the status leaves as it is.
    pub kept: Kept,
}

impl StatusEndpoint {
    /// Gives a new object its first status.
    pub fn start(&self, object: &mut Value) {
        match self.initial {
            Initial::Value(initial) => object.set("status", initial()),
            Initial::Absent => _ = object.unset("status"),
            Initial::AsSent => {}
        }
    }
}

/// The status of a new object.
#[derive(Clone, Copy)]
pub enum Initial {
    /// This, whatever the client sent.
    Value(fn() -> Value),
    /// None, whatever the client sent.
    Absent,
    /// What the client sent (nodes register with their status).
    AsSent,
}

/// What a write to the status leaves as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The spec; metadata may change along with the status.
    Spec,
    /// Every field but the status, and the metadata that users write.
    AllButStatus,
    /// Every field but the status, all metadata included.
    Everything,
}

impl Kept {
    pub fn restore(self, new: &mut Value, old: &Value) {
        match self {
            Self::Spec => new.restore("spec", old),
            Self::AllButStatus => restore_all_but_status(new, old),
            Self::Everything => {
                let status = new.unset("status");
                *new = old.clone();
                match status {
                    Some(status) => new.set("status", status),
                    None => _ = new.unset("status"),
                }
            }
        }
    }
}

/// Keeps everything as it is but the status and, of the metadata, what the server itself looks after.
fn restore_all_but_status(new: &mut Value, old: &Value) {
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

/// How a delete of this kind goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The propagation policy of a delete that does not name one.
    pub propagation: DefaultPropagation,
    /// The warning for clients that do not name a policy, where the default may surprise them.
    pub default_warning: Option<&'static str>,
    /// Whether the answer is the deleted object instead of a Status.
    pub returns_object: bool,
    /// Whether OpenAPI says so; for namespaces v1.34 does not.
    pub documents_object: bool,
    /// Whether admission sees the uid of the object as a precondition, as for namespaces and definitions of kinds.
    pub pins_uid: bool,
}

impl Default for Deletion {
    fn default() -> Self {
        Self {
            propagation: DefaultPropagation::Background,
            default_warning: None,
            returns_object: false,
            documents_object: false,
            pins_uid: false,
        }
    }
}

impl Deletion {
    /// A delete that answers with the deleted object.
    pub const RETURNS_OBJECT: Self = Self {
        propagation: DefaultPropagation::Background,
        default_warning: None,
        returns_object: true,
        documents_object: true,
        pins_uid: false,
    };
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

/// The propagation policy of a delete that does not name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultPropagation {
    Background,
    Orphan,
}
