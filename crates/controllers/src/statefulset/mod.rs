//! StatefulSet: keeps pods with stable names and claims.
//!
//! Owns: the pods and the revisions that a StatefulSet controls, the claims of its pods; `status` of StatefulSets.
//! Watches: StatefulSets, Pods, ControllerRevisions, and deletions of PersistentVolumeClaims.
//! Writes: creates, updates and deletes pods; adopts and releases them (patch); creates and updates claims;
//! creates, updates, adopts and deletes revisions; StatefulSet status (update).
//!
//! ```text
//!  plan.rs       which pods to create, repair and delete, and in which order  (pure)
//!  bodies.rs     pod bodies                                                   (pure)
//!  claims.rs     the claims of pods, and who owns them                        (pure)
//!  revisions.rs  the current and the update revision
//!  status.rs     status, and when to check again                              (pure)
//!  reconcile.rs  observe, plan, apply, then status and history
//! ```
//!
//! Invariants:
//! - there is at most one pod per ordinal: its name is unique, and a delete carries the UID;
//! - in an ordered set, a pod is created only if all its predecessors are available, and deleted only if all pods that
//!   are to stay are available;
//! - a claim is never deleted directly, only given an owner reference to the pod or the set.

mod bodies;
mod claims;
mod plan;
mod reconcile;
mod revisions;
mod status;
#[cfg(test)]
mod tests;
mod view;

use setpoint::{Context, Event, Key, Kind, Runnable, handler};

use self::reconcile::StatefulSets;
use self::view::{Claim, StatefulSet, parent_and_ordinal};
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;
use crate::workload::dependents::Dependents;
use crate::workload::history::{Revision, RevisionStore};
use crate::workload::owners::Owners;
use crate::workload::pod::Pod;

pub(crate) const ENTRY: Entry = Entry {
    name: "statefulset-controller",
    aliases: &["statefulset"],
    on_by_default: true,
    gates: &[],
    summary: "keeps a StatefulSet's pods, with stable names and claims",
    watches: &[
        Access::watch("apps", "statefulsets"),
        Access::watch("", "pods"),
        Access::watch("", "persistentvolumeclaims"),
        Access::watch("apps", "controllerrevisions"),
    ],
    writes: &[
        Access::to("", "pods", &["create", "delete", "patch", "update"]),
        Access::to("", "persistentvolumeclaims", &["create", "update"]),
        Access::to("apps", "controllerrevisions", &["create", "delete", "patch", "update"]),
        Access::to("apps", "statefulsets/status", &["update"]),
        EVENTS,
    ],
    default_workers: 5,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-statefulset-syncs", &ENTRY, "5")];

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let sets = context.informers.of::<StatefulSet>();
    let pods = context.informers.of::<Pod>();
    let claims = context.informers.of::<Claim>();
    let revisions = context.informers.of::<Revision>();
    let queue = wiring::queue(context, "statefulset");

    sets.add_handler(handler::enqueue_self(&queue));
    let (wake, owners) = (queue.clone(), Owners::<StatefulSet>::new(sets.lister()));
    pods.add_handler(move |event: &Event| {
        if !matches!(event, Event::Updated { old, new } if old.same_version(new)) {
            owners.concerned_by(event).into_iter().for_each(|set| wake.add(set));
        }
    });

    let of_claim = queue.clone();
    claims.add_handler(move |event: &Event| {
        waiting_for(event).into_iter().for_each(|set| of_claim.add(set));
    });
    let revision_store = RevisionStore::new(context.client.clone(), &revisions);
    revision_store.follow::<StatefulSet>(&revisions, &queue, &sets);

    let reconciler = StatefulSets {
        client: context.client.clone(),
        recorder: context.recorder(ENTRY.name),
        clock: context.runtime.clock.clone(),
        kind: Kind::of::<StatefulSet>(),
        pods_kind: Kind::of::<Pod>(),
        claims_kind: Kind::of::<Claim>(),
        sets: sets.lister(),
        pods: Dependents::of(&pods),
        claims: claims.lister(),
        revision_store,
        several_at_once: options.gates.on("MaxUnavailableStatefulSet"),
    };
    let controller =
        wiring::controller(&ENTRY, options, queue, reconciler, [&sets, &pods, &claims, &revisions]);
    vec![Box::new(controller)]
}

/// Returns the sets that may wait for a claim's deletion: it belonged to a pod whose replacement waits for that.
fn waiting_for(event: &Event) -> Vec<Key> {
    let Event::Deleted { last, .. } = event else { return Vec::new() };
    let pods = last.meta().owner_references.iter().filter(|owner| *owner.kind == *"Pod");
    let sets = pods.filter_map(|pod| parent_and_ordinal(&pod.name));
    sets.map(|(set, _)| last.key().sibling(set)).collect()
}
