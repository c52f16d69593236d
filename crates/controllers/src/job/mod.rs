//! Job: pods that run to their end, as many as are wanted, each counted exactly once.
//!
//! Owns: the pods that a Job controls; `status` of Jobs.
//! Watches: Jobs, Pods.
//! Writes: creates and deletes pods; adopts, releases and untracks them (patch); Job status (update).
//!
//! ```text
//!  wake.rs            a change of a Job or a pod → the Jobs to look at, the leftovers to let go
//!  observe.rs         listers → Observed
//!  pod.rs             a pod as a Job sees it
//!  assess.rs          what has ended, what is left, whether the Job is over  (pure)
//!  indexes.rs         sets of completion indexes                             (pure)
//!  failure_policy.rs  what the failure of a pod means                        (pure)
//!  success_policy.rs  when some indexes are enough                           (pure)
//!  backoff.rs         how long to wait after failures                        (pure)
//!  plan.rs            which pods to start and which to remove                (pure)
//!  bodies.rs          what pods are made of                                  (pure)
//!  account.rs         counting pods, each exactly once                       (pure)
//!  metrics.rs         what is counted for Prometheus: `job_controller_*`
//!  memory.rs          what was done that the cache may not show yet
//!  leftovers.rs       pods that nobody counts any more
//!  reconcile.rs       observe, assess, plan, apply, then count
//! ```
//!
//! What always holds:
//! - `succeeded` and `failed` together count every pod that ended once, by its uid: a pod stays (by its
//!   finalizer) until the status has noted it, and the note becomes a number only when it need not stay;
//! - a Job is not looked at while the cache shows an older one than was written last;
//! - nothing is created or removed while earlier creates and deletes have not shown up in the cache;
//! - a Job is over only once none of its pods runs, or is about to end, or waits for being counted;
//! - once it is announced how a Job ends, it ends so.

mod account;
mod assess;
mod backoff;
mod bodies;
mod failure_policy;
mod indexes;
mod leftovers;
mod memory;
mod metrics;
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
use setpoint::{Context, Expectations, Key, Kind, Queue, Runnable};

use self::backoff::Records;
use self::leftovers::{Leftovers, Releasing};
use self::memory::Memory;
use self::metrics::JobMetrics;
use self::observe::Observer;
use self::pod::JobPod;
use self::reconcile::Jobs;
use self::wake::Wake;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
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
    summary: "runs a Job's pods to their end and counts them",
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
    let (queue, leftovers) = (queue(context, "job"), queue(context, "job_orphan_pod"));
    let tracker = Tracker::new(context, options);
    let wake = Arc::new(Wake {
        queue: queue.clone(),
        leftovers: leftovers.clone(),
        tracker: tracker.clone(),
        jobs: Owners::new(jobs.lister()),
        pods: Dependents::of(&pods),
    });
    wiring::follow(&jobs, &wake, Wake::job_changed);
    wiring::follow(&pods, &wake, Wake::pod_changed);

    let releasing = Releasing::new(context.client.clone());
    let letting_go = Leftovers {
        releasing: releasing.clone(),
        pods: pods.objects().clone(),
        jobs: Owners::new(jobs.lister()),
        heeds_managers: tracker.heeds_managers,
    };
    let reconciler = Jobs {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock: context.runtime.clock.clone(),
        kind: Kind::of::<Job>(),
        observer: Observer { jobs: jobs.lister(), pods: Dependents::of(&pods), tracker: tracker.clone() },
        tracker,
        pod_control: PodControl::new(context, Kind::of::<Job>(), ENTRY.name),
        releasing,
    };
    let counting = wiring::controller(&ENTRY, options, queue, reconciler, [&jobs, &pods]);
    let leftovers = wiring::part("job-orphan-pods", leftovers, letting_go, [&jobs, &pods]);
    vec![Box::new(counting), Box::new(leftovers.workers(options.workers(&ENTRY)))]
}

/// What is remembered of Jobs from one reconcile to the next, and counted.
#[derive(Clone)]
struct Tracker {
    expectations: Arc<Expectations<Key>>,
    memory: Arc<Memory>,
    records: Arc<Records>,
    pace: Arc<Pace<Key>>,
    metrics: JobMetrics,
    /// Whether Jobs that others manage are left to them.
    heeds_managers: bool,
}

impl Tracker {
    fn new(context: &Context, options: &Options) -> Self {
        let clock = &context.runtime.clock;
        Self {
            expectations: Arc::new(Expectations::new(clock.clone())),
            memory: Arc::default(),
            records: Arc::default(),
            pace: Arc::new(Pace::new(clock.clone())),
            metrics: JobMetrics(context.metrics.clone()),
            heeds_managers: options.gates.on("JobManagedBy"),
        }
    }
}

/// A queue whose failures wait for a second, two, four, …, at most a minute.
fn queue(context: &Context, name: &'static str) -> Queue<Key> {
    let limiter = PerKey::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)));
    Queue::with_rate_limiter(name, &context.runtime, Arc::new(limiter))
}
