//! Which pods are deleted first. Pure.
//!
//! The fields of [`Rank`] are compared in order. Times are compared by the power of two they fall in, so that the uid
//! (i.e. chance) decides among pods of about the same age, not the order in which a rollout reached the nodes.

use std::cmp::Reverse;

use jiff::Timestamp;
use setpoint::Cached;

use super::observe::PodsPerNode;
use crate::workload::pod::{Phase, Pod, Readiness, Restarts};

/// The deletion rank of a pod. The lowest is deleted first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    /// Unassigned before assigned.
    assigned: bool,
    /// Pending before unknown before running.
    phase: Phase,
    /// Not ready before ready.
    ready: bool,
    /// Lower `pod-deletion-cost` before higher.
    deletion_cost: i32,
    /// More related pods on the node before fewer.
    crowd: Reverse<usize>,
    /// Ready for a short time before ready for long.
    ready_for: Option<Age>,
    /// More restarts before fewer.
    restarts: Reverse<Restarts>,
    /// Younger before older.
    age: Option<Age>,
    /// Own pods before orphans about to be adopted.
    orphan: bool,
    /// Random tie-break.
    uid: &'a str,
}

/// The base-2 logarithm of an age in nanoseconds. `None` for a time in the future.
type Age = Option<u32>;

/// Returns the first `count` pods to delete. `pods_per_node` has the related pods per node; `by_cost` enables the pod
/// deletion cost.
pub(super) fn pods_to_delete(
    pods: &[Cached<Pod>],
    count: usize,
    pods_per_node: &PodsPerNode,
    by_cost: bool,
    now: Timestamp,
) -> Vec<Cached<Pod>> {
    if count >= pods.len() {
        return pods.to_vec();
    }
    let mut ranked: Vec<_> = pods.iter().map(|pod| (rank(pod, pods_per_node, by_cost, now), pod)).collect();
    ranked.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    ranked.into_iter().take(count).map(|(_, pod)| pod.clone()).collect()
}

/// Returns the age of each deleted ready pod relative to the youngest ready pod, as whole numbers.
pub(super) fn age_ratios(pods: &[Cached<Pod>], going: &[Cached<Pod>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Cached<Pod>| Some(now.duration_since(pod.meta().creation_timestamp?).as_millis());
    let ready = |pod: &&Cached<Pod>| pod.is_ready();
    let Some(youngest) = pods.iter().filter(ready).filter_map(age).min().filter(|age| *age > 0) else {
        return Vec::new();
    };
    going.iter().filter(ready).filter_map(age).map(|age| (age / youngest) as f64).collect()
}

fn rank<'a>(pod: &'a Cached<Pod>, pods_per_node: &PodsPerNode, by_cost: bool, now: Timestamp) -> Rank<'a> {
    Rank {
        assigned: !pod.node.is_empty(),
        phase: pod.phase,
        ready: pod.is_ready(),
        deletion_cost: if by_cost { pod.deletion_cost } else { 0 },
        crowd: Reverse(pods_per_node.get(&pod.node).copied().unwrap_or(0)),
        ready_for: ready_since(pod).map(|since| age(since, now)),
        restarts: Reverse(pod.restarts),
        age: pod.meta().creation_timestamp.map(|created| age(created, now)),
        orphan: pod.meta().controller().is_none(),
        uid: &pod.meta().uid,
    }
}

fn ready_since(pod: &Pod) -> Option<Timestamp> {
    match pod.readiness {
        Readiness::Ready { since } => since,
        Readiness::NotReady => None,
    }
}

fn age(time: Timestamp, now: Timestamp) -> Age {
    let nanoseconds = now.duration_since(time).as_nanos();
    u128::try_from(nanoseconds).ok().and_then(u128::checked_ilog2)
}
