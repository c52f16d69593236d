//! Calls one hook, with limits that contain a misbehaving hook.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint::Clock;
use setpoint::metrics::Metrics;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::breaker::{Breaker, End};
use super::etag::{EtagCache, ParentName};
use super::transport::{HookReply, HookRequest, MAX_ANSWER, Transport};
use crate::apply::fingerprint;
use crate::model::{Hook, HookVersion};

/// Concurrent calls of a hook: with responses of at most 8 MiB, they hold at most 64 MiB.
const IN_FLIGHT: usize = 8;
/// The minimum delay before a busy hook is called again.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum delay: a hook cannot postpone a parent forever.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How much of an invalid response is included in an error.
const EXCERPT: usize = 512;

/// The hook of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookName {
    Sync,
    Finalize,
    Customize,
}

/// The labels of a hook's metrics.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) url: String,
    pub(crate) controller: String,
    pub(crate) controller_type: &'static str,
}

/// Why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The hook is busy: it responded with 429.
    Busy(Duration),
    /// The circuit breaker is open.
    Paused(Duration),
    Failed(String),
    NoAnswer(String),
}

/// The settings of a caller.
pub(crate) struct CallerSettings {
    pub(crate) name: HookName,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) labels: Labels,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    /// Called with the reason when the hook has failed too often, and with `None` when it works again.
    pub(crate) on_health: Box<dyn Fn(Option<String>) + Send + Sync>,
}

pub(crate) struct Caller {
    settings: CallerSettings,
    version: HookVersion,
    strict: bool,
    limit: Duration,
    etags: Option<EtagCache>,
    breaker: Mutex<Breaker>,
    places: Semaphore,
}

