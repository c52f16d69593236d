//! The filters that every request passes before a handler sees it, in v1.34's order:
//!
//! ```text
//!  panic boundary ─► deadline ─► authentication ─► impersonation ─► authorization ─► body ─► route
//! ```
//!
//! What always holds:
//! - a panic costs one response, a log line and a count, never the connection or the process;
//! - a mutating request runs in its own task. A client that hangs up or a deadline that passes ends the wait
//!   for the answer, never the work that follows a commit;
//! - until a request is authorized and its body is read, hanging up cancels it;
//! - an undecodable header, path or body rejects the request; it never widens what the request may do.

mod deadline;
mod panics;
mod payload;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts as Head;
use http::{HeaderMap, Method, Request, Response};
use setpoint_clock::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(crate) use self::panics::{count as panic_count, guard_poll};
pub(crate) use self::payload::Payload;
use crate::auth::{Attributes, User, impersonate};
use crate::body::Body;
use crate::kind::Verb;
use crate::negotiate;
use crate::query::Query;
use crate::request::Target;
use crate::rest::respond;
use crate::route;
use crate::server::{Server, Warnings};
use crate::status::Status;
use crate::tls::Peer;

/// Where a request comes from.
pub(crate) enum Caller {
    /// In the same process: the user is known.
    InProcess(User),
    /// A connection, with what its client certificate shows. Headers may say more.
    Connection { peer: Arc<Peer> },
}

/// What goes along with a request from the first filter to the last handler.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) warnings: Warnings,
    /// When the client gets its answer at the latest; long-running requests have no deadline.
    #[allow(dead_code, reason = "calls to webhooks stop at it")]
    pub(crate) deadline: Option<Instant>,
}

