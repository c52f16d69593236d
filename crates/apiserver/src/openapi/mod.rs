//! OpenAPI documents.
//!
//! [`routes`] and [`pages`] define the endpoints for both versions. Version 3 has one document per group version and
//! page. Each is a pure function of the registry, is built on first use, and is then cached in encoded form. Its URL
//! contains a hash of its inputs, so that listing the URLs builds no document. Documents of built-in kinds outlive their
//! registry: they do not change when a CRD does, and the clusters of a simulation share them. Version 2 has everything
//! in one document, cached in each of its two forms.

mod custom;
mod describe;
mod endpoint;
mod names;
mod pages;
mod parameters;
mod routes;
mod schemas;
pub(crate) mod serve;
#[cfg(test)]
mod tests;
mod v2;
mod v2_protobuf;
mod v3;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use crate::aggregation::{Destination, Spec};
use crate::kind::Kind;
use crate::registry::Served;

use self::endpoint::{Content, Operation};
use self::pages::Page;
use self::parameters::{Parameter, ParameterLocation};
use self::schemas::Dialect;

/// The documents of a registry.
pub struct OpenApi {
    /// By path below `/openapi/v3/`: `api/v1`, `apis/apps/v1`.
    documents: BTreeMap<String, Entry>,
    index: Bytes,
    /// Version 2, by form: some 5 MiB together. Built by the first request for it; others wait without blocking their
    /// threads.
    whole: [OnceCell<Bytes>; 2],
}

struct Entry {
    about: Subject,
    hash: String,
    encoded: Encoded,
}

/// An encoded document, once it is built.
type Encoded = Arc<OnceLock<Bytes>>;

/// The documents without custom kinds, by hash. Bounded: one for each built-in group version and page, and for each set
/// of features that a server of this process has had.
static BUILT_IN: Mutex<BTreeMap<String, Encoded>> = Mutex::new(BTreeMap::new());

/// The subject of a version 3 document.
enum Subject {
    /// The kinds of a group version.
    Kinds(Vec<Arc<Served>>),
    Page(Page),
}

/// The forms of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Protobuf,
}

/// A document and its hash, which is its ETag and part of its URL.
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
        let pages = pages::all(built_in_groups(&by_path).into_iter());
        let subjects = pages.into_iter().map(|page| (page.path.clone(), Subject::Page(page)));
        let subjects = subjects.chain(by_path.into_iter().map(|(path, kinds)| (path, Subject::Kinds(kinds))));
        let documents: BTreeMap<String, Entry> =
            subjects.map(|(path, about)| (path, Entry::new(about))).collect();
        let index = encode(&index(&documents));
        Self { documents, index, whole: Default::default() }
    }

    /// Handles `GET /openapi/v3`: the URLs of all documents.
    pub fn index(&self) -> Document {
        let hash = hex(&Sha256::digest(&self.index));
        Document { body: self.index.clone(), hash }
    }

    /// Handles `GET /openapi/v3/PATH`, with a path such as `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<Document> {
        let entry = self.documents.get(path)?;
        let body = entry.encoded.get_or_init(|| encode(&entry.about.document())).clone();
        Some(Document { body, hash: entry.hash.clone() })
    }

    /// Returns the paths and URLs of all version 3 documents.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (String, String)> {
        self.documents.iter().map(|(path, entry)| (path.clone(), address(path, &entry.hash)))
    }

    /// Returns version 2 with the documents of other servers.
    pub(crate) fn merged(&self, form: Form, specs: &[Arc<Spec>]) -> Bytes {
        let source = self.source();
        let mut destination = Destination::default();
        let mut shared = v2::SharedParts::default();
        for section in v2::Section::ALL {
            source.each(section, &mut shared, &mut |name, part| match section {
                v2::Section::Paths => destination.path(name),
                v2::Section::Definitions => destination.definition(name, part, specs),
                v2::Section::Parameters => destination.parameter(name, part, specs),
            });
        }
        let source = v2::Source { additions: destination.merge(specs), ..source };
        match form {
            Form::Json => source.json(),
            Form::Protobuf => v2_protobuf::document(&source),
        }
    }

    /// Returns the URL of the current version of a document.
    pub fn address(&self, path: &str) -> Option<String> {
        self.documents.get(path).map(|entry| address(path, &entry.hash))
    }

    /// Handles `GET /openapi/v2`: everything in one version 2 document.
    pub async fn whole(&self, form: Form) -> Document {
        let build = || async {
            match form {
                Form::Json => self.source().json(),
                Form::Protobuf => v2_protobuf::document(&self.source()),
            }
        };
        let body = self.whole[form as usize].get_or_init(build).await.clone();
        Document { body, hash: self.hash_of_whole() }
    }

    /// Returns the hash of version 2, without building the document.
    pub fn hash_of_whole(&self) -> String {
        let hashes: String = self.documents.values().map(|entry| entry.hash.as_str()).collect();
        hex(&Sha256::digest(hashes))
    }

    fn source(&self) -> v2::Source<'_> {
        let mut source = v2::Source::default();
        for entry in self.documents.values() {
            match &entry.about {
                Subject::Kinds(kinds) => source.kinds.push(kinds),
                Subject::Page(page) => source.pages.push(page),
            }
        }
        source
    }
}

