//! Glue: caches into the ledger, decisions into bindings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{Part, Patch};
use setpoint::historic::{self, Bug};
use setpoint::queue::limiter::PerKey;
use setpoint::reconcile::Attempting;
use setpoint::{
    Cached, Client, ClientError, Clock, Context, Controller, Event, EventType, Key, Kind, Lister, Object,
    Outcome, Queue, ReconcileError, Reconciler, Recorder, Rng, Runnable, View,
};
use setpoint_volume::{Claim, PODS_BY_CLAIM, Volume};

use crate::Settings;
use crate::decide::{Decision, LetGo, Misfit, Remedy, decide};
use crate::devices::{self, Claim as DeviceClaim, DeviceNeeds, DeviceSources, Reservation, Reserving, Write};
use crate::filter::{Check, Checks};
use crate::ledger::Ledger;
use crate::parked::{BACKOFF, Change, NodeChange, Parked, asks_differently, is_idle};
use crate::preempt::Preemption;
use crate::surroundings::{Sources, Surroundings};
use crate::view::{Condition, NodeView, Pod, PodView};
use crate::volumes::{Preparation, Preparing, Progress, VolumeNeeds, VolumeSources};
use crate::waiting::Waiting;

/// The name under which the scheduler writes events.
pub const COMPONENT: &str = "default-scheduler";

/// Bindings under way at once: enough to fill a group commit of the store, few enough for any API server.
const WORKERS: usize = 32;

/// A parked pod is looked at again after this long even if nothing seemed to help.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// A claim is written twice, and read again after conflicts: with four of them v1.34 gives up as well.
const RESERVATION_WRITES: usize = 2 + 4;

/// How often the claims of a pod are looked at even if nothing seems to have happened to them.
const LOOK_AT_CLAIMS: Duration = Duration::from_secs(30);

/// What a manager runs to schedule pods.
pub fn runnables(context: &Context, settings: &Settings) -> Vec<Box<dyn Runnable>> {
    let queue = Queue::with_rate_limiter("scheduler", &context.runtime, Arc::new(PerKey::new(BACKOFF)));
    let sources = Sources::of(context, settings);
    let desk = Desk {
        queue: queue.clone(),
        clock: context.runtime.clock.clone(),
        surroundings: sources.surroundings(),
        state: Arc::default(),
    };
    let nodes = context.informers.of::<NodeView>();
    let pods = context.informers.of::<PodView>();
    let (on_nodes, on_pods) = (desk.clone(), desk.clone());
    nodes.add_handler(move |event: &Event| on_nodes.on_node(event));
    pods.add_handler(move |event: &Event| on_pods.on_pod(event));
    desk.follow(&sources.volumes);
    desk.follow_devices(&sources.devices);
    let scheduler = Scheduler {
        client: context.client.clone(),
        rng: context.runtime.rng.fork(),
        recorder: context.recorder(COMPONENT),
        pods: pods.lister(),
        desk,
    };
    let mut controller = Controller::new("scheduler", queue, scheduler).workers(WORKERS);
    for informer in sources.all() {
        controller = controller.waits_for(informer);
    }
    vec![Box::new(controller.waits_for(&nodes).waits_for(&pods))]
}

/// Everything that is known and waits, and the queue that it waits for. Cheap to clone.
#[derive(Clone)]
struct Desk {
    queue: Queue<Key>,
    clock: Clock,
    surroundings: Surroundings,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    parked: Parked,
    waiting: Waiting,
    /// The pods whose claims are being bound, by uid.
    preparing: BTreeMap<Box<str>, Preparing>,
    /// The claims for devices of pods that have a node and are not bound yet, by uid.
    reservations: BTreeMap<Box<str>, Reservation>,
}

impl Desk {
    /// Looks at pods again whose claims change, or whose volumes may be found now.
    fn follow(&self, volumes: &VolumeSources) {
        let desk = self.clone();
        volumes.claims.add_handler(move |event: &Event| desk.on_claim(event.object().key()));
        for informer in volumes.helpful() {
            let desk = self.clone();
            informer.add_handler(move |_: &Event| {
                let state = &mut *desk.state.lock();
                if state.parked.minds_volumes() {
                    desk.wake(state, &Change::Storage);
                }
            });
        }
    }

