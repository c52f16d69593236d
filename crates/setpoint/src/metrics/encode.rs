//! The framework's own metric families, under the names that existing dashboards use.

use setpoint_exposition::Text;

use super::text::Families;
use super::{Family, Labels, QueueMetrics, Sources, reconciles, requests};

/// Encodes the framework's own families, then those registered by the user.
pub(super) fn everything(sources: &Sources) -> String {
    let mut families = Families::default();
    sources.encode_queues(&mut families);
    sources.encode_controllers(&mut families);
    sources.encode_requests(&mut families);
    sources.encode_informers(&mut families);
    for (name, family) in &*sources.gauges.lock() {
        families.add(name, family.help, "gauge", family.samples());
    }
    for (name, family) in &*sources.counters.lock() {
        families.add(&format!("{name}_total"), family.help, "counter", family.samples());
    }
    for (name, family) in &*sources.plain_counters.lock() {
        families.add(name, family.help, "counter", family.samples());
    }
    for (name, family) in &*sources.histograms.lock() {
        let samples = family.values.iter().map(|(labels, histogram)| (labels.clone(), histogram));
        families.add_histograms(name, family.help, samples);
    }
    // Collectors and other libraries are user code: do not call them while holding a lock.
    let collectors = sources.collectors.lock().clone();
    for (name, collector) in collectors {
        let samples = (collector.samples)();
        if !samples.is_empty() {
            families.add(name, collector.help, "gauge", samples.into_iter());
        }
    }
    let mut text = Text::default();
    text.append(&families.into_text());
    let appended = sources.appended.lock().clone();
    appended.iter().for_each(|encode| text.append(&encode()));
    text.finish()
}

impl Family {
    fn samples(&self) -> impl Iterator<Item = (Labels, f64)> + '_ {
        self.values.iter().map(|(labels, value)| (labels.clone(), *value))
    }
}

/// A value exposed by a queue or a controller: name, help, type and getter.
type MetricDefinition<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

const QUEUE: &[MetricDefinition<QueueMetrics>] = &[
    ("workqueue_depth", "Keys waiting in the queue", "gauge", |of| of.depth as f64),
    ("workqueue_adds_total", "Keys added to the queue", "counter", |of| of.adds as f64),
    ("workqueue_retries_total", "Keys added again after a failure", "counter", |of| of.retries as f64),
    (
        "workqueue_unfinished_work_seconds",
        "Seconds spent so far on all reconciles in progress. Growing values point to stuck workers.",
        "gauge",
        |of| of.unfinished,
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "Seconds the oldest reconcile in progress has been running.",
        "gauge",
        |of| of.longest,
    ),
];

const CONTROLLER: &[MetricDefinition<reconciles::Counters>] = &[
    ("controller_runtime_reconcile_errors_total", "Reconciles that failed", "counter", |of| of.error as f64),
    (
        "controller_runtime_terminal_reconcile_errors_total",
        "Reconciles that failed with an error that is not retried",
        "counter",
        |of| of.terminal as f64,
    ),
    ("controller_runtime_reconcile_panics_total", "Reconciles that panicked", "counter", |of| {
        of.panics as f64
    }),
    ("controller_runtime_reconcile_timeouts_total", "Reconciles that timed out", "counter", |of| {
        of.timeouts as f64
    }),
    (
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent reconciles",
        "gauge",
        |of| of.workers as f64,
    ),
    ("controller_retry_successes_total", "Keys that succeeded after one or more failures", "counter", |of| {
        of.recoveries.count() as f64
    }),
    ("controller_reconcile_given_up_total", "Keys not retried until something changes", "counter", |of| {
        of.given_up as f64
    }),
    (
        "controller_stale_cache_waits_total",
        "Reconciles postponed because a cache did not yet show the controller's last write",
        "counter",
        |of| of.postponed as f64,
    ),
    ("controller_runtime_active_workers", "Workers that are reconciling", "gauge", |of| of.active as f64),
];

impl Sources {
    fn encode_queues(&self, families: &mut Families) {
        let metrics: Vec<(Labels, QueueMetrics)> = self
            .queues
            .lock()
            .iter()
            .filter_map(|(name, queue)| Some((*name, queue.upgrade()?)))
            .map(|(name, queue)| (vec![("controller", name.into()), ("name", name.into())], queue.metrics()))
            .collect();
        if metrics.is_empty() {
            return;
        }
        for (name, help, kind, value) in QUEUE {
            let samples = || metrics.iter().map(|(labels, of)| (labels.clone(), value(of)));
            families.add(name, help, kind, samples());
            if let Some(alias) = alias(name) {
                families.add(alias, help, kind, samples());
            }
        }
        families.add_histograms(
            "workqueue_queue_duration_seconds",
            "Seconds that keys waited in the queue",
            metrics.iter().map(|(labels, of)| (labels.clone(), &of.waited)),
        );
        families.add_histograms(
            "workqueue_work_duration_seconds",
            "Seconds from taking a key to marking it done",
            metrics.iter().map(|(labels, of)| (labels.clone(), &of.worked)),
        );
    }

