//! Objects as the caches hold them: the encoded bytes, and the metadata that indexes, selectors and handlers need.
//!
//! A decoded `Pod` takes eight times the memory of its JSON. So only requested views are decoded, once per version of
//! the object. In the same process as the API server, the bytes are shared with it.

mod labels;
mod metadata;
mod strip;
mod views;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use self::views::Views;
use crate::{Key, View};

pub use self::labels::Labels;
pub use self::metadata::{Metadata, OwnerRef, null_is_empty};

/// An object of any kind. Immutable and cheap to clone.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// let raw = br#"{"metadata": {"name": "settings", "namespace": "shop"}, "data": {"colour": "red"}}"#;
/// let object = setpoint::Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// assert_eq!(object.key().to_string(), "shop/settings");
/// assert_eq!(object.view::<ConfigMap>().unwrap().data.as_ref().unwrap()["colour"], "red");
/// ```
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    key: Key,
    meta: Metadata,
    raw: Bytes,
    views: Views,
}

/// An error while decoding an object.
///
/// ```
/// let error = setpoint::Object::from_json(bytes::Bytes::from_static(b"[]")).unwrap_err();
/// assert_eq!(error.to_string(), "cannot decode the metadata of an object");
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot decode {what}")]
pub struct DecodeError {
    what: String,
    #[source]
    source: Arc<serde_json::Error>,
}

impl Object {
    /// Decodes the metadata of an encoded object. The rest stays encoded.
    pub fn from_json(raw: Bytes) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Envelope {
            metadata: Metadata,
        }
        let Envelope { metadata } = serde_json::from_slice(&raw)
            .map_err(|source| DecodeError::new("the metadata of an object", source))?;
        Ok(Self::with_metadata(metadata, raw))
    }

    /// Decodes an object that is part of a larger buffer, and keeps a copy without `metadata.managedFields`, which are
    /// often half of it.
    ///
    /// ```
    /// let raw = br#"{"metadata":{"name":"a","managedFields":[{"manager":"kubectl"}],"uid":"u"},"spec":{}}"#;
    /// let object = setpoint::Object::stripped(raw).unwrap();
    /// assert_eq!(object.raw(), &br#"{"metadata":{"name":"a","uid":"u"},"spec":{}}"#[..]);
    /// ```
    pub fn stripped(raw: &[u8]) -> Result<Self, DecodeError> {
        let (metadata, kept) = strip::read_and_strip(raw)
            .map_err(|source| DecodeError::new("the metadata of an object", source))?;
        Ok(Self::with_metadata(metadata, kept))
    }

    /// Creates an object whose metadata is already known.
    pub fn with_metadata(meta: Metadata, raw: Bytes) -> Self {
        let key = match &meta.namespace {
            Some(namespace) => Key::namespaced(namespace, &meta.name),
            None => Key::cluster(&meta.name),
        };
        Self(Arc::new(Inner { key, meta, raw, views: Views::default() }))
    }

    /// Converts the object into an opaque value that can be stored next to its bytes and shared.
    ///
    /// ```
    /// let raw = br#"{"metadata": {"name": "node-1"}}"#;
    /// let object = setpoint::Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
    /// let found = setpoint::Object::from_shared(object.to_shared()).unwrap();
    /// assert!(std::ptr::eq(found.meta(), object.meta()));
    /// ```
    pub fn to_shared(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    /// Recovers an object from [`to_shared`](Self::to_shared). Returns `None` if the value is something else.
    pub fn from_shared(shared: Arc<dyn Any + Send + Sync>) -> Option<Self> {
        shared.downcast().ok().map(Self)
    }

    /// Returns the object's key.
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// Shares equal metadata with another object, so that there is one copy. Does nothing if this object has been
    /// cloned.
    pub(crate) fn share(&mut self, other: &Self) {
        let Some(inner) = Arc::get_mut(&mut self.0) else { return };
        if inner.key == *other.key() {
            inner.key = other.key().clone();
        }
        inner.meta.share(other.meta());
    }

    /// Returns the object's metadata.
    pub fn meta(&self) -> &Metadata {
        &self.0.meta
    }

    /// Returns the encoded object.
    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// Returns whether the encoded object contains `text` anywhere. If a field's name is not in the text, the field is
    /// absent; this check costs a fraction of decoding a view. If it is, the field may be present.
    ///
    /// ```
    /// let raw = br#"{"metadata": {"name": "web"}, "spec": {"nodeName": "a"}}"#;
    /// let pod = setpoint::Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
    /// assert!(pod.contains_text("\"nodeName\"") && !pod.contains_text("\"resourceClaims\""));
    /// ```
    pub fn contains_text(&self, text: &str) -> bool {
        memchr::memmem::find(&self.0.raw, text.as_bytes()).is_some()
    }

    /// Returns a view of the object. It is decoded on first use and then kept with the object.
    pub fn view<V: View>(&self) -> Result<&V, DecodeError> {
        self.0.views.get_or_decode(|| self.decode())
    }

    /// Decodes the object as any type. The result is not cached.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        serde_json::from_slice(&self.0.raw).map_err(|source| {
            DecodeError::new(format!("{} as {}", self.0.key, std::any::type_name::<T>()), source)
        })
    }

    /// Returns whether both are the same version of the same object.
    pub fn same_version(&self, other: &Self) -> bool {
        self.meta().uid == other.meta().uid && self.meta().resource_version == other.meta().resource_version
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @{})", self.0.key, self.0.meta.resource_version)
    }
}

