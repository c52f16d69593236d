//! What the server serves, for clients that ask.

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::negotiate::Output;
use crate::registry::{Registry, Version};
use crate::request::Target;
use crate::rest::respond;
use crate::server::Server;
use crate::status::Status;

/// The version of Kubernetes whose behaviour this server has.
pub(crate) const GIT_VERSION: &str = "v1.34.0+setpoint";

fn answer_json(document: &Value) -> Response<Body> {
    respond::document(StatusCode::OK, Output::JSON, document)
}

pub(crate) fn version() -> Response<Body> {
    answer_json(&json!({
        "major": "1",
        "minor": "34",
        "emulationMajor": "1",
        "emulationMinor": "34",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "33",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "gc",
        "platform": "linux/amd64",
    }))
}

pub(crate) fn root(server: &Server) -> Response<Body> {
    let registry = server.registry.snapshot();
    let mut paths = vec!["/api".to_string(), "/api/v1".into(), "/apis".into(), "/apis/".into()];
    for (group, versions) in registry.groups().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.versions.iter().map(|version| format!("/apis/{group}/{}", version.name)));
    }
    paths.extend(["/healthz", "/livez", "/readyz", "/version"].map(Into::into));
    answer_json(&json!({ "paths": paths }))
}

pub(crate) fn answer(
    server: &Server,
    target: &Target<'_>,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let _ = headers;
    let registry = server.registry.snapshot();
    let segments: Vec<&str> = target.segments.iter().map(AsRef::as_ref).collect();
    let document = match segments.as_slice() {
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
        })),
        ["apis"] => Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups(&registry) })),
        ["api", version] => registry.version("", version).map(|found| resources("", found)),
        ["apis", group] => group_document(&registry, group),
        ["apis", group, version] => registry.version(group, version).map(|found| resources(group, found)),
        _ => None,
    };
    document.map(|document| answer_json(&document)).ok_or_else(Status::no_such_resource)
}

fn groups(registry: &Registry) -> Vec<Value> {
    registry
        .groups()
        .filter(|(name, _)| !name.is_empty())
        .filter_map(|(name, _)| group(registry, name))
        .collect()
}

fn group(registry: &Registry, name: &str) -> Option<Value> {
    let versions: Vec<Value> = registry
        .group(name)?
        .versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{}", version.name), "version": version.name }))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({ "name": name, "versions": versions, "preferredVersion": preferred }))
}

fn group_document(registry: &Registry, name: &str) -> Option<Value> {
    let mut document = group(registry, name).filter(|_| !name.is_empty())?;
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    Some(document)
}

fn resources(group: &str, version: &Version) -> Value {
    let group_version =
        if group.is_empty() { version.name.clone() } else { format!("{group}/{}", version.name) };
    let mut resources = Vec::new();
    for served in version.resources.values() {
        let kind = &served.kind;
        let verbs: Vec<&str> = kind.verbs.iter().map(|verb| verb.name()).collect();
        let mut resource = json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.is_namespaced(),
            "kind": kind.kind,
            "verbs": verbs,
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = kind.short_names.clone().into();
        }
        if !kind.categories.is_empty() {
            resource["categories"] = kind.categories.clone().into();
        }
        resources.push(resource);
        for subresource in &kind.subresources {
            let verbs: Vec<&str> = subresource.verbs().iter().map(|verb| verb.name()).collect();
            resources.push(json!({
                "name": format!("{}/{}", kind.plural, subresource.name()),
                "singularName": "",
                "namespaced": kind.is_namespaced(),
                "kind": kind.kind,
                "verbs": verbs,
            }));
        }
    }
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources })
}
