//! The filters that every request passes before it reaches a handler, in v1.34's order:
//!
//! ```text
//!  panic boundary ─► deadline ─► authentication ─► audit ─► impersonation ─► flow ─► authorization ─┬─► body ─► route
//!                                                                                                    └─► aggregation
//! ```
//!
//! Invariants:
//! - a panic costs one response, a log line and a count, never the connection or the process;
//! - if the client of a mutating request hangs up or its deadline passes, only the wait for the response ends, never
//!   the work that follows a commit ([`detach`]);
//! - a request that reaches the audit filter is recorded to its end, whatever happens to it and its client;
//! - until a request is authorized and its body is read, a hang-up or the deadline cancels it; after that its handler
//!   stops before its next attempt, plugin or object ([`Context::check_awaited`]), and a queued write completes;
//! - an undecodable header, path or body rejects the request; it never widens what the request may do.

mod deadline;
mod detach;
mod panics;
mod payload;
mod weight;

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts as Head;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::deadline::Limits;
pub(crate) use self::deadline::{exceeded as deadline_exceeded, is_long_running};
use self::detach::Detached;
pub(crate) use self::panics::{count as panic_count, guard_poll};
pub(crate) use self::payload::Payload;
pub(crate) use self::weight::DecodeBudget;
use crate::aggregation::{ApiService, Forward};
use crate::audit::{self, AUDIT_ID, Layer, Received, Record};
use crate::auth::{Attributes, User, impersonate};
use crate::body::Body;
use crate::custom::conversion::VersionMemo;
use crate::flow::{self, Classified, ExecutionGuard, FlowRequest};
use crate::negotiate;
use crate::query::Query;
use crate::request::Target;
use crate::rest::respond;
use crate::route;
use crate::serve::Slot;
use crate::server::{Server, Warnings};
use crate::status::Status;
use crate::tls::Peer;
use crate::tunnel::Tunnel;

/// When a response must have been sent, stored for the sending side.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(pub(crate) Instant);

/// The origin of a request.
pub(crate) enum Caller {
    /// The same process; the user is known.
    InProcess(Arc<User>),
    /// A connection from this address, with the identity from its client certificate. Headers may add to it.
    Connection { certificate: Arc<Peer>, peer: IpAddr, slot: Option<Arc<Slot>> },
}

/// State that accompanies a request from the first filter to the last handler.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) warnings: Warnings,
    /// The deadline for the response; `None` for long-running requests.
    pub(crate) deadline: Option<Instant>,
    /// The deadline of the handler; `None` if it has no limit of its own.
    pub(crate) handler_deadline: Option<Instant>,
    /// Cancelled when the client has hung up or been answered: only writes continue then.
    pub(crate) waiting: Option<CancellationToken>,
    pub(crate) audit: Record,
    pub(crate) received: Option<Instant>,
    /// Whether this is an internal request, which skips admission.
    pub(crate) bypasses_admission: bool,
    /// The request's classification by priority and fairness.
    pub(crate) classified: OnceLock<Classified>,
    /// The client's address, unless it is part of this process.
    pub(crate) client: Option<IpAddr>,
    pub(crate) audit_id: Option<HeaderValue>,
    /// Conversions that field ownership depends on.
    pub(crate) versions: VersionMemo,
    pub(crate) raw: Raw,
}

impl Context {
    /// Fails if the client no longer waits: it has hung up, or its deadline has passed. Call this before each step
    /// that may take long, as long as nothing is committed that others rely on.
    pub(crate) fn check_awaited(&self, clock: &Clock) -> Result<(), Status> {
        // A deadline's timer only fires while the work is waiting for something else.
        let is_late = || self.deadline.is_some_and(|deadline| clock.instant() >= deadline);
        if self.is_given_up() || is_late() { Err(deadline::exceeded()) } else { Ok(()) }
    }

    /// The deadline for work that depends on others: the client's deadline, or v1.34's limit for handlers.
    pub(crate) fn work_deadline(&self) -> Option<Instant> {
        [self.deadline, self.handler_deadline].into_iter().flatten().min()
    }

    /// Runs work that is worthless once the client has hung up.
    pub(crate) async fn while_awaited<T>(
        &self,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let Some(waiting) = &self.waiting else { return work.await };
        tokio::select! {
            biased;
            () = waiting.cancelled() => Err(deadline::exceeded()),
            outcome = work => outcome,
        }
    }

