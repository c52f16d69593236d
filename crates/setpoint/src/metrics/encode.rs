//! The figures as text.

use std::fmt::{self, Write};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::histogram::Histogram;
use super::{Family, QueueFigures, Sources, reconciles, requests};

/// The whole registry in Prometheus' text format 0.0.4.
pub(super) fn text(registry: &Registry) -> String {
    let mut open_metrics = String::new();
    // Only a writer or an encoder that fails can fail it: a String never does, and ours never do.
    let _ = prometheus_client::encoding::text::encode(&mut open_metrics, registry);
    classic(&open_metrics)
}

/// OpenMetrics names a counter's family without `_total` and ends with `# EOF`; the classic format,
/// which every scraper reads without being asked, does neither.
fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 256);
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let counted =
            line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).filter(|(name, _)| {
                lines.peek().and_then(|next| next.strip_prefix("# TYPE ")) == Some(&format!("{name} counter"))
            });
        match counted {
            Some((name, help)) => {
                lines.next();
                let _ = write!(text, "# HELP {name}_total {help}\n# TYPE {name}_total counter\n");
            }
            None if line == "# EOF" => {}
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer(encoder);
        self.encode_queues(&mut writer)?;
        self.encode_controllers(&mut writer)?;
        self.encode_requests(&mut writer)?;
        for (name, family) in &*self.gauges.lock() {
            writer.gauges(name, family.help, family.samples())?;
        }
        for (name, family) in &*self.counters.lock() {
            writer.counters(name, family.help, family.samples())?;
        }
        Ok(())
    }
}

impl Sources {
    fn encode_queues(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let figures: Vec<(Sample, QueueFigures)> = self
            .queues
            .lock()
            .iter()
            .filter_map(|(name, queue)| Some((*name, queue.upgrade()?)))
            .map(|(name, queue)| {
                (vec![("name", name.to_owned()), ("controller", name.to_owned())], queue.figures())
            })
            .collect();
        if figures.is_empty() {
            return Ok(());
        }
        let each = |value: fn(&QueueFigures) -> f64| {
            figures.iter().map(move |(labels, of)| (labels.clone(), value(of)))
        };
        writer.gauges("workqueue_depth", "Current depth of workqueue", each(|of| of.depth as f64))?;
        writer.counters(
            "workqueue_adds",
            "Total number of adds handled by workqueue",
            each(|of| of.adds as f64),
        )?;
        writer.counters(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            each(|of| of.retries as f64),
        )?;
        writer.gauges(
            "workqueue_unfinished_work_seconds",
            "How many seconds the work in progress has taken that workqueue_work_duration_seconds has not yet \
             observed; large values tell of stuck workers",
            each(|of| of.unfinished),
        )?;
        writer.gauges(
            "workqueue_longest_running_processor_seconds",
            "How many seconds the longest running processor for workqueue has been running",
            each(|of| of.longest),
        )?;
        writer.histograms(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            figures.iter().map(|(labels, of)| (labels.clone(), &of.waited)),
        )?;
        writer.histograms(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            figures.iter().map(|(labels, of)| (labels.clone(), &of.worked)),
        )
    }

    fn encode_controllers(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let tallies: Vec<(&str, reconciles::Tally)> =
            self.controllers.lock().iter().map(|(name, controller)| (*name, controller.tally())).collect();
        if tallies.is_empty() {
            return Ok(());
        }
        let labels = |name: &str| vec![("controller", name.to_owned())];
        let each = |value: fn(&reconciles::Tally) -> f64| {
            tallies.iter().map(move |(name, tally)| (labels(name), value(tally)))
        };
        writer.counters(
            "controller_runtime_reconcile",
            "Total number of reconciliations per controller",
            tallies.iter().flat_map(|(name, tally)| results(name, tally)),
        )?;
        writer.counters(
            "controller_runtime_reconcile_errors",
            "Total number of reconciliation errors per controller",
            each(|tally| tally.error as f64),
        )?;
        writer.counters(
            "controller_runtime_terminal_reconcile_errors",
            "Total number of terminal reconciliation errors per controller",
            each(|tally| tally.terminal as f64),
        )?;
        writer.counters(
            "controller_runtime_reconcile_panics",
            "Total number of reconciliation panics per controller",
            each(|tally| tally.panics as f64),
        )?;
        writer.counters(
            "controller_runtime_reconcile_timeouts",
            "Total number of reconciliation timeouts per controller",
            each(|tally| tally.timeouts as f64),
        )?;
        writer.gauges(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles per controller",
            each(|tally| tally.workers as f64),
        )?;
        writer.gauges(
            "controller_runtime_active_workers",
            "Number of currently used workers per controller",
            each(|tally| tally.active as f64),
        )?;
        writer.histograms(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            tallies.iter().map(|(name, tally)| (labels(name), &tally.seconds)),
        )
    }

    fn encode_requests(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let tallies: Vec<(String, requests::Tally)> =
            self.requests.lock().iter().map(|(host, requests)| (host.clone(), requests.tally())).collect();
        if tallies.is_empty() {
            return Ok(());
        }
        let labels = |verb: requests::Verb, host: &str| {
            vec![("verb", verb.name().to_owned()), ("host", host.to_owned())]
        };
        writer.counters(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host",
            tallies.iter().flat_map(|(host, tally)| answers(host, tally)),
        )?;
        writer.histograms(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, by verb and host",
            tallies.iter().flat_map(|(host, tally)| {
                tally.seconds.iter().map(|(verb, seconds)| (labels(*verb, host), seconds))
            }),
        )?;
        writer.histograms(
            "rest_client_rate_limiter_duration_seconds",
            "Client side rate limiter latency in seconds, by verb and host",
            tallies.iter().flat_map(|(host, tally)| {
                tally.limited.iter().map(|(verb, seconds)| (labels(*verb, host), seconds))
            }),
        )
    }
}

fn results(name: &str, tally: &reconciles::Tally) -> [(Sample, f64); 4] {
    let sample = |result: &str, count: u64| {
        (vec![("controller", name.to_owned()), ("result", result.to_owned())], count as f64)
    };
    [
        sample("error", tally.error),
        sample("requeue", tally.requeue),
        sample("requeue_after", tally.requeue_after),
        sample("success", tally.success),
    ]
}

fn answers<'a>(host: &'a str, tally: &'a requests::Tally) -> impl Iterator<Item = (Sample, f64)> + 'a {
    tally.answers.iter().map(move |((code, verb), count)| {
        let code = if *code == 0 { "<error>".to_owned() } else { code.to_string() };
        (vec![("code", code), ("method", verb.name().to_owned()), ("host", host.to_owned())], *count as f64)
    })
}

type Sample = Vec<(&'static str, String)>;

impl Family {
    fn samples(&self) -> impl Iterator<Item = (Sample, f64)> + '_ {
        self.values.iter().map(|(labels, value)| (labels.clone(), *value))
    }
}

/// Writes families one after the other.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Sample, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Sample, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            // Counts are whole: below 2^53 they are exact.
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&(value as u64), None)?;
        }
        Ok(())
    }

    fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Sample, &'h Histogram)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, histogram) in samples {
            let buckets = histogram.buckets();
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                histogram.sum(),
                histogram.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}
