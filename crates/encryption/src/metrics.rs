//! v1.34's encryption metrics, in the Prometheus text format.
//!
//! The number of series is bounded by the kinds, the configured providers and the gRPC codes. Key IDs are chosen by
//! plugins, so only the newest [`KEY_IDS`] of each are kept.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_exposition::Text;

use crate::kms::hash;
use crate::{GroupResource, TransformError};

/// The number of key IDs that v1.34 keeps.
const KEY_IDS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromStorage,
    ToStorage,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

/// The label values of a series.
type Labels = Vec<String>;

struct Family<T> {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    series: BTreeMap<Labels, T>,
}

impl<T: Default> Family<T> {
    fn of(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Self {
        Self { name, help, labels, series: BTreeMap::new() }
    }

    fn at(&mut self, labels: &[&str]) -> &mut T {
        self.series.entry(labels.iter().map(|label| (*label).to_owned()).collect()).or_default()
    }

    fn head(&self, kind: &str, text: &mut Text) {
        if !self.series.is_empty() {
            text.head(self.name, kind, &format!("[ALPHA] {}", self.help));
        }
    }

    fn labelled<'a>(&self, values: &'a [String]) -> Vec<(&'static str, &'a str)> {
        self.labels.iter().copied().zip(values.iter().map(String::as_str)).collect()
    }
}

impl Family<f64> {
    fn write(&self, kind: &str, text: &mut Text) {
        self.head(kind, text);
        for (values, value) in &self.series {
            text.sample(self.name, &self.labelled(values), value);
        }
    }
}

/// A histogram in which each bound is twice the previous one.
struct Histogram<const BUCKETS: usize> {
    counts: [u64; BUCKETS],
    count: u64,
    sum: f64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], count: 0, sum: 0.0 }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    fn observe(&mut self, start: f64, value: Duration) {
        let value = value.as_secs_f64();
        let bounds = std::iter::successors(Some(start), |bound| Some(bound * 2.0));
        for (count, bound) in self.counts.iter_mut().zip(bounds) {
            *count += u64::from(value <= bound);
        }
        self.count += 1;
        self.sum += value;
    }
}

impl<const BUCKETS: usize> Family<Histogram<BUCKETS>> {
    fn write(&self, start: f64, text: &mut Text) {
        self.head("histogram", text);
        for (values, histogram) in &self.series {
            let bounds = std::iter::successors(Some(start), |bound| Some(bound * 2.0));
            let buckets = bounds.zip(histogram.counts);
            text.histogram(self.name, &self.labelled(values), buckets, histogram.count, histogram.sum);
        }
    }
}

const TRANSFORMATION_START: f64 = 5e-6;
const GENERATION_START: f64 = 5e-6;
const CALL_START: f64 = 1e-4;

/// All metrics. One instance per server.
pub(crate) struct Metrics {
    id_hash: String,
    inner: Mutex<Inner>,
}

struct Inner {
    operations: Family<f64>,
    durations: Family<Histogram<25>>,
    cache_misses: Family<f64>,
    generations: Family<Histogram<14>>,
    failed_generations: Family<f64>,
    calls: Family<Histogram<20>>,
    key_ids: Family<f64>,
    key_ids_last: Family<f64>,
    key_ids_order: VecDeque<Labels>,
    status_key_ids: Family<f64>,
    status_key_ids_order: VecDeque<Labels>,
    invalid_key_ids: Family<f64>,
    cache_sizes: Family<f64>,
    reloads: Family<f64>,
    reloads_last: Family<f64>,
    config: Family<f64>,
}

impl Metrics {
    /// Creates the metrics of the server with this identity.
    pub(crate) fn new(server: &str) -> Self {
        Self { id_hash: hash(server.as_bytes()), inner: Mutex::new(Inner::new()) }
    }

    pub(crate) fn transformed(
        &self,
        resource: &GroupResource,
        direction: Direction,
        prefix: &str,
        took: Duration,
        error: Option<&TransformError>,
    ) {
        let mut inner = self.inner.lock();
        let status = error.map_or("OK", TransformError::status);
        *inner.operations.at(&[&resource.to_string(), direction.name(), prefix, status]) += 1.0;
        if error.is_none() {
            inner.durations.at(&[direction.name(), prefix]).observe(TRANSFORMATION_START, took);
        }
    }

