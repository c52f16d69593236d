//! The client for one endpoint.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use setpoint_clock::{Clock, Instant, Rng};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dial::{Connector, Dial, MAX_HEADERS};
use crate::error::{CallError, StatusError, retry_after};
use crate::go_text::{go_client_text, innermost};
use crate::gzip::{self, Unreadable};
use crate::kubeconfig::{Credential, Endpoint};
use crate::settings::{Settings, go_duration};
use crate::tls::TlsError;

/// The number of idle connections kept per host, as in v1.34's clients.
const IDLE_CONNECTIONS: usize = 25;
const IDLE: Duration = Duration::from_secs(90);
/// The limit on concurrent calls. Tokens are looked up before a request counts toward any other limit, so a client that
/// sends enough of them could use up all file descriptors. A webhook that responds within 10 ms can still serve 50,000
/// calls per second.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 500;
/// How often `Retry-After` is followed within one attempt, as in v1.34.
const DELAYED_RETRIES: u32 = 10;

/// A client for one endpoint. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    endpoint: Endpoint,
    http: legacy::Client<Connector, Full<Bytes>>,
    settings: Settings,
    clock: Clock,
    rng: Rng,
    turns: Semaphore,
    /// The responses that may be read, or held by callers.
    responses: Arc<Semaphore>,
}

/// A successful response.
#[derive(Clone, Debug)]
pub struct WebhookResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Counts it toward [`Settings::responses`].
    _place: Option<Arc<OwnedSemaphorePermit>>,
}

impl WebhookResponse {
    /// Returns the body to decode, which must not be empty.
    pub fn content(&self) -> Result<&Bytes, String> {
        if !self.body.is_empty() {
            return Ok(&self.body);
        }
        let stated = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = stated.filter(|stated| !stated.is_empty()).unwrap_or("application/json");
        let code = self.status.as_u16();
        Err(format!("0-length response with status code: {code} and content type: {content_type}"))
    }
}

/// A completed attempt.
#[derive(Debug)]
pub struct Call<'a> {
    pub outcome: &'a Result<WebhookResponse, CallError>,
    pub duration: Duration,
}

/// The target and deadline of a call.
struct Target {
    method: Method,
    uri: Uri,
    deadline: Instant,
    /// Whether the caller set the deadline of this call. Go has a different message for that.
    is_callers_deadline: bool,
}

