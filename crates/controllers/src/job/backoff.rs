//! Backoff after pod failures. Pure, except [`Records`].

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use setpoint::Key;
use setpoint::backoff::Backoff;

use super::pod::Member;

/// The initial and the maximum backoff.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// Pod failures since the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

impl Record {
    /// Returns the record after these pods have finished.
    pub(super) fn after(&self, succeeded: &[&Member], failed: &[&Member]) -> Self {
        let last_success = succeeded.iter().filter_map(|pod| pod.finished_at()).max();
        let mut failures: Vec<_> = failed.iter().filter_map(|pod| pod.finished_at()).collect();
        failures.sort_unstable();
        if succeeded.is_empty() {
            let last = failures.last().copied().or(self.last);
            return Self { failures: self.failures.saturating_add(count(failed.len())), last };
        }
        failures.retain(|failure| last_success.is_none_or(|success| *failure > success));
        Self { failures: count(failures.len()), last: failures.last().copied() }
    }

    /// Returns how long until pods may be created again. `None` if they may be now.
    pub(super) fn remaining(&self, now: Timestamp) -> Option<Duration> {
        remaining(self.failures, self.last?, now)
    }
}

/// Returns how long until an index's pod may be replaced. `None` if it may be now.
pub(super) fn remaining_for_index(last_failed: &Member, now: Timestamp) -> Option<Duration> {
    let failures = u32::try_from(last_failed.all_index_failures()).unwrap_or(0).saturating_add(1);
    remaining(failures, last_failed.finished_at()?, now)
}

fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let backoff = Backoff::doubling(FIRST, LONGEST).delay(failures.checked_sub(1)?);
    let left = SignedDuration::try_from(backoff).ok()? - now.duration_since(last);
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

fn count(pods: usize) -> u32 {
    u32::try_from(pods).unwrap_or(u32::MAX)
}

/// The records of unfinished Jobs, at most one each.
#[derive(Default)]
pub(super) struct Records(Mutex<BTreeMap<Key, Record>>);

impl Records {
    pub(super) fn of(&self, job: &Key) -> Record {
        self.0.lock().get(job).cloned().unwrap_or_default()
    }

    pub(super) fn keep(&self, job: &Key, record: Record) {
        if record == Record::default() {
            return self.forget(job);
        }
        self.0.lock().insert(job.clone(), record);
    }

    pub(super) fn forget(&self, job: &Key) {
        self.0.lock().remove(job);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::fixtures::{at, cached};

    fn ended(second: i64, failures: i32) -> Member {
        let annotations = json!({"batch.kubernetes.io/job-index-failure-count": failures.to_string()});
        let status = json!({"containerStatuses": [{"state": {"terminated": {"finishedAt": at(second)}}}]});
        Member::of(
            cached(json!({"metadata": {"name": "p", "annotations": annotations}, "status": status})),
            false,
        )
    }

    #[test]
    fn the_wait_doubles_with_every_failure_since_the_last_success() {
        let waits = |record: &Record, now: i64| record.remaining(at(now)).map(|left| left.as_secs());
        let (one, two, three) = (ended(10, 0), ended(20, 0), ended(30, 0));
        let none = Record::default();
        assert_eq!(waits(&none, 0), None);
        let first = none.after(&[], &[&one]);
        assert_eq!((waits(&first, 10), waits(&first, 15), waits(&first, 20)), (Some(10), Some(5), None));
        let second = first.after(&[], &[&two]);
        assert_eq!((waits(&second, 20), waits(&second, 39), waits(&second, 40)), (Some(20), Some(1), None));
        assert_eq!(waits(&second.after(&[], &[]), 20), Some(20), "nothing new");
        assert_eq!(waits(&second.after(&[&three], &[]), 30), None, "a success ends it");
        assert_eq!(
            waits(&none.after(&[&two], &[&one, &three]), 30),
            Some(10),
            "failures before a success do not count"
        );
        let many = (0..20).fold(none, |record, _| record.after(&[], &[&one]));
        assert_eq!(waits(&many, 10), Some(600));
    }

    #[test]
    fn an_index_waits_by_its_own_failures() {
        let waits = |failures: i32, now: i64| {
            remaining_for_index(&ended(10, failures), at(now)).map(|left| left.as_secs())
        };
        assert_eq!(
            (waits(0, 10), waits(0, 20), waits(1, 10), waits(9, 10)),
            (Some(10), None, Some(20), Some(600))
        );
    }
}
