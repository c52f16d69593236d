//! The attempts of steps: how often, and when the next one is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// The maximum number of consecutive failures of a step.
const MAX_FAILURES: u32 = 10;
/// The backoff after failed attempts, and while waiting.
const MAX_AFTER_FAILURE: Duration = Duration::from_secs(300);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Failures and waits of steps, by application and step. An entry is removed when its step is done or its application
/// is gone, so there is at most one per unfinished step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts(Arc<Mutex<BTreeMap<String, Steps>>>);

type Steps = BTreeMap<String, Attempt>;

#[derive(Clone, Debug, Default)]
struct Attempt {
    failures: u32,
    waits: u32,
    message: String,
    next: Option<Timestamp>,
}

impl Attempts {
    /// Removes an application.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Removes all entries whose identifier has this prefix.
    pub(crate) fn forget_all(&self, prefix: &str) {
        let mut all = self.0.lock();
        let from = all.range(prefix.to_owned()..).map(|(known, _)| known);
        let found: Vec<String> = from.take_while(|known| known.starts_with(prefix)).cloned().collect();
        found.iter().for_each(|known| drop(all.remove(known)));
    }

    pub(super) fn done(&self, uid: &str, step: &str) {
        let mut all = self.0.lock();
        let Some(steps) = all.get_mut(uid) else { return };
        steps.remove(step);
        if steps.is_empty() {
            all.remove(uid);
        }
    }

    pub(super) fn next(&self, uid: &str, step: &str) -> Option<Timestamp> {
        self.0.lock().get(uid)?.get(step)?.next
    }

    /// Counts a failure. Returns when to retry, or `None` if that was the last attempt.
    pub(super) fn failed(&self, uid: &str, step: &str, now: Timestamp) -> Option<Timestamp> {
        let mut all = self.0.lock();
        let attempt = all.entry(uid.to_owned()).or_default().entry(step.to_owned()).or_default();
        attempt.failures += 1;
        if attempt.failures >= MAX_FAILURES {
            return None;
        }
        attempt.next = Some(later(now, pause(attempt.failures, MAX_AFTER_FAILURE)));
        attempt.next
    }

    /// Delays the next attempt of a step until a time.
    pub(super) fn hold(&self, uid: &str, step: &str, until: Timestamp) {
        let mut all = self.0.lock();
        all.entry(uid.to_owned()).or_default().entry(step.to_owned()).or_default().next = Some(until);
    }

    /// Counts a wait. The backoff is reset when the message changes.
    pub(super) fn waited(&self, uid: &str, step: &str, message: &str, now: Timestamp) -> Timestamp {
        let mut all = self.0.lock();
        let attempt = all.entry(uid.to_owned()).or_default().entry(step.to_owned()).or_default();
        if attempt.message != message {
            *attempt = Attempt { message: message.to_owned(), ..Attempt::default() };
        }
        (attempt.waits, attempt.failures, attempt.next) = (attempt.waits.saturating_add(1), 0, None);
        later(now, pause(attempt.waits, MAX_WAIT))
    }
}

/// 0.05·2ⁿ seconds, at least one.
fn pause(count: u32, longest: Duration) -> Duration {
    let seconds = 0.05 * 2_f64.powi(i32::try_from(count.min(30)).unwrap_or(30));
    Duration::from_secs_f64(seconds.max(1.0)).min(longest)
}

pub(super) fn later(now: Timestamp, pause: Duration) -> Timestamp {
    SignedDuration::try_from(pause)
        .ok()
        .and_then(|pause| now.checked_add(pause).ok())
        .unwrap_or(Timestamp::MAX)
}
