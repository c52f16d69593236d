//! Constants of a kind, as data.

use serde_json::Value;

use crate::json::{Json, JsonMut};
use crate::kind::Subresource;

/// The constants of a kind; the default is a ConfigMap's.
#[derive(Clone, Copy)]
pub struct Semantics {
    /// Which names are valid.
    pub names: NameRule,
    /// Whether an object without a name gets a generated one.
    pub generates_names: bool,
    /// Whether `metadata.generation` starts at 1 and counts changes. The server leaves the generation of other kinds
    /// as it is.
    pub counts_generations: bool,
    /// Whether an update of a missing object creates it.
    pub create_on_update: bool,
    /// Whether an update may omit the resource version.
    pub unconditional_update: bool,
    /// The status subresource, if there is one.
    pub status: Option<StatusEndpoint>,
    /// The effect of a create: most kinds store an object.
    pub creation: Creation,
    pub deletion: Deletion,
    /// Whether objects of this kind define other kinds.
    pub defines_kinds: bool,
    /// Removes what is stored of an object and clients do not see, if there is anything.
    pub hides: Option<fn(&mut Value)>,
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
            hides: None,
        }
    }
}

impl Semantics {
    /// Returns the semantics of a kind with a spec and a status subresource, with this initial status.
    pub fn with_status(initial: fn() -> Value) -> Self {
        Self {
            status: Some(StatusEndpoint { initial: Initial::Value(initial), preserved: Preserved::Spec }),
            ..Self::default()
        }
    }

    /// Like [`with_status`](Self::with_status), but the status endpoint changes nothing but the status.
    pub fn with_strict_status(initial: fn() -> Value) -> Self {
        Self {
            status: Some(StatusEndpoint {
                initial: Initial::Value(initial),
                preserved: Preserved::AllButStatus,
            }),
            ..Self::default()
        }
    }

    /// Runs before a create: sets the initial status.
    pub fn prepare_for_create(&self, object: &mut Value) {
        if let Some(status) = &self.status {
            status.start(object);
        }
    }

    /// Runs before an update: restores the parts that this endpoint does not change. Subresources other than status
    /// are handled by their kinds.
    pub fn prepare_for_update(&self, subresource: Option<Subresource>, new: &mut Value, old: &Value) {
        match (subresource, &self.status) {
            (None | Some(Subresource::Scale), Some(_)) => new.restore("status", old),
            (Some(Subresource::Status), Some(status)) => status.preserved.restore(new, old),
            (Some(Subresource::Status), None) => Preserved::AllButStatus.restore(new, old),
            _ => {}
        }
    }
}

/// A status subresource.
#[derive(Clone, Copy)]
pub struct StatusEndpoint {
    /// The status of a new object.
    pub initial: Initial,
    /// The parts that a status write leaves unchanged.
    pub preserved: Preserved,
}

impl StatusEndpoint {
    /// Sets the initial status of a new object.
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
    /// This value, regardless of what the client sent.
    Value(fn() -> Value),
    /// None, regardless of what the client sent.
    Absent,
    /// What the client sent (nodes register with their status).
    AsSent,
}

/// The parts that a status write leaves unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preserved {
    /// The spec; metadata may change along with the status.
    Spec,
    /// All fields but the status, and user-writable metadata.
    AllButStatus,
    /// All fields but the status, including all metadata.
    Everything,
}

impl Preserved {
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

/// Restores everything but the status and server-managed metadata.
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

/// How objects of this kind are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The default propagation policy.
    pub propagation: DefaultPropagation,
    /// The warning for clients that specify no policy, if the default may surprise them.
    pub default_warning: Option<&'static str>,
    /// Whether the response is the deleted object instead of a Status.
    pub returns_object: bool,
    /// Whether OpenAPI documents that; for namespaces v1.34 does not.
    pub documents_object: bool,
    /// Whether admission sees the object's uid as a precondition, as for namespaces and CRDs.
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
    /// Responds with the deleted object.
    pub const RETURNS_OBJECT: Self = Self {
        propagation: DefaultPropagation::Background,
        default_warning: None,
        returns_object: true,
        documents_object: true,
        pins_uid: false,
    };
}

/// The effect of a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    /// Stores an object of the kind.
    Object,
    /// Assigns a pod to a node; stores nothing of its own.
    Binding,
    /// Evaluates a review; stores nothing.
    Review(ReviewKind),
}

/// The review APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    SelfSubject,
    Token,
    SelfSubjectAccess,
    SubjectAccess,
    /// The same in one namespace.
    LocalSubjectAccess,
    SelfSubjectRules,
}

/// The validation rule for a kind's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain (most kinds).
    Subdomain,
    /// A DNS label (namespaces).
    Label,
    /// An RFC 1035 label (services).
    Label1035,
    /// Any valid path segment (RBAC).
    PathSegment,
    /// An IP address in canonical form (IPAddresses).
    Address,
}

/// The default propagation policy of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultPropagation {
    Background,
    Orphan,
}
