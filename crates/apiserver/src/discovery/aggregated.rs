//! Aggregated discovery: everything in one document, with an ETag.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use super::{by_priority, foreign_kind, kind_verbs, sorted_subresources, verb_names};
use crate::body::Body;
use crate::codec::document_bytes;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::negotiate::{self, Clause, Encoding};
use crate::registry::{Group, Registry};
use crate::rest::respond;
use crate::schema::protobuf::write::{envelope, nested, put_bytes};

const GROUP: &str = "apidiscovery.k8s.io";
const KIND: &str = "APIGroupDiscoveryList";

/// Returns the encoding for aggregated discovery, if the client accepts it. Accepting it at all is enough, even if
/// other forms are preferred.
pub(super) fn wanted(headers: &HeaderMap, pretty: bool) -> Option<Encoding> {
    let is_aggregated = |clause: &&Clause<'_>| {
        let parameters = ["g", "v", "as"].map(|name| clause.parameter(name));
        parameters == [Some(GROUP), Some("v2"), Some(KIND)]
            && clause.parameter("sv").is_none_or(str::is_empty)
    };
    let clauses = negotiate::clauses(headers);
    clauses.iter().filter(is_aggregated).find_map(|clause| clause.encoding(pretty))
}

/// A document with its ETag, built once per set of kinds.
pub(crate) struct Aggregated {
    document: Value,
    json: Bytes,
    protobuf: OnceLock<Bytes>,
    tag: HeaderValue,
}

impl Aggregated {
    /// Builds the document of the core group, or of all others.
    pub(crate) fn new(registry: &Registry, core: bool) -> Self {
        let document = document(registry, core);
        let json = document_bytes(&document);
        let digest: String = Sha512::digest(&json).iter().map(|byte| format!("{byte:02X}")).collect();
        // Quotes and hexadecimal digits are valid in headers.
        let tag = HeaderValue::from_str(&format!("\"{digest}\"")).unwrap_or(HeaderValue::from_static(""));
        Self { document, json, protobuf: OnceLock::new(), tag }
    }

    fn encoded(&self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Json { pretty: false } => self.json.clone(),
            Encoding::Protobuf => self.protobuf.get_or_init(|| protobuf(&self.document)).clone(),
            other => respond::encoded(other, &self.document),
        }
    }

    pub(super) fn answer(&self, encoding: Encoding, headers: &HeaderMap) -> Response<Body> {
        let is_known =
            headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == self.tag.as_bytes());
        let mut response = Response::new(match is_known {
            true => Body::empty(),
            false => Body::full(self.encoded(encoding)),
        });
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            let media_type = format!("{};g={GROUP};v=v2;as={KIND}", encoding.media_type());
            if let Ok(media_type) = HeaderValue::from_str(&media_type) {
                response.headers_mut().insert(CONTENT_TYPE, media_type);
            }
        }
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Accept"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.insert(ETAG, self.tag.clone());
        response
    }
}

fn document(registry: &Registry, core: bool) -> Value {
    let groups = by_priority(registry).into_iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = groups.map(|(name, group)| item(name, group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// Encodes the document in protobuf. Its messages are not of any stored kind, so no schema describes them.
fn protobuf(document: &Value) -> Bytes {
    let mut raw = Vec::new();
    put_bytes(&mut raw, 1, b"");
    for group in document.list("items") {
        nested(&mut raw, 2, |raw| {
            nested(raw, 1, |metadata| put_text(metadata, 1, group.at("metadata"), "name"));
            for version in group.list("versions") {
                nested(raw, 2, |raw| {
                    put_text(raw, 1, version, "version");
                    version
                        .list("resources")
                        .iter()
                        .for_each(|one| nested(raw, 2, |raw| put_resource(raw, one)));
                    put_text(raw, 3, version, "freshness");
                });
            }
        });
    }
    envelope("apidiscovery.k8s.io/v2", KIND, &raw)
}

fn put_resource(raw: &mut Vec<u8>, resource: &Value) {
    put_text(raw, 1, resource, "resource");
    nested(raw, 2, |raw| put_kind(raw, resource.at("responseKind")));
    put_text(raw, 3, resource, "scope");
    put_text(raw, 4, resource, "singularResource");
    put_texts(raw, 5, resource, "verbs");
    put_texts(raw, 6, resource, "shortNames");
    put_texts(raw, 7, resource, "categories");
    for part in resource.list("subresources") {
        nested(raw, 8, |raw| {
            put_text(raw, 1, part, "subresource");
            nested(raw, 2, |raw| put_kind(raw, part.at("responseKind")));
            put_texts(raw, 4, part, "verbs");
        });
    }
}

fn put_kind(raw: &mut Vec<u8>, kind: &Value) {
    put_text(raw, 1, kind, "group");
    put_text(raw, 2, kind, "version");
    put_text(raw, 3, kind, "kind");
}

fn put_text(raw: &mut Vec<u8>, number: u64, of: &Value, field: &str) {
    put_bytes(raw, number, of.text(field).as_bytes());
}

fn put_texts(raw: &mut Vec<u8>, number: u64, of: &Value, field: &str) {
    of.list(field).iter().filter_map(Value::as_str).for_each(|text| put_bytes(raw, number, text.as_bytes()));
}

fn item(name: &str, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> =
                version.resources.values().map(|served| resource(&served.kind)).collect();
            json!({ "version": version.name, "freshness": "Current", "resources": resources })
        })
        .collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
    json!({ "metadata": metadata, "versions": versions })
}

fn resource(kind: &Kind) -> Value {
    let mut resource = json!({
        "resource": kind.plural,
        "singularResource": kind.singular,
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        "verbs": kind_verbs(kind),
    });
    resource["responseKind"] = response_kind(kind);
    if !kind.short_names.is_empty() {
        resource.set("shortNames", kind.short_names.clone());
    }
    if !kind.categories.is_empty() {
        resource.set("categories", kind.categories.clone());
    }
    let parts: Vec<Value> =
        sorted_subresources(kind).into_iter().map(|part| subresource(kind, part)).collect();
    if !parts.is_empty() {
        resource.set("subresources", parts);
    }
    resource
}

/// Returns the kind in responses. Built-in kinds omit the group if they are listed in it.
fn response_kind(kind: &Kind) -> Value {
    let (group, version) =
        if kind.custom.is_some() { (kind.group.as_str(), kind.version.as_str()) } else { ("", "") };
    json!({ "group": group, "version": version, "kind": kind.kind })
}

fn subresource(kind: &Kind, part: Subresource) -> Value {
    let response_kind = match foreign_kind(kind, part) {
        Some((group, version, name)) => json!({ "group": group, "version": version, "kind": name }),
        None => response_kind(kind),
    };
    json!({
        "subresource": part.name(),
        "responseKind": response_kind,
        "verbs": verb_names(part.verbs()),
    })
}
