//! Scheduling loop: takes a pod from the queue, decides, and binds it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use setpoint::client::Subresource;
use setpoint::queue::limiter::PerKeyBackoff;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, ClientError, Context, Controller, Event, EventType, Key, Kind, Lister, Object, Outcome, Queue,
    ReconcileError, Reconciler, Recorder, Rng, Runnable, View,
};
use setpoint_volume::{Claim, Volume};

use crate::Settings;
use crate::decide::{Decision, FitError, PreemptionOutcome, decide};
use crate::devices::{self, DeviceNeeds, Reservation};
use crate::events::{SharedState, State};
use crate::filter::{Check, Checks};
use crate::ledger::Ledger;
use crate::listers::Sources;
use crate::parked::BACKOFF;
use crate::view::{NodeView, Pod, PodView};
use crate::volumes::{Preparation, Preparing, Progress, VolumeNeeds};

/// The event source name of the scheduler.
pub const COMPONENT: &str = "default-scheduler";

/// Concurrent bindings: enough to fill a group commit of the store, few enough for any API server.
const WORKERS: usize = 32;

/// Parked pods are retried after this long even without a helpful change.
pub(crate) const RETRY_UNSCHEDULABLE_AFTER: Duration = Duration::from_secs(300);

/// How often a pod's claims are checked even without an event.
const RECHECK_CLAIMS_AFTER: Duration = Duration::from_secs(30);

/// Returns the runnables of the scheduler.
pub fn runnables(context: &Context, settings: &Settings) -> Vec<Box<dyn Runnable>> {
    let queue =
        Queue::with_rate_limiter("scheduler", &context.runtime, Arc::new(PerKeyBackoff::new(BACKOFF)))
            .strict();
    let sources = Sources::of(context, settings);
    let shared = SharedState {
        queue: queue.clone(),
        clock: context.runtime.clock.clone(),
        listers: sources.listers(),
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

/// The outcome of one scheduling attempt.
enum Attempt {
    Decided(Decision),
    /// The pod already has a node.
    Placed,
    /// The pod's volume claims must be bound first.
    Prepare(Preparing),
    /// The pod's volume claims are being bound.
    Prepared(Preparing, Progress),
    /// A resource claim of the pod does not exist.
    Incomplete,
}

impl Reconciler for Scheduler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let pending = |pod: &Pod| pod.awaits_scheduling() && !pod.meta().is_being_deleted();
        let Some(pod) = self.pods.get(key)?.filter(pending) else { return Ok(Outcome::Settled) };
        match self.attempt(&pod) {
            Attempt::Placed | Attempt::Incomplete => Ok(Outcome::Settled),
            Attempt::Prepare(preparing) => self.prepare(&pod, &preparing).await,
            Attempt::Prepared(preparing, progress) => {
                self.bind_when_prepared(&pod, &preparing, progress).await
            }
            Attempt::Decided(Decision::Bind { node }) => self.bind(&pod, &node).await,
            Attempt::Decided(Decision::FitsNowhere(fit_error)) => self.report(&pod, &fit_error).await,
            Attempt::Decided(Decision::Failed(why)) => self.fail(&pod, &why).await,
        }
    }
}

