//! The facts of an object that every stage may need without decoding it.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::Labels;

/// What the metadata of an object says about its identity, its version, its owners and its end.
///
/// Annotations are not among it: they can be large, and whoever needs them reads them through a view.
///
/// ```
/// let raw = br#"{"metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web"}}}"#;
/// let pod = setpoint::Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// assert_eq!(pod.meta().label("app"), Some("web"));
/// assert!(pod.meta().controller().is_none() && !pod.meta().is_being_deleted());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// What it is called in its namespace.
    pub name: Arc<str>,
    /// Where it lives; `None` for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// Tells it from others of its name, before and after it.
    pub uid: Box<str>,
    /// Changes with every write; what updates carry as their precondition.
    pub resource_version: Box<str>,
    /// Changes with every write to its spec.
    pub generation: i64,
    /// When it was created.
    pub creation_timestamp: Option<Timestamp>,
    /// From when on it is to be gone; set as soon as its deletion is asked for.
    pub deletion_timestamp: Option<Timestamp>,
    /// How long it may take to go.
    pub deletion_grace_period_seconds: Option<i64>,
    /// What selectors look at.
    #[serde(deserialize_with = "null_is_empty")]
    pub labels: Labels,
    /// Whose it is: without any of them it is collected.
    #[serde(deserialize_with = "null_is_empty")]
    pub owner_references: Arc<[OwnerRef]>,
    /// Who has to clean up before it goes.
    #[serde(deserialize_with = "null_is_empty")]
    pub finalizers: Box<[Box<str>]>,
}

/// A reference from a dependent to its owner.
///
/// ```
/// let json = r#"{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": true}"#;
/// let owner: setpoint::OwnerRef = serde_json::from_str(json).unwrap();
/// assert_eq!((owner.group(), owner.controller), ("apps", Some(true)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerRef {
    /// The owner's group and version.
    pub api_version: Box<str>,
    /// The owner's kind.
    pub kind: Box<str>,
    /// The owner's name.
    pub name: Box<str>,
    /// The owner itself, not another one of its name.
    pub uid: Box<str>,
    /// Whether it is the one that manages the dependent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner stays until the dependent is gone, when it is deleted in the foreground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Metadata {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// The reference to the managing controller, if any.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Whether the managing controller is the object of this uid.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| &*owner.uid == uid)
    }

    /// Has what reads the same in another object's metadata in common with it, so that there is one copy. The
    /// pods of a set have their labels and owners in common, some 300 bytes of each.
    pub(super) fn share(&mut self, other: &Self) {
        share(&mut self.namespace, &other.namespace);
        share(&mut self.labels, &other.labels);
        share(&mut self.owner_references, &other.owner_references);
    }

    /// Whether a deletion has been asked for and waits for finalizers or a grace period.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether the object waits for this finalizer before it may go.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| &**present == finalizer)
    }

    /// The version as a number, for telling which of two versions of one resource is newer.
    pub fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

impl OwnerRef {
    /// The API group of the owner's kind; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

fn share<T: Clone + PartialEq>(mine: &mut T, theirs: &T) {
    if mine == theirs {
        mine.clone_from(theirs);
    }
}

/// Reads `null`, which some encoders write for what is empty, as the default: for fields of a [`View`](crate::View).
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Spec {
///     #[serde(default, deserialize_with = "setpoint::null_is_empty")]
///     containers: Vec<String>,
/// }
/// let spec: Spec = serde_json::from_str(r#"{"containers": null}"#).unwrap();
/// assert!(spec.containers.is_empty());
/// ```
pub fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
