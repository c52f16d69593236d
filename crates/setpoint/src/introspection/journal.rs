//! The recent outcomes of a controller, and its slowest keys.
//!
//! Recording one takes a rarely contended lock and moves 150 bytes: tens of nanoseconds, which is little compared to a
//! reconcile that reads the clock twice and opens a span.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use setpoint_clock::Instant;

use crate::queue::Trigger;
use crate::reconcile::WorkKey;
use crate::{Key, Kind};

/// How many outcomes are kept: 256 × 150 bytes are 38 KiB per busy controller.
const KEPT: usize = 256;
/// How many of the slowest keys are kept.
const SLOWEST: usize = 10;

/// How a reconcile ended.
#[derive(Clone, Debug)]
pub(crate) struct Entry<K> {
    pub(crate) key: K,
    pub(crate) trigger: Trigger,
    pub(crate) started: Instant,
    pub(crate) took: Duration,
    pub(crate) outcome: &'static str,
    pub(crate) error: Option<Arc<str>>,
}

/// The slowest reconcile of a key.
#[derive(Clone, Debug)]
pub(crate) struct Slow<K> {
    pub(crate) key: K,
    pub(crate) took: Duration,
    pub(crate) at: Instant,
}

pub(crate) struct Journal<K> {
    recent: VecDeque<Entry<K>>,
    /// Slowest first, each key once.
    slowest: Vec<Slow<K>>,
    /// The kind whose objects the keys name, once a trigger has shown it.
    subject: Option<Kind>,
    pub(crate) total: u64,
    pub(crate) failed: u64,
}

impl<K> Default for Journal<K> {
    fn default() -> Self {
        Self { recent: VecDeque::new(), slowest: Vec::new(), subject: None, total: 0, failed: 0 }
    }
}

impl<K: WorkKey> Journal<K> {
    pub(crate) fn record(&mut self, entry: Entry<K>) {
        self.total += 1;
        self.failed += u64::from(entry.error.is_some());
        if self.subject.is_none() {
            self.subject = subject(&entry);
        }
        if self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|last| last.took < entry.took) {
            self.rank(&entry);
        }
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(entry);
    }

    fn rank(&mut self, entry: &Entry<K>) {
        let Entry { key, took, started, .. } = entry;
        match self.slowest.iter_mut().find(|slow| slow.key == *key) {
            Some(known) if known.took >= *took => return,
            Some(known) => (known.took, known.at) = (*took, *started),
            None => self.slowest.push(Slow { key: key.clone(), took: *took, at: *started }),
        }
        self.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.took));
        self.slowest.truncate(SLOWEST);
    }

    /// Lists the recent outcomes, the latest first.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &Entry<K>> {
        self.recent.iter().rev()
    }

    pub(crate) fn slowest(&self) -> &[Slow<K>] {
        &self.slowest
    }

    pub(crate) fn subject(&self) -> Option<&Kind> {
        self.subject.as_ref()
    }

    /// Returns the reconciles per second within the last minute, among those that are kept.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        const WINDOW: Duration = Duration::from_secs(60);
        let age = |entry: &Entry<K>| now.saturating_duration_since(entry.started);
        let within = self.recent().take_while(|entry| age(entry) <= WINDOW);
        let (count, oldest) =
            within.fold((0_u32, Duration::ZERO), |(count, _), entry| (count + 1, age(entry)));
        // A full journal covers less than the window.
        let covers = if count as usize == KEPT { oldest } else { WINDOW };
        f64::from(count) / covers.as_secs_f64().max(0.001)
    }

    /// Returns a quantile of the recent durations.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut all: Vec<Duration> = self.recent.iter().map(|entry| entry.took).collect();
        all.sort();
        let at = (all.len() as f64 * share) as usize;
        all.get(at.min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// Returns the kind of the keys, if an object triggered its own reconcile.
fn subject<K: WorkKey>(entry: &Entry<K>) -> Option<Kind> {
    let own = (&entry.key as &dyn Any).downcast_ref::<Key>()?;
    (entry.trigger.object.as_ref() == Some(own)).then(|| entry.trigger.kind.clone()).flatten()
}
