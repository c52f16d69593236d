//! Counters and histograms with labels that only appear at run time, up to a limit.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_exposition::Text;

/// A metric of a [`SeriesTable`].
pub(crate) struct Described<M: 'static> {
    pub(crate) metric: M,
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [&'static str],
    /// The bounds of a histogram. Empty for a counter.
    pub(crate) bounds: &'static [f64],
}

/// Metrics by their labels.
pub(crate) struct SeriesTable<M: 'static> {
    /// In output order.
    described: &'static [Described<M>],
    most: usize,
    all: Mutex<BTreeMap<(M, Vec<String>), Series>>,
}

#[derive(Clone, Default)]
struct Series {
    count: u64,
    sum: f64,
    /// The number of observations up to each bound.
    buckets: Vec<u64>,
}

impl<M: Copy + Ord> SeriesTable<M> {
    /// Creates a table with at most this many series. Further series are not counted.
    pub(crate) fn new(described: &'static [Described<M>], most: usize) -> Self {
        Self { described, most, all: Mutex::default() }
    }

    fn change(&self, metric: M, labels: &[&str], change: impl FnOnce(&mut Series)) {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut all = self.all.lock();
        let has_room = all.len() < self.most;
        match all.entry((metric, labels)) {
            Entry::Vacant(_) if !has_room => {}
            entry => change(entry.or_default()),
        }
    }

    pub(crate) fn count(&self, metric: M, labels: &[&str], by: u64) {
        self.change(metric, labels, |series| series.count += by);
    }

    pub(crate) fn observe(&self, metric: M, labels: &[&str], duration: Duration) {
        let described = self.described.iter().find(|described| described.metric == metric);
        let bounds = described.map_or(&[][..], |described| described.bounds);
        let seconds = duration.as_secs_f64();
        self.change(metric, labels, |series| {
            series.buckets.resize(bounds.len(), 0);
            let reached = bounds.iter().zip(&mut series.buckets).filter(|(bound, _)| seconds <= **bound);
            reached.for_each(|(_, bucket)| *bucket += 1);
            series.count += 1;
            series.sum += seconds;
        });
    }

    pub(crate) fn write(&self, text: &mut Text) {
        let all = self.all.lock();
        for described in self.described {
            let kind = if described.bounds.is_empty() { "counter" } else { "histogram" };
            text.head(described.name, kind, described.help);
            let of_metric = all.iter().filter(|((metric, _), _)| *metric == described.metric);
            for ((_, values), series) in of_metric {
                let values = values.iter().map(String::as_str);
                let labels: Vec<(&str, &str)> = described.labels.iter().copied().zip(values).collect();
                match described.bounds {
                    [] => text.sample(described.name, &labels, series.count),
                    bounds => {
                        let buckets = bounds.iter().copied().zip(series.buckets.iter().copied());
                        text.histogram(described.name, &labels, buckets, series.count, series.sum);
                    }
                }
            }
        }
    }
}
