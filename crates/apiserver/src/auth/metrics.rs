//! Authentication and authorization metrics, under v1.34's names.
//!
//! Label values are types, results and configured names, never client input, so there are only a few dozen series.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_exposition::Text;
use setpoint_flow::Histogram;
use sha2::{Digest, Sha256};

use super::authorize::{Decision, Verdict};

/// A server's authentication and authorization metrics.
#[derive(Default)]
pub struct AuthMetrics {
    /// Authentication attempts, by result. Updated on every request, so it takes no lock.
    attempts: [Durations; ATTEMPTS.len()],
    /// Authorization decisions, by result.
    authorizations: [Durations; AUTHORIZATIONS.len()],
    series: Mutex<BTreeMap<(Metric, Vec<String>), Series>>,
    fetching: AtomicI64,
    certificates: Lifetimes,
}

/// The server name label. There is one server per store, so a constant is enough.
const SERVER: &str = "setpoint";

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
/// 0, 30 min, 1 h, 2 h, 6 h, 12 h, 1 d, 2 d, 4 d, a week, 30, 90, 180 and 360 d
static LIFETIMES: [u64; 14] = [
    0,
    HOUR / 2,
    HOUR,
    2 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
    30 * DAY,
    90 * DAY,
    180 * DAY,
    360 * DAY,
];

/// Remaining lifetimes of client certificates, in seconds.
struct Lifetimes(Histogram<14>);

impl Default for Lifetimes {
    fn default() -> Self {
        Self(Histogram::new(&LIFETIMES))
    }
}

const ATTEMPTS: [&str; 3] = ["success", "failure", "error"];
const AUTHORIZATIONS: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];

/// A histogram of durations.
#[derive(Default)]
struct Durations {
    nanoseconds: AtomicU64,
    /// Counts by the first bound not exceeded; the last is for values beyond all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
}

impl Durations {
    fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn series(&self) -> Series {
        let mut buckets: Vec<u64> =
            self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        for at in 1..buckets.len() {
            buckets[at] += buckets[at - 1];
        }
        let count = buckets.pop().unwrap_or_default();
        let sum = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        Series { count, sum, buckets }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    ConfigReloadTime(Config),
    ConfigReloads(Config),
    ConfigInfo(Config),
    JwtDuration,
    Decisions,
    ConditionDuration,
    ConditionExclusions,
    ConditionFailures,
    WebhookDuration,
    WebhookFailOpen,
    Webhooks,
    UserRequests,
    Attempts,
    AttemptDuration,
    CacheFetches,
    CacheDuration,
    CacheRequests,
    AuthorizationAttempts,
    AuthorizationDuration,
}

/// A configuration that can be reloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Config {
    Authentication,
    Authorization,
}

/// A counter, or a histogram.
#[derive(Clone, Default)]
struct Series {
    count: u64,
    sum: f64,
    /// Cumulative counts: observations up to each bound.
    buckets: Vec<u64>,
}

/// Bounds in seconds: 1 ms, doubled up to 16 s.
const BOUNDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// The default bounds of Prometheus.
const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

