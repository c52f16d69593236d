//! Prometheus metrics, with the names, labels and buckets that dashboards for Kubernetes controllers expect.
//!
//! Values are counted where the work happens, under locks that are held there anyway, and read when the metrics are
//! encoded. The output is sorted by names and labels, so that two runs of the same simulation produce the same text.

mod encode;
pub(crate) mod histogram;
mod informers;
mod reconciles;
mod requests;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

pub(crate) use informers::{InformerMetrics, InformerStats};
pub(crate) use reconciles::{ReconcileResult, Reconciles};
pub(crate) use requests::Requests;

use histogram::Histogram;

use crate::introspection::Introspection;

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = setpoint_exposition::CONTENT_TYPE;

/// The metrics of a process. Cheap to clone; clones share the same metrics.
///
/// ```
/// use setpoint::metrics::Metrics;
/// let metrics = Metrics::new();
/// metrics.set_gauge("leader_election_master_status", "Whether this process is the leader.", &[("name", "web")], 1.0);
/// assert!(metrics.encode().contains("leader_election_master_status{name=\"web\"} 1"));
/// ```
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    sources: Sources,
    introspection: Introspection,
}

/// The sources of metrics. One entry per queue, controller, host and gauge, all fixed when a process starts.
#[derive(Default)]
struct Sources {
    queues: Mutex<BTreeMap<&'static str, Weak<dyn QueueStats>>>,
    controllers: Mutex<BTreeMap<&'static str, Arc<Reconciles>>>,
    requests: Mutex<BTreeMap<String, Arc<Requests>>>,
    informers: Mutex<Vec<Weak<dyn InformerStats>>>,
    gauges: Mutex<BTreeMap<&'static str, Family>>,
    counters: Mutex<BTreeMap<&'static str, Family>>,
    /// Counters without the suffix `_total`.
    plain_counters: Mutex<BTreeMap<&'static str, Family>>,
    histograms: Mutex<BTreeMap<&'static str, Distribution>>,
    collectors: Mutex<BTreeMap<&'static str, Collector>>,
    appended: Mutex<Vec<Arc<dyn Fn() -> String + Send + Sync>>>,
}

/// The values of a metric, by labels.
struct Family {
    help: &'static str,
    values: BTreeMap<Labels, f64>,
}

/// The histograms of a metric, by labels.
struct Distribution {
    help: &'static str,
    values: BTreeMap<Labels, Histogram>,
}

/// The labels of a sample: names and values.
pub type Labels = Vec<(&'static str, String)>;

/// A gauge computed on every scrape.
#[derive(Clone)]
struct Collector {
    help: &'static str,
    samples: Arc<dyn Fn() -> Vec<(Labels, f64)> + Send + Sync>,
}

/// A queue with metrics.
pub(crate) trait QueueStats: Send + Sync {
    fn metrics(&self) -> QueueMetrics;
}

/// A snapshot of a queue's metrics.
pub(crate) struct QueueMetrics {
    pub(crate) depth: usize,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) waited: Histogram,
    pub(crate) worked: Histogram,
    /// The total seconds that reconciles in progress have taken so far.
    pub(crate) unfinished: f64,
    /// The seconds that the longest-running reconcile has taken so far.
    pub(crate) longest: f64,
}

impl Metrics {
    /// Creates an empty set of metrics.
    pub fn new() -> Self {
        Self { shared: Arc::default() }
    }

    /// Registers a gauge that is computed on every scrape. A gauge without samples is left out.
    ///
    /// ```
    /// let metrics = setpoint::metrics::Metrics::new();
    /// metrics.collect("backups", "Backups kept.", || vec![(vec![("to", "disk".to_owned())], 3.0)]);
    /// assert!(metrics.encode().contains("\nbackups{to=\"disk\"} 3\n"));
    /// ```
    pub fn collect(
        &self,
        name: &'static str,
        help: &'static str,
        samples: impl Fn() -> Vec<(Labels, f64)> + Send + Sync + 'static,
    ) {
        let collector = Collector { help, samples: Arc::new(samples) };
        self.shared.sources.collectors.lock().insert(name, collector);
    }

