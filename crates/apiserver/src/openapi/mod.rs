//! OpenAPI: what the server serves, in a form that clients and generators read.
//!
//! There is one version 3 document per group version. Each is a pure function of the registry, is built
//! when it is first asked for, and is kept encoded from then on. Its address carries a hash of what it is
//! made from, so that listing the addresses builds no document.

mod custom;
mod describe;
mod parameters;
mod paths;
mod schemas;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
mod v2;
mod v2_protobuf;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::kind::Kind;
use crate::registry::Served;

/// The documents of a registry.
pub struct OpenApi {
    /// By their path below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    documents: BTreeMap<String, Entry>,
    index: Bytes,
    /// Version 2, all groups in one.
    whole: Mutex<Option<Bytes>>,
    whole_in_protobuf: Mutex<Option<Bytes>>,
}

struct Entry {
    kinds: Vec<Arc<Served>>,
    hash: String,
    encoded: Mutex<Option<Bytes>>,
}

/// A document and its hash, which is its entity tag and part of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub body: Bytes,
    pub hash: String,
}

impl OpenApi {
    pub fn new(kinds: impl IntoIterator<Item = Arc<Served>>) -> Self {
        let mut by_path: BTreeMap<String, Vec<Arc<Served>>> = BTreeMap::new();
        for served in kinds {
            by_path.entry(document_path(&served.kind)).or_default().push(served);
        }
        let documents: BTreeMap<String, Entry> = by_path
            .into_iter()
            .map(|(path, kinds)| (path, Entry { hash: hash(&kinds), kinds, encoded: Mutex::default() }))
            .collect();
        let index = encode(&index(&documents));
        Self { documents, index, whole: Mutex::default(), whole_in_protobuf: Mutex::default() }
    }

    /// `GET /openapi/v3`: the addresses of all documents.
    pub fn index(&self) -> Document {
        let hash = hex(&Sha256::digest(&self.index));
        Document { body: self.index.clone(), hash }
    }

    /// `GET /openapi/v3/PATH`, with a path such as `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<Document> {
        let entry = self.documents.get(path)?;
        let mut encoded = entry.encoded.lock();
        let body = encoded.get_or_insert_with(|| encode(&document(&entry.kinds))).clone();
        Some(Document { body, hash: entry.hash.clone() })
    }

    /// Where the current version of a document is.
    pub fn address(&self, path: &str) -> Option<String> {
        self.documents.get(path).map(|entry| address(path, &entry.hash))
    }

    /// `GET /openapi/v2`: everything in one document of version 2.
    pub fn whole(&self) -> Document {
        let mut whole = self.whole.lock();
        let body = whole.get_or_insert_with(|| encode(&v2::document(self.all_kinds()))).clone();
        Document { body, hash: self.hash_of_whole() }
    }

    /// The same as protobuf.
    pub fn whole_in_protobuf(&self) -> Document {
        let mut whole = self.whole_in_protobuf.lock();
        let make = || v2_protobuf::document(&v2::document(self.all_kinds()));
        let body = whole.get_or_insert_with(make).clone();
        Document { body, hash: self.hash_of_whole() }
    }

    fn hash_of_whole(&self) -> String {
        let hashes: String = self.documents.values().map(|entry| entry.hash.as_str()).collect();
        hex(&Sha256::digest(hashes))
    }

    fn all_kinds(&self) -> impl Iterator<Item = &Arc<Served>> + Clone {
        self.documents.values().flat_map(|entry| &entry.kinds)
    }
}

fn document_path(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

fn address(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

fn index(documents: &BTreeMap<String, Entry>) -> Value {
    let entry = |(path, entry): (&String, &Entry)| {
        (path.clone(), json!({"serverRelativeURL": address(path, &entry.hash)}))
    };
    json!({"paths": documents.iter().map(entry).collect::<Map<_, _>>()})
}

/// One group version's document.
fn document(kinds: &[Arc<Served>]) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.34.0"},
        "paths": paths::of(kinds),
        "components": {
            "schemas": schemas::of(kinds),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey",
                "description": "Bearer Token authentication",
                "name": "authorization",
                "in": "header",
            }},
        },
    })
}

/// Changes whenever a document made from these kinds may.
fn hash(kinds: &[Arc<Served>]) -> String {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    for served in kinds {
        let kind = &served.kind;
        let facts = (&kind.group, &kind.version, &kind.kind, &kind.plural, &kind.schema, kind.scope);
        digest.update(format!("{facts:?} {:?} {:?};", kind.verbs, kind.subresources));
        if let Some(custom) = &kind.custom {
            let selectable: Vec<&str> = custom.selectable.iter().map(|field| field.path.as_str()).collect();
            digest.update(format!("{} {} {selectable:?};", custom.list_kind, custom.written));
        }
    }
    hex(&digest.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn encode(document: &Value) -> Bytes {
    Bytes::from(document.to_string())
}
