//! Which pods go first. Pure.
//!
//! The order is that of the fields of [`Rank`]: what comes first there decides first. Times are
//! compared by the power of two they fall in, so that among pods of about the same age chance (the
//! uid) decides, not the order in which a rollout happened to reach the nodes.

use std::cmp::Reverse;

use jiff::Timestamp;
use setpoint::Cached;

use super::observe::Crowds;
use crate::workload::pod::{Phase, Pod, Readiness, Restarts};

/// The pod's place in the order of deletion: the least goes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'a> {
    /// Those without a node go before those with one.
    assigned: bool,
    /// Pending before unknown before running.
    phase: Phase,
    /// Those not ready go before the ready.
    ready: bool,
    /// The user's word: the cheap before the dear.
    deletion_cost: i32,
    /// Those in a crowd on their node before those that are alone.
    crowd: Reverse<usize>,
    /// Ready for a short time before ready for long.
    ready_for: Option<Age>,
    /// Those that restart often before those that do not.
    restarts: Reverse<Restarts>,
    /// Young before old.
    age: Option<Age>,
    /// Those the set has made before those it is about to adopt.
    orphan: bool,
    /// Chance.
    uid: &'a str,
}

/// The power of two of nanoseconds that a time ago falls in; `None` is a time in the future.
type Age = Option<u32>;

/// The `count` pods that go first. `crowds` says how many related pods are on each node, `by_cost` whether what
/// pods say of the cost of their deletion counts.
pub(super) fn first_to_go(
    pods: &[Cached<Pod>],
    count: usize,
    crowds: &Crowds,
    by_cost: bool,
    now: Timestamp,
) -> Vec<Cached<Pod>> {
    if count >= pods.len() {
        return pods.to_vec();
    }
    let mut ranked: Vec<_> = pods.iter().map(|pod| (rank(pod, crowds, by_cost, now), pod)).collect();
    ranked.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    ranked.into_iter().take(count).map(|(_, pod)| pod.clone()).collect()
}

/// How many times as old as the youngest of the ready pods each ready one is that goes, in whole numbers.
pub(super) fn age_ratios(pods: &[Cached<Pod>], going: &[Cached<Pod>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Cached<Pod>| Some(now.duration_since(pod.meta().creation_timestamp?).as_millis());
    let ready = |pod: &&Cached<Pod>| pod.is_ready();
    let Some(youngest) = pods.iter().filter(ready).filter_map(age).min().filter(|age| *age > 0) else {
        return Vec::new();
    };
    going.iter().filter(ready).filter_map(age).map(|age| (age / youngest) as f64).collect()
}

fn rank<'a>(pod: &'a Cached<Pod>, crowds: &Crowds, by_cost: bool, now: Timestamp) -> Rank<'a> {
    Rank {
        assigned: !pod.node.is_empty(),
        phase: pod.phase,
        ready: pod.is_ready(),
        deletion_cost: if by_cost { pod.deletion_cost } else { 0 },
        crowd: Reverse(crowds.get(&pod.node).copied().unwrap_or(0)),
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
