//! Sends one request: rate limited, timed, counted, and never repeated.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use parking_lot::Mutex;
use setpoint_clock::Clock;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::ClientError;
use crate::adaptive::{AdaptiveLimits, Traffic};
use crate::backoff::TokenBucket;
use crate::leader::Fence;
use crate::metrics::Requests;

/// The largest response that is read. An object is at most 3 MiB, the API server's limit on a request. A page of a list
/// has up to 500 of them; real ones reach a few tens of MiB.
const MAX_REPLY: usize = 512 << 20;

const DEFAULT_USER_AGENT: &str = concat!("setpoint/", env!("CARGO_PKG_VERSION"));

/// The header with the user to act as.
const IMPERSONATE_USER: &str = "impersonate-user";

/// A `kube::Client` with limits and metrics. Cheap to clone.
#[derive(Clone)]
pub(super) struct Transport {
    kube: kube::Client,
    user_agent: HeaderValue,
    /// The user to act as.
    impersonated: Option<String>,
    limit: Option<Arc<Limit>>,
    metrics: Option<(Clock, Arc<Requests>)>,
    timeout: Option<Duration>,
    fence: Option<Fence>,
    /// Limits concurrent requests. Watches do not count once they are open.
    connections: Option<Arc<Semaphore>>,
    traffic: Option<(Clock, Arc<Traffic>)>,
}

struct Limit {
    clock: Clock,
    bucket: Arc<Mutex<TokenBucket>>,
}

/// A request without the common headers.
pub(super) struct Call {
    method: Method,
    path: String,
    accept: &'static str,
    body: Option<(&'static str, Bytes)>,
}

impl Call {
    pub(super) fn new(method: Method, path: String) -> Self {
        Self { method, path, accept: "application/json", body: None }
    }

    pub(super) fn accepting(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    /// Requests a dry run.
    pub(super) fn dry_run(mut self) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path.push_str("dryRun=All");
        self
    }

    pub(super) fn json(self, body: Bytes) -> Self {
        self.body("application/json", body)
    }

    pub(super) fn body(self, content_type: &'static str, body: Bytes) -> Self {
        Self { body: Some((content_type, body)), ..self }
    }

    fn into_request(self, transport: &Transport) -> Result<Request<Body>, http::Error> {
        let request = Request::builder()
            .method(self.method)
            .uri(self.path)
            .header(ACCEPT, HeaderValue::from_static(self.accept))
            .header(USER_AGENT, &transport.user_agent);
        match self.body {
            None => request.body(Body::empty()),
            Some((content_type, body)) => {
                request.header(CONTENT_TYPE, HeaderValue::from_static(content_type)).body(Body::from(body))
            }
        }
    }
}

impl Transport {
    pub(super) fn new(kube: kube::Client) -> Self {
        Self {
            kube,
            user_agent: HeaderValue::from_static(DEFAULT_USER_AGENT),
            impersonated: None,
            limit: None,
            metrics: None,
            timeout: None,
            fence: None,
            connections: None,
            traffic: None,
        }
    }

    pub(super) fn kube(&self) -> &kube::Client {
        &self.kube
    }

    /// Sets the user agent. Ignores a value that is not valid in a header.
    pub(super) fn set_user_agent(&mut self, user_agent: &str) {
        if let Ok(value) = HeaderValue::from_str(user_agent) {
            self.user_agent = value;
        }
    }

    pub(super) fn add_user_agent(&mut self, purpose: &str) {
        let name = self.user_agent.to_str().unwrap_or_default().to_owned();
        self.set_user_agent(&format!("{name}/{purpose}"));
    }

    pub(super) fn impersonate(&mut self, user: &str) {
        self.impersonated = Some(user.to_owned());
    }

    pub(super) fn set_rate_limit(&mut self, clock: &Clock, per_second: f64, burst: u32) {
        let bucket = Arc::new(Mutex::new(TokenBucket::new(per_second, burst)));
        self.limit = Some(Arc::new(Limit { clock: clock.clone(), bucket }));
    }

    pub(super) fn set_adaptive(&mut self, clock: &Clock, adaptive: &AdaptiveLimits) {
        self.limit = Some(Arc::new(Limit { clock: clock.clone(), bucket: adaptive.bucket() }));
        self.traffic = Some((clock.clone(), adaptive.traffic()));
    }

