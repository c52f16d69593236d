//! CronJobs: suspension, missed schedules, concurrency policies, time zones, and the last job.

use jiff::SignedDuration;
use jiff::Timestamp;
use setpoint_cron::{Schedule, time_zone};

use crate::creation::MOMENT;
use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{JOB, LEASE};
use crate::leases;
use crate::model::{Evidence, Node, State};
use crate::read::Read;
use crate::snapshot::Item;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, cron: &'a Item) -> Node {
    let node = node_of(cron);
    let schedule = cron.text("/spec/schedule");
    let node = node.evidence([Evidence::field("spec.schedule", schedule)]);
    if cron.flag("/spec/suspend") {
        let fix = format!(
            "kubectl patch cronjob/{} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
            cron.name()
        );
        return node.blocked("is suspended", fix).root().evidence([Evidence::field("spec.suspend", true)]);
    }
    let parsed = match parse(cron) {
        Ok(parsed) => parsed,
        Err(why) => return node.blocked(why, "correct spec.schedule and spec.timeZone").root(),
    };
    let last = cron.time("/status/lastScheduleTime");
    let next = parsed.next(last.unwrap_or_else(|| created(cron)).max(created(cron)));
    let upcoming = parsed.next(inquiry.now);
    let node = match upcoming {
        Some(at) => node.next("the next job starts", Some(at)),
        None => node.next("nothing: the schedule has no time in the next years", None),
    };
    let active = cron.items("/status/active");
    let missed = next.filter(|next| inquiry.now.duration_since(*next).as_secs() > MOMENT);
    if let Some(missed) = missed {
        return overdue(inquiry, cron, node, missed, active.len());
    }
    with_jobs(inquiry, cron, node, last)
}

/// Parses the schedule in its time zone.
fn parse(cron: &Item) -> Result<Schedule, String> {
    let (schedule, zone) = (cron.text("/spec/schedule"), cron.text("/spec/timeZone"));
    if !zone.is_empty() && time_zone(zone).is_none() {
        return Err(format!("its time zone {zone} is not known"));
    }
    let whole = if zone.is_empty() { schedule.to_owned() } else { format!("TZ={zone} {schedule}") };
    whole.parse().map_err(|error| format!("its schedule {schedule:?} is not valid: {error}"))
}

fn created(cron: &Item) -> Timestamp {
    cron.object.meta().creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A schedule that was missed.
fn overdue<'a>(inquiry: &Inquiry<'a>, cron: &'a Item, node: Node, missed: Timestamp, active: usize) -> Node {
    let ago = inquiry.since(Some(missed));
    let policy = cron.text("/spec/concurrencyPolicy");
    let event = inquiry.event(
        cron,
        &[
            "FailedCreate",
            "MissSchedule",
            "TooManyMissedTimes",
            "FailedNeedsStart",
            "JobAlreadyActive",
            "UnknownTimeZone",
            "UnparseableSchedule",
            "InvalidSchedule",
        ],
    );
    let node = node.evidence(event.map(|event| inquiry.evidence(&event)));
    if active > 0 && policy == "Forbid" {
        let names: Vec<&str> = cron.items("/status/active").iter().map(|job| job.text("/name")).collect();
        let jobs = names.iter().filter_map(|name| inquiry.explain_named(&JOB, cron.namespace(), name));
        let jobs: Vec<Node> = jobs.collect();
        let text = format!(
            "has not started the job due {ago} ago: {} still runs, and concurrencyPolicy is Forbid",
            names.join(", ")
        );
        let field = Evidence::field("spec.concurrencyPolicy", "Forbid");
        return node
            .blocked(text, "finish or delete the running job, or allow concurrency")
            .evidence([field])
            .children(jobs);
    }
    if let Some(event) = event.filter(|event| event.reason() == "FailedCreate") {
        let (text, fix, children) = crate::admission::explain(inquiry, cron.namespace(), event.message());
        return node.blocked(format!("cannot create its job (FailedCreate): {text}"), fix).children(children);
    }
    let deadline = cron.number("/spec/startingDeadlineSeconds");
    let too_late = deadline.and_then(|seconds| missed.checked_add(SignedDuration::from_secs(seconds)).ok());
    if let Some(seconds) = deadline.filter(|_| too_late.is_some_and(|late| late < inquiry.now)) {
        let text = format!(
            "missed the job due {ago} ago: it could not start within startingDeadlineSeconds ({seconds}s)"
        );
        let fix =
            "raise spec.startingDeadlineSeconds (at least 10), and find out why the controller was late";
        return node.blocked(text, fix).evidence([Evidence::field("spec.startingDeadlineSeconds", seconds)]);
    }
    if let Some(down) = leases::component_down(inquiry, "kube-controller-manager") {
        let lease = inquiry.explain_named(&LEASE, Some("kube-system"), "kube-controller-manager");
        let text = format!("has not started the job due {ago} ago: {down}");
        return node.blocked(text, "start kube-controller-manager").children(lease);
    }
    let said = event.map(|event| format!(": {}", event.message())).unwrap_or_default();
    node.blocked(
        format!("missed the job due {ago} ago{said}"),
        "check that the cronjob controller runs; with more than 100 missed times, set startingDeadlineSeconds",
    )
}

/// A schedule that is followed. The last job may still have failed.
fn with_jobs<'a>(inquiry: &Inquiry<'a>, cron: &'a Item, node: Node, last: Option<Timestamp>) -> Node {
    let mut jobs = inquiry.owned(cron, &JOB);
    jobs.sort_by_key(|job| std::cmp::Reverse(job.object.meta().creation_timestamp));
    let latest = jobs.first().map(|job| inquiry.explain(job));
    let summary = match last {
        Some(last) => format!("last started a job {} ago", inquiry.since(Some(last))),
        None => "has not been due yet".to_owned(),
    };
    let state = latest.as_ref().map_or(State::Converged, |job| job.state);
    let node = node.children(latest);
    match state {
        State::Failed | State::Blocked => {
            node.blocked(format!("its last job is stuck or has failed; {summary}"), "see the job")
        }
        _ => node.converged(summary),
    }
}
