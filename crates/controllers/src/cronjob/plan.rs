//! Plans which Jobs have finished, which to start and which to delete. Pure.

use std::time::Duration;

use jiff::Timestamp;
use setpoint::Cached;
use setpoint_cron::Schedule;

use super::timing::{Due, Missed, due, next_in};
use super::view::{Concurrency, CronJob, CronJobStatus, JobRef};
use crate::job::Job;

/// The Jobs of a CronJob compared with its status.
pub(super) struct ActiveJobs<'a> {
    /// The updated status, according to the cache.
    pub(super) status: CronJobStatus,
    /// Jobs listed in the status that have finished.
    pub(super) ended: Vec<&'a Cached<Job>>,
    /// Running Jobs that the status does not list.
    pub(super) unexpected: Vec<&'a Cached<Job>>,
    /// Jobs listed in the status that the cache does not have.
    pub(super) missing: Vec<JobRef>,
}

pub(super) fn active_jobs<'a>(cron_job: &CronJob, jobs: &'a [Cached<Job>]) -> ActiveJobs<'a> {
    let mut status = cron_job.status.clone();
    let listed = |job: &&Cached<Job>| cron_job.status.has_active(&job.meta().uid);
    let ended: Vec<_> = jobs.iter().filter(|job| job.is_finished()).filter(listed).collect();
    ended.iter().for_each(|job| status.remove_active(&job.meta().uid));
    let successes = jobs.iter().filter(|job| job.has_succeeded()).filter_map(|job| job.completion_time());
    status.last_successful_time = status.last_successful_time.max(successes.max());
    let running = jobs.iter().filter(|job| !job.is_finished());
    let known = |listed: &JobRef| jobs.iter().any(|job| *job.meta().uid == *listed.uid);
    ActiveJobs {
        missing: status.active.iter().filter(|listed| !known(listed)).cloned().collect(),
        unexpected: running.filter(|job| !listed(job)).collect(),
        status,
        ended,
    }
}

