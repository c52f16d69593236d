//! An object as the caches hold it: its encoded bytes and the few facts that indexes, selectors and
//! handlers need.
//!
//! A decoded `Pod` takes eight times the memory of its JSON, so nothing is decoded until somebody
//! asks, and then only the view that was asked for, once per change of the object. In one process
//! with the API server the bytes are the API server's own.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Key, View};

/// An object of any kind. Immutable and cheap to clone.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    key: Key,
    meta: Metadata,
    raw: Bytes,
    views: Views,
}

/// The facts of an object that every stage of the pipeline may need without decoding it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: Arc<str>,
    pub namespace: Option<Arc<str>>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub generation: i64,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub owner_references: Box<[OwnerRef]>,
    pub finalizers: Box<[Box<str>]>,
}

/// A reference from a dependent to its owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerRef {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

/// The bytes could not be read as what they were taken for.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot decode {what}")]
pub struct DecodeError {
    what: String,
    #[source]
    source: Arc<serde_json::Error>,
}

impl Object {
    /// Reads the metadata of an encoded object; the rest stays encoded.
    pub fn from_json(raw: Bytes) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Envelope {
            #[serde(default)]
            metadata: Metadata,
        }
        let Envelope { metadata } = serde_json::from_slice(&raw)
            .map_err(|source| DecodeError::new("the metadata of an object", source))?;
        Ok(Self::with_metadata(metadata, raw))
    }

    /// An object whose metadata is already known.
    pub fn with_metadata(meta: Metadata, raw: Bytes) -> Self {
        let key = match &meta.namespace {
            Some(namespace) => Key::namespaced(namespace.clone(), meta.name.clone()),
            None => Key::cluster(meta.name.clone()),
        };
        Self(Arc::new(Inner { key, meta, raw, views: Views::default() }))
    }

    pub fn key(&self) -> &Key {
        &self.0.key
    }

    pub fn meta(&self) -> &Metadata {
        &self.0.meta
    }

    /// The encoded object.
    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// The object through a view, decoded on first use and kept with the object from then on.
    pub fn view<V: View>(&self) -> Result<&V, DecodeError> {
        self.0.views.get_or_decode(|| self.decode())
    }

    /// The object as any type, decoded anew.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        serde_json::from_slice(&self.0.raw).map_err(|source| {
            DecodeError::new(format!("{} as {}", self.0.key, std::any::type_name::<T>()), source)
        })
    }

    /// Whether both are the same version of the same object.
    pub fn same_version(&self, other: &Self) -> bool {
        self.meta().uid == other.meta().uid && self.meta().resource_version == other.meta().resource_version
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} @{})", self.0.key, self.0.meta.resource_version)
    }
}

impl Metadata {
    /// The reference to the managing controller, if any.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| &*owner.uid == uid)
    }

    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// The version as a number, for telling which of two versions of one resource is newer.
    pub fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

impl DecodeError {
    fn new(what: impl Into<String>, source: serde_json::Error) -> Self {
        Self { what: what.into(), source: Arc::new(source) }
    }
}

/// The views decoded so far: an append-only list, since an object rarely has more than two or three.
#[derive(Default)]
struct Views {
    first: OnceLock<Box<Node>>,
}

struct Node {
    view: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Node>>,
}

impl Views {
    fn get_or_decode<V: View>(
        &self,
        decode: impl FnOnce() -> Result<V, DecodeError>,
    ) -> Result<&V, DecodeError> {
        let mut slot = &self.first;
        let mut decode = Some(decode);
        loop {
            let node = match slot.get() {
                Some(node) => node,
                None => {
                    let Some(decode) = decode.take() else {
                        unreachable!("a view is appended at most once a call")
                    };
                    let view = Box::new(decode()?);
                    // Another reader may fill the slot first, with this view or another one.
                    let mut appended = Some(Box::new(Node { view, next: OnceLock::new() }));
                    loop {
                        let node = slot.get_or_init(|| appended.take().expect("initialised at most once"));
                        if let Some(view) = node.view.downcast_ref() {
                            return Ok(view);
                        }
                        slot = &node.next;
                    }
                }
            };
            if let Some(view) = node.view.downcast_ref() {
                return Ok(view);
            }
            slot = &node.next;
        }
    }
}
