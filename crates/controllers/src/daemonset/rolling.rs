//! Rolling updates, node by node, within their bounds. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use setpoint::Cached;

use super::placement::Verdict;
use super::plan::{Observed, Plan};
use crate::workload::pod::Pod;

/// The number of nodes that may have a surge pod, and that may have no available pod.
struct Bounds {
    surge: usize,
    unavailable: usize,
}

impl Bounds {
    fn of(observed: &Observed<'_>) -> Self {
        let desired = observed.desired();
        let nodes = i32::try_from(desired).unwrap_or(i32::MAX);
        let (surge, unavailable) =
            (observed.set.spec.max_surge(nodes), observed.set.spec.max_unavailable(nodes));
        // With both zero, nothing could move.
        let unavailable = if desired > 0 && surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Self { surge, unavailable }
    }
}

/// The running pods of a node: new and old.
struct OnNode<'a> {
    new: Option<&'a Cached<Pod>>,
    old: Option<&'a Cached<Pod>>,
}

impl<'a> OnNode<'a> {
    /// Returns `None` if there is more than one of either.
    fn of(observed: &'a Observed<'_>, node: &str) -> Option<Self> {
        let (mut new, mut old) = (None, None);
        for pod in observed.on(node).iter().filter(|pod| !pod.meta().is_being_deleted()) {
            let place = if observed.is_updated(pod) { &mut new } else { &mut old };
            if place.replace(pod).is_some() {
                return None;
            }
        }
        Some(Self { new, old })
    }
}

pub(super) fn rolling_update(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let bounds = Bounds::of(observed);
    match bounds.surge {
        0 => replace(observed, bounds.unavailable, now),
        surge => surge_update(observed, surge, now),
    }
}

/// Lists nodes that have a pod or should have one.
fn nodes<'a>(observed: &'a Observed<'_>) -> BTreeSet<&'a str> {
    let wanted =
        observed.nodes.iter().filter(|(_, verdict)| **verdict == Verdict::Run).map(|(node, _)| &**node);
    observed.pods.keys().map(|node| &**node).chain(wanted).collect()
}

/// Deletes old pods before creating new ones: unavailable ones at once, others within the bound.
fn replace(observed: &Observed<'_>, max_unavailable: usize, now: Timestamp) -> Plan {
    let mut unavailable = 0;
    let (mut delete, mut candidates) = (Vec::new(), Vec::new());
    for node in nodes(observed) {
        match OnNode::of(observed, node) {
            Some(OnNode { new: None, old: Some(old) }) if !observed.is_available(old, now) => {
                delete.push(old.clone());
                unavailable += 1;
            }
            Some(OnNode { new: None, old: Some(old) }) => candidates.push(old.clone()),
            Some(OnNode { new: Some(new), old: None }) if observed.is_available(new, now) => {}
            // A pod is starting or terminating, or there are too many: `manage` handles this node first.
            _ => unavailable += 1,
        }
    }
    delete.extend(candidates.into_iter().take(max_unavailable.saturating_sub(unavailable)));
    Plan { delete, ..Plan::default() }
}

/// Creates new pods before deleting old ones.
fn surge_update(observed: &Observed<'_>, max_surge: usize, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let (mut surging, mut available) = (0_usize, 0_usize);
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    for node in nodes(observed) {
        let Some(OnNode { new, old }) = OnNode::of(observed, node) else {
            surging += 1;
            continue;
        };
        available += usize::from(old.or(new).is_some_and(|pod| observed.is_available(pod, now)));
        let Some(old) = old else { continue };
        let runs = observed.verdict(node) == Verdict::Run;
        match (new, observed.is_available(old, now)) {
            (Some(new), _) if observed.is_available(new, now) => plan.delete.push(old.clone()),
            (Some(_), _) => surging += 1,
            (None, false) if runs => plan.create.push(node.into()),
            (None, false) => plan.delete.push(old.clone()),
            (None, true) if runs => candidates.push(node.into()),
            (None, true) => misplaced.push(old.clone()),
        }
    }
    let spare = available.saturating_sub(observed.desired());
    plan.delete.extend(misplaced.into_iter().take(spare));
    plan.create.extend(candidates.into_iter().take(max_surge.saturating_sub(surging)));
    plan
}