struct Described {
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    /// Its value is kept in the sum.
    Gauge,
    Histogram(&'static [f64]),
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

const fn counter(
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> Described {
    Described { metric, name, help, labels, kind: Kind::Counter }
}

const fn histogram(
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    bounds: &'static [f64],
) -> Described {
    Described { metric, name, help, labels, kind: Kind::Histogram(bounds) }
}

const fn gauge(
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> Described {
    Described { metric, name, help, labels, kind: Kind::Gauge }
}

const RELOAD: &[&str] = &["status", "apiserver_id_hash"];
const INFO: &[&str] = &["apiserver_id_hash", "hash"];

const DESCRIBED: [Described; 22] = [
    gauge(
        Metric::ConfigReloadTime(Config::Authentication),
        "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
        "[BETA] When the authentication configuration was last reloaded, by outcome.",
        RELOAD,
    ),
    counter(
        Metric::ConfigReloads(Config::Authentication),
        "apiserver_authentication_config_controller_automatic_reloads_total",
        "[BETA] Reloads of the authentication configuration, by outcome.",
        RELOAD,
    ),
    gauge(
        Metric::ConfigInfo(Config::Authentication),
        "apiserver_authentication_config_controller_last_config_info",
        "[ALPHA] 1, with the hash of the authentication configuration in force.",
        INFO,
    ),
    histogram(
        Metric::JwtDuration,
        "apiserver_authentication_jwt_authenticator_latency_seconds",
        "[ALPHA] Seconds to authenticate a JWT that is not cached, by outcome and issuer.",
        &["result", "jwt_issuer_hash"],
        &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
    ),
    gauge(
        Metric::ConfigReloadTime(Config::Authorization),
        "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
        "[BETA] When the authorization configuration was last reloaded, by outcome.",
        RELOAD,
    ),
    counter(
        Metric::ConfigReloads(Config::Authorization),
        "apiserver_authorization_config_controller_automatic_reloads_total",
        "[BETA] Reloads of the authorization configuration, by outcome.",
        RELOAD,
    ),
    gauge(
        Metric::ConfigInfo(Config::Authorization),
        "apiserver_authorization_config_controller_last_config_info",
        "[ALPHA] 1, with the hash of the authorization configuration in force.",
        INFO,
    ),
    counter(
        Metric::Decisions,
        "apiserver_authorization_decisions_total",
        "[ALPHA] Requests that an authorizer allowed or denied.",
        &["type", "name", "decision"],
    ),
    counter(
        Metric::ConditionFailures,
        "apiserver_authorization_match_condition_evaluation_errors_total",
        "[ALPHA] Requests for which a match condition of an authorizer failed.",
        &["type", "name"],
    ),
    histogram(
        Metric::ConditionDuration,
        "apiserver_authorization_match_condition_evaluation_seconds",
        "[ALPHA] Seconds to evaluate all match conditions of an authorizer.",
        &["type", "name"],
        &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25],
    ),
    counter(
        Metric::ConditionExclusions,
        "apiserver_authorization_match_condition_exclusions_total",
        "[ALPHA] Requests that the match conditions of an authorizer exclude.",
        &["type", "name"],
    ),
    histogram(
        Metric::WebhookDuration,
        "apiserver_authorization_webhook_duration_seconds",
        "[ALPHA] Seconds that calls of authorization webhooks took.",
        &["name", "result"],
        &DEFAULT_BOUNDS,
    ),
    counter(
        Metric::WebhookFailOpen,
        "apiserver_authorization_webhook_evaluations_fail_open_total",
        "[ALPHA] Failed calls of authorization webhooks after which other authorizers decided.",
        &["name", "result"],
    ),
    counter(
        Metric::Webhooks,
        "apiserver_authorization_webhook_evaluations_total",
        "[ALPHA] Calls of authorization webhooks.",
        &["name", "result"],
    ),
    counter(
        Metric::UserRequests,
        "authenticated_user_requests",
        "[ALPHA] Authenticated requests by well-known user.",
        &["username"],
    ),
    counter(
        Metric::Attempts,
        "authentication_attempts",
        "[ALPHA] Requests by the outcome of authentication.",
        &["result"],
    ),
    histogram(
        Metric::AttemptDuration,
        "authentication_duration_seconds",
        "[ALPHA] Seconds to authenticate a request, by outcome.",
        &["result"],
        &BOUNDS,
    ),
    counter(
        Metric::CacheFetches,
        "authentication_token_cache_fetch_total",
        "[ALPHA] Token lookups that were not answered from the cache.",
        &["status"],
    ),
    histogram(
        Metric::CacheDuration,
        "authentication_token_cache_request_duration_seconds",
        "[ALPHA] Seconds of token lookups, cached ones included.",
        &["status"],
        &DEFAULT_BOUNDS,
    ),
    counter(
        Metric::CacheRequests,
        "authentication_token_cache_request_total",
        "[ALPHA] Token lookups, cached ones included.",
        &["status"],
    ),
    counter(
        Metric::AuthorizationAttempts,
        "authorization_attempts_total",
        "[ALPHA] Requests by the outcome of authorization.",
        &["result"],
    ),
    histogram(
        Metric::AuthorizationDuration,
        "authorization_duration_seconds",
        "[ALPHA] Seconds to authorize a request, by outcome.",
        &["result"],
        &BOUNDS,
    ),
];

/// The outcome of an authentication attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<'a> {
    Success { user: &'a str },
    Failure,
    Error,
}

impl AuthMetrics {
    fn count(&self, metric: Metric, labels: &[&str]) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.series.lock().entry((metric, labels)).or_default().count += 1;
    }

    fn observe(&self, metric: Metric, labels: &[&str], duration: Duration) {
        let described = DESCRIBED.iter().find(|described| described.metric == metric);
        let Some(Kind::Histogram(bounds)) = described.map(|described| described.kind) else { return };
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut all = self.series.lock();
        let series = all.entry((metric, labels)).or_default();
        let seconds = duration.as_secs_f64();
        series.buckets.resize(bounds.len(), 0);
        for (bucket, bound) in series.buckets.iter_mut().zip(bounds) {
            *bucket += u64::from(seconds <= *bound);
        }
        series.count += 1;
        series.sum += seconds;
    }

    pub(crate) fn authenticated(&self, attempt: Attempt<'_>, duration: Duration) {
        let at = match attempt {
            Attempt::Success { user } => {
                self.count(Metric::UserRequests, &[compressed(user)]);
                0
            }
            Attempt::Failure => 1,
            Attempt::Error => 2,
        };
        self.attempts[at].observe(duration);
    }

    pub(crate) fn authorized(&self, decision: &Decision, duration: Duration) {
        let at = match decision.verdict {
            Verdict::Allow => 0,
            _ if decision.error.is_some() => 3,
            Verdict::Deny => 1,
            Verdict::NoOpinion => 2,
        };
        self.authorizations[at].observe(duration);
    }

    pub(super) fn decided(&self, kind: &str, name: &str, is_allowed: bool) {
        self.count(Metric::Decisions, &[kind, name, if is_allowed { "allowed" } else { "denied" }]);
    }

    pub(super) fn webhook_called(&self, name: &str, result: &str, duration: Duration) {
        self.count(Metric::Webhooks, &[name, result]);
        self.observe(Metric::WebhookDuration, &[name, result], duration);
    }

    pub(super) fn webhook_failed_open(&self, name: &str, result: &str) {
        self.count(Metric::WebhookFailOpen, &[name, result]);
    }

    pub(super) fn condition_excluded(&self, name: &str) {
        self.count(Metric::ConditionExclusions, &["Webhook", name]);
    }

    pub(super) fn condition_failed(&self, name: &str) {
        self.count(Metric::ConditionFailures, &["Webhook", name]);
    }

    pub(super) fn conditions_evaluated(&self, name: &str, duration: Duration) {
        self.observe(Metric::ConditionDuration, &["Webhook", name], duration);
    }

    pub(super) fn jwt_verified(&self, issuer: &str, is_success: bool, duration: Duration) {
        let result = if is_success { "success" } else { "failure" };
        self.observe(Metric::JwtDuration, &[result, &hash(issuer)], duration);
    }

    /// Records a client certificate's remaining lifetime.
    pub(crate) fn certificate_shown(&self, end: Timestamp, now: Timestamp) {
        // An expired certificate has zero seconds left.
        self.certificates.0.observe(end.as_second().saturating_sub(now.as_second()).try_into().unwrap_or(0));
    }

    /// Records that a configuration was reloaded, or that the reload failed.
    pub(super) fn reloaded(&self, config: Config, in_force: Option<&str>, now: Timestamp) {
        let status = if in_force.is_some() { "success" } else { "failure" };
        let labels = [status, &hash(SERVER)];
        self.count(Metric::ConfigReloads(config), &labels);
        self.set(Metric::ConfigReloadTime(config), &labels, now.as_second() as f64);
        if let Some(text) = in_force {
            self.configured(config, text);
        }
    }

    /// Records the text of the configuration in effect, replacing the previous one.
    pub(super) fn configured(&self, config: Config, text: &str) {
        self.series.lock().retain(|(metric, _), _| *metric != Metric::ConfigInfo(config));
        self.set(Metric::ConfigInfo(config), &[&hash(SERVER), &hash(text)], 1.0);
    }

    fn set(&self, metric: Metric, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.series.lock().entry((metric, labels)).or_default().sum = value;
    }

    pub(super) fn record_cache_lookup(&self, is_hit: bool, duration: Duration) {
        let status = if is_hit { "hit" } else { "miss" };
        self.count(Metric::CacheRequests, &[status]);
        self.observe(Metric::CacheDuration, &[status], duration);
    }

    /// Counts a token lookup as active until the result is dropped.
    pub(super) fn fetching(&self) -> Fetching<'_> {
        self.fetching.fetch_add(1, Ordering::Relaxed);
        Fetching(self)
    }

    pub(super) fn fetched(&self, is_ok: bool) {
        self.count(Metric::CacheFetches, &[if is_ok { "ok" } else { "error" }]);
    }

    /// Returns all series, including the per-request ones.
    fn all(&self) -> BTreeMap<(Metric, Vec<String>), Series> {
        let mut all = self.series.lock().clone();
        let mut add = |metrics: [Metric; 2], results: &[&str], durations: &[Durations]| {
            for (result, durations) in results.iter().zip(durations) {
                let series = durations.series();
                if series.count > 0 {
                    for metric in metrics {
                        all.insert((metric, vec![(*result).to_owned()]), series.clone());
                    }
                }
            }
        };
        add([Metric::Attempts, Metric::AttemptDuration], &ATTEMPTS, &self.attempts);
        let metrics = [Metric::AuthorizationAttempts, Metric::AuthorizationDuration];
        add(metrics, &AUTHORIZATIONS, &self.authorizations);
        all
    }

    pub(crate) fn write(&self, text: &mut Text) {
        let all = self.all();
        for described in &DESCRIBED {
            let mut series = all.iter().filter(|((metric, _), _)| *metric == described.metric).peekable();
            if series.peek().is_none() {
                continue;
            }
            text.head(described.name, described.kind.name(), described.help);
            for ((_, values), series) in series {
                described.write(values, series, text);
            }
        }
        let name = "authentication_token_cache_active_fetch_count";
        text.head(name, "gauge", "[ALPHA] Token lookups in flight.");
        text.sample(name, &[("status", "in_flight")], self.fetching.load(Ordering::Relaxed));
        let name = "apiserver_client_certificate_expiration_seconds";
        text.head(name, "histogram", "[ALPHA] Remaining validity of client certificates in seconds.");
        let lifetimes = &self.certificates.0;
        let buckets = lifetimes.cumulative().into_iter().map(|(bound, count)| (bound as f64, count));
        text.histogram(name, &[], buckets, lifetimes.count(), lifetimes.sum() as f64);
    }
}

/// Hashes a name or a text; empty for empty input.
fn hash(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("sha256:{:x}", Sha256::digest(text)) }
}

