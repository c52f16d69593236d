//! Maps events to keys.

use std::sync::Arc;

use setpoint::{Event, Informer, Key, Lister, Queue};

use super::Work;
use super::view::{Claim, Named, Pod, by_claim, by_owning_pod, owning_pod, with_claims};

pub(super) const OF_POD: &str = "claim-pod-owner";
pub(super) const USING: &str = "pod-resource-claim";

pub(super) fn on_changes(queue: &Queue<Work>, pods: &Informer, claims: &Informer) {
    claims.add_index(OF_POD, Arc::new(by_owning_pod));
    pods.add_index(USING, Arc::new(by_claim));
    let (wake, known) = (queue.clone(), claims.lister());
    pods.add_handler(move |event: &Event| on_pod(&wake, &known, event));
    let (wake, users) = (queue.clone(), pods.lister());
    claims.add_handler(move |event: &Event| on_claim(&wake, &users, event));
}

fn on_pod(queue: &Queue<Work>, claims: &Lister<Claim>, event: &Event) {
    let pod = event.object();
    let Some(view) = with_claims(pod) else { return };
    let gone = matches!(event, Event::Deleted { .. });
    let unplaced = pod.meta().is_being_deleted() && view.spec.node_name.is_empty();
    if gone || view.has_ended() || unplaced {
        view.claims().for_each(|name| queue.add(Work::Claim(pod.key().sibling(name))));
    }
    if !gone && !pod.meta().is_being_deleted() && needs_work(view, pod.key(), &pod.meta().uid, claims) {
        queue.add(Work::Pod(pod.key().clone()));
    }
}

/// Whether one of its entries has no claim yet, or a claim does not list it as consumer.
fn needs_work(pod: &Pod, key: &Key, uid: &str, claims: &Lister<Claim>) -> bool {
    pod.spec.resource_claims.iter().any(|request| match pod.claim_of(request) {
        Named::NotMadeYet => true,
        Named::NotNeeded => false,
        Named::Claim { name, of_pod } => match claims.get(&key.sibling(name)) {
            Ok(None) => request.resource_claim_template_name.is_some(),
            Ok(Some(claim)) if of_pod && !claim.meta().is_controlled_by(uid) => true,
            Ok(Some(claim)) => !pod.spec.node_name.is_empty() && claim.lacks(uid),
            Err(_) => true,
        },
    })
}

fn on_claim(queue: &Queue<Work>, pods: &Lister<Pod>, event: &Event) {
    let claim = event.object();
    if !matches!(event, Event::Deleted { .. }) {
        queue.add(Work::Claim(claim.key().clone()));
    }
    for user in pods.objects().indexed(USING, &claim.key().to_string()) {
        queue.add(Work::Pod(user.key().clone()));
    }
    // Its pod may be waiting for the cache to show the claim.
    if let Some(owner) = owning_pod(claim.meta()) {
        queue.add(Work::Pod(claim.key().sibling(&*owner.name)));
    }
}
