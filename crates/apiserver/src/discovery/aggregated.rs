//! Everything in one document, with a tag by which clients know whether they have it already.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use super::{by_priority, foreign_kind, kind_verbs, sorted_subresources, verb_names};
use crate::body::Body;
use crate::codec::to_bytes;
use crate::json::JsonMut;
use crate::kind::{Kind, Subresource};
use crate::registry::{Group, Registry};

const MEDIA_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The core group, or all others.
pub(super) fn document(registry: &Registry, core: bool) -> Value {
    let groups = by_priority(registry).into_iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = groups.map(|(name, group)| item(name, group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

pub(super) fn answer(document: &Value, headers: &HeaderMap) -> Response<Body> {
    let bytes = to_bytes(document);
    let digest: String = Sha512::digest(&bytes).iter().map(|byte| format!("{byte:02X}")).collect();
    let tag = format!("\"{digest}\"");
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = Response::new(if is_known { Body::empty() } else { Body::full(bytes) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    }
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    response
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

/// Built-in kinds leave out that they are of the group they are listed in.
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
