//! Job: runs pods to completion and counts each of them exactly once.
//!
//! Owns: the pods that a Job controls; `status` of Jobs.
//! Watches: Jobs, Pods.
//! Writes: creates and deletes pods; adopts, releases and untracks them (patch); Job status (update).
//!
//! ```text
//!  wake.rs            events of Jobs and pods → keys of Jobs and of orphaned pods
//!  observe.rs         listers → Observed
//!  pod.rs             a pod as a Job sees it
//!  assess.rs          what has finished, what is left, whether the Job is over  (pure)
//!  indexes.rs         sets of completion indexes                                (pure)
//!  failure_policy.rs  podFailurePolicy                                          (pure)
//!  success_policy.rs  successPolicy                                             (pure)
//!  backoff.rs         backoff after failures                                    (pure)
//!  plan.rs            which pods to create and delete                           (pure)
//!  bodies.rs          pod bodies                                                (pure)
//!  account.rs         counts pods, each exactly once                            (pure)
//!  figures.rs         metrics: `job_controller_*`
//!  memory.rs          recent writes that the cache may not show yet
//!  leftovers.rs       removes the finalizer from pods without a Job
//!  reconcile.rs       observe, assess, plan, apply, then count
//! ```
//!
//! Invariants:
//! - `succeeded` and `failed` count every finished pod once, by UID: its finalizer keeps a pod until the status has
//!   recorded it, and a record becomes a count only after the finalizer is gone;
//! - a Job is not reconciled while the cache shows an older version than the last write;
//! - nothing is created or deleted while earlier creates and deletes are missing from the cache;
//! - a Job is over only when none of its pods is running, terminating or waiting to be counted;
//! - once the outcome of a Job is announced, it does not change.

mod account;
mod assess;
mod backoff;
mod bodies;
mod failure_policy;
mod figures;
mod indexes;
mod leftovers;
mod memory;
mod observe;
mod plan;
mod pod;
mod reconcile;
mod success_policy;
#[cfg(test)]
mod tests;
mod view;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use setpoint::backoff::Backoff;
use setpoint::queue::limiter::PerKey;
use setpoint::{Context, Controller, Expectations, Key, Kind, Queue, Runnable};

use self::backoff::Records;
use self::figures::Figures;
use self::leftovers::{Leftovers, Releasing};
use self::memory::Memory;
use self::observe::Observer;
use self::pod::JobPod;
use self::reconcile::Jobs;
use self::wake::Wake;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::workload::dependents::Dependents;
use crate::workload::owners::Owners;
use crate::workload::pace::Pace;
use crate::workload::pod_control::PodControl;

pub(crate) use self::view::Job;

pub(crate) const ENTRY: Entry = Entry {
    name: "job-controller",
    aliases: &["job"],
    on_by_default: true,
    gates: &[],
    summary: "runs a Job's pods to completion and counts them",
    watches: &[Access::watch("batch", "jobs"), Access::watch("", "pods")],
    writes: &[
        Access::to("", "pods", &["create", "delete", "patch"]),
        Access::to("batch", "jobs/status", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-job-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let jobs = context.informers.of::<Job>();
    let pods = context.informers.of::<JobPod>();
    let clock = &context.runtime.clock;
    let (queue, leftovers) = (queue(context, "job"), queue(context, "job_orphan_pod"));
    let expectations = Arc::new(Expectations::new(clock.clone()));
    let (memory, records) = (Arc::new(Memory::default()), Arc::new(Records::default()));
    let pace = Arc::new(Pace::new(clock.clone()));

    let heeds_managers = options.gates.on("JobManagedBy");
    let figures = Figures(context.metrics.clone());
    let wake = Arc::new(Wake {
        queue: queue.clone(),
        leftovers: leftovers.clone(),
        expectations: expectations.clone(),
        memory: memory.clone(),
        records: records.clone(),
        pace: pace.clone(),
        jobs: Owners::new(jobs.lister()),
        pods: Dependents::of(&pods),
        figures: figures.clone(),
        heeds_managers,
    });
    let on_job = wake.clone();
    jobs.add_handler(move |event: &setpoint::Event| on_job.job_changed(event));
    pods.add_handler(move |event: &setpoint::Event| wake.pod_changed(event));

    let releasing = Releasing::new(context.client.clone());
    let reconciler = Jobs {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock: clock.clone(),
        kind: Kind::of::<Job>(),
        observer: Observer {
            jobs: jobs.lister(),
            pods: Dependents::of(&pods),
            expectations: expectations.clone(),
            memory: memory.clone(),
        },
        expectations,
        memory,
        records,
        pace,
        figures,
        hands: PodControl::new(context, Kind::of::<Job>(), ENTRY.name),
        releasing: releasing.clone(),
        heeds_managers,
    };
    let letting_go = Leftovers {
        hands: releasing,
        pods: pods.objects().clone(),
        jobs: Owners::new(jobs.lister()),
        heeds_managers,
    };
    let workers = options.workers(&ENTRY);
    let counting = Controller::new(ENTRY.name, queue, reconciler).workers(workers).persistent();
    let leftovers = Controller::new("job-orphan-pods", leftovers, letting_go).workers(workers).persistent();
    vec![
        Box::new(counting.waits_for(&jobs).waits_for(&pods)),
        Box::new(leftovers.waits_for(&jobs).waits_for(&pods)),
    ]
}

/// A queue whose failures wait for a second, two, four, …, at most a minute.
fn queue(context: &Context, name: &'static str) -> Queue<Key> {
    let limiter = PerKey::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)));
    Queue::with_rate_limiter(name, &context.runtime, Arc::new(limiter))
}