impl Described {
    fn write(&self, values: &[String], series: &Series, text: &mut Text) {
        let labels: Vec<(&str, &str)> =
            self.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
        match self.kind {
            Kind::Counter => text.sample(self.name, &labels, series.count),
            Kind::Gauge => text.sample(self.name, &labels, series.sum),
            Kind::Histogram(bounds) => {
                let buckets = bounds.iter().copied().zip(series.buckets.iter().copied());
                text.histogram(self.name, &labels, buckets, series.count, series.sum);
            }
        }
    }
}

pub(super) struct Fetching<'a>(&'a AuthMetrics);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetching.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Maps a user name to a label value: v1.34's well-known names, and nothing that a client can choose.
fn compressed(name: &str) -> &'static str {
    const KNOWN: [&str; 5] =
        ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"];
    match KNOWN.iter().find(|known| **known == name) {
        Some(known) => known,
        None if name.contains('@') => "email_id",
        None => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_without_names_of_clients() {
        let metrics = AuthMetrics::default();
        metrics.authenticated(Attempt::Success { user: "ann@example.com" }, Duration::from_millis(3));
        metrics.authenticated(Attempt::Failure, Duration::ZERO);
        metrics.jwt_verified("https://issuer.example", true, Duration::from_millis(3));
        let now = Timestamp::from_second(10 * DAY as i64).unwrap();
        metrics.certificate_shown(Timestamp::from_second(11 * DAY as i64).unwrap(), now);
        metrics.certificate_shown(Timestamp::from_second(9 * DAY as i64).unwrap(), now);
        metrics.reloaded(Config::Authentication, Some("one"), now);
        metrics.reloaded(Config::Authentication, Some("other"), now);
        let (server, other) = (hash(SERVER), hash("other"));
        let info = format!(
            "apiserver_authentication_config_controller_last_config_info{{apiserver_id_hash=\"{server}\",hash=\"{other}\"}} 1"
        );
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        let infos = text.lines().filter(|line| line.contains("last_config_info{"));
        assert_eq!(infos.collect::<Vec<_>>(), [info], "the active one");
        assert!(text.contains(
            "apiserver_authentication_jwt_authenticator_latency_seconds_bucket{result=\"success\""
        ));
        for line in [
            "apiserver_client_certificate_expiration_seconds_bucket{le=\"0\"} 1",
            "apiserver_client_certificate_expiration_seconds_bucket{le=\"86400\"} 2",
            "authenticated_user_requests{username=\"email_id\"} 1",
            "authentication_attempts{result=\"failure\"} 1",
            "authentication_duration_seconds_bucket{result=\"success\",le=\"0.002\"} 0",
            "authentication_duration_seconds_bucket{result=\"success\",le=\"0.004\"} 1",
            "authentication_duration_seconds_count{result=\"success\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