    pub(crate) fn cache_missed(&self) {
        *self.inner.lock().cache_misses.at(&[]) += 1.0;
    }

    pub(crate) fn data_key_generated(&self, took: Duration, succeeded: bool) {
        let mut inner = self.inner.lock();
        match succeeded {
            true => inner.generations.at(&[]).observe(GENERATION_START, took),
            false => *inner.failed_generations.at(&[]) += 1.0,
        }
    }

    pub(crate) fn called(&self, provider: &str, method: &str, code: &str, took: Duration) {
        self.inner.lock().calls.at(&[provider, method, code]).observe(CALL_START, took);
    }

    pub(crate) fn key_id_used(&self, direction: Direction, provider: &str, key_id: &str, now: Timestamp) {
        let (key, inner) = (hash(key_id.as_bytes()), &mut *self.inner.lock());
        let labels = [direction.name(), provider, &key, &self.id_hash];
        for gone in newest(&mut inner.key_ids_order, &labels) {
            inner.key_ids.series.remove(&gone);
            inner.key_ids_last.series.remove(&gone);
        }
        *inner.key_ids.at(&labels) += 1.0;
        *inner.key_ids_last.at(&labels) = seconds(now);
    }

    pub(crate) fn key_id_from_status(&self, provider: &str, key_id: &str, now: Timestamp) {
        let (key, inner) = (hash(key_id.as_bytes()), &mut *self.inner.lock());
        let labels = [provider, &key, &self.id_hash];
        for gone in newest(&mut inner.status_key_ids_order, &labels) {
            inner.status_key_ids.series.remove(&gone);
        }
        *inner.status_key_ids.at(&labels) = seconds(now);
    }

    pub(crate) fn invalid_key_id(&self, provider: &str, code: &str) {
        *self.inner.lock().invalid_key_ids.at(&[provider, code]) += 1.0;
    }

    pub(crate) fn cache_size(&self, provider: &str, size: usize) {
        *self.inner.lock().cache_sizes.at(&[provider]) = size as f64;
    }

    /// Records that the configuration with this hash is active.
    pub(crate) fn configured(&self, config_hash: &str) {
        let mut inner = self.inner.lock();
        inner.config.series.clear();
        *inner.config.at(&[&self.id_hash, config_hash]) = 1.0;
    }

    pub(crate) fn reloaded(&self, succeeded: bool, now: Timestamp) {
        let mut inner = self.inner.lock();
        let labels = [if succeeded { "success" } else { "failure" }, &self.id_hash];
        *inner.reloads.at(&labels) += 1.0;
        *inner.reloads_last.at(&labels) = seconds(now);
    }

    pub(crate) fn text(&self) -> String {
        let inner = self.inner.lock();
        let mut text = Text::default();
        let into = &mut text;
        inner.reloads_last.write("gauge", into);
        inner.reloads.write("counter", into);
        inner.config.write("gauge", into);
        inner.cache_sizes.write("gauge", into);
        inner.invalid_key_ids.write("counter", into);
        inner.key_ids_last.write("gauge", into);
        inner.status_key_ids.write("gauge", into);
        inner.key_ids.write("counter", into);
        inner.calls.write(CALL_START, into);
        inner.generations.write(GENERATION_START, into);
        inner.failed_generations.write("counter", into);
        inner.cache_misses.write("counter", into);
        inner.durations.write(TRANSFORMATION_START, into);
        inner.operations.write("counter", into);
        text.finish()
    }
}

/// Moves a series to the end of the order. Returns the series beyond the limit.
fn newest(order: &mut VecDeque<Labels>, labels: &[&str]) -> Vec<Labels> {
    if order.back().is_some_and(|last| last.iter().eq(labels)) {
        return Vec::new();
    }
    let labels: Labels = labels.iter().map(|label| (*label).to_owned()).collect();
    order.retain(|other| *other != labels);
    order.push_back(labels);
    let beyond = order.len().saturating_sub(KEY_IDS);
    order.drain(..beyond).collect()
}

fn seconds(time: Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1000.0
}

