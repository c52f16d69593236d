//! CronJob: creates Jobs on schedule.
//!
//! Owns: the Jobs that a CronJob controls; `status` of CronJobs.
//! Watches: CronJobs, Jobs.
//! Writes: creates and deletes Jobs; CronJob status (update).
//! Metrics: `cronjob_controller_job_creation_skew_duration_seconds`.
//!
//! ```text
//!  timing.rs     when a Job was due, and when the next one is          (pure)
//!  plan.rs       which Jobs have finished, which to start and delete   (pure)
//!  reconcile.rs  observe, plan, apply, then status and history
//! ```
//!
//! Invariants:
//! - a Job's name is derived from its scheduled time, so creating it twice creates one Job;
//! - of several missed schedules only the latest is run;
//! - a Job counts as missing only if an uncached read confirms it.

mod plan;
mod reconcile;
mod timing;
mod view;

use setpoint::{Clock, Context, Event, Key, Kind, Object, Queue, Runnable};

use self::reconcile::CronJobs;
use self::timing::next_in;
use self::view::CronJob;
use crate::flags::Flag;
use crate::job::Job;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::dependents::Dependents;
use crate::workload::owners::Owners;

pub(crate) const ENTRY: Entry = Entry {
    name: "cronjob-controller",
    aliases: &["cronjob"],
    on_by_default: true,
    gates: &[],
    summary: "creates a CronJob's Jobs on schedule",
    watches: &[Access::watch("batch", "cronjobs"), Access::watch("batch", "jobs")],
    writes: &[
        Access::to("batch", "jobs", &["create", "delete"]),
        Access::to("batch", "cronjobs/status", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-cron-job-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let cron_jobs = context.informers.of::<CronJob>();
    let jobs = context.informers.of::<Job>();
    let clock = context.runtime.clock.clone();
    let queue = wiring::queue(context, "cronjob");

    let (on_cron_job, changed_at) = (queue.clone(), clock.clone());
    cron_jobs.add_handler(move |event: &Event| cron_job_changed(&on_cron_job, &changed_at, event));
    let (on_job, owners) = (queue.clone(), Owners::<CronJob>::new(cron_jobs.lister()));
    jobs.add_handler(move |event: &Event| job_changed(&on_job, &owners, event));

    let reconciler = CronJobs {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock,
        metrics: context.metrics.clone(),
        kind: Kind::of::<CronJob>(),
        jobs_kind: Kind::of::<Job>(),
        listed: cron_jobs.lister(),
        jobs: Dependents::of(&jobs),
    };
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, [&cron_jobs, &jobs]);
    vec![Box::new(controller)]
}

/// Enqueues a changed CronJob: after a schedule change at its next scheduled time, otherwise now.
fn cron_job_changed(queue: &Queue<Key>, clock: &Clock, event: &Event) {
    let delay = match event {
        Event::Updated { old, new } => rescheduled(old, new, clock),
        _ => None,
    };
    let key = event.object().key().clone();
    match delay {
        Some(delay) => queue.add_after(key, delay),
        None => queue.add(key),
    }
}

/// Returns the delay until the next scheduled time if the schedule changed.
fn rescheduled(old: &Object, new: &Object, clock: &Clock) -> Option<std::time::Duration> {
    let (before, after) =
        (&old.view::<CronJob>().ok()?.spec, setpoint::Cached::<CronJob>::new(new.clone()).ok()?);
    let same = before.schedule == after.spec.schedule && before.time_zone == after.spec.time_zone;
    let schedule = if same { None } else { after.spec.parse_schedule().ok() };
    schedule.map(|schedule| next_in(&after, &schedule, clock.now()))
}

fn job_changed(queue: &Queue<Key>, owners: &Owners<CronJob>, event: &Event) {
    for state in event.states() {
        if let Some(cron_job) = owners.of(state) {
            queue.add(cron_job.key().clone());
        }
    }
}
