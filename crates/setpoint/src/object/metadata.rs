//! Object metadata that every stage may need without decoding the object.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::Labels;

/// The metadata of an object: identity, version, labels, owners and deletion state.
///
/// Annotations are not included, because they can be large. Read them through a view.
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
    /// The name.
    pub name: Arc<str>,
    /// The namespace, or `None` for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// The unique ID, which distinguishes it from earlier and later objects of the same name.
    pub uid: Box<str>,
    /// Changes with every write. Updates carry it as their precondition.
    pub resource_version: Box<str>,
    /// Changes with every write to the spec.
    pub generation: i64,
    /// The creation time.
    pub creation_timestamp: Option<Timestamp>,
    /// When the object is due to be removed. Set as soon as its deletion is requested.
    pub deletion_timestamp: Option<Timestamp>,
    /// The grace period of a deletion.
    pub deletion_grace_period_seconds: Option<i64>,
    /// The labels.
    #[serde(deserialize_with = "null_is_empty")]
    pub labels: Labels,
    /// The owners. The garbage collector deletes the object once none of them exists.
    #[serde(deserialize_with = "null_is_empty")]
    pub owner_references: Arc<[OwnerRef]>,
    /// The finalizers that have to be removed before the object is.
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
    /// The owner's `apiVersion`.
    pub api_version: Box<str>,
    /// The owner's kind.
    pub kind: Box<str>,
    /// The owner's name.
    pub name: Box<str>,
    /// The owner's uid.
    pub uid: Box<str>,
    /// Whether the owner is the managing controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether a foreground deletion of the owner waits until the dependent is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Metadata {
    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Returns the reference to the managing controller, if there is one.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    /// Returns whether the object with this uid is the managing controller.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| &*owner.uid == uid)
    }

    /// Shares equal values with another object's metadata, so that there is one copy. The pods of a set have the same
    /// labels and owners, some 300 bytes each.
    pub(super) fn share(&mut self, other: &Self) {
        share(&mut self.namespace, &other.namespace);
        share(&mut self.labels, &other.labels);
        share(&mut self.owner_references, &other.owner_references);
    }

    /// Returns whether a deletion has been requested and waits for finalizers or a grace period.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns whether the object has this finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|present| &**present == finalizer)
    }

    /// Returns the resource version as a number, to compare versions of the same resource.
    pub fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

impl OwnerRef {
    /// Returns the owner's API group. Empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

fn share<T: Clone + PartialEq>(mine: &mut T, theirs: &T) {
    if mine == theirs {
        mine.clone_from(theirs);
    }
}

/// Deserializes `null`, which some encoders write for empty values, as the default. For fields of a
/// [`View`](crate::View).
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
