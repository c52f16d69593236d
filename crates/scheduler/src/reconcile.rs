//! Glue: a pod whose turn it is, a decision about it, and its binding.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use setpoint::client::Part;
use setpoint::queue::limiter::PerKey;
use setpoint::reconcile::Attempting;
use setpoint::{
    Client, ClientError, Context, Controller, Event, EventType, Key, Kind, Lister, Object, Outcome, Queue,
    ReconcileError, Reconciler, Recorder, Rng, Runnable, View,
};
use setpoint_volume::{Claim, Volume};

use crate::Settings;
use crate::decide::{Decision, Misfit, Remedy, decide};
use crate::devices::{self, DeviceNeeds, Reservation};
use crate::events::{SharedState, State};
use crate::filter::{Check, Checks};
use crate::ledger::Ledger;
use crate::parked::BACKOFF;
use crate::surroundings::Sources;
use crate::view::{NodeView, Pod, PodView};
use crate::volumes::{Preparation, Preparing, Progress, VolumeNeeds};

/// The name under which the scheduler writes events.
pub const COMPONENT: &str = "default-scheduler";

/// Bindings under way at once: enough to fill a group commit of the store, few enough for any API server.
const WORKERS: usize = 32;

/// A parked pod is looked at again after this long even if nothing seemed to help.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// How often the claims of a pod are looked at even if nothing seems to have happened to them.
const LOOK_AT_CLAIMS: Duration = Duration::from_secs(30);

/// What a manager runs to schedule pods.
pub fn runnables(context: &Context, settings: &Settings) -> Vec<Box<dyn Runnable>> {
    let queue =
        Queue::with_rate_limiter("scheduler", &context.runtime, Arc::new(PerKey::new(BACKOFF))).strict();
    let sources = Sources::of(context, settings);
    let shared = SharedState {
        queue: queue.clone(),
        clock: context.runtime.clock.clone(),
        surroundings: sources.surroundings(),
        state: Arc::default(),
    };
    let nodes = context.informers.of::<NodeView>();
    let pods = context.informers.of::<PodView>();
    let (on_nodes, on_pods) = (shared.clone(), shared.clone());
    nodes.add_handler(move |event: &Event| on_nodes.on_node(event));
    pods.add_handler(move |event: &Event| on_pods.on_pod(event));
    shared.follow(&sources.volumes);
    shared.follow_devices(&sources.devices);
    let scheduler = Scheduler {
        client: context.client.clone(),
        rng: context.runtime.rng.fork(),
        recorder: context.recorder(COMPONENT),
        pods: pods.lister(),
        shared,
    };
    let mut controller = Controller::new("scheduler", queue, scheduler).workers(WORKERS);
    for informer in sources.all() {
        controller = controller.waits_for(informer);
    }
    vec![Box::new(controller.waits_for(&nodes).waits_for(&pods))]
}

pub(crate) struct Scheduler {
    pub(crate) client: Client,
    rng: Rng,
    pub(crate) recorder: Recorder,
    pods: Lister<PodView>,
    pub(crate) shared: SharedState,
}

/// What a turn comes to.
enum Turn {
    Decided(Decision),
    /// The pod has its node already.
    Placed,
    /// The pod's claims have to be bound first.
    Prepare(Preparing),
    /// The pod's claims are this far.
    Prepared(Preparing, Progress),
    /// A claim for devices that the pod needs is not there.
    Incomplete,
}

impl Reconciler for Scheduler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let pending = |pod: &Pod| pod.awaits_scheduling() && !pod.meta().is_being_deleted();
        let Some(pod) = self.pods.get(key)?.filter(pending) else { return Ok(Outcome::Settled) };
        match self.turn(&pod) {
            Turn::Placed | Turn::Incomplete => Ok(Outcome::Settled),
            Turn::Prepare(preparing) => self.prepare(&pod, &preparing).await,
            Turn::Prepared(preparing, progress) => self.go_on(&pod, &preparing, progress).await,
            Turn::Decided(Decision::Bind { node }) => self.bind(&pod, &node).await,
            Turn::Decided(Decision::FitsNowhere(misfit)) => self.report(&pod, &misfit).await,
            Turn::Decided(Decision::Failed(why)) => self.fail(&pod, &why).await,
        }
    }
}

impl Scheduler {
    /// Decides and assumes, or parks, in one step, so that no event falls between the two.
    fn turn(&self, pod: &Pod) -> Turn {
        let state = &mut *self.shared.state.lock();
        if let Some(turn) = self.next_step(state, pod) {
            return turn;
        }
        let State { ledger, parked, preparing, reservations } = state;
        let draw = |n| self.rng.below(n as u64) as usize;
        let decision = decide(pod, ledger, &self.shared.surroundings, draw);
        match &decision {
            Decision::Bind { node } => {
                parked.forget(pod.key());
                let preparation = self.preparation(pod, node, ledger);
                let reservation = self.reservation(pod, node, ledger);
                ledger.assume(pod, node);
                if !reservation.is_empty() {
                    reservation.assume(&mut ledger.devices);
                    reservations.insert(pod.meta().uid.clone(), reservation);
                }
                if !preparation.is_empty() {
                    preparation.assume(&self.shared.surroundings.volumes);
                    let since = self.shared.clock.instant();
                    let begun = Preparing { node: node.clone(), preparation, since };
                    preparing.insert(pod.meta().uid.clone(), begun.clone());
                    return Turn::Prepare(begun);
                }
            }
            Decision::FitsNowhere(misfit) => self.park(state, pod, misfit),
            Decision::Failed(_) => {}
        }
        Turn::Decided(decision)
    }

