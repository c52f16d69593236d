//! Rolling updates, node by node, within their bounds. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use setpoint::Cached;

use super::placement::Verdict;
use super::plan::{Plan, Scene};
use crate::workload::pod::Pod;

/// The number of nodes that may have a surge pod, and that may have no available pod.
struct Bounds {
    surge: usize,
    unavailable: usize,
}

impl Bounds {
    fn of(scene: &Scene<'_>) -> Self {
        let desired = scene.desired();
        let nodes = i32::try_from(desired).unwrap_or(i32::MAX);
        let (surge, unavailable) = (scene.set.spec.max_surge(nodes), scene.set.spec.max_unavailable(nodes));
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
    fn of(scene: &'a Scene<'_>, node: &str) -> Option<Self> {
        let (mut new, mut old) = (None, None);
        for pod in scene.on(node).iter().filter(|pod| !pod.meta().is_being_deleted()) {
            let place = if scene.is_updated(pod) { &mut new } else { &mut old };
            if place.replace(pod).is_some() {
                return None;
            }
        }
        Some(Self { new, old })
    }
}

pub(super) fn roll(scene: &Scene<'_>, now: Timestamp) -> Plan {
    let bounds = Bounds::of(scene);
    match bounds.surge {
        0 => replace(scene, bounds.unavailable, now),
        surge => surge_over(scene, surge, now),
    }
}

/// Lists nodes that have a pod or should have one.
fn nodes<'a>(scene: &'a Scene<'_>) -> BTreeSet<&'a str> {
    let wanted = scene.nodes.iter().filter(|(_, verdict)| **verdict == Verdict::Run).map(|(node, _)| &**node);
    scene.pods.keys().map(|node| &**node).chain(wanted).collect()
}

/// Deletes old pods before creating new ones: unavailable ones at once, others within the bound.
fn replace(scene: &Scene<'_>, most_unavailable: usize, now: Timestamp) -> Plan {
    let mut unavailable = 0;
    let (mut delete, mut candidates) = (Vec::new(), Vec::new());
    for node in nodes(scene) {
        match OnNode::of(scene, node) {
            Some(OnNode { new: None, old: Some(old) }) if !scene.is_available(old, now) => {
                delete.push(old.clone());
                unavailable += 1;
            }
            Some(OnNode { new: None, old: Some(old) }) => candidates.push(old.clone()),
            Some(OnNode { new: Some(new), old: None }) if scene.is_available(new, now) => {}
            // A pod is starting or terminating, or there are too many: `manage` handles this node first.
            _ => unavailable += 1,
        }
    }
    delete.extend(candidates.into_iter().take(most_unavailable.saturating_sub(unavailable)));
    Plan { delete, ..Plan::default() }
}

/// Creates new pods before deleting old ones.
fn surge_over(scene: &Scene<'_>, most_surging: usize, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let (mut surging, mut available) = (0_usize, 0_usize);
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    for node in nodes(scene) {
        let Some(OnNode { new, old }) = OnNode::of(scene, node) else {
            surging += 1;
            continue;
        };
        available += usize::from(old.or(new).is_some_and(|pod| scene.is_available(pod, now)));
        let Some(old) = old else { continue };
        let runs = scene.verdict(node) == Verdict::Run;
        match (new, scene.is_available(old, now)) {
            (Some(new), _) if scene.is_available(new, now) => plan.delete.push(old.clone()),
            (Some(_), _) => surging += 1,
            (None, false) if runs => plan.create.push(node.into()),
            (None, false) => plan.delete.push(old.clone()),
            (None, true) if runs => candidates.push(node.into()),
            (None, true) => misplaced.push(old.clone()),
        }
    }
    let spare = available.saturating_sub(scene.desired());
    plan.delete.extend(misplaced.into_iter().take(spare));
    plan.create.extend(candidates.into_iter().take(most_surging.saturating_sub(surging)));
    plan
}