impl DecodeError {
    fn new(what: impl Into<String>, source: serde_json::Error) -> Self {
        Self { what: what.into(), source: Arc::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &'static str) -> Result<Object, DecodeError> {
        Object::from_json(Bytes::from_static(json.as_bytes()))
    }

    #[test]
    fn the_metadata_is_read_and_the_rest_is_skipped() {
        let object = read(
            r#"{"kind":"Pod","spec":{"containers":[{"name":"\u0041\"}"}]},"metadata":{
                "name":"web-1","namespace":"shop","uid":"u","resourceVersion":"17","generation":3,
                "creationTimestamp":"2025-01-02T03:04:05Z","deletionTimestamp":"2025-01-02T03:05:05.123456Z",
                "deletionGracePeriodSeconds":30,"labels":{"app":"w\u0065b"},"finalizers":["a/b"],
                "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"r","controller":true}],
                "managedFields":[{"manager":"x","fieldsV1":{"f:a":{}}}]},"status":{"x":[1,2,{"y":null}]}}"#,
        )
        .unwrap();
        let meta = object.meta();
        assert_eq!(object.key(), &Key::namespaced("shop", "web-1"));
        assert_eq!((&*meta.uid, meta.revision(), meta.generation), ("u", 17, 3));
        assert_eq!(meta.creation_timestamp.unwrap().to_string(), "2025-01-02T03:04:05Z");
        assert!(meta.is_being_deleted() && meta.has_finalizer("a/b") && !meta.has_finalizer("a"));
        assert_eq!(meta.label("app"), Some("web"));
        assert!(meta.is_controlled_by("r") && !meta.is_controlled_by("q"));
    }

    #[test]
    fn null_is_empty() {
        let object = read(
            r#"{"metadata":{"name":"a","namespace":null,"creationTimestamp":null,"labels":null,
                "ownerReferences":null,"finalizers":null}}"#,
        )
        .unwrap();
        assert_eq!(object.meta(), &Metadata { name: "a".into(), ..Metadata::default() });
    }

    #[test]
    fn values_that_are_not_objects_are_rejected() {
        for bad in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"metadata":{"name":"a"}"#,
            r#"{"metadata":{"name":"a"}} x"#,
            r#"{"metadata":7}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn equal_strings_are_shared() {
        let pod = |name: &str, app: &str| {
            let meta = serde_json::json!({
                "name": name, "namespace": "shop", "labels": {"app": app},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}],
            });
            Object::from_json(serde_json::json!({"metadata": meta}).to_string().into()).unwrap()
        };
        let labels = |pod: &Object| pod.meta().labels.iter().next().map(|(key, _)| key.as_ptr());
        let owners = |pod: &Object| pod.meta().owner_references.as_ptr();
        let (first, mut second, mut other) = (pod("a", "web"), pod("b", "web"), pod("c", "db"));
        second.share(&first);
        other.share(&first);
        assert_eq!((labels(&second), owners(&second)), (labels(&first), owners(&first)));
        assert_eq!((labels(&other) == labels(&first), owners(&other)), (false, owners(&first)));
        assert_eq!([&second, &other].map(|pod| pod.key().name()), ["b", "c"]);
        assert_eq!(other.meta().label("app"), Some("db"));
    }

    #[test]
    fn two_objects_of_one_name_are_not_the_same_version() {
        let [a, b] = ["u", "v"].map(|uid| {
            let meta = Metadata {
                name: "a".into(),
                uid: uid.into(),
                resource_version: "1".into(),
                ..Metadata::default()
            };
            Object::with_metadata(meta, Bytes::new())
        });
        assert!(a.same_version(&a.clone()) && !a.same_version(&b));
    }
}
