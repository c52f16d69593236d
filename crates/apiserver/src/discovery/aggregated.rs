//! Aggregated discovery: everything in one document, with an ETag.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use super::{foreign_kind, kind_verbs, sorted_subresources, verb_names};
use crate::aggregation::RemoteVersion;
use crate::body::Body;
use crate::codec::document_bytes;
use crate::custom::compare_versions;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::kinds::apiservice::{group_priority, version_priority};
use crate::negotiate::{self, Clause, Encoding};
use crate::registry::{Group, Registry, Version};
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
    /// Builds the document of the core group, or of all others. Group versions of other servers take the place of this
    /// server's own.
    pub(crate) fn new(registry: &Registry, core: bool, remote: &[RemoteVersion]) -> Self {
        let document = document(registry, core, remote);
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

    pub(super) fn respond(&self, encoding: Encoding, headers: &HeaderMap) -> Response<Body> {
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

fn document(registry: &Registry, core: bool, remote: &[RemoteVersion]) -> Value {
    let mut groups: BTreeMap<&str, Merged> = BTreeMap::new();
    for (name, group) in registry.groups().filter(|(name, _)| name.is_empty() == core) {
        groups.insert(name, Merged::own(name, group));
    }
    for version in remote.iter().filter(|version| version.group.is_empty() == core) {
        groups.entry(&version.group).or_default().add(version);
    }
    let mut groups: Vec<(&str, Merged)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.priority()));
    let items: Vec<Value> = groups.into_iter().map(|(name, group)| group.item(name)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

/// The versions of a group, this server's own and those of others.
#[derive(Default)]
struct Merged {
    versions: Vec<MergedVersion>,
    is_mixed: bool,
}

struct MergedVersion {
    name: String,
    group_priority: i64,
    priority: i64,
    document: Value,
}

impl Merged {
    fn own(name: &str, group: &Group) -> Self {
        let versions = group.versions.iter().map(|version| {
            let is_custom = version.resources.values().all(|served| served.kind.custom.is_some());
            MergedVersion {
                name: version.name.clone(),
                group_priority: group_priority(name),
                priority: version_priority(name, &version.name, is_custom),
                document: own_version(version),
            }
        });
        Self { versions: versions.collect(), is_mixed: false }
    }

    fn add(&mut self, version: &RemoteVersion) {
        self.versions.retain(|own| own.name != version.version);
        let freshness = if version.is_stale { "Stale" } else { "Current" };
        let mut document = json!({"version": version.version, "freshness": freshness});
        if !version.document.resources.is_empty() {
            document["resources"] = serde_json::to_value(&version.document.resources).unwrap_or_default();
        }
        self.versions.push(MergedVersion {
            name: version.version.clone(),
            group_priority: version.group_priority,
            priority: version.version_priority,
            document,
        });
        self.is_mixed = true;
    }

    fn priority(&self) -> i64 {
        self.versions.iter().map(|version| version.group_priority).max().unwrap_or(0)
    }

    /// This server's own versions are in order already.
    fn item(mut self, name: &str) -> Value {
        if self.is_mixed {
            self.versions.sort_by(|one, other| {
                let by_priority = other.priority.cmp(&one.priority);
                by_priority.then_with(|| compare_versions(&other.name, &one.name))
            });
        }
        let versions: Vec<Value> = self.versions.into_iter().map(|version| version.document).collect();
        let metadata = if name.is_empty() { json!({}) } else { json!({ "name": name }) };
        json!({ "metadata": metadata, "versions": versions })
    }
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
            part.list("acceptedTypes").iter().for_each(|kind| nested(raw, 3, |raw| put_kind(raw, kind)));
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

fn own_version(version: &Version) -> Value {
    let resources: Vec<Value> = version.resources.values().map(|served| resource(&served.kind)).collect();
    json!({ "version": version.name, "freshness": "Current", "resources": resources })
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