    /// Whether the client of a write has hung up or been answered.
    pub(crate) fn is_given_up(&self) -> bool {
        self.waiting.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) fn classify(&self, classified: Classified) {
        let _ = self.classified.set(classified);
    }
}

/// A long-running request as it came, for handlers that pass it on.
#[derive(Default)]
pub(crate) struct Raw {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// The body, if no filter has read it.
    payload: Mutex<Option<Payload>>,
}

impl Raw {
    fn new(request: &Request<Payload>) -> Self {
        Self { method: request.method().clone(), uri: request.uri().clone(), payload: Mutex::default() }
    }

    /// Takes the body, if no filter has read it.
    pub(crate) fn take_payload(&self) -> Option<Payload> {
        self.payload.lock().take()
    }
}

/// Why a request does not reach its handler.
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

    fn into_response(self, headers: &HeaderMap, context: &Context) -> Response<Body> {
        match self {
            Self::Status(status) => {
                context.audit.status(&status);
                respond::refusal(&status, negotiate::of_refusal(headers))
            }
            Self::Response(response) => *response,
        }
    }
}

/// A request that passed all filters.
struct Admitted {
    user: Arc<User>,
    pass: ExecutionGuard,
}

/// A body that was read, and the memory reserved for it once it is decoded.
type ReadBody<'s> = (Bytes, Option<SemaphorePermit<'s>>);

/// Handles a request. The response carries the request's audit ID.
pub(crate) async fn handle(
    server: &Arc<Server>,
    caller: Caller,
    request: Request<Payload>,
) -> Response<Body> {
    let id = audit::id(server, &caller, request.headers());
    // Boxed, so that callers neither hold the many states of a request nor compile them again.
    let mut response = in_time(server, caller, request, id.as_ref()).boxed().await;
    if let Some(id) = id {
        response.headers_mut().insert(AUDIT_ID, id);
    }
    response
}

async fn in_time(
    server: &Arc<Server>,
    caller: Caller,
    request: Request<Payload>,
    id: Option<&HeaderValue>,
) -> Response<Body> {
    let encoding = negotiate::of_refusal(request.headers());
    let limits = deadline::limits(request.method(), request.uri(), server.request_timeout);
    let received = server.clock.instant();
    let Limits { response, handler } = limits.as_ref().copied().unwrap_or_default();
    let deadline = response.map(|limit| received + limit);
    let handler_deadline = handler.map(|limit| received + limit);
    let write = handler.map(|_| (request.method().clone(), request.uri().clone()));
    let audit = Record::begin(server.audit.as_ref(), &caller, id, deadline);
    let client = match &caller {
        Caller::InProcess(_) => None,
        Caller::Connection { peer, .. } => Some(*peer),
    };
    let audit_id = id.cloned();
    let received = Some(received);
    let raw = match limits {
        Ok(Limits { response: None, .. }) => Raw::new(&request),
        _ => Raw::default(),
    };
    let context =
        Context { deadline, handler_deadline, audit, received, client, audit_id, raw, ..Context::default() };
    if let Err(status) = limits {
        return reject(&request.into_parts().0, status, context).await;
    }
    let answer = match is_mutating(request.method()) {
        true => detached(server, caller, request, context).left_future(),
        false => panics::guard(pass(server, caller, request, context)).right_future(),
    };
    let Some(deadline) = deadline else { return answer.await };
    let mut answer = std::pin::pin!(answer);
    if let Some((limit, (method, uri))) = handler_deadline.zip(write).filter(|(limit, _)| *limit < deadline) {
        match tokio::time::timeout_at(limit, &mut answer).await {
            Ok(response) => return ending_at(deadline, response),
            Err(_) if is_forwarded(server, &method, &uri).await => {}
            Err(_) => return respond::refusal(&deadline::exceeded(), encoding),
        }
    }
    match tokio::time::timeout_at(deadline, answer).await {
        // A handler may notice first that time is up.
        Ok(response)
            if server.clock.instant() >= deadline && response.status() == StatusCode::GATEWAY_TIMEOUT =>
        {
            deadline::page()
        }
        Ok(response) => ending_at(deadline, response),
        Err(_) => deadline::page(),
    }
}

/// Makes the body of a response end at the deadline, if it is sent in pieces.
fn ending_at(deadline: Instant, mut response: Response<Body>) -> Response<Body> {
    if response.body().as_full().is_none() {
        response.extensions_mut().insert(Deadline(deadline));
    }
    response
}