    fn encode_controllers(&self, families: &mut Families) {
        let tallies: Vec<(Labels, reconciles::Counters)> = self
            .controllers
            .lock()
            .iter()
            .map(|(name, controller)| (vec![("controller", (*name).into())], controller.tally()))
            .collect();
        if tallies.is_empty() {
            return;
        }
        for (name, help, kind, value) in CONTROLLER {
            let samples = || tallies.iter().map(|(labels, of)| (labels.clone(), value(of)));
            families.add(name, help, kind, samples());
            if let Some(alias) = alias(name) {
                families.add(alias, help, kind, samples());
            }
        }
        families.add(
            "controller_runtime_reconcile_total",
            "Reconciles, by result",
            "counter",
            tallies.iter().flat_map(|(labels, tally)| results(labels, tally)),
        );
        families.add(
            "controller_reconcile_error_types_total",
            "Reconciles that failed, by type",
            "counter",
            tallies.iter().flat_map(|(labels, tally)| failures(labels, tally)),
        );
        families.add_histograms(
            "controller_retry_duration_seconds",
            "How long keys had been failing when they succeeded",
            tallies.iter().map(|(labels, tally)| (labels.clone(), &tally.recoveries)),
        );
        for name in ["controller_runtime_reconcile_time_seconds", "controller_reconcile_time_seconds"] {
            families.add_histograms(
                name,
                "Seconds that reconciles took",
                tallies.iter().map(|(labels, tally)| (labels.clone(), &tally.seconds)),
            );
        }
    }

    fn encode_requests(&self, families: &mut Families) {
        let tallies: Vec<(String, requests::Counters)> =
            self.requests.lock().iter().map(|(host, requests)| (host.clone(), requests.tally())).collect();
        if tallies.is_empty() {
            return;
        }
        let labels = |verb: &requests::Verb, host: &str| {
            vec![("host", host.to_owned()), ("verb", verb.name().to_owned())]
        };
        families.add(
            "rest_client_requests_total",
            "Requests sent, by status code, method and host.",
            "counter",
            tallies.iter().flat_map(|(host, tally)| answers(host, tally)),
        );
        families.add_histograms(
            "rest_client_request_duration_seconds",
            "Seconds from sending a request to its response, by verb and host.",
            tallies
                .iter()
                .flat_map(|(host, tally)| tally.seconds.iter().map(|(verb, of)| (labels(verb, host), of))),
        );
        families.add_histograms(
            "rest_client_rate_limiter_duration_seconds",
            "Seconds a request waited for the client's rate limiter, by verb and host.",
            tallies
                .iter()
                .flat_map(|(host, tally)| tally.limited.iter().map(|(verb, of)| (labels(verb, host), of))),
        );
    }
}

/// Returns an alias that dashboards of hand-written controllers use.
fn alias(name: &str) -> Option<&'static str> {
    match name {
        "workqueue_depth" => Some("controller_workqueue_depth"),
        "workqueue_adds_total" => Some("controller_workqueue_adds_total"),
        "workqueue_retries_total" => Some("controller_workqueue_retries_total"),
        "controller_runtime_reconcile_errors_total" => Some("controller_reconcile_errors_total"),
        _ => None,
    }
}

fn results(labels: &Labels, tally: &reconciles::Counters) -> [(Labels, f64); 4] {
    let results = [
        ("error", tally.error),
        ("requeue", tally.requeue),
        ("requeue_after", tally.requeue_after),
        ("success", tally.success),
    ];
    results.map(|(result, count)| ([&labels[..], &[("result", result.to_owned())]].concat(), count as f64))
}

fn failures<'a>(
    labels: &'a Labels,
    tally: &'a reconciles::Counters,
) -> impl Iterator<Item = (Labels, f64)> + 'a {
    let labelled = |category: &str| [&labels[..], &[("type", category.to_owned())]].concat();
    tally.failures.iter().map(move |(category, count)| (labelled(category), *count as f64))
}

fn answers<'a>(host: &'a str, tally: &'a requests::Counters) -> impl Iterator<Item = (Labels, f64)> + 'a {
    tally.answers.iter().map(move |((code, verb), count)| {
        let code = if *code == 0 { "<error>".to_owned() } else { code.to_string() };
        (vec![("code", code), ("host", host.to_owned()), ("method", verb.name().to_owned())], *count as f64)
    })
}
