//! The controller of WorkflowRuns: runs a workflow without an application.
//!
//! Owns: the ConfigMap with the variables of a run. Watches: WorkflowRuns, Workflows, step definitions, and every kind
//! that a run has applied. Writes: the objects of steps, and the status of WorkflowRuns.
//!
//! ```text
//!  run.rs        a decoded WorkflowRun, and its status                          (pure)
//!  reconcile.rs  one round of its workflow
//! ```
//!
//! Invariants:
//! - A finished run makes no requests.
//! - The applied objects of a run are kept when it is deleted. Its variables are deleted with it.

mod reconcile;
mod run;

use setpoint::handler::enqueue_self;
use setpoint::queue::limiter;
use setpoint::shard::Sharded;
use setpoint::{Access, Context, Controller, Informer, Key, Queue, Runnable};

use crate::application::catalog::Catalog;
use crate::apply::cluster::Cluster;
use crate::clusters::Clusters;
use crate::clusters::members::Follower;
use crate::registry::{ANYTHING, Entry, Options};
use crate::render::judged::Judgements;
use crate::render::kept::Renders;
use crate::render::sources::Sources;
use crate::workflow::attempts::Attempts;
use crate::workflow::exchanges::Exchanges;
use reconcile::Runs;
use run::WorkflowRun;

pub(crate) const NAME: &str = "workflow-run-controller";

pub(crate) const ENTRY: Entry = Entry {
    name: NAME,
    summary: "runs WorkflowRuns: workflows without an application",
    watches: &[
        Access::watch("core.oam.dev", "definitionrevisions"),
        Access::watch("core.oam.dev", "workflowruns"),
        Access::watch("core.oam.dev", "workflows"),
        Access::watch("core.oam.dev", "workflowstepdefinitions"),
        // The credentials of clusters.
        Access::watch("", "secrets"),
    ],
    writes: &[
        Access::to("core.oam.dev", "workflowruns/status", &["patch", "update"]),
        // The ServiceAccounts that runs act as.
        Access::to("", "serviceaccounts", &["impersonate"]),
        ANYTHING,
        Access::EVENTS,
    ],
    workers_flag: "concurrent-workflow-run-syncs",
    default_workers: 4,
    build,
};

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let runs = context.informers.of::<WorkflowRun>();
    let limiter = limiter::kubernetes_limiter(&context.runtime.clock);
    let queue = Queue::with_rate_limiter("workflow-run", &context.runtime, limiter);
    runs.add_handler(enqueue_self(&queue));
    let catalog = Catalog::of_workflows(context);
    let (members, mut parts) = options.members(context);
    members.follow(wake_unfinished(&runs, &queue));
    let (exchanges, requests) = Exchanges::new(&context.runtime.clock, options.egress.clone(), queue.clone());
    parts.push(requests);
    let reconciler = Runs {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(NAME),
        clusters: Clusters::new(Cluster::of_runs(context, queue.clone()), members.clone()),
        sources: Sources::new(),
        renders: Renders::default(),
        judgements: Judgements::default(),
        exchanges,
        runs: runs.lister(),
        catalog: catalog.clone(),
        attempts: Attempts::default(),
    };
    let reconciler = Sharded::new(&context.shards, &queue, &runs, reconciler);
    let controller = context
        .controller(NAME, queue, reconciler)
        .persistent()
        .reads_own_writes()
        .waits_for(&runs)
        .waits_for(members.secrets());
    parts.push(Box::new(catalog.informers().iter().fold(controller, Controller::waits_for)));
    parts
}

/// Returns a callback that enqueues the runs that may be waiting for a cluster.
fn wake_unfinished(runs: &Informer, queue: &Queue<Key>) -> Follower {
    let (runs, queue) = (runs.lister::<WorkflowRun>(), queue.clone());
    Box::new(move |_| {
        for run in runs.objects().list(None) {
            if run.decode().is_ok_and(|WorkflowRun { status, .. }| !status.finished) {
                queue.add(run.key().clone());
            }
        }
    })
}