    /// What is to be done for a pod about which there is nothing to decide: it has a node, or cannot have one yet.
    fn next_step(&self, state: &mut State, pod: &Pod) -> Option<Turn> {
        let State { ledger, parked, preparing, reservations } = state;
        if let Some(preparing) = preparing.get(&pod.meta().uid) {
            let (node, now) = (ledger.node(&preparing.node), self.shared.clock.instant());
            let progress = preparing.progress(node, &self.shared.surroundings.volumes, now);
            return Some(Turn::Prepared(preparing.clone(), progress));
        }
        if let Some(node) = ledger.place(&pod.meta().uid) {
            return Some(match reservations.contains_key(&pod.meta().uid) {
                true => Turn::Decided(Decision::Bind { node: node.to_owned() }),
                false => Turn::Placed,
            });
        }
        devices::claims_of(pod, &self.shared.surroundings.devices.claims).err()?;
        let mut blocked = Checks::default();
        blocked.insert(Check::Devices);
        parked.park(pod, blocked, self.shared.clock.instant());
        Some(Turn::Incomplete)
    }

    fn park(&self, state: &mut State, pod: &Pod, misfit: &Misfit) {
        state.parked.park(pod, misfit.blocked, self.shared.clock.instant());
        match &misfit.remedy {
            Remedy::Preempt(preemption) => state.ledger.nominate(pod, &preemption.node),
            Remedy::None => state.ledger.forget_nomination(&pod.meta().uid),
            Remedy::Wait => {}
        }
    }

    /// What has to be written before the pod can be bound to a node.
    fn preparation(&self, pod: &Pod, node: &str, ledger: &Ledger) -> Preparation {
        let needs = VolumeNeeds::of(pod, ledger, &self.shared.surroundings.volumes);
        match (needs, ledger.node(node)) {
            (Ok(Some(needs)), Some(node)) => Preparation::of(&needs, node),
            _ => Preparation::default(),
        }
    }

    /// The claims that have to be reserved before the pod can be bound to a node.
    fn reservation(&self, pod: &Pod, node: &str, ledger: &Ledger) -> Reservation {
        let needs = DeviceNeeds::of(pod, &ledger.devices, &self.shared.surroundings.devices);
        match (needs, ledger.node(node)) {
            (Ok(Some(needs)), Some(node)) => Reservation::of(&needs, pod, node),
            _ => Reservation::default(),
        }
    }

    /// Binds volumes to claims and has volumes made for others; the volume binder does the rest.
    async fn prepare(&self, pod: &Pod, preparing: &Preparing) -> Result<Outcome, ReconcileError> {
        match self.write(&preparing.preparation).await {
            Ok(()) => Ok(Outcome::CheckAfter(LOOK_AT_CLAIMS)),
            Err(error) => {
                self.shared.gone(&mut self.shared.state.lock(), pod);
                Err(error).attempting(format!("bind the volumes of pod {}", pod.key()))
            }
        }
    }

    async fn write(&self, preparation: &Preparation) -> Result<(), ClientError> {
        let caches = &self.shared.surroundings.volumes;
        for volume in &preparation.volumes {
            caches.volumes.wrote(&self.update::<Volume>(volume).await?);
        }
        for claim in &preparation.claims {
            caches.claims.wrote(&self.update::<Claim>(claim).await?);
        }
        Ok(())
    }

    async fn update<V: View>(&self, object: &Object) -> Result<Object, ClientError> {
        self.client.update_encoded(&Kind::of::<V>(), object.key(), Part::Main, object.raw().clone()).await
    }

    /// Binds the pod if its claims are bound.
    async fn go_on(
        &self,
        pod: &Pod,
        preparing: &Preparing,
        progress: Progress,
    ) -> Result<Outcome, ReconcileError> {
        match progress {
            Progress::Wait => Ok(Outcome::CheckAfter(LOOK_AT_CLAIMS)),
            Progress::Bound => {
                self.shared.state.lock().preparing.remove(&pod.meta().uid);
                self.bind(pod, &preparing.node).await
            }
            Progress::Failed(why) => {
                self.shared.gone(&mut self.shared.state.lock(), pod);
                let message = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}");
                self.fail(pod, &message).await
            }
        }
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<Outcome, ReconcileError> {
        if !pod.spec.resource_claims.is_empty() && !self.reserve(pod).await? {
            return Ok(Outcome::Settled);
        }
        let key = pod.key();
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name(), "namespace": key.namespace(), "uid": &pod.meta().uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.client.post(&pod_kind(), key, Part::Binding, &binding).await {
            Ok(()) => {
                let message = format!("Successfully assigned {key} to {node}");
                self.recorder.event(&pod_kind(), pod.object(), EventType::Normal, "Scheduled", message);
                Ok(Outcome::Settled)
            }
            Err(error) => {
                self.shared.gone(&mut self.shared.state.lock(), pod);
                // Somebody else may have bound it: the next look, in a moment, tells.
                let conflict = error.is_conflict();
                let settled = unless_gone(Err(error), format!("bind pod {key} to {node}"))?;
                Ok(if conflict { Outcome::Requeue } else { settled })
            }
        }
    }
}

/// A pod that is gone or bound by somebody else needs nothing more from here.
pub(crate) fn unless_gone(
    result: Result<(), ClientError>,
    attempted: String,
) -> Result<Outcome, ReconcileError> {
    match result {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Settled),
        result => result.attempting(attempted).map(|()| Outcome::Settled),
    }
}

pub(crate) fn pod_kind() -> Kind {
    Kind::of::<PodView>()
}
