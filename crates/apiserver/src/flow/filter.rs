//! The filter: classifies a request, waits for a seat if necessary, and admits or rejects it.

use std::time::Duration;

use http::header::{HeaderName, RETRY_AFTER};
use http::{HeaderValue, Method, Response, StatusCode, Uri};
use setpoint_clock::Instant;
use setpoint_flow::{Queuing, Seat, Started};
use sha2::{Digest as _, Sha256};

use super::config::{ActiveSchema, Label};
use super::in_flight::{Counted, RequestKind};
use super::objects::Distinguisher;
use super::rules::Digest;
use super::watches::OpenWatch;
use super::{Flow, PriorityAndFairness, width};
use crate::auth::{MASTERS, User};
use crate::body::Body;
use crate::chain::{Context, Refusal, is_long_running};
use crate::health;
use crate::kind::Verb;
use crate::query::Query;
use crate::request::Target;
use crate::server::Server;
use crate::status::Status;

/// Maximum time in a queue, regardless of the request's deadline.
const MAX_WAIT: Duration = Duration::from_secs(60);

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// A request to classify and admit.
pub(crate) struct FlowRequest<'a> {
    pub(crate) user: &'a User,
    pub(crate) verb: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) target: &'a Target<'a>,
    pub(crate) query: &'a Query<'a>,
    pub(crate) context: &'a Context,
}

/// A request's schema and level, sent in its response headers as uids. Clients do not see the names.
#[derive(Clone)]
pub(crate) struct Classified {
    schema: HeaderValue,
    level: HeaderValue,
}

impl Classified {
    pub(crate) fn mark(&self, response: &mut Response<Body>) {
        response.headers_mut().insert(SCHEMA_UID, self.schema.clone());
        response.headers_mut().insert(LEVEL_UID, self.level.clone());
    }
}

/// The resources that a request holds while it executes.
#[derive(Default)]
pub(crate) struct ExecutionGuard {
    _seat: Option<Seat<Label>>,
    _counted: Option<Counted>,
    watch: Option<OpenWatch>,
}

impl ExecutionGuard {
    /// Takes the guard to hold while the watch is open.
    pub(crate) fn take_watch(&mut self) -> Option<OpenWatch> {
        self.watch.take()
    }
}

/// Admits a request, immediately or after waiting.
pub(crate) async fn enter(server: &Server, asked: &FlowRequest<'_>) -> Result<ExecutionGuard, Refusal> {
    let is_watch = asked.target.resource.as_ref().is_some_and(|target| target.verb == Some(Verb::Watch));
    let is_long = is_long_running(asked.target);
    let mut pass = match &server.flow {
        Some(flow) if is_watch || !is_long => match flow.fair() {
            Some(fair) => admit_by_priority(server, flow, fair, asked, is_watch).await?,
            None if is_watch => ExecutionGuard::default(),
            None => within_limits(flow, asked)?,
        },
        _ => ExecutionGuard::default(),
    };
    if let Some(target) = asked.target.resource.as_ref().filter(|_| is_watch) {
        pass.watch = Some(server.watches.open(asked.user, target)?);
    }
    Ok(pass)
}

async fn admit_by_priority(
    server: &Server,
    flow: &Flow,
    fair: &PriorityAndFairness,
    asked: &FlowRequest<'_>,
    is_watch: bool,
) -> Result<ExecutionGuard, Refusal> {
    let config = fair.config().await.map_err(|error| server.refusal(error))?;
    flow.in_flight.limit(config.limits);
    let resource = asked.target.resource.as_ref();
    let digest = Digest { user: asked.user, verb: asked.verb, path: &asked.target.path, resource };
    let schema =
        config.schema_of(&digest).ok_or_else(|| Status::internal("there is no catch-all FlowSchema"))?;
    let classified = Classified { schema: schema.uid.clone(), level: schema.level.uid.clone() };
    asked.context.classify(classified);
    let work = width::of(server, fair, schema, resource, asked.query);
    let sort = RequestKind::of(asked.verb);
    let level = &schema.level.level;
    let hash = hash(schema, asked);
    let seat = match level.start(work, hash, &schema.stats, is_watch, label(schema, asked)) {
        Started::Admitted(seat) => Some(seat),
        Started::Rejected(_) => None,
        Started::Queued(queued) => {
            let _waiting = flow.in_flight.waiting(sort);
            queued.wait(wait_until(asked.context, server.request_timeout, fair.clock.instant())).await
        }
    };
    match seat {
        Some(seat) => {
            let counted = flow.in_flight.executing(sort);
            Ok(ExecutionGuard { _seat: Some(seat), _counted: Some(counted), watch: None })
        }
        None => {
            let second = server.now().as_second();
            let seconds = schema.level.retry_after.lock().rejected(second);
            Err(too_many(seconds))
        }
    }
}

/// Applies the plain limits for reads and writes.
fn within_limits(flow: &Flow, asked: &FlowRequest<'_>) -> Result<ExecutionGuard, Refusal> {
    let sort = RequestKind::of(asked.verb);
    let limit = match sort {
        RequestKind::ReadOnly => flow.settings.max_requests,
        RequestKind::Mutating => flow.settings.max_mutating_requests,
    };
    match flow.in_flight.within(sort, limit) {
        Some(counted) => Ok(ExecutionGuard { _counted: Some(counted), ..ExecutionGuard::default() }),
        // Administrators are always admitted.
        None if asked.user.is_in(MASTERS) => Ok(ExecutionGuard::default()),
        None => Err(too_many(1)),
    }
}

/// Returns how long a request may wait: a quarter of its time, from when it was received.
fn wait_until(context: &Context, request_timeout: Duration, now: Instant) -> Instant {
    let received = context.received.unwrap_or(now);
    let time =
        context.deadline.map_or(request_timeout, |deadline| deadline.saturating_duration_since(received));
    received + (time / 4).min(MAX_WAIT)
}

fn too_many(seconds: i64) -> Refusal {
    let text = "Too many requests, please try again later.\n";
    let mut response = health::text(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    Refusal::response(response)
}

fn distinguisher<'a>(schema: &ActiveSchema, asked: &FlowRequest<'a>) -> &'a str {
    match schema.distinguisher {
        None => "",
        Some(Distinguisher::ByUser) => &asked.user.name,
        Some(Distinguisher::ByNamespace) => {
            asked.target.resource.as_ref().and_then(|target| target.namespace.as_deref()).unwrap_or("")
        }
    }
}

/// Returns the hash of a request's flow within its schema. A level with one queue has one flow.
fn hash(schema: &ActiveSchema, asked: &FlowRequest<'_>) -> u64 {
    if !matches!(schema.level.queuing, Queuing::Queue { queues, .. } if queues > 1) {
        return 0;
    }
    let mut hash = Sha256::new();
    hash.update(schema.name.as_bytes());
    hash.update([0]);
    hash.update(distinguisher(schema, asked).as_bytes());
    let sum = hash.finalize();
    sum.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn label(schema: &ActiveSchema, asked: &FlowRequest<'_>) -> Label {
    Label {
        schema: schema.name.clone(),
        distinguisher: schema.distinguisher,
        user: asked.user.name.clone(),
        method: asked.method.clone(),
        uri: asked.uri.clone(),
    }
}
