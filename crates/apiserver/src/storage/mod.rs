//! Objects as kube-apiserver stores them in etcd: their keys and bytes, so that each can replace the other.
//!
//! ```text
//!  built-in kinds    k8s\0 + protobuf, or JSON if asked to     /registry/deployments/NAMESPACE/NAME
//!  definitions       JSON, in apiextensions.k8s.io/v1beta1     /registry/apiextensions.k8s.io/…
//!  API services      JSON                                      /registry/apiregistration.k8s.io/…
//!  custom resources  JSON                                      /registry/GROUP/RESOURCE/[NAMESPACE/]NAME
//!  node ports        like built-in kinds                       /registry/ranges/servicenodeports
//!  API servers       Endpoints, like built-in kinds            /registry/masterleases/ADDRESS
//! ```
//!
//! The last two are not objects of the API: only the servers themselves use them.
//!
//! Invariants:
//! - An object is written in the version in which v1.34 stores its kind. Every form and version that v1.34 may have
//!   written is read.
//! - Managed fields are part of the stored object, and the revision is not.
//! - What cannot be read is an error that names the reason; it is never replaced by something else.

mod definition;
mod form;
mod range;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use setpoint_store::etcd::{Codec, Decoded};
use setpoint_store::{Key, Payload, Resource};

use crate::apply::ManagedFields;
use crate::codec::stored_custom;
use crate::json::Json;
use crate::kind::Kind;
use crate::registry::{Registry, UnknownSchema};
use crate::schema::protobuf::is_marked;

use self::form::Form;
pub(crate) use self::range::RangeAllocation;

/// The resource of the numbers in use. There is one: node ports.
pub(crate) const RANGES: &str = "ranges";
const NODE_PORTS: &str = "servicenodeports";
/// The resource of the addresses of API servers: an Endpoints object each, by address.
pub(crate) const MASTER_LEASES: &str = "masterleases";

/// Returns the key of the node ports in use.
pub(crate) fn node_ports() -> Key {
    Resource::new(RANGES).key(NODE_PORTS)
}

/// How objects of built-in kinds are stored (`--storage-media-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageMediaType {
    #[default]
    Protobuf,
    Json,
}

impl StorageMediaType {
    /// Parses the flag.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Reads and writes stored objects.
pub struct StorageCodec {
    forms: BTreeMap<Resource, Form>,
    /// The resources by their path, such as `services/specs/`.
    by_path: BTreeMap<String, Resource>,
    media_type: StorageMediaType,
}

impl StorageCodec {
    /// Creates a codec of these built-in kinds and of all custom ones.
    pub fn new(
        kinds: impl IntoIterator<Item = Kind>,
        media_type: StorageMediaType,
    ) -> Result<Self, UnknownSchema> {
        let registry = Registry::new(kinds)?;
        let mut forms: BTreeMap<Resource, Form> = BTreeMap::new();
        for served in registry.all() {
            let is_better = |known: &Form| known.is_converted() && served.kind.conversion.is_none();
            if forms.get(&served.resource).is_none_or(is_better) {
                forms.insert(served.resource.clone(), Form::new(served.clone(), media_type));
            }
        }
        if let Some(served) = registry.resource("", "v1", "endpoints") {
            let form = Form::new(served.clone(), media_type).at(MASTER_LEASES);
            forms.insert(Resource::new(MASTER_LEASES), form);
        }
        let by_path = forms.iter().map(|(resource, form)| (form.path().to_owned(), resource.clone()));
        Ok(Self { by_path: by_path.collect(), forms, media_type })
    }

    /// Returns the built-in resource at a path, and the rest of the path.
    fn built_in<'p>(&self, path: &'p str) -> Option<(&Resource, &'p str)> {
        let ends = path.match_indices('/').map(|(at, _)| at + 1).take(2);
        ends.filter_map(|end| Some((self.by_path.get(&path[..end])?, &path[end..]))).last()
    }
}

impl Codec for StorageCodec {
    fn path(&self, key: &Key) -> String {
        match self.forms.get(&key.resource) {
            Some(form) => format!("{}{}", form.path(), key.path),
            None => format!("{}/{}", key.resource.as_str(), key.path),
        }
    }

    fn key(&self, path: &str) -> Option<Key> {
        if let Some((resource, rest)) = self.built_in(path) {
            let form = self.forms.get(resource)?;
            return form.has_object_at(rest).then(|| resource.key(rest));
        }
        if path.split_once('/') == Some((RANGES, NODE_PORTS)) {
            return Some(node_ports());
        }
        // The group of a custom resource is a domain.
        let (group, rest) = path.split_once('/').filter(|(group, _)| group.contains('.'))?;
        let (resource, object) = rest.split_once('/')?;
        let is_object = object.split('/').count() <= 2 && object.split('/').all(|part| !part.is_empty());
        (is_object && !resource.is_empty()).then(|| Resource::new(format!("{group}/{resource}")).key(object))
    }

    fn encode(&self, key: &Key, payload: &Payload) -> Result<Bytes, String> {
        match self.forms.get(&key.resource) {
            Some(form) => form.encode(payload),
            None if key.resource.as_str() == RANGES => range::encode(payload, self.media_type),
            None => Ok(line(&payload.whole())),
        }
    }

    fn decode(&self, key: &Key, stored: &[u8]) -> Result<Decoded, String> {
        match self.forms.get(&key.resource) {
            Some(form) => form.decode(stored),
            None if key.resource.as_str() == RANGES => {
                let is_current = is_marked(stored) == (self.media_type == StorageMediaType::Protobuf);
                range::decode(stored).map(|payload| Decoded { payload, is_current })
            }
            None => custom(stored),
        }
    }
}

/// Reads a custom resource. Its version is whatever its definition said when it was written.
fn custom(stored: &[u8]) -> Result<Decoded, String> {
    let mut object: Value = serde_json::from_slice(stored).map_err(|why| format!("it is not JSON: {why}"))?;
    if object.text("kind").is_empty() || object.text("apiVersion").is_empty() {
        return Err("it states no kind and version".into());
    }
    let fields = ManagedFields::take_from(&mut object);
    Ok(Decoded { payload: stored_custom(&object, &fields), is_current: true })
}

/// v1.34's JSON encoder ends a document with a new line.
fn line(document: &[u8]) -> Bytes {
    [document, b"\n"].concat().into()
}

#[cfg(test)]
mod tests;
