//! The table of all settings. It drives the file, the flags, the environment and the help.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use super::{ControllerConfig, ShardBy, duration};

/// A setting: its name, its expected value, and where the value is stored.
pub(super) struct Setting {
    /// The key in the file, with dots between levels.
    pub(super) key: &'static str,
    /// The environment variable, if there is one.
    pub(super) env: Option<&'static str>,
    pub(super) help: &'static str,
    pub(super) expected: &'static str,
    /// Sets the value from text. Returns `None` if the text is invalid.
    pub(super) set: fn(&mut ControllerConfig, &str) -> Option<()>,
    pub(super) show: fn(&ControllerConfig) -> String,
}

impl Setting {
    /// Returns the flag: `queueConfig.maxRetries` becomes `--queue-config-max-retries`.
    pub(super) fn flag(&self) -> String {
        let mut flag = String::from("--");
        for (at, letter) in self.key.char_indices() {
            let after_letter = at > 0 && self.key.as_bytes()[at - 1].is_ascii_lowercase();
            match letter {
                '.' => flag.push('-'),
                upper if upper.is_ascii_uppercase() => {
                    if after_letter {
                        flag.push('-');
                    }
                    flag.push(upper.to_ascii_lowercase());
                }
                other => flag.push(other),
            }
        }
        flag
    }
}

const COUNT: &str = "a whole number of at least 1";
const COUNT_OR_NONE: &str = "a whole number; 0 for no limit";
const RATE: &str = "a number of requests a second greater than 0";
const DURATION: &str = "a duration greater than 0 such as 500ms, 2s or 5m";
const DURATION_OR_NONE: &str = "a duration such as 500ms, 2s or 5m; 0 for none";
const SWITCH: &str = "true or false";
const TEXT: &str = "some text";

fn at_least_one<T: FromStr + PartialOrd + From<u8>>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number| *number >= T::from(1))
}

fn rate(text: &str) -> Option<f64> {
    text.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite())
}

fn some_time(text: &str) -> Option<Duration> {
    duration::parse(text).filter(|duration| !duration.is_zero())
}

/// Treats `0` and `none` as no limit.
fn limit<T>(value: T, none: bool) -> Option<T> {
    Some(value).filter(|_| !none)
}