    pub(super) fn set_connections(&mut self, most: usize) {
        self.connections = Some(Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))));
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    pub(super) fn set_fence(&mut self, fence: &Fence) {
        self.fence = Some(fence.clone());
    }

    pub(super) fn set_metrics(&mut self, clock: &Clock, requests: Arc<Requests>) {
        self.metrics = Some((clock.clone(), requests));
    }

    /// Sends the request and reads a successful response.
    pub(super) async fn send(&self, call: Call) -> Result<Bytes, ClientError> {
        let _connection = self.connection().await;
        let reply = self.answer(call).await?;
        self.in_time(read(reply)).await?
    }

    /// Sends the request and returns the body of a successful response as a stream.
    pub(super) async fn open(&self, call: Call) -> Result<Body, ClientError> {
        let reply = self.answer(call).await?;
        if reply.status().is_success() {
            return Ok(reply.into_body());
        }
        self.in_time(read(reply)).await?.map(|_| Body::empty())
    }

    /// Sends the request and returns the response head. Counts and times it.
    async fn answer(&self, call: Call) -> Result<Response<Body>, ClientError> {
        let request = call.into_request(self).map_err(|error| ClientError::Transport(Box::new(error)))?;
        self.forward(request).await
    }

    /// Sends a request, complete with its headers, and returns the response head. Counts and times it.
    pub(super) async fn forward<B: Into<Body>>(
        &self,
        request: Request<B>,
    ) -> Result<Response<Body>, ClientError> {
        let (method, mut request) = (request.method().clone(), request.map(Into::into));
        if let Some(user) = &self.impersonated {
            let user =
                HeaderValue::from_str(user).map_err(|error| ClientError::Transport(Box::new(error)))?;
            request.headers_mut().insert(IMPERSONATE_USER, user);
        }
        self.wait_for_turn(&method).await;
        self.may_send(&method)?;
        let started = self.metrics.as_ref().map(|(clock, _)| clock.instant());
        let noted = self.traffic.as_ref().map(|(clock, _)| clock.instant());
        let reply = match self.in_time(self.kube.send(request)).await {
            Ok(reply) => reply.map_err(|error| ClientError::Transport(Box::new(error))),
            Err(error) => Err(error),
        };
        if let (Some((clock, requests)), Some(started)) = (&self.metrics, started) {
            let code = reply.as_ref().ok().map(|reply| reply.status().as_u16());
            requests.answered(&method, code, clock.instant().saturating_duration_since(started));
        }
        if let (Some((clock, traffic)), Some(started)) = (&self.traffic, noted) {
            let code = reply.as_ref().ok().map(|reply| reply.status().as_u16());
            traffic.note(code, clock.instant().saturating_duration_since(started));
        }
        reply
    }

    /// Waits until there are fewer concurrent requests than the limit.
    async fn connection(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed, so acquiring always succeeds.
        self.connections.as_ref()?.acquire().await.ok()
    }

    /// Checks the fence. Called last, when nothing else delays the request.
    fn may_send(&self, method: &Method) -> Result<(), ClientError> {
        match &self.fence {
            Some(fence) if method != Method::GET && !fence.holds() => Err(ClientError::Fenced),
            _ => Ok(()),
        }
    }

    async fn in_time<T>(&self, waiting: impl Future<Output = T>) -> Result<T, ClientError> {
        match self.timeout {
            None => Ok(waiting.await),
            Some(timeout) => tokio::time::timeout(timeout, waiting)
                .await
                .map_err(|elapsed| ClientError::Transport(Box::new(elapsed))),
        }
    }

    async fn wait_for_turn(&self, method: &Method) {
        let Some(limit) = &self.limit else { return };
        let wait = limit.bucket.lock().reserve(limit.clock.instant());
        if wait > Duration::ZERO {
            limit.clock.sleep(wait).await;
        }
        if let Some((_, requests)) = &self.metrics {
            requests.limited(method, wait);
        }
    }
}

async fn read(response: Response<Body>) -> Result<Bytes, ClientError> {
    let (head, body) = response.into_parts();
    // The response was cut off, so the request may well have been executed.
    let body = Limited::new(body, MAX_REPLY).collect().await.map_err(ClientError::Transport)?.to_bytes();
    if head.status.is_success() {
        Ok(body)
    } else {
        Err(ClientError::from_reply(head.status.as_u16(), &head.headers, &body))
    }
}
