//! API discovery.

pub(crate) mod aggregated;
mod groups;
mod legacy;

use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::kind::{Kind, Subresource, Verb};
use crate::negotiate::{self, Output, Shape};
use crate::query::Query;
use crate::registry::Registry;
use crate::request::Target;
use crate::rest::respond;
use crate::route::not_found_page;
use crate::schema::{Schema, encode};
use crate::server::Server;
use crate::status::Status;

/// The Kubernetes version whose behavior this server implements.
pub(crate) const GIT_VERSION: &str = "v1.34.0+setpoint";

fn respond_in(output: Output, document: &Value) -> Response<Body> {
    respond::document(StatusCode::OK, output, document)
}

pub(crate) fn version() -> Response<Body> {
    let document = json!({
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
    });
    let mut text = Vec::with_capacity(512);
    match Schema::built_in("io.k8s.apimachinery.pkg.version.Info") {
        Some(schema) => encode::write(&schema, &document, &mut text),
        None => encode::write_plain(&mut text, &document),
    }
    respond::response(StatusCode::OK, "application/json", Body::full(text))
}

/// Lists the available paths.
pub(crate) async fn root(server: &Server) -> Result<Response<Body>, Status> {
    let registry = server.registry.snapshot();
    let remote = server.api_services(|services| {
        let remote = services.all_remote().filter(|service| !service.group.is_empty());
        remote.map(|service| (service.group.clone(), service.version.clone())).collect::<Vec<_>>()
    });
    let mut paths = vec!["/api".to_string(), "/api/v1".into(), "/apis".into(), "/apis/".into()];
    for (group, versions) in registry.groups().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        let mut names: Vec<_> = versions.versions.iter().map(|version| version.name.as_str()).collect();
        names.sort_unstable();
        paths.extend(names.into_iter().map(|version| format!("/apis/{group}/{version}")));
    }
    let others = ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];
    paths.extend(others.map(Into::into));
    for (group, version) in remote.await? {
        paths.extend([format!("/apis/{group}"), format!("/apis/{group}/{version}")]);
    }
    paths.sort_unstable();
    paths.dedup();
    Ok(respond_in(Output::JSON, &json!({ "paths": paths })))
}

/// Responds below `/api` and `/apis`, except for resource paths.
pub(crate) async fn respond(
    server: &Server,
    method: &Method,
    target: &Target<'_>,
    query: &Query<'_>,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let registry = server.registry.snapshot();
    let segments: Vec<&str> = target.segments.iter().map(AsRef::as_ref).collect();
    if segments == ["apis"] && !matches!(&*target.path, "/apis" | "/apis/") {
        return Ok(not_found_page());
    }
    if is_built_in_route(&registry, &segments) {
        if method != Method::GET {
            return Err(Status::method_not_allowed());
        }
        negotiate::check_content_type(headers)?;
        negotiate::check_accept(headers, false)?;
    }
    if segments == ["api"] || &*target.path == "/apis" {
        let pretty = negotiate::is_pretty(headers, query);
        if let Some(encoding) = aggregated::wanted(headers, pretty) {
            let is_core = segments[0] == "api";
            let merged = (!is_core).then(|| server.aggregation.discovered.document(&registry)).flatten();
            return Ok(match merged {
                Some(merged) => merged.respond(encoding, headers),
                None => registry.aggregated(is_core).respond(encoding, headers),
            });
        }
    }
    let document = match segments.as_slice() {
        ["api"] => Some(legacy::core_versions()),
        ["apis"] => {
            Some(legacy::groups(&server.api_services(|services| groups::all(&registry, services)).await?))
        }
        ["apis", group] => {
            let found = server.api_services(|services| groups::one(&registry, services, group)).await?;
            match found {
                Some(group) => Some(legacy::group(&group)),
                // An unknown group returns the not-found page.
                None => return Ok(not_found_page()),
            }
        }
        ["apis", group, ..] if registry.group(group).is_none() => return Ok(not_found_page()),
        ["api", version] => legacy::resources(&registry, "", version),
        ["apis", group, version] => legacy::resources(&registry, group, version),
        _ => None,
    };
    let Some(document) = document else {
        let is_own = segments.get(1).is_none_or(|group| registry.has_built_in_group(group));
        return if is_own || segments[0] == "api" {
            Err(Status::no_such_resource())
        } else {
            Ok(not_found_page())
        };
    };
    let output = negotiate::output(headers, query, negotiate::Forms::ALL)?;
    if output.shape != Shape::Object {
        return Err(negotiate::no_such_object_type());
    }
    Ok(respond_in(output, &document))
}

/// Whether a path is a route of a built-in version: those check method and media types first. Lists of groups, and
/// paths of custom kinds, accept any method.
fn is_built_in_route(registry: &Registry, segments: &[&str]) -> bool {
    match segments {
        ["api"] => true,
        ["api", version] => registry.has_built_in("", version),
        ["apis", group, version] => registry.has_built_in(group, version),
        _ => false,
    }
}

/// Returns the group, version and kind of a subresource's body, if not the kind's own. An empty version means the
/// kind's own group and version.
pub(crate) fn foreign_kind(
    kind: &Kind,
    subresource: Subresource,
) -> Option<(&'static str, &'static str, &'static str)> {
    match subresource {
        Subresource::Attach => Some(("", "", "PodAttachOptions")),
        Subresource::Exec => Some(("", "", "PodExecOptions")),
        Subresource::PortForward => Some(("", "", "PodPortForwardOptions")),
        Subresource::Proxy => Some((
            "",
            "",
            match kind.kind.as_str() {
                "Node" => "NodeProxyOptions",
                "Service" => "ServiceProxyOptions",
                _ => "PodProxyOptions",
            },
        )),
        Subresource::Scale => Some(("autoscaling", "v1", "Scale")),
        Subresource::Eviction => Some(("policy", "v1", "Eviction")),
        Subresource::Binding => Some(("", "", "Binding")),
        Subresource::Token => Some(("authentication.k8s.io", "v1", "TokenRequest")),
        _ => None,
    }
}

/// Returns a kind's verbs for discovery. Custom kinds have their own order.
fn kind_verbs(kind: &Kind) -> Vec<&'static str> {
    let Some(custom) = &kind.custom else { return verb_names(&kind.verbs) };
    let is_told =
        |verb: &&Verb| !custom.is_terminating || !matches!(verb, Verb::Create | Verb::Update | Verb::Patch);
    kind.verbs.iter().filter(is_told).map(|verb| verb.name()).collect()
}

fn verb_names(verbs: &[Verb]) -> Vec<&'static str> {
    let mut names: Vec<_> = verbs.iter().map(|verb| verb.name()).collect();
    names.sort_unstable();
    names
}

/// Returns a kind's subresources by name; for a custom kind, in the CRD's order.
fn sorted_subresources(kind: &Kind) -> Vec<Subresource> {
    let mut subresources = kind.subresources.clone();
    if kind.custom.is_some() {
        return subresources;
    }
    subresources.sort_by_key(|subresource| subresource.name());
    subresources
}