impl Caller {
    pub(crate) fn new(hook: &Hook, limit: Duration, settings: CallerSettings) -> Self {
        let etag = hook.webhook.as_ref().map(|webhook| &webhook.etag).filter(|etag| etag.enabled);
        let etags = etag.map(|etag| {
            let seconds = etag.cache_timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            EtagCache::new(seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs))
        });
        let (breaker, places) = (Mutex::default(), Semaphore::new(IN_FLIGHT));
        Self { version: hook.version, strict: hook.is_strict(), limit, etags, breaker, places, settings }
    }

    pub(crate) fn version(&self) -> HookVersion {
        self.version
    }

    /// Calls the hook for a parent, and decodes its response.
    pub(crate) async fn call<T>(
        &self,
        parent: &Value,
        request: &Value,
        read: impl FnOnce(&[u8], bool) -> Result<T, String>,
    ) -> Result<T, CallError> {
        let clock = &self.settings.clock;
        self.breaker.lock().admit(clock.instant()).map_err(CallError::Paused)?;
        let mut trial = Trial { breaker: &self.breaker, ended: false };
        let result = match self.answer(&parent_name(parent), request).await {
            Ok(body) => read(&body, self.strict)
                .map_err(|why| CallError::Failed(format!("cannot use the answer: {why}"))),
            Err(error) => Err(error),
        };
        trial.ended = true;
        let end = match &result {
            Err(CallError::NoAnswer(_)) => End::NoAnswer,
            Err(CallError::Failed(_)) => End::Failed,
            _ => End::Succeeded,
        };
        let result = result.map_err(|error| self.named(error));
        self.note(end, fingerprint(&parent["metadata"]["uid"]), result.as_ref().err());
        result
    }

    fn note(&self, end: End, parent: u64, error: Option<&CallError>) {
        let mut breaker = self.breaker.lock();
        let has_changed = breaker.note(end, parent, self.settings.clock.instant());
        let (is_open, is_failing) = (breaker.is_open(), breaker.is_failing());
        drop(breaker);
        if has_changed {
            self.show_health(is_open, error.filter(|_| is_failing));
        }
    }

    fn named(&self, error: CallError) -> CallError {
        let named = |why| format!("{} hook {}: {why}", self.settings.name.text(), self.settings.labels.url);
        match error {
            CallError::Failed(why) => CallError::Failed(named(why)),
            CallError::NoAnswer(why) => CallError::NoAnswer(named(why)),
            other => other,
        }
    }

    fn show_health(&self, is_open: bool, error: Option<&CallError>) {
        let (labels, help) =
            (self.labels(), "Whether a hook is left alone because it has not answered too often.");
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let value = if is_open { 1.0 } else { 0.0 };
        self.settings.metrics.set_gauge("setpoint_hook_circuit_open", help, &labels, value);
        let why = error.map(|error| match error {
            CallError::Failed(why) | CallError::NoAnswer(why) => why.clone(),
            _ => "it is busy".to_owned(),
        });
        (self.settings.on_health)(why);
    }

    async fn answer(&self, parent: &ParentName, request: &Value) -> Result<Bytes, CallError> {
        let clock = &self.settings.clock;
        let body = serde_json::to_vec(request).map_err(|error| CallError::Failed(error.to_string()))?;
        // Waiting for a slot does not count towards the hook's timeout.
        let in_flight = InFlight::begin(self).await;
        let known = self.etags.as_ref().and_then(|etags| etags.get(parent, clock.instant()));
        let etag = known.as_ref().map(|(etag, _)| etag.clone());
        let hook = self.settings.name.text();
        let sending = self.settings.transport.send(HookRequest { hook, body: body.into(), etag });
        let start = clock.instant();
        let reply = match tokio::time::timeout(self.limit, sending).await {
            Ok(reply) => reply,
            Err(_) => Err(format!("no answer within {:?}", self.limit)),
        };
        drop(in_flight);
        self.count(reply.as_ref().ok(), clock.instant().saturating_duration_since(start));
        self.understand(parent, known, reply.map_err(CallError::NoAnswer)?)
    }

    /// Returns the body of a reply, or the cached one that it refers to.
    fn understand(
        &self,
        parent: &ParentName,
        known: Option<(String, Bytes)>,
        reply: HookReply,
    ) -> Result<Bytes, CallError> {
        let clock = &self.settings.clock;
        if reply.body.len() > MAX_ANSWER {
            return Err(CallError::Failed(format!("the answer is longer than {MAX_ANSWER} bytes")));
        }
        match (reply.status, known) {
            (429, _) => Err(CallError::Busy(pause(reply.retry_after.as_deref(), clock.now()))),
            (304 | 412, Some((_, body))) => Ok(body),
            (200, _) => {
                if let (Some(etags), Some(etag)) = (&self.etags, reply.etag) {
                    etags.keep(parent, etag, reply.body.clone(), clock.instant());
                }
                Ok(reply.body)
            }
            (status, _) => {
                let shown =
                    String::from_utf8_lossy(&reply.body[..reply.body.len().min(EXCERPT)]).into_owned();
                Err(CallError::Failed(format!("unsupported status code: {status} body: {}", shown.trim())))
            }
        }
    }

    fn labels(&self) -> Vec<(&'static str, String)> {
        let Labels { url, controller, controller_type } = self.settings.labels.clone();
        let hook = self.settings.name.text().to_owned();
        vec![
            ("url", url),
            ("controller_name", controller),
            ("controller_type", controller_type.to_owned()),
            ("hook", hook),
        ]
    }

    /// Counts a call in Metacontroller's metrics.
    fn count(&self, reply: Option<&HookReply>, took: Duration) {
        let Labels { url, controller, controller_type } = &self.settings.labels;
        let code = reply.map_or_else(|| "error".to_owned(), |reply| reply.status.to_string());
        let of_hook =
            [("url", url.as_str()), ("controller_name", controller), ("controller_type", controller_type)];
        let [requests, seconds, _] = self.settings.name.metrics();
        let metrics = &self.settings.metrics;
        let labels = [&of_hook[..], &[("code", code.as_str()), ("method", "post")]].concat();
        metrics.count(requests, "A counter for outgoing requests to hooks.", &labels, 1);
        let labels = [&of_hook[..], &[("method", "post")]].concat();
        metrics.observe(
            seconds,
            "A histogram of outgoing request latencies.",
            SECONDS,
            &labels,
            took.as_secs_f64(),
        );
    }

    fn show_in_flight(&self) {
        let Labels { url, controller, controller_type } = &self.settings.labels;
        let labels =
            [("url", url.as_str()), ("controller_name", controller), ("controller_type", controller_type)];
        let [_, _, in_flight] = self.settings.name.metrics();
        let count = IN_FLIGHT - self.places.available_permits();
        let help = "A gauge of in-flight outgoing requests to hooks.";
        self.settings.metrics.set_gauge(in_flight, help, &labels, count as f64);
    }
}

/// Prometheus' default buckets.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

impl HookName {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Finalize => "finalize",
            Self::Customize => "customize",
        }
    }

    /// The names of its metrics: requests, seconds, in flight.
    fn metrics(self) -> [&'static str; 3] {
        match self {
            Self::Sync => [
                "metacontroller_sync_requests",
                "metacontroller_sync_request_duration_histogram_seconds",
                "metacontroller_sync_in_flight_requests",
            ],
            Self::Finalize => [
                "metacontroller_finalize_requests",
                "metacontroller_finalize_request_duration_histogram_seconds",
                "metacontroller_finalize_in_flight_requests",
            ],
            Self::Customize => [
                "metacontroller_customize_requests",
                "metacontroller_customize_request_duration_histogram_seconds",
                "metacontroller_customize_in_flight_requests",
            ],
        }
    }
}

/// A call whose end is recorded even if its future is dropped.
struct Trial<'a> {
    breaker: &'a Mutex<Breaker>,
    ended: bool,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.breaker.lock().abandon();
        }
    }
}

/// A call in flight, which holds one of the slots.
struct InFlight<'a> {
    caller: &'a Caller,
    place: Option<SemaphorePermit<'a>>,
}

impl<'a> InFlight<'a> {
    async fn begin(caller: &'a Caller) -> Self {
        // The semaphore is never closed.
        let place = caller.places.acquire().await.ok();
        caller.show_in_flight();
        Self { caller, place }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.place = None;
        self.caller.show_in_flight();
    }
}

