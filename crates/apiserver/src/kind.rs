//! An entry in the registry of kinds: everything the server needs to know about a kind.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::custom::Custom;
use crate::strategy::{Presentation, Semantics, Strategy};
use crate::table::Column;

/// A served kind. To add one, add an entry under [`crate::kinds`].
#[derive(Clone)]
pub struct Kind {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    pub verbs: Vec<Verb>,
    pub subresources: Vec<Subresource>,
    /// The store's resource: `pods`, `apps/replicasets`. Two kinds may share one (`events`).
    pub stored_as: String,
    /// Converts between this version and the stored one, if they differ.
    pub conversion: Option<Conversion>,
    /// The schema's name in the facts and in OpenAPI: `io.k8s.api.core.v1.Pod`.
    pub schema: String,
    /// Common properties of its objects.
    pub semantics: Semantics,
    /// How its objects are displayed.
    pub presentation: Presentation,
    /// How its objects are defaulted, prepared and validated.
    pub strategy: Arc<dyn Strategy>,
    pub columns: Vec<Column>,
    /// In addition to `metadata.name` and, for namespaced kinds, `metadata.namespace`.
    pub field_selectors: Vec<FieldSelector>,
    /// Set if the kind is deprecated.
    pub deprecation: Option<Deprecation>,
    /// The CRD's data for a custom kind; `None` for built-in ones.
    pub custom: Option<Arc<Custom>>,
}

/// The deprecation of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// The warning for clients that use it.
    pub warning: String,
    /// The release that removes it, such as `1.36`; empty if unknown.
    pub removed_release: &'static str,
}

impl Deprecation {
    pub fn new(warning: impl Into<String>) -> Self {
        Self { warning: warning.into(), removed_release: "" }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];
}

/// A subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    Status,
    /// `autoscaling/v1` Scale over `spec.replicas`, `status.replicas` and the selector.
    Scale,
    Binding,
    Eviction,
    /// Namespaces: `spec.finalizers`.
    Finalize,
    EphemeralContainers,
    Resize,
    /// Service accounts: token requests.
    Token,
    Attach,
    Exec,
    Log,
    PortForward,
    Proxy,
    /// Certificate signing requests: the conditions that approve or deny them.
    Approval,
}

impl Subresource {
    /// Whether this connects to the object rather than being part of it.
    pub const fn is_connection(self) -> bool {
        matches!(self, Self::Attach | Self::Exec | Self::Log | Self::PortForward | Self::Proxy)
    }
}

/// A field for field selectors: its path and its value.
#[derive(Clone, Copy)]
pub struct FieldSelector {
    pub path: &'static str,
    pub value: fn(&Value) -> String,
}

/// The conversion between two kinds of one stored resource (core and events.k8s.io Events).
#[derive(Clone, Copy)]
pub struct Conversion {
    pub to_stored: fn(&mut Value),
    pub from_stored: fn(&mut Value),
}

impl Kind {
    /// Returns the API version: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the group in `Invalid` errors: Events of both groups are one type.
    pub(crate) fn internal_group(&self) -> &str {
        if self.group == "events.k8s.io" { "" } else { &self.group }
    }

    /// Returns the Go type of its objects in v1.34's messages: `*core.Pod`.
    pub(crate) fn go_type(&self) -> String {
        if self.custom.is_some() {
            return "*unstructured.Unstructured".into();
        }
        let package = match self.group.as_str() {
            // Events of both groups are one type.
            "" | "events.k8s.io" => "core",
            group => group.split_once('.').map_or(group, |(first, _)| first),
        };
        format!("*{package}.{}", self.kind)
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }

    /// Returns the kind of its lists.
    pub fn list_kind(&self) -> Cow<'_, str> {
        match &self.custom {
            Some(custom) => custom.list_kind.as_str().into(),
            None => format!("{}List", self.kind).into(),
        }
    }

    /// Returns the index of a field in the kind's own field selectors.
    pub fn selectable(&self, path: &str) -> Option<usize> {
        match &self.custom {
            Some(custom) => custom.selectable.iter().position(|field| field.path == path),
            None => self.field_selectors.iter().position(|field| field.path == path),
        }
    }

    /// Returns the value of the field at an index from [`selectable`](Self::selectable).
    pub fn selected(&self, index: usize, object: &Value) -> String {
        match &self.custom {
            Some(custom) => custom.selectable.get(index).map(|field| field.value(object)).unwrap_or_default(),
            None => self.field_selectors.get(index).map(|field| (field.value)(object)).unwrap_or_default(),
        }
    }
}
