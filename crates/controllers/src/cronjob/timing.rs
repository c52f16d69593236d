//! Computes when a Job was due and when the next one is. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::Cached;
use setpoint_cron::Schedule;

use super::view::CronJob;

/// Slack added to delays to allow for clock differences.
const MARGIN: Duration = Duration::from_millis(100);

/// More missed schedules than this are reported as too many.
const MANY: i64 = 100;

/// The schedule has no two distinct times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub(super) struct NeverDue;

/// The schedule between the last start and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Past {
    /// The start of the interval.
    since: Timestamp,
    /// The last scheduled time.
    latest: Option<Timestamp>,
    missed: Missed,
}

/// The number of missed schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    None,
    Few,
    Many,
}

/// A scheduled time that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) time: Timestamp,
    pub(super) missed: Missed,
}

/// Returns the latest scheduled time that has passed and was not started, if any. Times before the starting deadline
/// are ignored.
pub(super) fn due(
    cron_job: &Cached<CronJob>,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Option<Due>, NeverDue> {
    let deadline = cron_job.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let not_before = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
    let since = started(cron_job).max(not_before.unwrap_or(Timestamp::MIN));
    let past = missed_schedules(since, schedule, now)?;
    Ok(past.latest.map(|time| Due { time, missed: past.missed }))
}

/// Returns the time until the next Job is due.
pub(super) fn next_in(cron_job: &Cached<CronJob>, schedule: &Schedule, now: Timestamp) -> Duration {
    let from = match missed_schedules(started(cron_job), schedule, now) {
        Ok(Past { latest: Some(latest), .. }) => latest,
        Ok(Past { since, missed: Missed::None, .. }) => since,
        _ => now,
    };
    let next = schedule.next(from).map_or(SignedDuration::ZERO, |next| next.duration_since(now));
    Duration::try_from(next).unwrap_or_default() + MARGIN
}

/// Returns when the last Job was scheduled, or when the CronJob was created.
fn started(cron_job: &Cached<CronJob>) -> Timestamp {
    let created = cron_job.meta().creation_timestamp;
    cron_job.status.last_schedule_time.or(created).unwrap_or(Timestamp::MIN)
}

fn missed_schedules(since: Timestamp, schedule: &Schedule, now: Timestamp) -> Result<Past, NeverDue> {
    let first = schedule.next(since).ok_or(NeverDue)?;
    if now < first {
        return Ok(Past { since, latest: None, missed: Missed::None });
    }
    let second = schedule.next(first).ok_or(NeverDue)?;
    if now < second {
        return Ok(Past { since, latest: Some(first), missed: Missed::None });
    }
    let period = second.duration_since(first).as_secs();
    if period < 1 {
        return Err(NeverDue);
    }
    let missed = now.duration_since(first).as_secs() / period + 1;
    // Start two periods back: irregular schedules are found and `@every` keeps its phase.
    let back = SignedDuration::from_secs((missed - 2).saturating_mul(period));
    let mut time = first.checked_add(back).ok().and_then(|from| schedule.next(from));
    let mut latest = None;
    while let Some(passed) = time.filter(|time| *time <= now) {
        latest = Some(passed);
        time = schedule.next(passed);
    }
    Ok(Past { since, latest, missed: if missed > MANY { Missed::Many } else { Missed::Few } })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::fixtures::cached;

    fn cron_job(schedule: &str, last: Option<&str>, deadline: Option<i64>) -> Cached<CronJob> {
        cached(json!({
            "metadata": {"name": "c", "creationTimestamp": "2025-01-01T00:00:30Z"},
            "spec": {"schedule": schedule, "startingDeadlineSeconds": deadline, "jobTemplate": {"spec": {}}},
            "status": {"lastScheduleTime": last},
        }))
    }

    #[track_caller]
    fn check(cron_job: &Cached<CronJob>, now: &str, expected: &str) {
        let schedule = cron_job.spec.parse_schedule().unwrap();
        let now = now.parse().unwrap();
        let actual = match due(cron_job, &schedule, now) {
            Err(NeverDue) => "never".into(),
            Ok(None) => "nothing".into(),
            Ok(Some(Due { time, missed })) => format!("{time} {missed:?}"),
        };
        let next = next_in(cron_job, &schedule, now).as_secs();
        assert_eq!(format!("{actual}, next in {next}"), expected, "{:?} at {now}", cron_job.spec.schedule);
    }

    #[test]
    fn the_latest_time_is_due_and_those_before_it_are_missed() {
        let minutely = cron_job("* * * * *", None, None);
        check(&minutely, "2025-01-01T00:00:45Z", "nothing, next in 15");
        check(&minutely, "2025-01-01T00:01:00Z", "2025-01-01T00:01:00Z None, next in 60");
        check(&minutely, "2025-01-01T00:05:30Z", "2025-01-01T00:05:00Z Few, next in 30");
        check(&minutely, "2025-01-01T03:05:30Z", "2025-01-01T03:05:00Z Many, next in 30");
        let started = cron_job("* * * * *", Some("2025-01-01T00:05:00Z"), None);
        check(&started, "2025-01-01T00:05:30Z", "nothing, next in 30");
        let irregular = cron_job("30 6-16/4 * * 1-5", Some("2025-01-03T14:30:00Z"), None);
        check(&irregular, "2025-01-05T12:00:00Z", "nothing, next in 66600");
    }

    #[test]
    fn schedules_before_the_starting_deadline_are_ignored() {
        let late = cron_job("0 * * * *", None, Some(60));
        check(&late, "2025-01-01T05:00:30Z", "2025-01-01T05:00:00Z None, next in 3570");
        check(&late, "2025-01-01T05:02:00Z", "nothing, next in 3480");
    }

    #[test]
    fn some_schedules_are_never_due() {
        let never = cron_job("59 23 31 2 *", None, None);
        check(&never, "2025-01-01T05:00:30Z", "never, next in 0");
    }
}