impl Scheduler {
    /// Decides, then assumes or parks, under one lock so that no event is lost in between.
    fn attempt(&self, pod: &Pod) -> Attempt {
        let state = &mut *self.shared.state.lock();
        if let Some(attempt) = self.next_step(state, pod) {
            return attempt;
        }
        let State { ledger, parked, preparing, reservations } = state;
        let draw = |n| self.rng.below(n as u64) as usize;
        let decision = decide(pod, ledger, &self.shared.listers, draw);
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
                    preparation.assume(&self.shared.listers.volumes);
                    let since = self.shared.clock.instant();
                    let begun = Preparing { node: node.clone(), preparation, since };
                    preparing.insert(pod.meta().uid.clone(), begun.clone());
                    return Attempt::Prepare(begun);
                }
            }
            Decision::FitsNowhere(fit_error) => self.park(state, pod, fit_error),
            Decision::Failed(_) => {}
        }
        Attempt::Decided(decision)
    }

    /// Returns the next step for a pod that needs no decision: it has a node, or cannot get one yet.
    fn next_step(&self, state: &mut State, pod: &Pod) -> Option<Attempt> {
        let State { ledger, parked, preparing, reservations } = state;
        if let Some(preparing) = preparing.get(&pod.meta().uid) {
            let (node, now) = (ledger.node(&preparing.node), self.shared.clock.instant());
            let progress = preparing.progress(node, &self.shared.listers.volumes, now);
            return Some(Attempt::Prepared(preparing.clone(), progress));
        }
        if let Some(node) = ledger.node_of(&pod.meta().uid) {
            return Some(match reservations.contains_key(&pod.meta().uid) {
                true => Attempt::Decided(Decision::Bind { node: node.to_owned() }),
                false => Attempt::Placed,
            });
        }
        devices::claims_of(pod, &self.shared.listers.devices.claims).err()?;
        let mut blocked = Checks::default();
        blocked.insert(Check::Devices);
        parked.park(pod, blocked, self.shared.clock.instant());
        Some(Attempt::Incomplete)
    }

    fn park(&self, state: &mut State, pod: &Pod, fit_error: &FitError) {
        state.parked.park(pod, fit_error.blocked, self.shared.clock.instant());
        match &fit_error.preemption_outcome {
            PreemptionOutcome::Preempt(preemption) => state.ledger.nominate(pod, &preemption.node),
            PreemptionOutcome::None => state.ledger.forget_nomination(&pod.meta().uid),
            PreemptionOutcome::Wait => {}
        }
    }

    /// Returns the volume writes needed before the pod can be bound to a node.
    fn preparation(&self, pod: &Pod, node: &str, ledger: &Ledger) -> Preparation {
        let needs = VolumeNeeds::of(pod, ledger, &self.shared.listers.volumes);
        match (needs, ledger.node(node)) {
            (Ok(Some(needs)), Some(node)) => Preparation::of(&needs, node),
            _ => Preparation::default(),
        }
    }

    /// Returns the resource claims to reserve before the pod can be bound to a node.
    fn reservation(&self, pod: &Pod, node: &str, ledger: &Ledger) -> Reservation {
        let needs = DeviceNeeds::of(pod, &ledger.devices, &self.shared.listers.devices);
        match (needs, ledger.node(node)) {
            (Ok(Some(needs)), Some(node)) => Reservation::of(&needs, pod, node),
            _ => Reservation::default(),
        }
    }

    /// Binds volumes to claims and requests provisioning for others. The volume binder does the rest.
    async fn prepare(&self, pod: &Pod, preparing: &Preparing) -> Result<Outcome, ReconcileError> {
        match self.write(&preparing.preparation).await {
            Ok(()) => Ok(Outcome::CheckAfter(RECHECK_CLAIMS_AFTER)),
            Err(error) => {
                self.shared.release_pod(&mut self.shared.state.lock(), pod);
                Err(error).attempting(format!("bind the volumes of pod {}", pod.key()))
            }
        }
    }

    async fn write(&self, preparation: &Preparation) -> Result<(), ClientError> {
        let caches = &self.shared.listers.volumes;
        for volume in &preparation.volumes {
            caches.volumes.wrote(&self.update::<Volume>(volume).await?);
        }
        for claim in &preparation.claims {
            caches.claims.wrote(&self.update::<Claim>(claim).await?);
        }
        Ok(())
    }

    async fn update<V: View>(&self, object: &Object) -> Result<Object, ClientError> {
        self.client
            .update_encoded(&Kind::of::<V>(), object.key(), Subresource::None, object.raw().clone())
            .await
    }

    /// Binds the pod once its volume claims are bound.
    async fn bind_when_prepared(
        &self,
        pod: &Pod,
        preparing: &Preparing,
        progress: Progress,
    ) -> Result<Outcome, ReconcileError> {
        match progress {
            Progress::Wait => Ok(Outcome::CheckAfter(RECHECK_CLAIMS_AFTER)),
            Progress::Bound => {
                self.shared.state.lock().preparing.remove(&pod.meta().uid);
                self.bind(pod, &preparing.node).await
            }
            Progress::Failed(why) => {
                self.shared.release_pod(&mut self.shared.state.lock(), pod);
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
        match self.client.post(&pod_kind(), key, Subresource::Binding, &binding).await {
            Ok(()) => {
                let message = format!("Successfully assigned {key} to {node}");
                self.recorder.event(&pod_kind(), pod.object(), EventType::Normal, "Scheduled", message);
                Ok(Outcome::Settled)
            }
            Err(error) => {
                self.shared.release_pod(&mut self.shared.state.lock(), pod);
                // Another scheduler may have bound it. The retry, shortly after, finds out.
                let conflict = error.is_conflict();
                let settled = ignore_gone(Err(error), format!("bind pod {key} to {node}"))?;
                Ok(if conflict { Outcome::Requeue } else { settled })
            }
        }
    }
}

/// Ignores errors for pods that are gone or bound by another scheduler.
pub(crate) fn ignore_gone(
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
