//! Glue: caches into the ledger, decisions into bindings.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use setpoint::backoff::Backoff;
use setpoint::client::{Part, Patch};
use setpoint::queue::limiter::PerKey;
use setpoint::reconcile::Attempting;
use setpoint::{
    Cached, Client, ClientError, Context, Controller, Event, EventType, Key, Kind, Lister, Object, Outcome,
    Queue, ReconcileError, Reconciler, Recorder, Rng, Runnable,
};

use crate::decide::{Decision, decide};
use crate::ledger::Ledger;
use crate::parked::{Parked, asks_differently, could_help};
use crate::view::{NodeView, PodView};

/// The name under which the scheduler writes events.
pub const COMPONENT: &str = "default-scheduler";

/// Bindings under way at once: enough to fill a group commit of the store, few enough for any API server.
const WORKERS: usize = 32;

/// A failed try is repeated after 1 s, doubling to 10 s, as v1.34 does.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(10);

/// A parked pod is looked at again after this long even if nothing seemed to help.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// What a manager runs to schedule pods.
pub fn runnables(context: &Context) -> Vec<Box<dyn Runnable>> {
    let backoff = Arc::new(PerKey::new(Backoff::doubling(FIRST_RETRY, LAST_RETRY)));
    let queue = Queue::with_rate_limiter("scheduler", &context.runtime, backoff);
    let state = Arc::new(Mutex::new(State::default()));
    let nodes = context.informers.of::<NodeView>();
    let pods = context.informers.of::<PodView>();
    nodes.add_handler(on_node(state.clone(), queue.clone()));
    pods.add_handler(on_pod(state.clone(), queue.clone()));
    let scheduler = Scheduler {
        client: context.client.clone(),
        rng: context.runtime.rng.fork(),
        recorder: context.recorder(COMPONENT),
        pods: pods.lister(),
        state,
    };
    let controller = Controller::new("scheduler", queue, scheduler).workers(WORKERS);
    vec![Box::new(controller.waits_for(&nodes).waits_for(&pods))]
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    parked: Parked,
}

fn on_node(state: Arc<Mutex<State>>, queue: Queue<Key>) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        let mut state = state.lock();
        let State { ledger, parked } = &mut *state;
        match event {
            Event::Deleted { last, .. } => ledger.remove_node(&last.meta().name),
            Event::Added { object, .. } => {
                put_node(ledger, object);
                parked.release_all(&queue);
            }
            Event::Updated { old, new } => {
                put_node(ledger, new);
                if node_could_help(old, new) {
                    parked.release_all(&queue);
                }
            }
        }
    }
}

fn put_node(ledger: &mut Ledger, object: &Object) {
    match object.view::<NodeView>() {
        Ok(view) => ledger.put_node(object, view),
        Err(error) => tracing::warn!(node = %object.key(), %error, "cannot read the node"),
    }
}

fn node_could_help(old: &Object, new: &Object) -> bool {
    match (old.view(), new.view()) {
        (Ok(before), Ok(after)) => could_help(before, after, old.meta().labels != new.meta().labels),
        _ => true,
    }
}

fn on_pod(state: Arc<Mutex<State>>, queue: Queue<Key>) -> impl Fn(&Event) + Send + Sync + 'static {
    move |event| {
        let object = event.object();
        let Ok(view) = object.view::<PodView>() else { return };
        let mut state = state.lock();
        let State { ledger, parked } = &mut *state;
        if let Event::Deleted { last, .. } = event {
            parked.remove(last.key());
            queue.forget(last.key());
            if ledger.remove_pod(&last.meta().uid) {
                parked.release_all(&queue);
            }
            return;
        }
        if view.is_finished() && ledger.holds(&object.meta().uid) {
            ledger.remove_pod(&object.meta().uid);
            parked.release_all(&queue);
        }
        ledger.put_pod(object.meta(), view);
        if view.awaits_scheduling() && is_news(event, view) {
            parked.remove(object.key());
            queue.add(object.key().clone());
        }
    }
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
    state: Arc<Mutex<State>>,
}

impl Reconciler for Scheduler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else { return Ok(Outcome::Settled) };
        if !pod.awaits_scheduling() || pod.meta().is_being_deleted() {
            return Ok(Outcome::Settled);
        }
        match self.decide(&pod) {
            None => Ok(Outcome::Settled),
            Some(Decision::Bind { node }) => self.bind(&pod, &node).await,
            Some(Decision::FitsNowhere { message }) => self.report(&pod, &message).await,
        }
    }
}

impl Scheduler {
    /// Decides and assumes, or parks, in one step, so that no event falls between the two; `None` if the
    /// pod has its node already.
    fn decide(&self, pod: &Cached<PodView>) -> Option<Decision> {
        let State { ledger, parked } = &mut *self.state.lock();
        if ledger.holds(&pod.meta().uid) {
            return None;
        }
        let decision = decide(pod.meta(), &pod.spec, ledger, |n| self.rng.below(n as u64) as usize);
        match &decision {
            Decision::Bind { node } => ledger.assume(pod.meta(), &pod.spec, node),
            Decision::FitsNowhere { .. } => parked.park(pod.key().clone()),
        }
        Some(decision)
    }

    async fn bind(&self, pod: &Cached<PodView>, node: &str) -> Result<Outcome, ReconcileError> {
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
                self.state.lock().ledger.remove_pod(&pod.meta().uid);
                unless_gone(Err(error), format!("bind pod {key} to {node}"))
            }
        }
    }

    /// Says on the pod why it fits nowhere.
    async fn report(&self, pod: &Cached<PodView>, message: &str) -> Result<Outcome, ReconcileError> {
        if !already_says(pod, message) {
            self.recorder.event(&pod_kind(), pod.object(), EventType::Warning, "FailedScheduling", message);
            let patch = json!({"metadata": {"uid": &pod.meta().uid}, "status": {"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            }]}});
            let patch = Patch::Strategic(patch.to_string().into());
            let written = self.client.patch_and_forget(&pod_kind(), pod.key(), Part::Status, patch).await;
            unless_gone(written, format!("say why pod {} fits nowhere", pod.key()))?;
        }
        Ok(Outcome::CheckAfter(LOOK_AGAIN))
    }
}

fn already_says(pod: &PodView, message: &str) -> bool {
    pod.status.conditions.iter().any(|condition| {
        condition.condition_type == "PodScheduled"
            && condition.status == "False"
            && condition.reason == "Unschedulable"
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