impl Entry {
    fn new(about: Subject) -> Self {
        let hash = hash(&about);
        let encoded = match about.is_built_in() {
            true => BUILT_IN.lock().entry(hash.clone()).or_default().clone(),
            false => Encoded::default(),
        };
        Self { about, hash, encoded }
    }
}

impl Subject {
    fn is_built_in(&self) -> bool {
        match self {
            Self::Kinds(kinds) => kinds.iter().all(|served| served.kind.custom.is_none()),
            Self::Page(_) => true,
        }
    }

    fn document(&self) -> Value {
        match self {
            Self::Kinds(kinds) => {
                let endpoints = routes::of(kinds);
                let is_custom = kinds.iter().all(|served| served.kind.custom.is_some());
                let info = if is_custom { info_of_custom() } else { info() };
                v3::document(info, &endpoints, schemas::of(&endpoints, kinds))
            }
            Self::Page(page) => {
                let endpoints = [page.endpoint()];
                v3::document(info(), &endpoints, schemas::of(&endpoints, &[]))
            }
        }
    }
}

/// Returns the groups that have a page: the built-in ones.
fn built_in_groups(by_path: &BTreeMap<String, Vec<Arc<Served>>>) -> BTreeSet<String> {
    let built_in = by_path.values().flatten().filter(|served| served.kind.custom.is_none());
    built_in.map(|served| served.kind.group.clone()).filter(|group| !group.is_empty()).collect()
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

/// Computes a hash that changes whenever the document may change.
fn hash(about: &Subject) -> String {
    let mut digest = Sha256::new();
    digest.update(env!("CARGO_PKG_VERSION"));
    let kinds = match about {
        Subject::Kinds(kinds) => kinds.as_slice(),
        Subject::Page(page) => {
            digest.update(&page.path);
            &[]
        }
    };
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

/// Returns the server info in every document.
fn info() -> Value {
    json!({"title": "Kubernetes", "version": "1.34"})
}

/// Returns the server info in documents of custom kinds.
fn info_of_custom() -> Value {
    json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"})
}

/// Returns how clients authenticate.
fn security() -> Value {
    json!({"BearerToken": {
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    }})
}

/// Writes the parts of an operation that both versions share.
fn operation(operation: &Operation) -> Map<String, Value> {
    let mut written = Map::new();
    written.insert("description".into(), operation.description.as_str().into());
    written.insert("operationId".into(), operation.id.as_str().into());
    written.insert("tags".into(), json!([operation.tag]));
    if let Some(about) = &operation.about {
        let kind = json!({"group": about.group, "version": about.version, "kind": about.kind});
        written.insert("x-kubernetes-action".into(), about.action.into());
        written.insert("x-kubernetes-group-version-kind".into(), kind);
    }
    written
}

/// Writes the parts of a parameter that both versions share.
fn parameter(parameter: &Parameter) -> Map<String, Value> {
    let mut written = Map::new();
    written.insert("name".into(), parameter.name.into());
    written.insert("in".into(), parameter.place.name().into());
    written.insert("description".into(), (&*parameter.description).into());
    if parameter.place == ParameterLocation::Path {
        written.insert("required".into(), true.into());
    }
    written
}

fn schema_of(dialect: Dialect, content: &Content) -> Value {
    match content {
        Content::Object(schema) => dialect.reference(schema),
        Content::Text => json!({"type": "string"}),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn encode(document: &Value) -> Bytes {
    Bytes::from(document.to_string())
}