    /// Looks at pods again whose devices may be found now.
    fn follow_devices(&self, devices: &DeviceSources) {
        let desk = self.clone();
        devices.claims.add_handler(move |event: &Event| desk.on_device_claim(event));
        for informer in devices.helpful() {
            let desk = self.clone();
            informer.add_handler(move |_: &Event| {
                let state = &mut *desk.state.lock();
                if state.parked.minds_devices() {
                    desk.wake(state, &Change::Devices);
                }
            });
        }
    }

    fn on_device_claim(&self, event: &Event) {
        let Ok(claim) = Cached::<DeviceClaim>::new(event.object().clone()) else { return };
        let state = &mut *self.state.lock();
        let freed = match event {
            Event::Deleted { .. } => state.ledger.devices.gone(&claim),
            _ => state.ledger.devices.follow(&claim),
        };
        if state.parked.minds_devices() {
            let news = devices::is_news(event, &claim);
            self.wake(state, &Change::DeviceClaim { claim: claim.key(), freed, news });
        }
    }

    fn on_claim(&self, claim: &Key) {
        let state = &mut *self.state.lock();
        if state.parked.minds_volumes() {
            self.wake(state, &Change::Claim(claim));
        }
        if state.preparing.is_empty() {
            return;
        }
        let users = self.surroundings.volumes.pods.objects().indexed(PODS_BY_CLAIM, &claim.to_string());
        for pod in users.iter().filter(|pod| state.preparing.contains_key(&pod.meta().uid)) {
            self.queue.add(pod.key().clone());
        }
    }

    fn on_node(&self, event: &Event) {
        let state = &mut *self.state.lock();
        let what = match event {
            Event::Deleted { last, .. } => {
                state.ledger.remove_node(&last.meta().name);
                return self.wake(state, &Change::NodeGone);
            }
            Event::Added { .. } => NodeChange::ADDED,
            Event::Updated { old, new } => node_change(old, new),
        };
        let object = event.object();
        match object.view::<NodeView>() {
            Ok(view) => state.ledger.put_node(object, view),
            Err(error) => tracing::warn!(node = %object.key(), %error, "cannot read the node"),
        }
        if what.is_none() {
            return;
        }
        let State { ledger, parked, waiting, .. } = state;
        if let Some(node) = ledger.node(&object.meta().name) {
            self.wake_parked(parked, waiting, &Change::Node { node, what });
        }
    }

    fn on_pod(&self, event: &Event) {
        if let Event::Updated { old, new } = event
            && is_idle(old, new)
        {
            return self.state.lock().parked.refresh(new);
        }
        let Ok(pod) = Cached::<PodView>::new(event.object().clone()) else { return };
        let state = &mut *self.state.lock();
        if let Event::Deleted { last, .. } = event {
            state.parked.forget(last.key());
            state.waiting.remove(last.key());
            self.queue.forget(last.key());
            return self.gone(state, &pod);
        }
        if pod.is_finished() {
            return self.gone(state, &pod);
        }
        if let Some(freed) = state.ledger.put_pod(&pod) {
            self.wake(state, &Change::PodResized { freed: &freed });
        }
        if let Some(before) = lost_promise(event, &pod) {
            self.wake(state, &Change::PodGone(&before));
        }
        if pod.spec.node_name.is_empty() {
            if pod.awaits_scheduling() && is_news(event, &pod) {
                state.parked.unpark(pod.key());
                state.waiting.insert(pod.key().clone(), pod.spec.priority);
                self.queue.add(pod.key().clone());
            } else {
                state.parked.refresh(pod.object());
            }
        } else if state.preparing.remove(&pod.meta().uid).is_none() && state.parked.minds_company() {
            self.company_changed(state, event, &pod);
        }
    }

    /// A pod has come to a node, or one that is there is like others now.
    fn company_changed(&self, state: &mut State, event: &Event, pod: &Pod) {
        if let Event::Updated { old, new } = event
            && old.mentions("\"nodeName\"")
        {
            if old.meta().labels == new.meta().labels {
                return;
            }
            if let Ok(before) = Cached::new(old.clone()) {
                self.wake(state, &Change::PodWas(&before));
            }
        }
        self.wake(state, &Change::PodThere(pod));
    }

