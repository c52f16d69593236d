//! The setup of a controller: its kinds, hooks and settings.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use setpoint::{Key, Kind, LabelSelector, Labels, Metadata, Object};

use crate::apply::ApplyMode;
use crate::call::Caller;
use crate::model::{Method, UpdateStrategy};
use crate::wire::Shape;

/// A parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParentKey {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
}

impl fmt::Display for ParentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind(), self.key)
    }
}

pub(crate) struct Setup {
    pub(crate) shape: Shape,
    /// The name of the CompositeController or DecoratorController.
    pub(crate) name: String,
    /// The controller, as sent to hooks.
    pub(crate) object: Value,
    pub(crate) parents: Vec<ParentKind>,
    pub(crate) children: Vec<ChildKind>,
    pub(crate) sync: Caller,
    pub(crate) finalize: Option<Caller>,
    pub(crate) customize: Option<Caller>,
    pub(crate) finalizer: String,
    pub(crate) resync: Option<Duration>,
    pub(crate) generate_selector: bool,
    /// The fields of a parent that are part of a revision.
    pub(crate) field_paths: Vec<String>,
    pub(crate) apply: ApplyMode,
    /// The field manager of server-side applies.
    pub(crate) field_manager: String,
}

/// A kind of parents, and a selector.
pub(crate) struct ParentKind {
    pub(crate) kind: Kind,
    pub(crate) labels: Option<LabelSelector>,
    pub(crate) annotations: Option<LabelSelector>,
    pub(crate) ignores_status: bool,
}

pub(crate) struct ChildKind {
    pub(crate) kind: Kind,
    pub(crate) strategy: UpdateStrategy,
}

impl Setup {
    pub(crate) fn parent_kind(&self, kind: &Kind) -> Option<&ParentKind> {
        self.parents.iter().find(|parent| parent.kind == *kind)
    }

    /// Returns the declared child kind of an object.
    pub(crate) fn child_kind(&self, child: &Value) -> Option<&Kind> {
        let text = |field: &str| child[field].as_str().unwrap_or_default();
        let named = |declared: &&ChildKind| declared.kind.is_named(text("apiVersion"), text("kind"));
        self.children.iter().find(named).map(|declared| &declared.kind)
    }

    pub(crate) fn strategy(&self, kind: &Kind) -> UpdateStrategy {
        let declared = self.children.iter().find(|declared| declared.kind == *kind);
        declared.map(|declared| declared.strategy.clone()).unwrap_or_default()
    }

    pub(crate) fn method(&self, kind: &Kind) -> Method {
        let declared = self.children.iter().find(|declared| declared.kind == *kind);
        declared.map(|declared| declared.strategy.method).unwrap_or_default()
    }

    pub(crate) fn is_rolling(&self) -> bool {
        self.children.iter().any(|declared| declared.strategy.method.is_rolling())
    }

    /// Whether a parent is selected.
    pub(crate) fn selects(&self, kind: &Kind, parent: &Object) -> bool {
        self.parent_kind(kind).is_some_and(|known| known.selects(parent))
    }

    /// Whether a parent is selected, or was and has not been finalized.
    pub(crate) fn concerns(&self, kind: &Kind, parent: &Object) -> bool {
        self.has_finalizer(parent.meta()) || self.selects(kind, parent)
    }

    pub(crate) fn has_finalizer(&self, parent: &Metadata) -> bool {
        parent.has_finalizer(&self.finalizer)
    }

    /// Whether children are managed while the parent is being deleted. Not if the garbage collector deletes or orphans
    /// them first.
    pub(crate) fn manages_while_deleted(&self, parent: &Metadata) -> bool {
        let is_collected = ["foregroundDeletion", "orphan"].iter().any(|name| parent.has_finalizer(name));
        self.finalize.is_some() && self.has_finalizer(parent) && !is_collected
    }
}

impl ParentKind {
    fn selects(&self, parent: &Object) -> bool {
        let by_labels = self.labels.as_ref().is_none_or(|selector| selector.matches(&parent.meta().labels));
        by_labels && self.annotations.as_ref().is_none_or(|selector| selector.matches(&annotations(parent)))
    }
}

/// Returns the annotations of an object, which are not part of the cached metadata.
pub(crate) fn annotations(object: &Object) -> Labels {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Annotated {
        metadata: Inner,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Inner {
        #[serde(deserialize_with = "setpoint::null_is_empty")]
        annotations: Labels,
    }
    object.decode::<Annotated>().unwrap_or_default().metadata.annotations
}

/// Returns an object with its kind, and without managed fields.
pub(crate) fn full(kind: &Kind, object: &Object) -> Value {
    let mut value: Value = object.decode().unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".into(), kind.api_version().into());
        fields.insert("kind".into(), kind.kind().into());
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value
}
