//! What identifies an object: its kind, its key, and the version it was read at.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::kind::Scope;
use crate::recorder::Reference;
use crate::{Cached, Key, Kind, Object, View};

/// The identity of an object at the time it was read.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::Identify;
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("settings".into());
/// map.metadata.namespace = Some("shop".into());
/// let identity = map.identity();
/// assert_eq!((identity.kind.kind(), identity.key.to_string().as_str()), ("ConfigMap", "shop/settings"));
/// assert!(identity.uid.is_empty(), "only the API server sets a uid");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kind.
    pub kind: Kind,
    /// The namespace and name.
    pub key: Key,
    /// The uid. Empty if the object was not read from the API server.
    pub uid: Box<str>,
    /// The resource version. Empty if the object was not read from the API server.
    pub resource_version: Box<str>,
}

/// A value that identifies an object: a [`Cached`] object, any typed resource, or an [`Object`] of a
/// [known kind](Object::of_kind).
///
/// ```
/// use setpoint::{Identify, Kind, Object};
/// let raw = r#"{"metadata": {"name": "big", "namespace": "shop", "uid": "7f3e", "resourceVersion": "9"}}"#;
/// let object = Object::from_json(raw.into()).unwrap();
/// let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
/// let dependent = object.of_kind(&widgets).owned("big-settings");
/// assert_eq!(dependent.namespace.as_deref(), Some("shop"));
/// assert_eq!(dependent.owner_references.unwrap()[0].uid, "7f3e");
/// ```
pub trait Identify {
    /// Returns the identity.
    fn identity(&self) -> Identity;

    /// Returns the metadata of a dependent: its name, this object's namespace, and an owner reference that makes this
    /// object its managing controller. The garbage collector deletes the dependent with this object.
    fn owned(&self, name: impl Into<String>) -> ObjectMeta
    where
        Self: Sized,
    {
        let owner = self.identity();
        ObjectMeta {
            name: Some(name.into()),
            namespace: owner.key.namespace().map(str::to_owned),
            owner_references: Some(vec![owner.controller_reference()]),
            ..ObjectMeta::default()
        }
    }
}

impl Identity {
    /// Returns the owner reference that makes this object the managing controller of another.
    pub fn controller_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.kind.api_version(),
            kind: self.kind.kind().to_owned(),
            name: self.key.name().to_owned(),
            uid: self.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Returns a reference for events about this object.
    pub(crate) fn reference(&self) -> Reference {
        Reference {
            kind: self.kind.kind().to_owned(),
            namespace: self.key.namespace().unwrap_or_default().to_owned(),
            name: self.key.name().to_owned(),
            uid: self.uid.to_string(),
            api_version: self.kind.api_version(),
            resource_version: self.resource_version.to_string(),
            field_path: String::new(),
        }
    }
}

impl<V: View> Identify for Cached<V> {
    fn identity(&self) -> Identity {
        identity_of(V::kind(), self.object())
    }
}

impl<K> Identify for K
where
    K: kube::Resource<DynamicType = ()>,
    K::Scope: Scope,
{
    fn identity(&self) -> Identity {
        let (group, version, kind) = (K::group(&()), K::version(&()), K::kind(&()));
        let kind = Kind::new(&group, &version, &kind, &K::plural(&()), K::Scope::NAMESPACED);
        let meta = self.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let text = |value: &Option<String>| value.as_deref().unwrap_or_default().into();
        Identity {
            key: Key::in_namespace(meta.namespace.as_deref().filter(|_| kind.namespaced()), name),
            uid: text(&meta.uid),
            resource_version: text(&meta.resource_version),
            kind,
        }
    }
}

/// An object of a kind that is known at run time. See [`Object::of_kind`].
///
/// ```
/// use setpoint::{Identify, Kind, Object};
/// let object = Object::from_json(r#"{"metadata": {"name": "node-1"}}"#.into()).unwrap();
/// let nodes = Kind::new("", "v1", "Node", "nodes", false);
/// assert_eq!(object.of_kind(&nodes).identity().kind, nodes);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OfKind<'a> {
    object: &'a Object,
    kind: &'a Kind,
}

impl Object {
    /// Adds the kind, which the object itself does not contain, for writes and events that need it.
    pub fn of_kind<'a>(&'a self, kind: &'a Kind) -> OfKind<'a> {
        OfKind { object: self, kind }
    }
}

impl Identify for OfKind<'_> {
    fn identity(&self) -> Identity {
        identity_of(self.kind.clone(), self.object)
    }
}

fn identity_of(kind: Kind, object: &Object) -> Identity {
    let meta = object.meta();
    Identity {
        kind,
        key: object.key().clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}