    /// A pod takes no room any more.
    fn gone(&self, state: &mut State, pod: &Pod) {
        if let Some(preparing) = state.preparing.remove(&pod.meta().uid) {
            preparing.preparation.forget(&self.surroundings.volumes);
        }
        if let Some(reservation) = state.reservations.remove(&pod.meta().uid) {
            reservation.forget(&mut state.ledger.devices);
        }
        let had_promise = !pod.status.nominated_node_name.is_empty();
        if state.ledger.remove_pod(&pod.meta().uid) || had_promise {
            self.wake(state, &Change::PodGone(pod));
        }
    }

    fn wake(&self, state: &mut State, change: &Change<'_>) {
        self.wake_parked(&mut state.parked, &mut state.waiting, change);
    }

    fn wake_parked(&self, parked: &mut Parked, waiting: &mut Waiting, change: &Change<'_>) {
        if parked.is_empty() {
            return;
        }
        for (key, priority, left) in parked.woken_by(change, &self.surroundings, self.clock.instant()) {
            if left.is_zero() {
                waiting.insert(key.clone(), priority);
            }
            self.queue.add_after(key, left);
        }
    }
}

fn node_change(old: &Object, new: &Object) -> NodeChange {
    match (old.view(), new.view()) {
        (Ok(before), Ok(after)) => NodeChange::between(before, after, old.meta().labels != new.meta().labels),
        _ => NodeChange::ADDED,
    }
}

/// A pod as it was when a node was promised to it that is not any more: others were kept off that room, and itself it
/// has to look for another.
fn lost_promise(event: &Event, pod: &PodView) -> Option<Pod> {
    let Event::Updated { old, .. } = event else { return None };
    if !pod.spec.node_name.is_empty() || !old.mentions("\"nominatedNodeName\"") {
        return None;
    }
    let before = Pod::new(old.clone()).ok()?;
    let promised = &before.status.nominated_node_name;
    let is_lost = !promised.is_empty() && *promised != pod.status.nominated_node_name;
    is_lost.then_some(before)
}

/// A pending pod is worth a look when it is new or asks for something else.
fn is_news(event: &Event, view: &PodView) -> bool {
    let Event::Updated { old, new } = event else { return true };
    let labels_changed = old.meta().labels != new.meta().labels;
    old.view::<PodView>().map_or(true, |before| asks_differently(before, view, labels_changed))
}

struct Scheduler {
    client: Client,
    rng: Rng,
    recorder: Recorder,
    pods: Lister<PodView>,
    desk: Desk,
}