    /// Appends metrics that another library encodes, in the text format 0.0.4, to every scrape.
    ///
    /// ```
    /// let metrics = setpoint::metrics::Metrics::new();
    /// metrics.append(|| "# TYPE backups_total counter\nbackups_total 1\n".to_owned());
    /// assert!(metrics.encode().ends_with("\nbackups_total 1\n"));
    /// ```
    pub fn append(&self, encode: impl Fn() -> String + Send + Sync + 'static) {
        self.shared.sources.appended.lock().push(Arc::new(encode));
    }

    /// Sets a gauge.
    pub fn set_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        *entry(&mut self.shared.sources.gauges.lock(), name, help, labels) = value;
    }

    /// Increments a counter. `name` does not include the suffix `_total`.
    pub fn count(&self, name: &'static str, help: &'static str, labels: &[(&'static str, &str)], more: u64) {
        *entry(&mut self.shared.sources.counters.lock(), name, help, labels) += more as f64;
    }

    /// Increments a counter whose name has no `_total` suffix, like some of Kubernetes' own.
    pub fn count_as(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        more: u64,
    ) {
        *entry(&mut self.shared.sources.plain_counters.lock(), name, help, labels) += more as f64;
    }

    /// Records a value in a histogram. `bounds` must be in ascending order, and the same for every use of a name.
    ///
    /// ```
    /// let metrics = setpoint::metrics::Metrics::new();
    /// metrics.observe("backup_duration_seconds", "How long backups take.", &[1.0, 60.0], &[("to", "disk")], 7.0);
    /// assert!(metrics.encode().contains("backup_duration_seconds_bucket{to=\"disk\",le=\"60\"} 1"));
    /// ```
    pub fn observe(
        &self,
        name: &'static str,
        help: &'static str,
        bounds: &'static [f64],
        labels: &[(&'static str, &str)],
        value: f64,
    ) {
        let mut histograms = self.shared.sources.histograms.lock();
        let family = histograms.entry(name).or_insert_with(|| Distribution { help, values: BTreeMap::new() });
        let histogram = family.values.entry(owned(labels)).or_insert_with(|| Histogram::new(bounds));
        histogram.observe_value(value, 1);
    }

    /// Encodes all metrics in the Prometheus text format ([`CONTENT_TYPE`]).
    pub fn encode(&self) -> String {
        encode::everything(&self.shared.sources)
    }

    /// Returns the introspection API of the controllers whose metrics these are.
    pub fn introspection(&self) -> &Introspection {
        &self.shared.introspection
    }

    pub(crate) fn add_queue(&self, name: &'static str, queue: Weak<dyn QueueStats>) {
        self.shared.sources.queues.lock().insert(name, queue);
    }

    pub(crate) fn add_controller(&self, name: &'static str, reconciles: Arc<Reconciles>) {
        self.shared.sources.controllers.lock().insert(name, reconciles);
    }

    pub(crate) fn add_informers(&self, informers: Weak<dyn InformerStats>) {
        self.shared.sources.informers.lock().push(informers);
    }

    /// Returns the request metrics of a host, shared by all clients of that host.
    pub(crate) fn requests(&self, host: &str) -> Arc<Requests> {
        self.shared.sources.requests.lock().entry(host.into()).or_default().clone()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn entry<'a>(
    families: &'a mut BTreeMap<&'static str, Family>,
    name: &'static str,
    help: &'static str,
    labels: &[(&'static str, &str)],
) -> &'a mut f64 {
    let family = families.entry(name).or_insert_with(|| Family { help, values: BTreeMap::new() });
    family.values.entry(owned(labels)).or_default()
}

fn owned(labels: &[(&'static str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}