impl Client {
    pub fn new(
        endpoint: Endpoint,
        settings: Settings,
        dial: Arc<dyn Dial>,
        clock: Clock,
        rng: Rng,
    ) -> Result<Self, TlsError> {
        let tls = Arc::new(endpoint.tls.config()?);
        let connector = Connector { dial, tls, server_name: endpoint.tls.server_name.clone() };
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        let responses = Arc::new(Semaphore::new(settings.responses));
        let turns = Semaphore::new(MAX_CONCURRENT_CALLS);
        Ok(Self(Arc::new(Inner { endpoint, http, settings, clock, rng, turns, responses })))
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// Posts JSON, with retries according to the settings. Calls `note` after every attempt.
    pub async fn post_with_backoff(
        &self,
        body: &impl Serialize,
        note: impl FnMut(Call<'_>),
    ) -> Result<WebhookResponse, CallError> {
        let body = serde_json::to_vec(body).map_err(|why| CallError::Request(why.to_string()))?;
        self.post_encoded_with_backoff(body.into(), note).await
    }

    /// Like [`post_with_backoff`](Self::post_with_backoff), with encoded JSON.
    pub async fn post_encoded_with_backoff(
        &self,
        body: Bytes,
        mut note: impl FnMut(Call<'_>),
    ) -> Result<WebhookResponse, CallError> {
        let Inner { clock, settings, rng, .. } = &*self.0;
        let mut pauses = settings.backoff.pauses(rng);
        loop {
            let start = clock.instant();
            let outcome = self.post(body.clone()).await;
            note(Call { outcome: &outcome, duration: clock.instant().duration_since(start) });
            match (outcome, pauses.next()) {
                (Err(error), Some(pause)) if settings.retries.includes(&error) => clock.sleep(pause).await,
                (outcome, _) => return outcome,
            }
        }
    }

    /// Posts JSON once.
    pub async fn post(&self, body: Bytes) -> Result<WebhookResponse, CallError> {
        let Inner { endpoint, settings, clock, .. } = &*self.0;
        let uri = match settings.sends_timeout {
            true => with_timeout(&endpoint.url, settings.timeout)?,
            false => endpoint.url.clone(),
        };
        let target = self.target(Method::POST, uri);
        self.call(&target, body, endpoint.credential.header(clock)?).await
    }

    /// Posts JSON once, with this timeout instead of the one in the settings. The timeout is sent to the server in
    /// whole seconds.
    pub async fn post_within(&self, body: Bytes, time: Duration) -> Result<WebhookResponse, CallError> {
        let Inner { endpoint, clock, .. } = &*self.0;
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let uri = with_timeout(&endpoint.url, Duration::from_secs(seconds))?;
        let deadline = clock.instant() + time;
        let target = Target { method: Method::POST, uri, deadline, is_callers_deadline: true };
        self.call(&target, body, endpoint.credential.header(clock)?).await
    }

    /// Posts JSON once. The server gets the timeout in the settings; the call ends at the deadline, which also covers
    /// what the caller did before.
    pub async fn post_until(&self, body: Bytes, deadline: Instant) -> Result<WebhookResponse, CallError> {
        let Inner { endpoint, settings, clock, .. } = &*self.0;
        let uri = with_timeout(&endpoint.url, settings.timeout)?;
        let target = Target { method: Method::POST, uri, deadline, is_callers_deadline: true };
        self.call(&target, body, endpoint.credential.header(clock)?).await
    }

    /// Gets a URL, with a bearer token if given. The endpoint's own credential is only sent to the endpoint's URL.
    pub async fn get(&self, uri: &Uri, bearer: Option<&str>) -> Result<WebhookResponse, CallError> {
        let target = self.target(Method::GET, uri.clone());
        let header = bearer.map(Credential::bearer).transpose()?;
        self.call(&target, Bytes::new(), header).await
    }

    fn target(&self, method: Method, uri: Uri) -> Target {
        let deadline = self.0.clock.instant() + self.0.settings.timeout;
        Target { method, uri, deadline, is_callers_deadline: false }
    }

    /// Makes one attempt. Follows `Retry-After` as long as the timeout allows.
    async fn call(
        &self,
        target: &Target,
        body: Bytes,
        credential: Option<HeaderValue>,
    ) -> Result<WebhookResponse, CallError> {
        let clock = &self.0.clock;
        let deadline = target.deadline;
        for left in (0..=DELAYED_RETRIES).rev() {
            let answer = self.exchange(target, body.clone(), credential.clone()).await?;
            // As in v1.34, a response that switches protocols is one without content.
            let is_switched = answer.status == StatusCode::SWITCHING_PROTOCOLS;
            if is_switched || (200..=206).contains(&answer.status.as_u16()) {
                return Ok(answer);
            }
            let pause = Duration::from_secs(u64::from(retry_after(&answer.headers)));
            let may_wait = answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS;
            if left == 0 || pause.is_zero() || !may_wait {
                let error = StatusError::of(answer.status, &answer.headers, &answer.body);
                return Err(CallError::Status(error));
            }
            // Other calls need its place among the responses in memory.
            drop(answer);
            if clock.instant() + pause > deadline {
                clock.sleep_until(deadline).await;
                return Err(target.timed_out());
            }
            clock.sleep(pause).await;
        }
        Err(target.timed_out())
    }

    async fn exchange(
        &self,
        target: &Target,
        body: Bytes,
        credential: Option<HeaderValue>,
    ) -> Result<WebhookResponse, CallError> {
        let request = self.request(target, body, credential)?;
        let sending = async {
            // The semaphore is never closed. Waiting for it counts toward the call's timeout.
            let turn = self.0.turns.acquire().await;
            let response = self.0.http.request(request).await.map_err(|why| target.failed(&why))?;
            Ok((turn, response))
        };
        let sent = tokio::time::timeout_at(target.deadline, sending).await;
        let (_turn, response) = sent.unwrap_or_else(|_| Err(target.timed_out()))?;
        let (head, body) = response.into_parts();
        let limit = self.0.settings.answer_bytes;
        let reading = async {
            // The server has begun to respond, so this is a matter of memory, not of the server's time.
            let place = self.0.responses.clone().acquire_owned().await.ok().map(Arc::new);
            let body =
                Limited::new(body, limit).collect().await.map_err(|why| target.unread(&*why, limit))?;
            Ok((place, body.to_bytes()))
        };
        let read = tokio::time::timeout_at(target.deadline, reading).await;
        let (place, body) = read.unwrap_or_else(|_| Err(target.unfinished()))?;
        let body = gzip::decompressed(&head.headers, body, limit);
        let body = body.map_err(|why| target.not_decompressed(why, limit))?;
        Ok(WebhookResponse { status: head.status, headers: head.headers, body, _place: place })
    }

    fn request(
        &self,
        target: &Target,
        body: Bytes,
        credential: Option<HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let has_body = !body.is_empty();
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = target.method.clone();
        *request.uri_mut() = target.uri.clone();
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(self.0.settings.user_agent));
        headers.insert(ACCEPT_ENCODING, gzip::OFFERED);
        if has_body {
            headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(credential) = credential {
            headers.insert(AUTHORIZATION, credential);
        }
        Ok(request)
    }
}

/// Returns the URL with the timeout as its only parameter.
fn with_timeout(url: &Uri, timeout: Duration) -> Result<Uri, CallError> {
    let mut parts = url.clone().into_parts();
    let query = format!("{}?timeout={}", url.path(), go_duration(timeout));
    let bad = |why: &dyn std::fmt::Display| CallError::Request(why.to_string());
    parts.path_and_query = Some(query.parse().map_err(|why: http::uri::InvalidUri| bad(&why))?);
    Uri::from_parts(parts).map_err(|why| bad(&why))
}

impl Target {
    fn named(&self) -> (String, String) {
        let method = self.method.as_str();
        let method = method.chars().take(1).chain(method[1..].to_ascii_lowercase().chars()).collect();
        (method, self.uri.to_string())
    }

    fn timed_out(&self) -> CallError {
        let (method, url) = self.named();
        match self.is_callers_deadline {
            true => CallError::Deadline { method, url },
            false => CallError::Timeout { method, url },
        }
    }

    /// The time was up before the end of the response.
    fn unfinished(&self) -> CallError {
        let why = match self.is_callers_deadline {
            true => "context deadline exceeded",
            false => "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
        };
        CallError::Unfinished { why }
    }

    fn failed(&self, error: &legacy::Error) -> CallError {
        let (method, url) = self.named();
        CallError::Connection { method, url, why: go_client_text(error), is_reset: is_reset(error) }
    }

    fn unread(&self, error: &(dyn Error + Send + Sync + 'static), limit: usize) -> CallError {
        if error.is::<LengthLimitError>() {
            return self.too_long(limit);
        }
        let why = match go_client_text(error) {
            text if text == "EOF" => "unexpected EOF".into(),
            text => text,
        };
        CallError::Unread { why, is_reset: is_reset(error) }
    }

    fn not_decompressed(&self, why: Unreadable, limit: usize) -> CallError {
        match why {
            Unreadable::TooLong => self.too_long(limit),
            Unreadable::Invalid(why) => CallError::Unread { why: why.into(), is_reset: false },
        }
    }

    fn too_long(&self, limit: usize) -> CallError {
        let (method, url) = self.named();
        CallError::TooLong { method, url, limit }
    }
}

fn is_reset(error: &(dyn Error + 'static)) -> bool {
    let kind = innermost(error).downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::ConnectionReset)
}