fn shown(duration: Option<Duration>) -> String {
    duration.map_or("0".into(), duration::show)
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

fn url(value: &str) -> Option<String> {
    let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"))?;
    Some(value.to_owned()).filter(|_| !host.is_empty())
}

/// A row of the table: key, environment variable, help, expected value, setter and formatter.
macro_rules! setting {
    ($key:literal, $env:expr, $help:literal, $expected:expr, |$config:ident, $text:ident| $set:expr, $show:expr) => {
        Setting {
            key: $key,
            env: $env,
            help: $help,
            expected: $expected,
            set: |$config, $text| Some($set),
            show: |$config| $show.to_string(),
        }
    };
}

#[rustfmt::skip]
pub(super) const SETTINGS: &[Setting] = &[
    setting!("workers", None, "Concurrent workers of each controller", COUNT,
        |c, t| c.workers = at_least_one::<u32>(t)? as usize, c.workers),
    setting!("queueSize", None, "Queued keys at which the queue's informers pause", COUNT_OR_NONE,
        |c, t| { let n: usize = t.parse().ok()?; c.queue_size = limit(n, n == 0) }, c.queue_size.unwrap_or(0)),
    setting!("clientQPS", None, "Requests per second to the API server", RATE,
        |c, t| c.client_qps = rate(t)?, c.client_qps),
    setting!("clientBurst", None, "Burst of requests above clientQPS", COUNT,
        |c, t| c.client_burst = at_least_one(t)?, c.client_burst),
    setting!("clientConnections", None, "Concurrent requests to the API server", COUNT_OR_NONE,
        |c, t| { let n: usize = t.parse().ok()?; c.client_connections = limit(n, n == 0) },
        c.client_connections.unwrap_or(0)),
    setting!("maxRetries", None, "The same as queueConfig.maxRetries", COUNT_OR_NONE,
        |c, t| { let n: u32 = t.parse().ok()?; c.queue_config.max_retries = limit(n, n == 0) },
        c.queue_config.max_retries.unwrap_or(0)),
    setting!("retryBackoff", None, "queueConfig.baseDelay and queueConfig.maxDelay in one",
        "two durations, such as 1s-5m",
        |c, t| {
            let (base, max) = t.split_once('-')?;
            c.queue_config.base_delay = some_time(base)?;
            c.queue_config.max_delay = some_time(max)?;
        },
        format_args!("{}-{}", duration::show(c.queue_config.base_delay), duration::show(c.queue_config.max_delay))),
    setting!("queueConfig.maxRetries", None, "Consecutive failures of a key before it waits for a change", COUNT_OR_NONE,
        |c, t| { let n: u32 = t.parse().ok()?; c.queue_config.max_retries = limit(n, n == 0) },
        c.queue_config.max_retries.unwrap_or(0)),
    setting!("queueConfig.baseDelay", None, "Delay after the second failure, doubled with each further one", DURATION,
        |c, t| c.queue_config.base_delay = some_time(t)?, duration::show(c.queue_config.base_delay)),
    setting!("queueConfig.maxDelay", None, "Maximum delay after a failure", DURATION,
        |c, t| c.queue_config.max_delay = some_time(t)?, duration::show(c.queue_config.max_delay)),
    setting!("queueConfig.rateLimiterQPS", None, "Retries per second over all keys of a queue",
        "a number; 0 for no limit",
        |c, t| { let n: f64 = t.parse().ok().filter(|n: &f64| *n >= 0.0 && n.is_finite())?;
            c.queue_config.rate_limiter_qps = limit(n, n == 0.0) },
        c.queue_config.rate_limiter_qps.unwrap_or(0.0)),
    setting!("reconcileConfig.timeout", None, "Timeout of a reconcile", DURATION_OR_NONE,
        |c, t| { let d = duration::parse(t)?; c.reconcile_config.timeout = limit(d, d.is_zero()) },
        shown(c.reconcile_config.timeout)),
    setting!("reconcileConfig.resyncPeriod", None, "Interval at which every object is reconciled again", DURATION_OR_NONE,
        |c, t| { let d = duration::parse(t)?; c.reconcile_config.resync_period = limit(d, d.is_zero()) },
        shown(c.reconcile_config.resync_period)),
    setting!("reconcileConfig.maxConcurrent", None, "Maximum number of workers of a controller with a backlog", COUNT,
        |c, t| c.reconcile_config.max_concurrent = at_least_one::<u32>(t)? as usize, c.reconcile_config.max_concurrent),
    setting!("informerConfig.cacheSize", Some("INFORMER_CACHE_SIZE"),
        "Expected number of objects in a cache; more are reported", COUNT_OR_NONE,
        |c, t| { let n: usize = t.parse().ok()?; c.informer_config.cache_size = limit(n, n == 0) },
        c.informer_config.cache_size.unwrap_or(0)),
    setting!("informerConfig.listTimeout", Some("LIST_TIMEOUT"), "Timeout of a list request", DURATION,
        |c, t| c.informer_config.list_timeout = some_time(t)?, duration::show(c.informer_config.list_timeout)),
    setting!("informerConfig.incrementalSync", Some("ENABLE_INCREMENTAL_SYNC"),
        "Whether to stream the initial list if the API server supports it, instead of paging", SWITCH,
        |c, t| c.informer_config.incremental_sync = t.parse().ok()?, c.informer_config.incremental_sync),
    setting!("informerConfig.consistencyCheckPeriod", Some("INFORMER_CONSISTENCY_CHECK_PERIOD"),
        "Interval at which each cache is compared with the API server; 10m by default in debug builds",
        DURATION_OR_NONE,
        |c, t| { let d = duration::parse(t)?; c.informer_config.consistency_check_period = limit(d, d.is_zero()) },
        shown(c.informer_config.consistency_check_period)),
    setting!("adaptive.enabled", None, "Whether the number of workers and the request rate adapt to the load", SWITCH,
        |c, t| c.adaptive = t.parse().ok()?, c.adaptive),
    setting!("leaderElection.leaderElect", None, "Whether to use leader election", SWITCH,
        |c, t| c.leader_election.leader_elect = t.parse().ok()?, c.leader_election.leader_elect),
    setting!("leaderElection.leaseDuration", None, "How long standbys wait for a leader that does not renew its lease", DURATION,
        |c, t| c.leader_election.lease_duration = some_time(t)?, duration::show(c.leader_election.lease_duration)),
    setting!("leaderElection.renewDeadline", None, "How long a leader keeps working without renewing its lease", DURATION,
        |c, t| c.leader_election.renew_deadline = some_time(t)?, duration::show(c.leader_election.renew_deadline)),
    setting!("leaderElection.retryPeriod", None, "Interval between attempts to acquire or renew the lease", DURATION,
        |c, t| c.leader_election.retry_period = some_time(t)?, duration::show(c.leader_election.retry_period)),
    setting!("leaderElection.resourceName", None, "The name of the Lease; by default the manager's", TEXT,
        |c, t| c.leader_election.resource_name = Some(text(t)?),
        c.leader_election.resource_name.as_deref().unwrap_or_default()),
    setting!("leaderElection.resourceNamespace", None, "The namespace of the Lease", TEXT,
        |c, t| c.leader_election.resource_namespace = text(t)?, c.leader_election.resource_namespace),
    setting!("leaderElection.releaseOnExit", None, "Whether to release the lease on exit", SWITCH,
        |c, t| c.leader_election.release_on_exit = t.parse().ok()?, c.leader_election.release_on_exit),
    setting!("sharding.shards", None, "Number of shards to split the keys into; 0 disables sharding",
        "a whole number up to 1024; 0 for none",
        |c, t| { let n: u32 = t.parse().ok().filter(|n| *n <= 1024)?; c.sharding.shards = limit(n, n == 0) },
        c.sharding.shards.unwrap_or(0)),
    setting!("sharding.by", None, "How a key is assigned to a shard", "namespace or hash",
        |c, t| c.sharding.by = match t { "namespace" => ShardBy::Namespace, "hash" => ShardBy::Hash, _ => return None },
        match c.sharding.by { ShardBy::Namespace => "namespace", ShardBy::Hash => "hash" }),
    setting!("shutdownTimeout", None, "Time for everything to finish during shutdown", DURATION,
        |c, t| c.shutdown_timeout = some_time(t)?, duration::show(c.shutdown_timeout)),
    setting!("bindAddress", None, "Address to serve health, metrics and profiles on; empty disables it",
        "an address and a port, such as 127.0.0.1:8080",
        |c, t| c.bind_address = if t.is_empty() { None } else { Some(t.parse::<SocketAddr>().ok()?) },
        c.bind_address.map(|address| address.to_string()).unwrap_or_default()),
    setting!("tracing.endpoint", Some("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "OpenTelemetry collector to send traces to (OTLP over HTTP); empty disables tracing",
        "a URL such as http://localhost:4318",
        |c, t| c.tracing.endpoint = if t.is_empty() { None } else { Some(url(t)?) },
        c.tracing.endpoint.as_deref().unwrap_or_default()),
];