/// Whether to start a Job now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Not until the CronJob is changed.
    Never(Never),
    /// Not now, with the reason if it should be reported. Check again after `next`.
    NotNow { why: Option<NotNow>, next: Duration },
    /// Now, for this scheduled time. `replace` lists the Jobs to delete first.
    Now { time: Timestamp, too_many_missed: bool, replace: Vec<JobRef> },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Never {
    /// Suspended or being deleted.
    Inactive,
    UnknownTimeZone(String),
    /// Event reason and message.
    BadSchedule(&'static str, String),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    TooLate { time: Timestamp },
    AlreadyActive,
}

pub(super) fn start(cron_job: &Cached<CronJob>, status: &CronJobStatus, now: Timestamp) -> Start {
    let spec = &cron_job.spec;
    if cron_job.meta().is_being_deleted() {
        return Start::Never(Never::Inactive);
    }
    if let (Some(zone), None) = (&spec.time_zone, spec.zone()) {
        return Start::Never(Never::UnknownTimeZone(zone.to_string()));
    }
    if spec.suspend == Some(true) {
        return Start::Never(Never::Inactive);
    }
    let text = &spec.schedule;
    let schedule = match spec.parse_schedule() {
        Ok(schedule) => schedule,
        Err(error) => {
            let message = format!("unparseable schedule: {text:?} : {error}");
            return Start::Never(Never::BadSchedule("UnparseableSchedule", message));
        }
    };
    match due(cron_job, &schedule, now) {
        Err(error) => {
            Start::Never(Never::BadSchedule("InvalidSchedule", format!("invalid schedule: {text} : {error}")))
        }
        Ok(None) => Start::NotNow { why: None, next: next_in(cron_job, &schedule, now) },
        Ok(Some(due)) => start_due(cron_job, status, &schedule, due, now),
    }
}

fn start_due(
    cron_job: &Cached<CronJob>,
    status: &CronJobStatus,
    schedule: &Schedule,
    Due { time, missed }: Due,
    now: Timestamp,
) -> Start {
    let spec = &cron_job.spec;
    let not_now = |why| Start::NotNow { why, next: next_in(cron_job, schedule, now) };
    let deadline = spec.starting_deadline_seconds.map(jiff::SignedDuration::from_secs);
    if deadline.is_some_and(|deadline| time.checked_add(deadline).is_ok_and(|last| last < now)) {
        return not_now(Some(NotNow::TooLate { time }));
    }
    let name = job_name(&cron_job.meta().name, time);
    let is_listed = status.active.iter().any(|job| *job.name == *name);
    if is_listed || status.last_schedule_time == Some(time) {
        return not_now(None);
    }
    if spec.concurrency_policy == Concurrency::Forbid && !status.active.is_empty() {
        return not_now(Some(NotNow::AlreadyActive));
    }
    let replaces = spec.concurrency_policy == Concurrency::Replace;
    let replace = if replaces { status.active.clone() } else { Vec::new() };
    Start::Now { time, too_many_missed: missed == Missed::Many, replace }
}

/// Returns the Job name for a scheduled time. It is deterministic, so creating it twice creates one Job.
pub(super) fn job_name(cron_job: &str, time: Timestamp) -> String {
    format!("{cron_job}-{}", time.as_second().div_euclid(60))
}

/// Returns the finished Jobs beyond the history limits, oldest first per limit.
pub(super) fn excess<'a>(cron_job: &CronJob, jobs: &'a [Cached<Job>]) -> Vec<&'a Cached<Job>> {
    let spec = &cron_job.spec;
    let beyond = |limit: Option<i32>, well: bool| {
        let ended = jobs.iter().filter(|job| job.is_finished() && job.has_succeeded() == well);
        let mut ended: Vec<_> = ended.collect();
        ended.sort_by_key(|job| (job.start_time().is_none(), job.start_time(), job.meta().name.clone()));
        let keep = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
        ended.truncate(ended.len().saturating_sub(keep));
        ended
    };
    let mut excess = beyond(spec.successful_jobs_history_limit, true);
    excess.extend(beyond(spec.failed_jobs_history_limit, false));
    excess
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;

    fn cron_job(spec: Value, status: Value) -> Cached<CronJob> {
        let mut whole = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {}}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let meta = json!({"name": "c", "creationTimestamp": "2025-01-01T00:00:30Z"});
        cached(json!({"metadata": meta, "spec": whole, "status": status}))
    }

    fn job(name: &str, ended: Option<&str>, second: i64) -> Cached<Job> {
        let time = crate::workload::fixtures::at(second);
        let condition =
            ended.map(|r#type| json!({"type": r#type, "status": "True", "lastTransitionTime": time}));
        cached(json!({
            "metadata": {"name": name, "uid": name}, "spec": {"selector": {}, "template": {}},
            "status": {"startTime": time, "completionTime": ended.filter(|it| *it == "Complete").map(|_| time),
                "conditions": condition.into_iter().collect::<Vec<_>>()},
        }))
    }

    #[test]
    fn a_job_is_started_when_it_is_due_and_allowed() {
        let check = |spec: Value, status: Value, now: &str, expected: &str| {
            let cron_job = cron_job(spec.clone(), status.clone());
            let start = start(&cron_job, &cron_job.status, now.parse().unwrap());
            let actual = match start {
                Start::Never(why) => format!("never: {why:?}"),
                Start::NotNow { why, next } => format!("not now: {why:?}, next in {}", next.as_secs()),
                Start::Now { time, too_many_missed, replace } => {
                    let names: Vec<_> = replace.iter().map(|job| &*job.name).collect();
                    format!("{} {too_many_missed} {names:?}", job_name("c", time))
                }
            };
            assert_eq!(actual, expected, "{spec} {status} at {now}");
        };
        let active = || json!({"active": [{"name": "c-1", "uid": "1"}]});
        let due = "2025-01-01T00:01:00Z";
        check(json!({}), json!({}), due, "c-28928161 false []");
        check(json!({}), json!({}), "2025-01-01T00:00:59Z", "not now: None, next in 1");
        check(json!({}), json!({}), "2025-01-01T02:01:00Z", "c-28928281 true []");
        check(json!({"suspend": true}), json!({}), due, "never: Inactive");
        check(json!({"timeZone": "Nowhere"}), json!({}), due, "never: UnknownTimeZone(\"Nowhere\")");
        check(json!({}), json!({"lastScheduleTime": due}), due, "not now: None, next in 60");
        check(json!({}), json!({"active": [{"name": "c-28928161"}]}), due, "not now: None, next in 60");
        check(json!({}), active(), due, "c-28928161 false []");
        check(
            json!({"concurrencyPolicy": "Forbid"}),
            active(),
            due,
            "not now: Some(AlreadyActive), next in 60",
        );
        check(json!({"concurrencyPolicy": "Forbid"}), json!({}), due, "c-28928161 false []");
        check(json!({"concurrencyPolicy": "Replace"}), active(), due, "c-28928161 false [\"c-1\"]");
        check(
            json!({"schedule": "0 0 31 2 *"}),
            json!({}),
            due,
            "never: BadSchedule(\"InvalidSchedule\", \"invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second\")",
        );
    }

    #[test]
    fn finished_jobs_leave_the_active_list_and_unknown_ones_are_looked_up() {
        let cron_job = cron_job(
            json!({}),
            json!({"active": [
            {"name": "a", "uid": "a"}, {"name": "b", "uid": "b"}, {"name": "gone", "uid": "gone"}]}),
        );
        let jobs = [job("a", Some("Complete"), 5), job("b", None, 6), job("new", None, 7)];
        let active_jobs = active_jobs(&cron_job, &jobs);
        let names =
            |jobs: &[&Cached<Job>]| jobs.iter().map(|job| job.meta().name.to_string()).collect::<Vec<_>>();
        assert_eq!(
            (names(&active_jobs.ended), names(&active_jobs.unexpected)),
            (vec!["a".into()], vec!["new".into()])
        );
        assert_eq!(active_jobs.missing.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["gone"]);
        assert_eq!(active_jobs.status.last_successful_time, Some(crate::workload::fixtures::at(5)));
        assert!(
            !active_jobs.status.has_active("a")
                && active_jobs.status.has_active("b")
                && active_jobs.status.has_active("gone")
        );
    }

    #[test]
    fn the_oldest_finished_jobs_beyond_the_limits_are_deleted() {
        let jobs = [
            job("s1", Some("Complete"), 1),
            job("s3", Some("Complete"), 3),
            job("s2", Some("Complete"), 2),
            job("f1", Some("Failed"), 1),
            job("f2", Some("Failed"), 2),
            job("r", None, 0),
        ];
        let check = |limits: Value, expected: &[&str]| {
            let cron_job = cron_job(limits.clone(), json!({}));
            let names: Vec<_> =
                excess(&cron_job, &jobs).iter().map(|job| job.meta().name.to_string()).collect();
            assert_eq!(names, expected, "{limits}");
        };
        check(json!({}), &[]);
        check(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}), &["s1", "s2", "f1"]);
        check(json!({"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 0}), &["f1", "f2"]);
    }
}
