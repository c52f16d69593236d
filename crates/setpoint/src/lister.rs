//! Listers: typed, read-only access to a cache.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::indexer::Indexer;
use crate::object::DecodeError;
use crate::{Key, Metadata, Object, View};

/// Typed access to the objects of a kind in the shared cache, through a view. Cheap to clone.
///
/// An object that cannot be decoded is an error that names the object, and is never skipped: a controller that skipped
/// an object in a count would create it again.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::{Key, Lister, Object};
/// let raw = br#"{"metadata": {"name": "settings", "namespace": "shop"}, "data": {"colour": "red"}}"#;
/// let object = Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// let lister = Lister::<ConfigMap>::from_objects([object]);
/// let found = lister.get(&Key::namespaced("shop", "settings")).unwrap().unwrap();
/// assert_eq!(found.data.as_ref().unwrap()["colour"], "red");
/// assert_eq!(lister.list(Some("shop")).unwrap().len(), 1);
/// assert_eq!(lister.list(Some("other")).unwrap().len(), 0);
/// ```
pub struct Lister<V> {
    indexer: Arc<Indexer>,
    _view: PhantomData<fn() -> V>,
}

/// An object decoded through a view. Cheap to clone.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// let raw = br#"{"metadata": {"name": "settings"}, "immutable": true}"#;
/// let object = setpoint::Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// let cached = setpoint::Cached::<ConfigMap>::new(object).unwrap();
/// assert_eq!((cached.key().name(), cached.immutable), ("settings", Some(true)));
/// ```
pub struct Cached<V> {
    object: Object,
    _view: PhantomData<fn() -> V>,
}

/// An object that was decoded without caching the view.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::{Key, Lister, Object};
/// let raw = br#"{"metadata": {"name": "settings"}, "data": {"colour": "red"}}"#;
/// let object = Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// let lister = Lister::<ConfigMap>::from_objects([object]);
/// let found = lister.read(&Key::cluster("settings")).unwrap().unwrap();
/// assert_eq!(found.data.as_ref().unwrap()["colour"], "red");
/// ```
pub struct Decoded<V> {
    object: Object,
    view: V,
}

impl<V> Lister<V> {
    pub(crate) fn new(indexer: Arc<Indexer>) -> Self {
        Self { indexer, _view: PhantomData }
    }

    /// Creates a lister over a fixed set of objects, for tests.
    pub fn from_objects(objects: impl IntoIterator<Item = Object>) -> Self {
        Self::new(Arc::new(objects.into_iter().collect()))
    }

    /// Returns the underlying indexer: metadata and bytes, without a view.
    pub fn objects(&self) -> &Arc<Indexer> {
        &self.indexer
    }
}

impl<V: View> Lister<V> {
    /// Returns the object with this key.
    pub fn get(&self, key: &Key) -> Result<Option<Cached<V>>, DecodeError> {
        self.indexer.get(key).map(Cached::new).transpose()
    }

    /// Lists all objects, or those of a namespace, in key order.
    pub fn list(&self, namespace: Option<&str>) -> Result<Vec<Cached<V>>, DecodeError> {
        self.indexer.list(namespace).into_iter().map(Cached::new).collect()
    }

    /// Lists the objects under `value` in the index `name`, in key order.
    pub fn indexed(&self, name: &str, value: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        self.indexer.indexed(name, value).into_iter().map(Cached::new).collect()
    }

    /// Decodes the object with this key without caching the view. For large objects that are rarely read, cached views
    /// would cost more memory than the saved time is worth.
    pub fn read(&self, key: &Key) -> Result<Option<Decoded<V>>, DecodeError> {
        self.indexer.get(key).map(Decoded::new).transpose()
    }

    /// Decodes the objects under `value` in the index `name` without caching the views, in key order.
    pub fn read_indexed(&self, name: &str, value: &str) -> Result<Vec<Decoded<V>>, DecodeError> {
        self.indexer.indexed(name, value).into_iter().map(Decoded::new).collect()
    }
}

impl<V: View> Decoded<V> {
    /// Decodes an object through the view.
    pub fn new(object: Object) -> Result<Self, DecodeError> {
        Ok(Self { view: object.decode()?, object })
    }
}

impl<V> Decoded<V> {
    /// Returns the underlying object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the object's key.
    pub fn key(&self) -> &Key {
        self.object.key()
    }

    /// Returns the object's metadata.
    pub fn meta(&self) -> &Metadata {
        self.object.meta()
    }

    /// Returns the view.
    pub fn into_view(self) -> V {
        self.view
    }
}

impl<V: View> Cached<V> {
    /// Decodes an object through the view, unless it is already decoded.
    pub fn new(object: Object) -> Result<Self, DecodeError> {
        object.view::<V>()?;
        Ok(Self { object, _view: PhantomData })
    }

    /// Returns the underlying object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Returns the object's key.
    pub fn key(&self) -> &Key {
        self.object.key()
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// Returns the object's namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.key().namespace()
    }

    /// Returns the object's metadata.
    pub fn meta(&self) -> &Metadata {
        self.object.meta()
    }
}

impl<V> Clone for Lister<V> {
    fn clone(&self) -> Self {
        Self::new(self.indexer.clone())
    }
}

impl<V> Clone for Cached<V> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), _view: PhantomData }
    }
}

impl<V> Deref for Decoded<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.view
    }
}

impl<V: View> Deref for Cached<V> {
    type Target = V;

    fn deref(&self) -> &V {
        match self.object.view::<V>() {
            Ok(view) => view,
            Err(_) => unreachable!("decoded when it was made"),
        }
    }
}