impl Inner {
    fn new() -> Self {
        Self {
            operations: Family::of(
                "apiserver_storage_transformation_operations_total",
                "Transformations of values, by resource, direction, provider and status.",
                &["resource", "transformation_type", "transformer_prefix", "status"],
            ),
            durations: Family::of(
                "apiserver_storage_transformation_duration_seconds",
                "Seconds to transform a value, by direction and provider.",
                &["transformation_type", "transformer_prefix"],
            ),
            cache_misses: Family::of(
                "apiserver_storage_envelope_transformation_cache_misses_total",
                "Data keys that were not cached, so that the KMS plugin was called.",
                &[],
            ),
            generations: Family::of(
                "apiserver_storage_data_key_generation_duration_seconds",
                "Seconds to generate a data encryption key.",
                &[],
            ),
            failed_generations: Family::of(
                "apiserver_storage_data_key_generation_failures_total",
                "Data encryption keys that could not be generated.",
                &[],
            ),
            calls: Family::of(
                "apiserver_envelope_encryption_kms_operations_latency_seconds",
                "Seconds that calls to the KMS plugin took, by gRPC status.",
                &["provider_name", "method_name", "grpc_status_code"],
            ),
            key_ids: Family::of(
                "apiserver_envelope_encryption_key_id_hash_total",
                "Uses of a key, by direction and provider.",
                &["transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"],
            ),
            key_ids_last: Family::of(
                "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
                "Unix time of the last use of a key.",
                &["transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"],
            ),
            key_ids_order: VecDeque::new(),
            status_key_ids: Family::of(
                "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
                "Unix time at which the plugin last named the key in its status.",
                &["provider_name", "key_id_hash", "apiserver_id_hash"],
            ),
            status_key_ids_order: VecDeque::new(),
            invalid_key_ids: Family::of(
                "apiserver_envelope_encryption_invalid_key_id_from_status_total",
                "Status responses of the plugin with an invalid key ID, by error.",
                &["provider_name", "error"],
            ),
            cache_sizes: Family::of(
                "apiserver_envelope_encryption_dek_source_cache_size",
                "Data encryption keys in the cache, by provider.",
                &["provider_name"],
            ),
            reloads: Family::of(
                "apiserver_encryption_config_controller_automatic_reloads_total",
                "Reloads of the encryption configuration, by outcome and server.",
                &["status", "apiserver_id_hash"],
            ),
            reloads_last: Family::of(
                "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
                "Unix time of the last reload of the encryption configuration, by outcome.",
                &["status", "apiserver_id_hash"],
            ),
            config: Family::of(
                "apiserver_encryption_config_controller_last_config_info",
                "1, with the hash of the encryption configuration in use.",
                &["apiserver_id_hash", "hash"],
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_written_with_their_labels() {
        let metrics = Metrics::new("server");
        let (secrets, took) = (GroupResource::parse("secrets"), Duration::from_micros(9));
        let error = TransformError::new("no matching prefix found");
        metrics.transformed(&secrets, Direction::ToStorage, "k8s:enc:aescbc:v1:", took, None);
        metrics.transformed(&secrets, Direction::FromStorage, "unknown", took, Some(&error));
        let text = metrics.text();
        for line in [
            "apiserver_storage_transformation_operations_total{resource=\"secrets\",transformation_type=\
             \"to_storage\",transformer_prefix=\"k8s:enc:aescbc:v1:\",status=\"OK\"} 1",
            "apiserver_storage_transformation_operations_total{resource=\"secrets\",transformation_type=\
             \"from_storage\",transformer_prefix=\"unknown\",status=\"unknown-non-grpc\"} 1",
            "apiserver_storage_transformation_duration_seconds_bucket{transformation_type=\"to_storage\",\
             transformer_prefix=\"k8s:enc:aescbc:v1:\",le=\"1e-05\"} 1",
            "apiserver_storage_transformation_duration_seconds_bucket{transformation_type=\"to_storage\",\
             transformer_prefix=\"k8s:enc:aescbc:v1:\",le=\"5e-06\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
    }

    #[test]
    fn key_ids_are_kept_for_the_newest_only() {
        let metrics = Metrics::new("server");
        for id in 0..500 {
            metrics.key_id_used(Direction::ToStorage, "p", &id.to_string(), Timestamp::UNIX_EPOCH);
            metrics.key_id_from_status("p", &id.to_string(), Timestamp::UNIX_EPOCH);
        }
        let text = metrics.text();
        let count = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        assert_eq!(count("apiserver_envelope_encryption_key_id_hash_total"), KEY_IDS);
        assert_eq!(count("apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds"), KEY_IDS);
    }
}