/// Why a request does not get to its handler.
pub(crate) enum Refusal {
    Status(Box<Status>),
    /// A response that is not a `Status`: v1.34 writes some as plain text.
    Response(Box<Response<Body>>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl Refusal {
    pub(crate) fn response(response: Response<Body>) -> Self {
        Self::Response(Box::new(response))
    }

    fn into_response(self, headers: &HeaderMap) -> Response<Body> {
        match self {
            Self::Status(status) => respond::refusal(&status, negotiate::of_refusal(headers)),
            Self::Response(response) => *response,
        }
    }
}

/// A request that may be carried out.
struct Admitted {
    user: User,
    body: Bytes,
}

/// Answers a request.
pub(crate) async fn handle(
    server: &Arc<Server>,
    caller: Caller,
    request: Request<Payload>,
) -> Response<Body> {
    let encoding = negotiate::of_refusal(request.headers());
    let timeout = match deadline::timeout(request.method(), request.uri(), server.request_timeout) {
        Ok(timeout) => timeout,
        Err(status) => return respond::refusal(&status, encoding),
    };
    let deadline = timeout.map(|timeout| server.clock.instant() + timeout);
    let context = Context { deadline, ..Context::default() };
    let answer = match is_mutating(request.method()) {
        true => detached(server, caller, request, context).left_future(),
        false => panics::guard(pass(server, caller, request, context, None)).right_future(),
    };
    match deadline {
        Some(deadline) => match tokio::time::timeout_at(deadline, answer).await {
            Ok(response) => response,
            Err(_) => respond::refusal(&deadline::exceeded(), encoding),
        },
        None => answer.await,
    }
}

fn is_mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Carries a request out in its own task: what follows a commit runs, whether or not anyone waits for it.
async fn detached(
    server: &Arc<Server>,
    caller: Caller,
    request: Request<Payload>,
    context: Context,
) -> Response<Body> {
    let waiting = CancellationToken::new();
    let _hang_up = waiting.clone().drop_guard();
    let server = server.clone();
    let tasks = server.tasks.clone();
    let passing = async move { pass(&server, caller, request, context, Some(&waiting)).await };
    match tasks.spawn(passing.in_current_span()).await {
        Ok(response) => response,
        Err(error) => panics::of_task(error),
    }
}

async fn pass(
    server: &Server,
    caller: Caller,
    request: Request<Payload>,
    context: Context,
    waiting: Option<&CancellationToken>,
) -> Response<Body> {
    let (mut head, payload) = request.into_parts();
    let answered = answer(server, caller, &mut head, payload, &context, waiting).await;
    let mut response = answered.unwrap_or_else(|refusal| refusal.into_response(&head.headers));
    context.warnings.attach(&mut response);
    response
}

async fn answer(
    server: &Server,
    caller: Caller,
    head: &mut Head,
    payload: Payload,
    context: &Context,
    waiting: Option<&CancellationToken>,
) -> Result<Response<Body>, Refusal> {
    let Head { method, uri, headers, .. } = head;
    let query = Query::parse(uri.query().unwrap_or(""));
    let target = Target::parse(method, uri.path(), &query)?;
    let sender = until_hang_up(waiting, authenticate(server, caller, uri.path(), headers, context)).await?;
    let admitting = admit(server, sender, method, uri, headers, &target, payload);
    let admitted = until_hang_up(waiting, admitting).await?;
    let parts = route::Parts {
        server,
        user: &admitted.user,
        method,
        path: uri.path(),
        query: &query,
        headers,
        body: &admitted.body,
        context,
    };
    Ok(route::answer(&parts, &target).await?)
}

/// The outcome of `work`, unless the client hangs up first.
async fn until_hang_up<T>(
    waiting: Option<&CancellationToken>,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let Some(waiting) = waiting else { return work.await };
    tokio::select! {
        biased;
        () = waiting.cancelled() => Err(deadline::exceeded().into()),
        outcome = work => outcome,
    }
}

async fn authenticate(
    server: &Server,
    caller: Caller,
    path: &str,
    headers: &mut HeaderMap,
    context: &Context,
) -> Result<User, Refusal> {
    let peer = match caller {
        Caller::InProcess(user) => return Ok(user),
        Caller::Connection { peer } => peer,
    };
    let sender = server.sender(&peer, path, headers, &context.warnings).await;
    sender.map_err(|_| Status::unauthorized().into())
}

/// The filters between authentication and the handler.
async fn admit(
    server: &Server,
    sender: User,
    method: &Method,
    uri: &http::Uri,
    headers: &HeaderMap,
    target: &Target<'_>,
    payload: Payload,
) -> Result<Admitted, Refusal> {
    let user = match impersonate::user(&*server.authorizer, &sender, headers).await {
        Ok(impersonated) => impersonated.unwrap_or(sender),
        Err(impersonate::Refusal::Status(status)) => return Err(Refusal::Status(status)),
        Err(impersonate::Refusal::NoUser(why)) => {
            return Err(Refusal::response(route::internal_error_page(uri, &why)));
        }
    };
    authorize(server, &user, method, uri, target).await?;
    let body = if is_mutating(method) { payload.read().await? } else { Bytes::new() };
    Ok(Admitted { user, body })
}

async fn authorize(
    server: &Server,
    user: &User,
    method: &Method,
    uri: &http::Uri,
    target: &Target<'_>,
) -> Result<(), Refusal> {
    let lower = method.as_str().to_ascii_lowercase();
    let verb = match &target.resource {
        Some(resource) => resource.verb.map_or(if lower == "head" { "get" } else { "" }, Verb::name),
        None => &lower,
    };
    let attributes = Attributes { user, verb, path: uri.path(), resource: target.resource.as_ref() };
    let start = server.clock.instant();
    let decision = server.authorizer.authorize(&attributes).await;
    server.auth_metrics.authorized(&decision, server.clock.instant().duration_since(start));
    match &decision.error {
        _ if decision.is_allowed() => Ok(()),
        Some(error) => Err(Refusal::response(route::internal_error_page(uri, error))),
        None => Err(attributes.forbidden(decision.reason()).into()),
    }
}