/// Whether an extension API server handles a request. Its handlers have no limit here.
async fn is_forwarded(server: &Server, method: &Method, uri: &Uri) -> bool {
    let query = Query::parse(uri.query().unwrap_or(""));
    match Target::parse(method, uri.path(), &query) {
        Ok(target) => server.remote_for(&target).await.is_ok_and(|service| service.is_some()),
        Err(_) => false,
    }
}

/// Responds to a request that is rejected before authentication.
async fn reject(head: &Head, status: Status, context: Context) -> Response<Body> {
    let query = Query::parse(head.uri.query().unwrap_or(""));
    if let Ok(target) = Target::parse(&head.method, head.uri.path(), &query) {
        context.audit.rejected(&received(head, None, &target));
    }
    let response = Refusal::from(status).into_response(&head.headers, &context);
    context.audit.complete(&head.uri, response).await
}

fn received<'a>(head: &'a Head, user: Option<&'a User>, target: &'a Target<'a>) -> Received<'a> {
    Received { user, method: &head.method, uri: &head.uri, headers: &head.headers, target }
}

pub(crate) fn is_mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Runs a request to its end, even if no one waits for it any more.
fn detached(server: &Arc<Server>, caller: Caller, request: Request<Payload>, context: Context) -> Detached {
    let waiting = CancellationToken::new();
    let context = Context { waiting: Some(waiting.clone()), ..context };
    let (server, tasks) = (server.clone(), server.tasks.clone());
    let work = async move { panics::guard(pass(&server, caller, request, context)).await };
    Detached::new(work.in_current_span(), tasks, waiting)
}

async fn pass(
    server: &Server,
    caller: Caller,
    request: Request<Payload>,
    context: Context,
) -> Response<Body> {
    let (mut head, payload) = request.into_parts();
    let answering = AssertUnwindSafe(handle_request(server, caller, &mut head, payload, &context));
    let answered = match answering.catch_unwind().await {
        Ok(answered) => answered,
        Err(panic) => {
            let why = panics::text(&*panic).to_owned();
            context.audit.panicked(&why).await;
            resume_unwind(panic)
        }
    };
    let mut response = answered.unwrap_or_else(|refusal| refusal.into_response(&head.headers, &context));
    if let Some(classified) = context.classified.get() {
        classified.mark(&mut response);
    }
    context.warnings.attach(&mut response);
    context.audit.complete(&head.uri, response).await
}

async fn handle_request(
    server: &Server,
    caller: Caller,
    head: &mut Head,
    payload: Payload,
    context: &Context,
) -> Result<Response<Body>, Refusal> {
    let waiting = context.waiting.as_ref();
    let uri = head.uri.clone();
    let query = Query::parse(uri.query().unwrap_or(""));
    let target = Target::parse(&head.method, uri.path(), &query)?;
    let sender = authenticate(server, caller, uri.path(), &mut head.headers, context);
    let sender = until_disconnect(waiting, context.audit.timed(Layer::Authentication, sender));
    let sender = match sender.await {
        Ok(sender) => sender,
        Err(refusal) => {
            context.audit.rejected(&received(head, None, &target));
            return Err(refusal);
        }
    };
    let head = &*head;
    context.audit.received(&received(head, Some(&sender), &target)).await?;
    let admitting = admit(server, sender, head, &target, &query, context);
    let Admitted { user, pass } = until_disconnect(waiting, admitting).await?;
    let authorized = Authorized { server, head, target: &target, query: &query, user: &user, context };
    match server.remote_for(&target).await? {
        Some(service) => authorized.forward(&service, payload, pass).await,
        None => authorized.answer(payload, pass).await,
    }
}

/// A request that passed all filters but the last, which reads its body.
struct Authorized<'a> {
    server: &'a Server,
    head: &'a Head,
    target: &'a Target<'a>,
    query: &'a Query<'a>,
    user: &'a User,
    context: &'a Context,
}

