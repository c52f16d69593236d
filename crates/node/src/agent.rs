//! Drives the pods that are bound to the fleet's nodes.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use setpoint::client::{Delete, Part, Patch};
use setpoint::reconcile::Attempting;
use setpoint::{
    Cached, Client, Clock, Context, Controller, Event, Key, Kind, Lister, Outcome, Queue, ReconcileError,
    Reconciler, Runnable,
};
use tokio_util::sync::CancellationToken;

use crate::address::Addresses;
use crate::behaviour::Behaviour;
use crate::fleet::{Fleet, host_ip};
use crate::lifecycle::{PodView, Stage, Step, next};
use crate::outage::{NodeView, Outages};
use crate::status::{Place, status_patch};

/// How many simulated nodes there are, and how many of their pods are driven at once.
#[derive(Clone, Copy, Debug)]
pub struct FleetOptions {
    pub nodes: usize,
    pub workers: usize,
}

/// What a manager runs to simulate nodes: the heartbeats and the pods' agent.
pub fn runnables(context: &Context, options: FleetOptions) -> Vec<Box<dyn Runnable>> {
    let fleet = Fleet::new(context.client.clone(), context.runtime.clone(), options.nodes);
    let addresses = Arc::new(Mutex::new(Addresses::default()));
    let queue = Queue::new("node", &context.runtime);
    let pods = context.informers.of::<PodView>();
    pods.add_handler(on_pod(queue.clone(), addresses.clone()));
    let nodes = context.informers.of::<NodeView>();
    nodes.add_handler(on_node(queue.clone(), fleet.outages().clone(), pods.lister()));
    let agent = Agent {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        pods: pods.lister(),
        fleet: fleet.clone(),
        addresses,
    };
    let controller =
        Controller::new("node", queue, agent).workers(options.workers).waits_for(&pods).waits_for(&nodes);
    vec![Box::new(Heartbeats(fleet)), Box::new(controller)]
}

fn on_pod(queue: Queue<Key>, addresses: Arc<Mutex<Addresses>>) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| match event {
        Event::Deleted { last, .. } => addresses.lock().release(&last.meta().uid),
        _ => queue.add(event.object().key().clone()),
    }
}

/// What a node has left undone while it failed is done when it recovers.
fn on_node(
    queue: Queue<Key>,
    outages: Outages,
    pods: Lister<PodView>,
) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        if outages.follow(event) {
            let node = &*event.object().meta().name;
            for pod in pods.list(None).unwrap_or_default().iter().filter(|pod| pod.spec.node_name == node) {
                queue.add(pod.key().clone());
            }
        }
    }
}

struct Heartbeats(Fleet);

impl Runnable for Heartbeats {
    fn name(&self) -> &str {
        "node-heartbeats"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            stop.run_until_cancelled(self.0.run()).await;
        })
    }
}

struct Agent {
    client: Client,
    clock: Clock,
    pods: Lister<PodView>,
    fleet: Fleet,
    addresses: Arc<Mutex<Addresses>>,
}

impl Reconciler for Agent {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else { return Ok(Outcome::Settled) };
        let Some(node) = self.fleet.index(&pod.spec.node_name) else { return Ok(Outcome::Settled) };
        if self.fleet.outages().has(&pod.spec.node_name) {
            return Ok(Outcome::Settled);
        }
        let behaviour = Behaviour::of(&pod.metadata.annotations);
        match next(pod.meta(), &pod, &behaviour, self.clock.now()) {
            Step::Rest => Ok(Outcome::Settled),
            Step::Wait(left) => Ok(Outcome::CheckAfter(left)),
            Step::Enter(stage) => self.enter(&pod, &stage, node).await,
            Step::Remove => self.remove(key, &pod.meta().uid).await,
        }
    }
}

impl Agent {
    /// Writes the status of a stage; the change it makes brings the pod back into the queue.
    async fn enter(
        &self,
        pod: &Cached<PodView>,
        stage: &Stage,
        node: usize,
    ) -> Result<Outcome, ReconcileError> {
        let host_ip = host_ip(node);
        let pod_ip = match pod.spec.host_network {
            true => host_ip.clone(),
            false => self.addresses.lock().of(&pod.meta().uid, pod.status.pod_ip.as_deref()),
        };
        let place = Place { host_ip: &host_ip, pod_ip: &pod_ip };
        let patch = status_patch(pod, stage, &place, self.clock.now());
        let (key, patch) = (pod.key(), Patch::Strategic(patch.to_string().into()));
        match self.client.patch_and_forget(&pod_kind(), key, Part::Status, patch).await {
            Err(error) if error.is_not_found() => Ok(Outcome::Settled),
            // Somebody has written to the pod: what it now is is looked at in a moment.
            Err(error) if error.is_conflict() => Ok(Outcome::Requeue),
            written => {
                written.attempting(format!("write the status of pod {key}")).map(|()| Outcome::Settled)
            }
        }
    }

    async fn remove(&self, key: &Key, uid: &str) -> Result<Outcome, ReconcileError> {
        let delete = Delete { uid: Some(uid.into()), grace_period_seconds: Some(0), ..Delete::default() };
        match self.client.delete(&pod_kind(), key, &delete).await {
            Err(error) if error.is_not_found() => Ok(Outcome::Settled),
            Err(error) if error.is_conflict() => Ok(Outcome::Requeue),
            removed => removed.attempting(format!("remove pod {key}")).map(|()| Outcome::Settled),
        }
    }
}

fn pod_kind() -> Kind {
    Kind::of::<PodView>()
}