/// What a turn comes to.
enum Turn {
    Decided(Decision),
    /// A more important pod goes first.
    StepAside,
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
        let Some(pod) = self.pods.get(key)?.filter(pending) else {
            self.desk.state.lock().waiting.remove(key);
            return Ok(Outcome::Settled);
        };
        match self.turn(&pod) {
            Turn::Placed | Turn::Incomplete => Ok(Outcome::Settled),
            Turn::StepAside => {
                self.desk.queue.add(key.clone());
                Ok(Outcome::Settled)
            }
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
        let State { ledger, parked, waiting, preparing, reservations } = &mut *self.desk.state.lock();
        if let Some(preparing) = preparing.get(&pod.meta().uid) {
            waiting.remove(pod.key());
            let (node, now) = (ledger.node(&preparing.node), self.desk.clock.instant());
            let progress = preparing.progress(node, &self.desk.surroundings.volumes, now);
            return Turn::Prepared(preparing.clone(), progress);
        }
        if waiting.anyone_above(pod.spec.priority) {
            waiting.insert(pod.key().clone(), pod.spec.priority);
            return Turn::StepAside;
        }
        waiting.remove(pod.key());
        if let Some(node) = ledger.place(&pod.meta().uid) {
            return match reservations.contains_key(&pod.meta().uid) {
                true => Turn::Decided(Decision::Bind { node: node.to_owned() }),
                false => Turn::Placed,
            };
        }
        if devices::claims_of(pod, &self.desk.surroundings.devices.claims).is_err() {
            let mut blocked = Checks::default();
            blocked.insert(Check::Devices);
            parked.park(pod, blocked, self.desk.clock.instant());
            return Turn::Incomplete;
        }
        let draw = |n| self.rng.below(n as u64) as usize;
        let decision = decide(pod, ledger, &self.desk.surroundings, draw);
        match &decision {
            Decision::Bind { node } => {
                parked.forget(pod.key());
                let preparation = self.preparation(pod, node, ledger);
                let reservation = self.reservation(pod, node, ledger);
                if !historic::has(Bug::RoomNotAssumed) {
                    ledger.assume(pod, node);
                }
                if !reservation.is_empty() {
                    reservation.assume(&mut ledger.devices);
                    reservations.insert(pod.meta().uid.clone(), reservation);
                }
                if !preparation.is_empty() {
                    preparation.assume(&self.desk.surroundings.volumes);
                    let since = self.desk.clock.instant();
                    let begun = Preparing { node: node.clone(), preparation, since };
                    preparing.insert(pod.meta().uid.clone(), begun.clone());
                    return Turn::Prepare(begun);
                }
            }
            Decision::FitsNowhere(misfit) => {
                parked.park(pod, misfit.blocked, self.desk.clock.instant());
                match &misfit.remedy {
                    Remedy::Preempt(preemption) => ledger.nominate(pod, &preemption.node),
                    Remedy::None => ledger.forget_nomination(&pod.meta().uid),
                    Remedy::Wait => {}
                }
            }
            Decision::Failed(_) => {}
        }
        Turn::Decided(decision)
    }

    /// What has to be written before the pod can be bound to a node.
    fn preparation(&self, pod: &Pod, node: &str, ledger: &Ledger) -> Preparation {
        let needs = VolumeNeeds::of(pod, ledger, &self.desk.surroundings.volumes);
        match (needs, ledger.node(node)) {
            (Ok(Some(needs)), Some(node)) => Preparation::of(&needs, node),
            _ => Preparation::default(),
        }
    }

