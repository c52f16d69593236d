//! Job: runs pods to completion and counts each of them exactly once.
//!
//! Owns: the pods that a Job controls; `status` of Jobs.
//! Watches: Jobs, Pods.
//! Writes: creates and deletes pods; adopts, releases and untracks them (patch); Job status (update).
//!
//! ```text
//!  wake.rs            events of Jobs and pods → keys of Jobs and of orphaned pods
//!  observe.rs         listers → Observed
//!  pod.rs             the pod fields that a Job depends on
//!  assess.rs          what has finished, what is left, whether the Job is over  (pure)
//!  indexes.rs         sets of completion indexes                                (pure)
//!  failure_policy.rs  podFailurePolicy                                          (pure)
//!  success_policy.rs  successPolicy                                             (pure)
//!  backoff.rs         backoff after failures                                    (pure)
//!  plan.rs            which pods to create and delete                           (pure)
//!  bodies.rs          pod bodies                                                (pure)
//!  account.rs         counts pods, each exactly once                            (pure)
//!  metrics.rs         metrics: `job_controller_*`
//!  memory.rs          recent writes that the cache may not show yet
//!  orphans.rs         removes the finalizer from pods without a Job
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
mod indexes;
mod memory;
mod metrics;
mod observe;
mod orphans;
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
use setpoint::queue::limiter::PerKeyBackoff;
use setpoint::{Context, Expectations, Key, Kind, Queue, Runnable};

use self::backoff::Records;
use self::memory::Memory;
use self::metrics::JobMetrics;
use self::observe::Observer;
use self::orphans::{FinalizerRemoval, OrphanedPods};
use self::pod::JobPod;
use self::reconcile::Jobs;
use self::wake::Wake;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::dependents::Dependents;
use crate::workload::owners::Owners;
use crate::workload::pod_control::PodControl;
use crate::workload::throttle::Throttle;

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
    let (queue, orphans) = (queue(context, "job"), queue(context, "job_orphan_pod"));
    let tracker = Tracker::new(context, options);
    let wake = Arc::new(Wake {
        queue: queue.clone(),
        orphans: orphans.clone(),
        tracker: tracker.clone(),
        jobs: Owners::new(jobs.lister()),
        pods: Dependents::of(&pods),
    });
    wiring::follow(&jobs, &wake, Wake::job_changed);
    wiring::follow(&pods, &wake, Wake::pod_changed);

    let finalizer_removal = FinalizerRemoval::new(context.client.clone());
    let orphan_reconciler = OrphanedPods {
        finalizer_removal: finalizer_removal.clone(),
        pods: pods.objects().clone(),
        jobs: Owners::new(jobs.lister()),
        respects_managed_by: tracker.respects_managed_by,
    };
    let reconciler = Jobs {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock: context.runtime.clock.clone(),
        kind: Kind::of::<Job>(),
        observer: Observer { jobs: jobs.lister(), pods: Dependents::of(&pods), tracker: tracker.clone() },
        tracker,
        pod_control: PodControl::new(context, Kind::of::<Job>(), ENTRY.name),
        finalizer_removal,
    };
    let counting = wiring::controller(&ENTRY, options, queue, reconciler, [&jobs, &pods]);
    let orphans = wiring::part("job-orphan-pods", orphans, orphan_reconciler, [&jobs, &pods]);
    vec![Box::new(counting), Box::new(orphans.workers(options.workers(&ENTRY)))]
}

/// State kept between reconciles, and metrics.
#[derive(Clone)]
struct Tracker {
    expectations: Arc<Expectations<Key>>,
    memory: Arc<Memory>,
    records: Arc<Records>,
    throttle: Arc<Throttle<Key>>,
    metrics: JobMetrics,
    /// Whether externally managed Jobs are left alone (`managedBy`).
    respects_managed_by: bool,
}

impl Tracker {
    fn new(context: &Context, options: &Options) -> Self {
        let clock = &context.runtime.clock;
        Self {
            expectations: Arc::new(Expectations::new(clock.clone())),
            memory: Arc::default(),
            records: Arc::default(),
            throttle: Arc::new(Throttle::new(clock.clone())),
            metrics: JobMetrics(context.metrics.clone()),
            respects_managed_by: options.gates.on("JobManagedBy"),
        }
    }
}

/// Creates a queue with a backoff of 1 s, doubling to one minute.
fn queue(context: &Context, name: &'static str) -> Queue<Key> {
    let limiter = PerKeyBackoff::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)));
    Queue::with_rate_limiter(name, &context.runtime, Arc::new(limiter))
}
