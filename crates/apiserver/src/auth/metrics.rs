//! What authentication and authorization count, under v1.34's names.
//!
//! Labels are types, results and names of the configuration, never anything that a client sends: there are a few
//! dozen series.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::authorize::{Decision, Verdict};
use crate::metrics::Text;

/// The counters of a server.
#[derive(Default)]
pub struct AuthMetrics {
    /// Attempts to authenticate, by result. Every request counts here, so there is no lock.
    attempts: [Durations; ATTEMPTS.len()],
    /// Requests that were authorized or not, by result.
    authorizations: [Durations; AUTHORIZATIONS.len()],
    series: Mutex<BTreeMap<(Metric, Vec<String>), Series>>,
    fetching: AtomicI64,
}

const ATTEMPTS: [&str; 3] = ["success", "failure", "error"];
const AUTHORIZATIONS: [&str; 4] = ["allowed", "denied", "no-opinion", "error"];

/// How many took how long.
#[derive(Default)]
struct Durations {
    nanoseconds: AtomicU64,
    /// By the first bound that was not exceeded; the last exceeded all.
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
    ConfigReloads(Config),
    Decisions,
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

/// A configuration that is reloaded.
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
    /// How many were not longer than each bound.
    buckets: Vec<u64>,
}

/// Bounds in seconds: 1 ms, doubled up to 16 s.
const BOUNDS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
/// The usual bounds of Prometheus.
const DEFAULT_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

struct Described {
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    bounds: &'static [f64],
}

const fn counter(
    metric: Metric,
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> Described {
    Described { metric, name, help, labels, bounds: &[] }
}

const DESCRIBED: [Described; 16] = [
    counter(
        Metric::ConfigReloads(Config::Authentication),
        "apiserver_authentication_config_controller_automatic_reloads_total",
        "Total number of automatic reloads of authentication configuration split by status and apiserver identity.",
        &["status"],
    ),
    counter(
        Metric::ConfigReloads(Config::Authorization),
        "apiserver_authorization_config_controller_automatic_reloads_total",
        "Total number of automatic reloads of authorization configuration split by status and apiserver identity.",
        &["status"],
    ),
    counter(
        Metric::Decisions,
        "apiserver_authorization_decisions_total",
        "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision.",
        &["type", "name", "decision"],
    ),
    counter(
        Metric::ConditionExclusions,
        "apiserver_authorization_match_condition_exclusions_total",
        "Total number of exclusions when an authorization webhook is skipped because match conditions exclude it.",
        &["type", "name"],
    ),
    counter(
        Metric::ConditionFailures,
        "apiserver_authorization_match_condition_evaluation_errors_total",
        "Total number of errors when an authorization webhook encounters a match condition error split by authorizer type and name.",
        &["type", "name"],
    ),
    Described {
        metric: Metric::WebhookDuration,
        name: "apiserver_authorization_webhook_duration_seconds",
        help: "Request latency in seconds.",
        labels: &["name", "result"],
        bounds: &DEFAULT_BOUNDS,
    },
    counter(
        Metric::WebhookFailOpen,
        "apiserver_authorization_webhook_evaluations_fail_open_total",
        "NoOpinion results due to webhook timeout or error.",
        &["name", "result"],
    ),
    counter(
        Metric::Webhooks,
        "apiserver_authorization_webhook_evaluations_total",
        "Round-trips to authorization webhooks.",
        &["name", "result"],
    ),
    counter(
        Metric::UserRequests,
        "authenticated_user_requests",
        "Counter of authenticated requests broken out by username.",
        &["username"],
    ),
    counter(Metric::Attempts, "authentication_attempts", "Counter of authenticated attempts.", &["result"]),
    Described {
        metric: Metric::AttemptDuration,
        name: "authentication_duration_seconds",
        help: "Authentication duration in seconds broken out by result.",
        labels: &["result"],
        bounds: &BOUNDS,
    },
    counter(
        Metric::CacheFetches,
        "authentication_token_cache_fetch_total",
        "Fetches of the token cache.",
        &["status"],
    ),
    Described {
        metric: Metric::CacheDuration,
        name: "authentication_token_cache_request_duration_seconds",
        help: "Durations of requests to the token cache.",
        labels: &["status"],
        bounds: &DEFAULT_BOUNDS,
    },
    counter(
        Metric::CacheRequests,
        "authentication_token_cache_request_total",
        "Requests to the token cache.",
        &["status"],
    ),
    counter(
        Metric::AuthorizationAttempts,
        "authorization_attempts_total",
        "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
        &["result"],
    ),
    Described {
        metric: Metric::AuthorizationDuration,
        name: "authorization_duration_seconds",
        help: "Authorization duration in seconds broken out by result.",
        labels: &["result"],
        bounds: &BOUNDS,
    },
];

/// The outcome of an attempt to authenticate.
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
        let bounds =
            DESCRIBED.iter().find(|described| described.metric == metric).map_or(&[][..], |d| d.bounds);
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

    pub(super) fn reloaded(&self, config: Config, is_success: bool) {
        let status = if is_success { "success" } else { "failure" };
        self.count(Metric::ConfigReloads(config), &[status]);
    }

    pub(super) fn cache_asked(&self, is_hit: bool, duration: Duration) {
        let status = if is_hit { "hit" } else { "miss" };
        self.count(Metric::CacheRequests, &[status]);
        self.observe(Metric::CacheDuration, &[status], duration);
    }

    /// A token is looked up until this is dropped.
    pub(super) fn fetching(&self) -> Fetching<'_> {
        self.fetching.fetch_add(1, Ordering::Relaxed);
        Fetching(self)
    }

    pub(super) fn fetched(&self, is_ok: bool) {
        self.count(Metric::CacheFetches, &[if is_ok { "ok" } else { "error" }]);
    }

    /// All series, those of every request among them.
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
            let kind = if described.bounds.is_empty() { "counter" } else { "histogram" };
            text.head(described.name, kind, &format!("[ALPHA] {}", described.help));
            for ((_, values), series) in series {
                described.write(values, series, text);
            }
        }
        let name = "authentication_token_cache_active_fetch_count";
        text.head(name, "gauge", "[ALPHA] Token lookups that are under way.");
        text.sample(name, &[("status", "in_flight")], self.fetching.load(Ordering::Relaxed));
    }
}

impl Described {
    fn write(&self, values: &[String], series: &Series, text: &mut Text) {
        let labels: Vec<(&str, &str)> =
            self.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
        if self.bounds.is_empty() {
            text.sample(self.name, &labels, series.count);
            return;
        }
        let bucket = format!("{}_bucket", self.name);
        for (bound, count) in self.bounds.iter().zip(&series.buckets) {
            let bound = bound.to_string();
            text.sample(&bucket, &[labels.as_slice(), &[("le", bound.as_str())]].concat(), count);
        }
        text.sample(&bucket, &[labels.as_slice(), &[("le", "+Inf")]].concat(), series.count);
        text.sample(&format!("{}_sum", self.name), &labels, series.sum);
        text.sample(&format!("{}_count", self.name), &labels, series.count);
    }
}

pub(super) struct Fetching<'a>(&'a AuthMetrics);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetching.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A user name as a label: v1.34's well-known ones, and nothing that a client can choose.
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
        let mut text = Text::default();
        metrics.write(&mut text);
        let text = text.finish();
        for line in [
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
