//! Watch event handlers of the scheduler: they update the ledger and requeue the pods that a change may make
//! schedulable.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::queue::Priority;
use setpoint::{Cached, Clock, Event, Key, Object, Queue};
use setpoint_volume::PODS_BY_CLAIM;

use crate::devices::{self, Claim as DeviceClaim, DeviceSources, Reservation};
use crate::ledger::Ledger;
use crate::listers::Listers;
use crate::parked::{Change, NodeChange, Parked, asks_differently, is_idle};
use crate::view::{NodeView, Pod, PodView};
use crate::volumes::{Preparing, VolumeSources};

/// State shared by event handlers and workers: the cluster state and the scheduling queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SharedState {
    pub(crate) queue: Queue<Key>,
    pub(crate) clock: Clock,
    pub(crate) listers: Listers,
    pub(crate) state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) parked: Parked,
    /// Pods whose volume claims are being bound, by uid.
    pub(crate) preparing: BTreeMap<Box<str>, Preparing>,
    /// Resource claims of pods that have been assigned a node but are not bound yet, by pod uid.
    pub(crate) reservations: BTreeMap<Box<str>, Reservation>,
}

impl SharedState {
    /// Requeues pods when their volume claims change or when a storage change may make them schedulable.
    pub(crate) fn follow(&self, volumes: &VolumeSources) {
        let shared = self.clone();
        volumes.claims.add_handler(move |event: &Event| shared.on_claim(event.object().key()));
        for informer in volumes.unblocking() {
            let shared = self.clone();
            informer.add_handler(move |_: &Event| {
                let state = &mut *shared.state.lock();
                if state.parked.waits_for_volumes() {
                    shared.wake(state, &Change::Storage);
                }
            });
        }
    }

    /// Requeues pods when a change to resource claims, classes or slices may make them schedulable.
    pub(crate) fn follow_devices(&self, devices: &DeviceSources) {
        let shared = self.clone();
        devices.claims.add_handler(move |event: &Event| shared.on_device_claim(event));
        for informer in devices.unblocking() {
            let shared = self.clone();
            informer.add_handler(move |_: &Event| {
                let state = &mut *shared.state.lock();
                if state.parked.waits_for_devices() {
                    shared.wake(state, &Change::Devices);
                }
            });
        }
    }

    fn on_device_claim(&self, event: &Event) {
        let Ok(claim) = Cached::<DeviceClaim>::new(event.object().clone()) else { return };
        let state = &mut *self.state.lock();
        let freed = match event {
            Event::Deleted { .. } => state.ledger.devices.claim_deleted(&claim),
            _ => state.ledger.devices.follow(&claim),
        };
        if state.parked.waits_for_devices() {
            let changed = devices::changes_state(event, &claim);
            self.wake(state, &Change::DeviceClaim { claim: claim.key(), freed, changed });
        }
    }

    fn on_claim(&self, claim: &Key) {
        let state = &mut *self.state.lock();
        if state.parked.waits_for_volumes() {
            self.wake(state, &Change::Claim(claim));
        }
        if state.preparing.is_empty() {
            return;
        }
        let users = self.listers.volumes.pods.objects().indexed(PODS_BY_CLAIM, &claim.to_string());
        for pod in users.iter().filter(|pod| state.preparing.contains_key(&pod.meta().uid)) {
            let priority = pod.view::<PodView>().map_or(0, |pod| pod.spec.priority);
            self.queue.add_with_priority(pod.key().clone(), Priority::new(priority));
        }
    }

