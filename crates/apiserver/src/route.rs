//! Routes requests to handlers.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Response};
use jiff::Timestamp;

use crate::aggregation::openapi_serve;
use crate::auth::{User, escape_html};
use crate::body::Body;
use crate::chain::Context;
use crate::kind::{Subresource, Verb};
use crate::metrics::{self, RequestLabels, Scope};
use crate::negotiate::{self, Forms, Output};
use crate::query::Query;
use crate::registry::{Registry, Served};
use crate::request::{ResourceTarget, Target};
use crate::rest::{self, Call};
use crate::server::Server;
use crate::status::Status;
use crate::strategy::Creation;
use crate::{compress, discovery, flow, health, openid};

/// An authorized request, as every handler sees it.
pub(crate) struct AuthorizedRequest<'a> {
    pub(crate) server: &'a Server,
    pub(crate) user: &'a User,
    pub(crate) method: &'a Method,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    pub(crate) context: &'a Context,
}

/// Handles a request that has passed the filters.
pub(crate) async fn handle(
    parts: &AuthorizedRequest<'_>,
    target: &Target<'_>,
) -> Result<Response<Body>, Status> {
    if let Some(resource) = &target.resource {
        return handle_resource(parts, resource).await;
    }
    let server = parts.server;
    let began = server.clock.instant();
    let answered = handle_path(parts, target).await;
    let code = answered.as_ref().map_or_else(|status| status.code, |answer| answer.status().as_u16());
    let sort = RequestLabels::of_path(parts.method, target.segment(0));
    server.measured.paths.count(sort, code, server.clock.instant() - began);
    answered
}

async fn handle_resource(
    parts: &AuthorizedRequest<'_>,
    target: &ResourceTarget,
) -> Result<Response<Body>, Status> {
    if target.is_off_route {
        return Ok(not_found_page());
    }
    let registry = parts.server.registry.snapshot();
    let Some(served) = find(&registry, target) else { return no_such_resource(&registry, target) };
    let lists = matches!(target.verb, Some(Verb::List | Verb::Watch));
    if target.has_empty_namespace && served.kind.is_namespaced() && !lists {
        return Err(Status::bad_request("Namespace parameter required."));
    }
    let subresource = subresource(served, target)?;
    if subresource.is_none() && has_no_endpoint(served, target) {
        return Err(Status::no_such_resource());
    }
    let verb = target.verb.or_else(|| passed_on_as(parts.method, subresource));
    let verb = verb.ok_or_else(Status::method_not_allowed)?;
    if !rest::allows(served, subresource, verb, target.name.is_some(), target.namespace.is_some()) {
        return Err(Status::method_not_allowed());
    }
    let is_connection = subresource.is_some_and(Subresource::is_connection);
    match subresource {
        Some(Subresource::Log) => negotiate::check_accept_of_text(parts.headers)?,
        _ if is_connection => {}
        _ => negotiate::check_accept(parts.headers, matches!(verb, Verb::List | Verb::Watch))?,
    }
    let output = match negotiate::output(parts.headers, parts.query, forms(served, subresource)) {
        // A connection's target determines the content type itself.
        Err(_) if is_connection => Output::JSON,
        output => output?,
    };
    let now: Timestamp = parts.server.now();
    let call = Call {
        server: parts.server,
        user: parts.user,
        served,
        subresource,
        namespace: target.namespace.as_deref().filter(|_| served.kind.is_namespaced()),
        name: target.name.as_deref(),
        subpath: &target.subpath,
        query: parts.query,
        headers: parts.headers,
        body: parts.body,
        output,
        context: parts.context,
        now,
    };
    let began = parts.server.clock.instant();
    let has_end = verb != Verb::Watch && !is_connection;
    let is_read = matches!(verb, Verb::Get | Verb::List);
    let _ongoing = has_end.then(|| parts.server.measured.begin(is_read));
    let answered = rest::serve(&call, verb).await;
    let scope = Scope::of(verb, call.namespace, call.name);
    let sort = RequestLabels::of_object(verb, subresource, scope, parts.query, parts.headers);
    let code = answered.as_ref().map_or_else(|status| status.code, |answer| answer.status().as_u16());
    served.measured.requests.count(sort, code, parts.server.clock.instant() - began);
    answered.map(|answered| if has_end { compress::respond(parts.headers, answered) } else { answered })
}

