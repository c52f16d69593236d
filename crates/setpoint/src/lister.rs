//! Reading a cache.

use std::marker::PhantomData;
use std::ops::Deref;

use crate::object::DecodeError;
use crate::{Key, Metadata, Object, View};

/// Reads the objects of a kind from the shared cache, through a view. Cheap to clone.
pub struct Lister<V> {
    _view: PhantomData<fn() -> V>,
}

impl<V> Clone for Lister<V> {
    fn clone(&self) -> Self {
        todo!()
    }
}

/// An object that has been decoded through a view. Cheap to clone.
pub struct Cached<V> {
    object: Object,
    _view: PhantomData<fn() -> V>,
}

impl<V: View> Lister<V> {
    pub fn get(&self, key: &Key) -> Result<Option<Cached<V>>, DecodeError> {
        let _ = key;
        todo!()
    }

    /// All objects, or those of a namespace, in key order.
    pub fn list(&self, namespace: Option<&str>) -> Result<Vec<Cached<V>>, DecodeError> {
        let _ = namespace;
        todo!()
    }

    /// The objects found under `value` in the index `name`, in key order.
    pub fn indexed(&self, name: &str, value: &str) -> Result<Vec<Cached<V>>, DecodeError> {
        let _ = (name, value);
        todo!()
    }
}

impl<V: View> Cached<V> {
    pub fn new(object: Object) -> Result<Self, DecodeError> {
        object.view::<V>()?;
        Ok(Self { object, _view: PhantomData })
    }

    pub fn object(&self) -> &Object {
        &self.object
    }

    pub fn key(&self) -> &Key {
        self.object.key()
    }

    pub fn meta(&self) -> &Metadata {
        self.object.meta()
    }
}

impl<V> Clone for Cached<V> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), _view: PhantomData }
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