    pub(crate) fn on_node(&self, event: &Event) {
        let state = &mut *self.state.lock();
        let what = match event {
            Event::Deleted { last, .. } => {
                state.ledger.remove_node(&last.meta().name);
                return self.wake(state, &Change::NodeDeleted);
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
        if let Some(node) = state.ledger.node(&object.meta().name) {
            self.wake_parked(&mut state.parked, &Change::Node { node, what });
        }
    }

    pub(crate) fn on_pod(&self, event: &Event) {
        if let Event::Updated { old, new } = event
            && is_idle(old, new)
        {
            return self.state.lock().parked.refresh(new);
        }
        let Ok(pod) = Cached::<PodView>::new(event.object().clone()) else { return };
        let state = &mut *self.state.lock();
        if let Event::Deleted { last, .. } = event {
            state.parked.forget(last.key());
            self.queue.cancel(last.key());
            self.queue.forget(last.key());
            return self.release_pod(state, &pod);
        }
        if pod.is_finished() {
            return self.release_pod(state, &pod);
        }
        if let Some(freed) = state.ledger.put_pod(&pod) {
            self.wake(state, &Change::PodResized { freed: &freed });
        }
        if let Some(before) = lost_nomination(event, &pod) {
            self.wake(state, &Change::PodRemoved(&before));
        }
        if pod.spec.node_name.is_empty() {
            if pod.awaits_scheduling() && needs_retry(event, &pod) {
                state.parked.unpark(pod.key());
                self.queue.add_with_priority(pod.key().clone(), Priority::new(pod.spec.priority));
            } else {
                state.parked.refresh(pod.object());
            }
        } else if state.preparing.remove(&pod.meta().uid).is_none() && state.parked.waits_for_other_pods() {
            self.bound_pod_changed(state, event, &pod);
        }
    }

    /// Wakes parked pods after a pod was bound to a node or the labels of a bound pod changed.
    fn bound_pod_changed(&self, state: &mut State, event: &Event, pod: &Pod) {
        if let Event::Updated { old, new } = event
            && old.contains_text("\"nodeName\"")
        {
            if old.meta().labels == new.meta().labels {
                return;
            }
            if let Ok(before) = Cached::new(old.clone()) {
                self.wake(state, &Change::PodRelabelled(&before));
            }
        }
        self.wake(state, &Change::PodAdded(pod));
    }

    /// Releases everything a pod holds once it is deleted, finished or has lost its node.
    pub(crate) fn release_pod(&self, state: &mut State, pod: &Pod) {
        if let Some(preparing) = state.preparing.remove(&pod.meta().uid) {
            preparing.preparation.forget(&self.listers.volumes);
        }
        if let Some(reservation) = state.reservations.remove(&pod.meta().uid) {
            reservation.forget(&mut state.ledger.devices);
        }
        let had_nomination = !pod.status.nominated_node_name.is_empty();
        if state.ledger.remove_pod(&pod.meta().uid) || had_nomination {
            self.wake(state, &Change::PodRemoved(pod));
        }
    }

    fn wake(&self, state: &mut State, change: &Change<'_>) {
        self.wake_parked(&mut state.parked, change);
    }

    fn wake_parked(&self, parked: &mut Parked, change: &Change<'_>) {
        if parked.is_empty() {
            return;
        }
        for (key, priority, left) in parked.woken_by(change, &self.listers, self.clock.instant()) {
            self.queue.add_after_with_priority(key, left, Priority::new(priority));
        }
    }
}

fn node_change(old: &Object, new: &Object) -> NodeChange {
    match (old.view(), new.view()) {
        (Ok(before), Ok(after)) => NodeChange::between(before, after, old.meta().labels != new.meta().labels),
        _ => NodeChange::ADDED,
    }
}

/// Returns the pod's previous version if it lost its nominated node. That space was reserved for the pod; now other
/// pods may use it, and the pod has to find another node.
fn lost_nomination(event: &Event, pod: &PodView) -> Option<Pod> {
    let Event::Updated { old, .. } = event else { return None };
    if !pod.spec.node_name.is_empty() || !old.contains_text("\"nominatedNodeName\"") {
        return None;
    }
    let before = Pod::new(old.clone()).ok()?;
    let nominated = &before.status.nominated_node_name;
    let is_lost = !nominated.is_empty() && *nominated != pod.status.nominated_node_name;
    is_lost.then_some(before)
}

/// Whether a pending pod should be tried again: it is new, or its requirements changed.
fn needs_retry(event: &Event, view: &PodView) -> bool {
    let Event::Updated { old, new } = event else { return true };
    let labels_changed = old.meta().labels != new.meta().labels;
    old.view::<PodView>().map_or(true, |before| asks_differently(before, view, labels_changed))
}
