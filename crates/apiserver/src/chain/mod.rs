//! The filters that every request passes before a handler sees it, in v1.34's order:
//!
//! ```text
//!  panic boundary ─► deadline ─► authentication ─► impersonation ─► flow ─► authorization ─► body ─► route
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

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts as Head;
use http::{HeaderMap, Method, Request, Response};
use setpoint_clock::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub(crate) use self::deadline::is_long_running;
pub(crate) use self::panics::{count as panic_count, guard_poll};
pub(crate) use self::payload::Payload;
use crate::auth::{Attributes, Decision, User, impersonate};
use crate::body::Body;
use crate::flow::{self, Asked, Classified, Pass};
use crate::kind::Verb;
use crate::negotiate;
use crate::query::Query;
use crate::request::Target;
use crate::rest::respond;
use crate::route;
use crate::server::{Server, Warnings};
use crate::status::Status;

/// Where a request comes from.
pub(crate) enum Caller {
    /// In the same process: the user is known.
    InProcess(User),
    /// A connection, with the user of its verified client certificate. Headers may say more.
    Connection { certificate: Option<Arc<User>> },
}

/// What goes along with a request from the first filter to the last handler.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) warnings: Warnings,
    /// When the client gets its answer at the latest; long-running requests have no deadline.
    pub(crate) deadline: Option<Instant>,
    pub(crate) received: Option<Instant>,
    /// What priority and fairness makes of it.
    classified: OnceLock<Classified>,
}

impl Context {
    pub(crate) fn classify(&self, classified: Classified) {
        let _ = self.classified.set(classified);
    }
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
struct Admitted<'a> {
    user: User,
    body: Bytes,
    pass: Pass<'a>,
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
    let received = server.clock.instant();
    let deadline = timeout.map(|timeout| received + timeout);
    let context = Context { deadline, received: Some(received), ..Context::default() };
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
    if let Some(classified) = context.classified.get() {
        classified.mark(&mut response);
    }
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
    let sender = authenticate(server, caller, headers, context).await?;
    let admitting = admit(server, sender, method, uri, headers, &target, &query, context, payload);
    let mut admitted = until_hang_up(waiting, admitting).await?;
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
    let mut response = route::answer(&parts, &target).await?;
    if let Some(watch) = admitted.pass.take_watch() {
        response.body_mut().hold(watch);
    }
    Ok(response)
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
    headers: &mut HeaderMap,
    context: &Context,
) -> Result<User, Refusal> {
    let certificate = match caller {
        Caller::InProcess(user) => return Ok(user),
        Caller::Connection { certificate } => certificate,
    };
    let sender = server.sender(certificate.as_deref(), headers).await.ok_or_else(Status::unauthorized)?;
    if let Some(warning) = sender.warning {
        context.warnings.add(warning);
    }
    Ok(sender.user)
}

/// The filters between authentication and the handler.
#[allow(clippy::too_many_arguments, reason = "each filter looks at another part of the request")]
async fn admit<'s>(
    server: &'s Server,
    sender: User,
    method: &Method,
    uri: &http::Uri,
    headers: &HeaderMap,
    target: &Target<'_>,
    query: &Query<'_>,
    context: &Context,
    payload: Payload,
) -> Result<Admitted<'s>, Refusal> {
    let user = match impersonate::user(&*server.authorizer, &sender, headers).await {
        Ok(impersonated) => impersonated.unwrap_or(sender),
        Err(impersonate::Refusal::Status(status)) => return Err(Refusal::Status(status)),
        Err(impersonate::Refusal::NoUser(why)) => {
            return Err(Refusal::response(route::internal_error_page(uri, &why)));
        }
    };
    let lower = method.as_str().to_ascii_lowercase();
    let verb = verb(&lower, target);
    let asked = Asked { user: &user, verb, method, uri, target, query, context };
    let pass = flow::enter(server, &asked).await?;
    authorize(server, &user, verb, uri.path(), target).await?;
    let body = if is_mutating(method) { payload.read().await? } else { Bytes::new() };
    Ok(Admitted { user, body, pass })
}

/// What a request does, as rules name it.
fn verb<'a>(method: &'a str, target: &Target<'_>) -> &'a str {
    match &target.resource {
        Some(resource) => resource.verb.map_or(if method == "head" { "get" } else { "" }, Verb::name),
        None => method,
    }
}

async fn authorize(
    server: &Server,
    user: &User,
    verb: &str,
    path: &str,
    target: &Target<'_>,
) -> Result<(), Refusal> {
    let attributes = Attributes { user, verb, path, resource: target.resource.as_ref() };
    match server.authorizer.authorize(&attributes).await {
        Decision::Allow { .. } => Ok(()),
        Decision::Deny { reason } => Err(attributes.forbidden(&reason).into()),
    }
}