/// Returns the verb that a method without one counts as: proxies pass it on.
fn passed_on_as(method: &Method, subresource: Option<Subresource>) -> Option<Verb> {
    let is_passed_on = subresource == Some(Subresource::Proxy);
    (is_passed_on && matches!(*method, Method::HEAD | Method::OPTIONS)).then_some(Verb::Get)
}

/// Returns the available forms. Tables exist for objects, and for their status and scale.
fn forms(served: &Served, subresource: Option<Subresource>) -> Forms {
    let is_of_object = matches!(subresource, None | Some(Subresource::Status | Subresource::Scale));
    let is_stored = served.kind.semantics.creation == Creation::Object;
    Forms { objects_in_protobuf: served.kind.custom.is_none(), tables: is_of_object && is_stored }
}

/// Finds the kind for a path. A cluster-scoped kind is not found in a namespace, nor a namespaced object outside one;
/// outside, custom resources can only be listed.
fn find<'a>(registry: &'a Registry, target: &ResourceTarget) -> Option<&'a Arc<Served>> {
    let served = registry.resource(&target.group, &target.version, &target.resource)?;
    let is_namespace_itself = target.group.is_empty() && target.resource == "namespaces";
    let lists = matches!(target.verb, Some(Verb::List | Verb::Watch));
    let fits = match (served.kind.is_namespaced(), &target.namespace) {
        (true, None) if target.has_empty_namespace => lists || served.kind.custom.is_none(),
        (true, None) => target.name.is_none() && (lists || served.kind.custom.is_none()),
        // A namespace counts as being in itself. Others are not found in it: the request was authorized for this
        // namespace.
        (false, Some(namespace)) => is_namespace_itself && target.name.as_ref() == Some(namespace),
        _ => true,
    };
    fits.then_some(served)
}

/// Whether a path supports no method at all: a kind that can only be created has no objects, and no collection across
/// all namespaces.
fn has_no_endpoint(served: &Served, target: &ResourceTarget) -> bool {
    let kind = &served.kind;
    let has = |verbs: &[Verb]| verbs.iter().any(|verb| kind.verbs.contains(verb));
    match target.name {
        Some(_) => !has(&[Verb::Get, Verb::Update, Verb::Patch, Verb::Delete]),
        None => kind.is_namespaced() && target.namespace.is_none() && !has(&[Verb::List]),
    }
}

/// Returns a `NotFound` status for an unknown resource in a built-in group, else the not-found page.
fn no_such_resource(registry: &Registry, target: &ResourceTarget) -> Result<Response<Body>, Status> {
    match registry.has_built_in_group(&target.group) {
        true => Err(Status::no_such_resource()),
        false => Ok(not_found_page()),
    }
}

fn subresource(served: &Served, target: &ResourceTarget) -> Result<Option<Subresource>, Status> {
    let Some(name) = &target.subresource else { return Ok(None) };
    let known = Subresource::named(name).filter(|subresource| served.kind.has(*subresource));
    // Only proxy paths continue after the subresource.
    let known = known.filter(|subresource| !target.has_more || *subresource == Subresource::Proxy);
    known.map(Some).ok_or_else(|| match (&served.kind.custom, &target.name) {
        (Some(_), Some(object)) => Status::not_found(served.named(), object),
        _ => Status::no_such_resource(),
    })
}

/// Records a discovery document in the audit event. Only JSON forms: v1.34 also records protobuf ones, as JSON.
fn record_document(context: &Context, document: &Response<Body>) {
    let media_type = document.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if let (true, Some(bytes)) = (media_type.starts_with(b"application/json"), document.body().as_full()) {
        context.audit.response_bytes(bytes);
    }
}

