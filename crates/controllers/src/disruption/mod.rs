//! Disruption: computes how many pods of a PodDisruptionBudget may be evicted.
//!
//! Owns: `status` of PodDisruptionBudgets; the cleanup of stale disruption conditions.
//! Watches: PodDisruptionBudgets, Pods, and the owners of pods: ReplicaSets, Deployments, StatefulSets,
//! ReplicationControllers.
//! Writes: PodDisruptionBudget status (update), Pod status (patch).
//!
//! ```text
//!  view.rs       typed views of budgets, pods and their owners
//!  scale.rs      the desired scale of the pods' owners
//!  status.rs     status                                            (pure)
//!  stale.rs      disruption conditions of pods that were not deleted
//!  reconcile.rs  observe, plan, write
//! ```
//!
//! Invariants:
//! - an eviction that the API server has granted counts as an unavailable pod until its deletion is observed, or for
//!   two minutes;
//! - if the expected number of pods cannot be determined, no disruption is allowed;
//! - a disruption is never allowed based on a status that is not in the cache yet: every write carries the resource
//!   version it is based on.

mod reconcile;
mod scale;
mod stale;
mod status;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Cached, Context, Event, Key, Lister, Object, Queue, Runnable};

use self::reconcile::Budgets;
use self::scale::Scales;
use self::stale::Cleaner;
use self::view::{Budget, Target};
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::disruption_target::DISRUPTION_TARGET;

pub(crate) const ENTRY: Entry = Entry {
    name: "disruption-controller",
    aliases: &["disruption"],
    on_by_default: true,
    gates: &[],
    summary: "computes how many pods of a PodDisruptionBudget may be evicted",
    watches: &[
        Access::watch("policy", "poddisruptionbudgets"),
        Access::watch("", "pods"),
        Access::watch("", "replicationcontrollers"),
        Access::watch("apps", "replicasets"),
        Access::watch("apps", "deployments"),
        Access::watch("apps", "statefulsets"),
    ],
    writes: &[
        Access::to("policy", "poddisruptionbudgets/status", &["update"]),
        Access::to("", "pods/status", &["patch"]),
        Access::to("*", "*/scale", &["get"]),
        EVENTS,
    ],
    default_workers: 1,
    build,
};

const COMPONENT: &str = "controllermanager";

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let budgets = context.informers.of::<Budget>();
    let pods = context.informers.of::<Target>();
    let queue = wiring::queue(context, "disruption");
    let marked = wiring::queue(context, "stale_pod_disruption");
    let (scales, owners) = Scales::new(context);

    budgets.add_handler(setpoint::handler::enqueue_self(&queue));
    let wake = Wake {
        recorder: context.recorder(COMPONENT),
        budgets: budgets.lister(),
        queue: queue.clone(),
        marked: marked.clone(),
    };
    pods.add_handler(move |event: &Event| wake.pod_changed(event));

    let cleaner =
        Cleaner { client: context.client.clone(), clock: context.runtime.clock.clone(), pods: pods.lister() };
    let reconciler = Budgets {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(COMPONENT),
        budgets: budgets.lister(),
        pods: pods.lister(),
        scales,
    };
    let caches = [&budgets, &pods].into_iter().chain(&owners);
    let controller = wiring::controller(&ENTRY, options, queue, reconciler, caches);
    let cleaner = wiring::part("disruption-controller-stale", marked, cleaner, [&pods]);
    vec![Box::new(controller), Box::new(cleaner)]
}

/// Maps pod events to budgets.
struct Wake {
    recorder: setpoint::Recorder,
    budgets: Lister<Budget>,
    queue: Queue<Key>,
    marked: Queue<Key>,
}

impl Wake {
    fn pod_changed(&self, event: &Event) {
        for pod in event.states() {
            if let Some(budget) = self.budget_of(pod) {
                self.queue.add(budget.key().clone());
            }
        }
        if !matches!(event, Event::Deleted { .. }) && is_target(event.object()) {
            self.marked.add(event.object().key().clone());
        }
    }

    /// Returns the budget of a pod. If several match, the first is used and an event is emitted.
    fn budget_of(&self, pod: &Object) -> Option<Cached<Budget>> {
        let budgets = self.budgets.list(pod.key().namespace()).unwrap_or_default();
        let mut selecting = budgets.into_iter().filter(|budget| budget.selects(&pod.meta().labels));
        let first = selecting.next()?;
        if selecting.next().is_some() {
            let (namespace, name) = (pod.key().namespace().unwrap_or_default(), pod.key().name());
            let message = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
                first.key().name()
            );
            let (kind, warning) = (setpoint::Kind::of::<Target>(), setpoint::EventType::Warning);
            self.recorder.event(&kind, pod, warning, "MultiplePodDisruptionBudgets", message);
        }
        Some(first)
    }
}

/// Whether a pod has a disruption condition. Most have not and need not be decoded.
fn is_target(pod: &Object) -> bool {
    pod.contains_text(DISRUPTION_TARGET)
        && pod.view::<Target>().is_ok_and(|target| target.disrupted.is_some())
}