    /// The claims that have to be reserved before the pod can be bound to a node.
    fn reservation(&self, pod: &Pod, node: &str, ledger: &Ledger) -> Reservation {
        let needs = DeviceNeeds::of(pod, &ledger.devices, &self.desk.surroundings.devices);
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
                self.desk.gone(&mut self.desk.state.lock(), pod);
                Err(error).attempting(format!("bind the volumes of pod {}", pod.key()))
            }
        }
    }

    async fn write(&self, preparation: &Preparation) -> Result<(), ClientError> {
        let caches = &self.desk.surroundings.volumes;
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
                self.desk.state.lock().preparing.remove(&pod.meta().uid);
                self.bind(pod, &preparing.node).await
            }
            Progress::Failed(why) => {
                self.desk.gone(&mut self.desk.state.lock(), pod);
                let message = format!("running PreBind plugin \"VolumeBinding\": binding volumes: {why}");
                self.fail(pod, &message).await
            }
        }
    }

    /// Says on the pod that something went wrong, and tries again later.
    async fn fail(&self, pod: &Pod, message: &str) -> Result<Outcome, ReconcileError> {
        if !already_says(pod, "SchedulerError", message) {
            self.recorder.event(&pod_kind(), pod.object(), EventType::Warning, "FailedScheduling", message);
            let condition = self.condition(pod, "PodScheduled", "False", "SchedulerError", message);
            self.patch_status(pod, json!({"conditions": [condition]}), "say why it is not bound").await?;
        }
        Err(ReconcileError::retry(format!("bind pod {}: {message}", pod.key())))
    }

    /// Makes the claims of a pod its own; `false` if one of them cannot be any more, and then none is.
    async fn reserve(&self, pod: &Pod) -> Result<bool, ReconcileError> {
        let reservation = self.desk.state.lock().reservations.get(&pod.meta().uid).cloned();
        for (index, reserving) in reservation.iter().flat_map(|reservation| &reservation.claims).enumerate() {
            let attempted = || format!("reserve claim {} for pod {}", reserving.claim.key(), pod.key());
            match self.reserve_claim(pod, reserving).await.attempting(attempted())? {
                Ok(()) => {}
                Err(lost) => {
                    self.desk.gone(&mut self.desk.state.lock(), pod);
                    let done = reservation.iter().flat_map(|reservation| &reservation.claims[..index]);
                    self.unreserve(pod, done).await?;
                    let message = format!("running PreBind plugin \"DynamicResources\": {lost}");
                    return self.fail(pod, &message).await.map(|_| false);
                }
            }
        }
        self.desk.state.lock().reservations.remove(&pod.meta().uid);
        Ok(true)
    }

    /// Writes a claim until it is the pod's; `Err` inside says why it cannot be. After an error from outside it is
    /// not known what was written: the next try finds out.
    async fn reserve_claim(
        &self,
        pod: &Pod,
        reserving: &Reserving,
    ) -> Result<Result<(), String>, ClientError> {
        let kind = Kind::of::<DeviceClaim>();
        let key = reserving.claim.key();
        let mut claim = reserving.claim.object().clone();
        for _ in 0..RESERVATION_WRITES {
            let Ok(known) = Cached::new(claim.clone()) else { return Ok(Err(format!("cannot read {key}"))) };
            let (part, object) = match devices::next_write(&known, reserving, pod) {
                Write::Main(object) => (Part::Main, object),
                Write::Status(object) => (Part::Status, object),
                Write::Nothing => {
                    let shown = self.desk.surroundings.devices.claims.get(key).ok().flatten();
                    self.desk.state.lock().ledger.devices.wrote(&claim, shown.as_ref());
                    return Ok(Ok(()));
                }
                Write::Lost(why) => return Ok(Err(why)),
            };
            claim = match self.client.update_encoded(&kind, key, part, object.raw().clone()).await {
                Err(error) if error.is_conflict() => match self.client.get(&kind, key).await {
                    Err(error) if error.is_not_found() => return Ok(Err(error.to_string())),
                    read => read?,
                },
                Err(error) if error.is_not_found() || error.is_invalid() || error.is_forbidden() => {
                    return Ok(Err(format!("add reservation to claim {key}: {error}")));
                }
                written => written?,
            };
        }
        Ok(Err(format!("claim {key} changes all the time")))
    }

    /// Takes a pod off claims that it got and cannot use.
    async fn unreserve(
        &self,
        pod: &Pod,
        claims: impl Iterator<Item = &Reserving>,
    ) -> Result<(), ReconcileError> {
        for reserving in claims {
            let (key, uid) = (reserving.claim.key(), &reserving.claim.meta().uid);
            let user = json!([{"$patch": "delete", "uid": &pod.meta().uid}]);
            let patch = json!({"metadata": {"uid": uid}, "status": {"reservedFor": user}});
            let kind = Kind::of::<DeviceClaim>();
            let patch = Patch::strategic(&patch);
            let written = self.client.patch_and_forget(&kind, key, Part::Status, patch).await;
            unless_gone(written, format!("take pod {} off claim {key}", pod.key()))?;
        }
        Ok(())
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
                self.desk.gone(&mut self.desk.state.lock(), pod);
                // Somebody else may have bound it: the next look, in a moment, tells.
                let conflict = error.is_conflict();
                let settled = unless_gone(Err(error), format!("bind pod {key} to {node}"))?;
                Ok(if conflict { Outcome::Requeue } else { settled })
            }
        }
    }

    /// Says on the pod why it fits nowhere, and makes room for it where that can be done.
    async fn report(&self, pod: &Pod, misfit: &Misfit) -> Result<Outcome, ReconcileError> {
        let mut status = json!({});
        let promised = match &misfit.remedy {
            Remedy::Preempt(preemption) => {
                self.make_room(pod, preemption).await?;
                &preemption.node
            }
            Remedy::None => "",
            Remedy::Wait => &pod.status.nominated_node_name,
        };
        if pod.status.nominated_node_name != *promised {
            status["nominatedNodeName"] = if promised.is_empty() { json!(null) } else { json!(promised) };
        }
        if let Some(LetGo(claim)) = &misfit.let_go {
            self.let_go(claim).await?;
        }
        let message = &misfit.message;
        if !already_says(pod, "Unschedulable", message) {
            self.recorder.event(&pod_kind(), pod.object(), EventType::Warning, "FailedScheduling", message);
            status["conditions"] =
                json!([self.condition(pod, "PodScheduled", "False", "Unschedulable", message)]);
        }
        if status.as_object().is_some_and(|fields| !fields.is_empty()) {
            self.patch_status(pod, status, "say why it fits nowhere").await?;
        }
        Ok(Outcome::CheckAfter(LOOK_AGAIN))
    }

    /// Lets go the devices of a claim that nobody uses.
    async fn let_go(&self, claim: &Cached<DeviceClaim>) -> Result<(), ReconcileError> {
        let Write::Status(object) = devices::let_go(claim) else { return Ok(()) };
        let (kind, key) = (Kind::of::<DeviceClaim>(), claim.key());
        let written = self.client.update_encoded(&kind, key, Part::Status, object.raw().clone()).await;
        unless_gone(written.map(drop), format!("deallocate claim {key}")).map(drop)
    }

    /// Sends the victims away, and tells less important pods that the node is no longer theirs.
    async fn make_room(&self, pod: &Pod, preemption: &Preemption) -> Result<(), ReconcileError> {
        for displaced in &preemption.displaced {
            self.desk.state.lock().ledger.forget_nomination(&displaced.meta().uid);
            self.patch_status(displaced, json!({"nominatedNodeName": null}), "take back its node").await?;
        }
        // Who is already going need not be told twice.
        for victim in preemption.victims.iter().filter(|victim| !victim.meta().is_being_deleted()) {
            self.send_away(victim, pod, &preemption.node).await?;
        }
        Ok(())
    }

    async fn send_away(&self, victim: &Pod, pod: &Pod, node: &str) -> Result<(), ReconcileError> {
        let scheduler = match pod.spec.scheduler_name.as_str() {
            "" => COMPONENT,
            name => name,
        };
        let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
        let condition = self.condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", &message);
        self.patch_status(victim, json!({"conditions": [condition]}), "mark it as preempted").await?;
        let delete = setpoint::client::Delete::of_uid(&*victim.meta().uid);
        let deleted = self.client.delete(&pod_kind(), victim.key(), &delete).await;
        let told = deleted.is_ok();
        unless_gone(deleted, format!("preempt pod {}", victim.key()))?;
        if told {
            let message = format!("Preempted by pod {} on node {node}", pod.meta().uid);
            self.recorder.event(&pod_kind(), victim.object(), EventType::Normal, "Preempted", message);
        }
        Ok(())
    }

    /// A condition of a pod, which has stood since it first was so.
    fn condition(&self, pod: &Pod, name: &str, status: &str, reason: &str, message: &str) -> Value {
        let mut condition = json!({"type": name, "status": status, "reason": reason, "message": message,
            "observedGeneration": pod.meta().generation});
        let is_so = |known: &Condition| known.condition_type == name && known.status == status;
        if !pod.status.conditions.iter().any(is_so) {
            let now = self.desk.clock.now();
            condition["lastTransitionTime"] =
                Timestamp::from_second(now.as_second()).unwrap_or(now).to_string().into();
        }
        condition
    }

    async fn patch_status(&self, pod: &Pod, status: Value, attempted: &str) -> Result<(), ReconcileError> {
        let patch = Patch::strategic(&json!({"metadata": {"uid": &pod.meta().uid}, "status": status}));
        let written = self.client.patch_and_forget(&pod_kind(), pod.key(), Part::Status, patch).await;
        unless_gone(written, format!("patch the status of pod {}: {attempted}", pod.key())).map(drop)
    }
}

fn already_says(pod: &PodView, reason: &str, message: &str) -> bool {
    pod.status.conditions.iter().any(|condition| {
        condition.condition_type == "PodScheduled"
            && condition.status == "False"
            && condition.reason == reason
            && condition.message == message
    })
}

/// A pod that is gone or bound by somebody else needs nothing more from here.
fn unless_gone(result: Result<(), ClientError>, attempted: String) -> Result<Outcome, ReconcileError> {
    match result {
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Settled),
        result => result.attempting(attempted).map(|()| Outcome::Settled),
    }
}

fn pod_kind() -> Kind {
    Kind::of::<PodView>()
}