fn parent_name(parent: &Value) -> ParentName {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&parent["kind"]), text(&parent["metadata"]["namespace"]), text(&parent["metadata"]["name"]))
}

/// Returns how long to wait. `Retry-After` contains seconds or a time.
fn pause(retry_after: Option<&str>, now: Timestamp) -> Duration {
    let text = retry_after.unwrap_or_default().trim();
    let seconds = text.parse::<u64>().ok().or_else(|| {
        let time = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
        let left = time.as_second().checked_sub(now.as_second())?;
        u64::try_from(left).ok()
    });
    Duration::from_secs(seconds.unwrap_or_default()).clamp(LEAST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;

    /// Replies in order, and records the ETags of the requests.
    #[derive(Default)]
    struct Scripted {
        replies: Mutex<Vec<HookReply>>,
        etags: Arc<Mutex<Vec<Option<String>>>>,
    }

    impl Transport for Scripted {
        fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>> {
            self.etags.lock().push(request.etag);
            Box::pin(std::future::ready(Ok(self.replies.lock().remove(0))))
        }
    }

    fn reply(status: u16, etag: Option<&str>, body: &'static str) -> HookReply {
        HookReply { status, etag: etag.map(str::to_owned), ..HookReply::ok(body) }
    }

    /// Calls a hook once for each reply. Returns the responses and the ETags of the requests.
    async fn called(
        hook: Value,
        replies: Vec<HookReply>,
    ) -> (Vec<Result<String, CallError>>, Vec<Option<String>>) {
        let count = replies.len();
        let scripted = Scripted { replies: Mutex::new(replies), ..Scripted::default() };
        let etags = scripted.etags.clone();
        let settings = CallerSettings {
            name: HookName::Sync,
            transport: Arc::new(scripted),
            labels: Labels { url: "http://h".into(), controller: "c".into(), controller_type: "t" },
            clock: Clock::system(),
            metrics: Metrics::new(),
            on_health: Box::new(|_| {}),
        };
        let metrics = settings.metrics.clone();
        let hook: Hook = serde_json::from_value(hook).expect("a hook");
        let caller = Caller::new(&hook, Duration::from_secs(10), settings);
        let parent = json!({"kind": "Thing", "metadata": {"name": "a", "namespace": "n"}});
        let mut answers = Vec::new();
        for _ in 0..count {
            let read = |body: &[u8], _| Ok(String::from_utf8_lossy(body).into_owned());
            answers.push(caller.call(&parent, &json!({}), read).await);
        }
        let counted = metrics.encode();
        assert!(counted.contains("metacontroller_sync_requests_total{"), "{counted}");
        let in_flight =
            counted.lines().find(|line| line.starts_with("metacontroller_sync_in_flight_requests{"));
        assert!(in_flight.is_some_and(|line| line.ends_with(" 0")), "{counted}");
        let etags = etags.lock().clone();
        (answers, etags)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_with_an_etag_is_used_again() {
        let hook = json!({"webhook": {"url": "http://h", "etag": {"enabled": true}}});
        let replies = vec![
            reply(200, Some("1"), "one"),
            reply(304, None, ""),
            reply(412, None, ""),
            reply(200, Some("2"), "two"),
        ];
        let (answers, etags) = called(hook, replies).await;
        let answers: Vec<String> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
        assert_eq!(answers, ["one", "one", "one", "two"]);
        assert_eq!(etags, [None, Some("1".to_owned()), Some("1".to_owned()), Some("1".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_setting_etags_mean_nothing() {
        let hook = json!({"webhook": {"url": "http://h"}});
        let (answers, etags) = called(hook, vec![reply(200, Some("1"), "one"), reply(304, None, "")]).await;
        assert!(
            matches!(&answers[1], Err(CallError::Failed(why)) if why.contains("unsupported status code: 304"))
        );
        assert_eq!(etags, [None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn only_200_is_success() {
        let hook = json!({"webhook": {"url": "http://h"}});
        let (answers, _) =
            called(hook, vec![reply(201, None, "{}"), reply(503, None, "no"), reply(429, None, "")]).await;
        assert!(matches!(&answers[0], Err(CallError::Failed(why)) if why.contains("status code: 201")));
        assert!(matches!(&answers[1], Err(CallError::Failed(why)) if why.contains("503 body: no")));
        assert_eq!(answers[2], Err(CallError::Busy(LEAST_PAUSE)));
    }

    #[test]
    fn retry_after_has_seconds_or_a_time() {
        let now: Timestamp = "2025-01-01T00:00:00Z".parse().expect("a time");
        let check = |text: Option<&str>, seconds: u64| {
            assert_eq!(pause(text, now), Duration::from_secs(seconds), "{text:?}");
        };
        check(Some("30"), 30);
        check(Some("Wed, 01 Jan 2025 00:01:30 GMT"), 90);
        check(Some("Tue, 31 Dec 2024 00:00:00 GMT"), 1);
        check(Some("0"), 1);
        check(Some("soon"), 1);
        check(None, 1);
        check(Some("99999999"), 3600);
    }
}
