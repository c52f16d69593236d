//! A work queue with delays. A key is never processed twice at once.

use std::collections::BTreeMap;
use std::time::Duration;

use setpoint_clock::Instant;

/// The schedule: one key per APIService.
#[derive(Default)]
pub(super) struct Work {
    due: BTreeMap<Box<str>, Instant>,
    /// The keys being processed, and when to process them again.
    busy: BTreeMap<Box<str>, Option<Instant>>,
    failures: BTreeMap<Box<str>, u32>,
}

/// Exponential backoff after failures.
#[derive(Clone, Copy)]
pub(super) struct Pauses {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Pauses {
    fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.min(31)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

impl Work {
    /// Schedules a key for this time, unless it is already scheduled earlier.
    pub(super) fn add(&mut self, key: &str, at: Instant) {
        if let Some(again) = self.busy.get_mut(key) {
            *again = Some(again.map_or(at, |planned| planned.min(at)));
            return;
        }
        let due = self.due.entry(key.into()).or_insert(at);
        *due = (*due).min(at);
    }

    /// Takes a key that is due.
    pub(super) fn take(&mut self, now: Instant) -> Option<Box<str>> {
        let key = self.due.iter().filter(|(_, at)| **at <= now).min_by_key(|(_, at)| **at)?.0.clone();
        self.due.remove(&key);
        self.busy.insert(key.clone(), None);
        Some(key)
    }

    /// The number of keys being processed.
    pub(super) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// When the next key is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    /// The work on a key succeeded; the next time is `then`.
    pub(super) fn done(&mut self, key: &str, then: Option<Instant>) {
        self.failures.remove(key);
        self.finish(key, then);
    }

    /// The work on a key failed.
    pub(super) fn failed(&mut self, key: &str, now: Instant, pauses: Pauses) {
        let failures = self.failures.entry(key.into()).or_default();
        let pause = pauses.after(*failures);
        *failures = failures.saturating_add(1);
        self.finish(key, Some(now + pause));
    }

    fn finish(&mut self, key: &str, then: Option<Instant>) {
        let again = self.busy.remove(key).flatten();
        if let Some(at) = [again, then].into_iter().flatten().min() {
            self.add(key, at);
        }
    }

    pub(super) fn has_failed(&self, key: &str) -> bool {
        self.failures.contains_key(key)
    }

    /// Forgets the failures of a key.
    pub(super) fn reset_failures(&mut self, key: &str) {
        self.failures.remove(key);
    }

    /// Removes a key. If it is being processed, it is not processed again.
    pub(super) fn forget(&mut self, key: &str) {
        self.due.remove(key);
        self.failures.remove(key);
        if let Some(again) = self.busy.get_mut(key) {
            *again = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use setpoint_clock::Clock;

    use super::*;

    const PAUSES: Pauses = Pauses { first: Duration::from_millis(5), longest: Duration::from_secs(30) };

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time_and_again_if_it_was_added_meanwhile() {
        let now = Clock::system().instant();
        let mut work = Work::default();
        work.add("a", now);
        work.add("a", now + Duration::from_secs(1));
        assert_eq!(work.take(now).as_deref(), Some("a"));
        assert_eq!(work.take(now), None);
        work.add("a", now);
        assert_eq!((work.take(now), work.busy()), (None, 1));
        work.done("a", Some(now + Duration::from_secs(30)));
        assert_eq!(work.take(now).as_deref(), Some("a"), "newly added keys come before periodic ones");
        work.done("a", Some(now + Duration::from_secs(30)));
        assert_eq!(work.next(), Some(now + Duration::from_secs(30)));
        work.forget("a");
        assert_eq!(work.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_their_limit() {
        let now = Clock::system().instant();
        let mut work = Work::default();
        let mut pauses = Vec::new();
        for _ in 0..20 {
            work.add("a", now);
            work.take(now).unwrap();
            work.failed("a", now, PAUSES);
            pauses.push(work.next().unwrap() - now);
        }
        assert_eq!(pauses[..3], [5, 10, 20].map(Duration::from_millis));
        assert_eq!(pauses[19], PAUSES.longest);
        work.done("a", None);
        assert!(!work.has_failed("a"));
    }
}