async fn handle_path(parts: &AuthorizedRequest<'_>, target: &Target<'_>) -> Result<Response<Body>, Status> {
    let AuthorizedRequest { server, method, query, headers, context, .. } = *parts;
    let path = &*target.path;
    if path.starts_with("//") {
        return Ok(not_found_page());
    }
    let read = matches!(*method, Method::GET | Method::HEAD);
    let only_gets = || if *method == Method::GET { Ok(()) } else { Err(Status::method_not_allowed()) };
    let is_whole = !path.ends_with('/');
    let only_reads = || if read { Ok(()) } else { Err(Status::method_not_allowed()) };
    match target.segment(0) {
        None => discovery::root(server).await,
        Some("index.html") if target.segments.len() == 1 && is_whole => discovery::root(server).await,
        Some("version") if target.segments.len() == 1 => {
            only_gets()?;
            negotiate::check_json(headers)?;
            Ok(discovery::version())
        }
        Some("livez" | "readyz" | "healthz") if is_whole => Ok(health::respond(server, target, query).await),
        Some("metrics") if target.segments.len() == 1 && is_whole => {
            only_reads()?;
            let mut text = metrics::text(server);
            text.extend(server.metrics.iter().map(|others| others()));
            Ok(health::measurements(text))
        }
        Some("debug") if is_whole && target.segment(1) == Some("api_priority_and_fairness") => {
            let table = target.segment(2).filter(|_| target.segments.len() == 3);
            let answer = table.and_then(|table| flow::dump(server, table, query));
            Ok(answer.unwrap_or_else(not_found_page))
        }
        Some("debug") if is_whole && target.segment(1) == Some("setpoint") => {
            only_gets()?;
            let introspect = server.introspection.as_ref();
            let answer =
                introspect.and_then(|introspect| introspect(path, &query.pairs().collect::<Vec<_>>()));
            Ok(answer.map_or_else(not_found_page, health::document))
        }
        Some("api" | "apis") => {
            let document = discovery::respond(server, method, target, query, headers).await?;
            record_document(context, &document);
            Ok(compress::respond(headers, document))
        }
        Some("openapi") => {
            let below = path.strip_prefix("/openapi/").unwrap_or_default();
            let document = openapi_serve(server, below, query, headers).await?;
            Ok(compress::respond(headers, document))
        }
        _ => {
            let segments: Vec<&str> = target.segments.iter().map(AsRef::as_ref).collect();
            if let Some(answer) = openid::respond(server, &segments, headers) {
                only_gets()?;
                return answer;
            }
            tracing::debug!(path, "path not found");
            Ok(not_found_page())
        }
    }
}

/// Builds the response for paths that are not served.
pub(crate) fn not_found_page() -> Response<Body> {
    health::text(http::StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Builds the response to a request that fails before its target is known.
pub(crate) fn internal_error_page(uri: &http::Uri, why: &str) -> Response<Body> {
    let path = uri.path_and_query().map_or(uri.path(), http::uri::PathAndQuery::as_str);
    let text = format!("Internal Server Error: {path:?}: {why}\n");
    health::text(http::StatusCode::INTERNAL_SERVER_ERROR, escape_html(&text))
}

impl Subresource {
    /// Returns its name in paths.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Binding => "binding",
            Self::Eviction => "eviction",
            Self::Finalize => "finalize",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
            Self::Token => "token",
            Self::Attach => "attach",
            Self::Exec => "exec",
            Self::Log => "log",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::Approval => "approval",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Status,
            Self::Scale,
            Self::Binding,
            Self::Eviction,
            Self::Finalize,
            Self::EphemeralContainers,
            Self::Resize,
            Self::Token,
            Self::Attach,
            Self::Exec,
            Self::Log,
            Self::PortForward,
            Self::Proxy,
            Self::Approval,
        ];
        all.into_iter().find(|subresource| subresource.name() == name)
    }
}
