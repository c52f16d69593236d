//! Node lifecycle: nodes are tainted by their conditions, so that pods do not land where they cannot run.
//!
//! Owns: the `NoSchedule` taints that stand for node conditions and for a cordon.
//! Watches: Nodes.
//! Writes: `spec.taints` of Nodes.
//!
//! What always holds:
//! - a condition's taint is on a node exactly while the condition says so;
//! - taints of others, and of other effects, stay as they are.
//!
//! Silent nodes are not yet marked unknown, and their pods not evicted.

mod taints;

use setpoint::client::Part;
use setpoint::queue::limiter;
use setpoint::reconcile::Attempting;
use setpoint::{
    Client, Context, Controller, Edit, Event, Key, Kind, Lister, Outcome, Queue, ReconcileError, Reconciler,
    Runnable,
};

use crate::registry::{Access, Entry, Options};
use taints::{Node, wanted};

pub(crate) const ENTRY: Entry = Entry {
    name: "node-lifecycle-controller",
    aliases: &["nodelifecycle"],
    on_by_default: true,
    summary: "taints nodes by their conditions",
    watches: &[Access::watch("", "nodes")],
    writes: &[Access::to("", "nodes", &["update"])],
    default_workers: 8,
    build,
};

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let nodes = context.informers.of::<Node>();
    let limiter = limiter::eager(&context.runtime.clock);
    let queue = Queue::with_rate_limiter("node_lifecycle", &context.runtime, limiter);
    let changed = queue.clone();
    nodes.add_handler(move |event: &Event| changed.add(event.object().key().clone()));
    let tainter = Tainter { client: context.client.clone(), nodes: nodes.lister() };
    let controller = Controller::new(ENTRY.name, queue, tainter).workers(options.workers(&ENTRY));
    vec![Box::new(controller.waits_for(&nodes))]
}

struct Tainter {
    client: Client,
    nodes: Lister<Node>,
}

impl Reconciler for Tainter {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(node) = self.nodes.get(key)? else { return Ok(Outcome::Settled) };
        let Some(taints) = wanted(&node) else { return Ok(Outcome::Settled) };
        let edited = Edit::of(node.object()).set(&["spec", "taints"], &taints);
        let written = self.client.update(&Kind::of::<Node>(), key, Part::Main, &edited).await;
        written.attempting(format!("taint node {key}")).map(|_| Outcome::Settled)
    }
}