impl Authorized<'_> {
    async fn answer(self, payload: Payload, mut pass: ExecutionGuard) -> Result<Response<Body>, Refusal> {
        let Self { server, head, target, query, user, context } = self;
        let Head { method, headers, .. } = head;
        let payload = match is_passed_on(target) {
            true => {
                *context.raw.payload.lock() = Some(payload);
                Payload::Read(Bytes::new())
            }
            false => payload,
        };
        let reading = read(server, method, payload);
        let (body, _room) = until_disconnect(context.waiting.as_ref(), reading).await?;
        let parts = route::AuthorizedRequest { server, user, method, query, headers, body: &body, context };
        let mut response = route::handle(&parts, target).await?;
        if let Some(watch) = pass.take_watch() {
            response.body_mut().hold(watch);
        }
        Ok(response)
    }

    /// Forwards the request to the extension API server of an APIService, until the client hangs up. As in v1.34, a watch gives its
    /// seat back as soon as it is forwarded; every other request holds it until its response is sent.
    async fn forward(
        self,
        service: &ApiService,
        payload: Payload,
        mut pass: ExecutionGuard,
    ) -> Result<Response<Body>, Refusal> {
        let Self { server, head, target, query, user, context } = self;
        let request = Forward {
            method: &head.method,
            path: &target.path,
            query,
            headers: &head.headers,
            user,
            client: context.client,
            audit_id: context.audit_id.as_ref(),
            is_discovery: target.resource.is_none() && target.segments.len() == 3,
            is_long_running: is_long_running(target),
        };
        let watch = pass.take_watch();
        let held = watch.is_none().then_some(pass);
        let forwarding = server.aggregation.forward(service, &request, payload.streamed()).map(Ok);
        let mut response = until_disconnect(context.waiting.as_ref(), forwarding).await?;
        match response.extensions().get::<Tunnel>() {
            Some(tunnel) => tunnel.hold((held, watch)),
            None => response.body_mut().hold((held, watch)),
        }
        Ok(response)
    }
}

async fn read<'s>(server: &'s Server, method: &Method, payload: Payload) -> Result<ReadBody<'s>, Refusal> {
    let body = if is_mutating(method) { payload.read().await? } else { Bytes::new() };
    let room = server.body_room.enter(&body).await?;
    Ok((body, room))
}

/// Runs `work` unless the client hangs up first.
async fn until_disconnect<T>(
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
) -> Result<Arc<User>, Refusal> {
    let (certificate, slot) = match caller {
        Caller::InProcess(user) => return Ok(user),
        Caller::Connection { certificate, slot, .. } => (certificate, slot),
    };
    let sender = server.sender(&certificate, path, headers, context).await;
    let sender = sender.map_err(|_| Status::unauthorized())?;
    if let Some(slot) = slot {
        slot.belongs_to(&sender.name)?;
    }
    Ok(Arc::new(sender))
}

/// Runs the filters between authentication and the handler.
async fn admit(
    server: &Server,
    sender: Arc<User>,
    head: &Head,
    target: &Target<'_>,
    query: &Query<'_>,
    context: &Context,
) -> Result<Admitted, Refusal> {
    let Head { method, uri, headers, .. } = head;
    let user = match impersonate::user(&*server.authorizer, &sender, headers).await {
        Ok(None) => sender,
        Ok(Some(impersonated)) => {
            context.audit.impersonated(&impersonated);
            Arc::new(impersonated)
        }
        Err(impersonate::Refusal::Status(status)) => return Err(Refusal::Status(status)),
        Err(impersonate::Refusal::NoUser(why)) => {
            return Err(Refusal::response(route::internal_error_page(uri, &why)));
        }
    };
    let verb = target.verb(method);
    let asked = FlowRequest { user: &user, verb: &verb, method, uri, target, query, context };
    let pass = flow::enter(server, &asked).await?;
    let authorizing = authorize(server, &user, &verb, uri, target, context);
    context.audit.timed(Layer::Authorization, authorizing).await?;
    Ok(Admitted { user, pass })
}

/// Whether a request's body is passed on as it arrives. It may be of any size.
fn is_passed_on(target: &Target<'_>) -> bool {
    target.resource.as_ref().is_some_and(|resource| resource.subresource.as_deref() == Some("proxy"))
}

async fn authorize(
    server: &Server,
    user: &User,
    verb: &str,
    uri: &http::Uri,
    target: &Target<'_>,
    context: &Context,
) -> Result<(), Refusal> {
    let attributes = Attributes { user, verb, path: &target.path, resource: target.resource.as_ref() };
    let start = server.clock.instant();
    let decision = server.authorizer.authorize(&attributes).await;
    server.auth_metrics.authorized(&decision, server.clock.instant().duration_since(start));
    context.audit.authorized(&decision);
    match &decision.error {
        _ if decision.is_allowed() => Ok(()),
        Some(error) => Err(Refusal::response(route::internal_error_page(uri, error))),
        None => Err(attributes.forbidden(decision.reason()).into()),
    }
}
