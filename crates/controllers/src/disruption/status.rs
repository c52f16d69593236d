//! Computes a budget's status. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use setpoint::Cached;

use super::view::{Budget, BudgetStatus, Condition, Target};
use crate::workload::amount::{Amount, Rounded};
use crate::workload::condition::whole_seconds;

/// How long a pod may take to be deleted after its eviction was granted.
const DELETION: SignedDuration = SignedDuration::from_secs(120);

const ALLOWED: &str = "DisruptionAllowed";

/// The number of expected pods, and how many of them must be healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) expected: i32,
    pub(super) healthy: i32,
}

/// Returns the demand of a budget that does not depend on the owners' scale.
pub(super) fn fixed_demand(budget: &Budget, pods: usize) -> Option<Demand> {
    match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (None, Some(Amount::Number(number))) => {
            Some(Demand { expected: i32::try_from(pods).unwrap_or(i32::MAX), healthy: *number })
        }
        (None, None) => Some(Demand::default()),
        _ => None,
    }
}

/// Returns the demand of a budget for a number of expected pods.
pub(super) fn demand_of(budget: &Budget, expected: i32) -> Demand {
    let healthy = match (&budget.spec.max_unavailable, &budget.spec.min_available) {
        (Some(most), _) => (expected - most.of(expected, Rounded::Up)).max(0),
        (None, Some(least)) => least.of(expected, Rounded::Up),
        (None, None) => 0,
    };
    Demand { expected, healthy }
}

/// Granted evictions.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// Evictions whose pods are not deleted yet.
    pub(super) awaited: BTreeMap<String, Timestamp>,
    /// Pods that were not deleted in time.
    pub(super) overdue: Vec<usize>,
    /// When the next eviction becomes overdue.
    pub(super) recheck: Option<Duration>,
}

pub(super) fn granted(budget: &Budget, pods: &[Cached<Target>], now: Timestamp) -> Granted {
    let mut granted = Granted::default();
    for (at, pod) in pods.iter().enumerate().filter(|(_, pod)| !pod.meta().is_being_deleted()) {
        let Some(since) = budget.status.disrupted_pods.get(&*pod.meta().name) else { continue };
        let left = DELETION - now.duration_since(*since);
        match Duration::try_from(left) {
            Err(_) => granted.overdue.push(at),
            Ok(left) => {
                granted.recheck = Some(granted.recheck.map_or(left, |known| known.min(left)));
                granted.awaited.insert(pod.meta().name.to_string(), *since);
            }
        }
    }
    granted
}

/// Computes the status of a budget with these pods.
pub(super) fn status(
    budget: &Cached<Budget>,
    pods: &[Cached<Target>],
    demand: Demand,
    awaited: BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> BudgetStatus {
    let counts = |pod: &&Cached<Target>| {
        let granted = awaited.contains_key(&*pod.meta().name);
        pod.ready && !pod.meta().is_being_deleted() && !granted
    };
    let healthy = i32::try_from(pods.iter().filter(counts).count()).unwrap_or(i32::MAX);
    let allowed = if demand.expected > 0 { (healthy - demand.healthy).max(0) } else { 0 };
    let generation = budget.meta().generation;
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut conditions = budget.status.conditions.clone();
    set(&mut conditions, Condition::new(status, reason, "", generation), now);
    BudgetStatus {
        observed_generation: generation,
        disrupted_pods: awaited,
        disruptions_allowed: allowed,
        current_healthy: healthy,
        desired_healthy: demand.healthy,
        expected_pods: demand.expected,
        conditions,
    }
}

/// Returns the status of a budget that could not be computed: no disruptions are allowed.
pub(super) fn failed(budget: &Budget, why: &str, now: Timestamp) -> BudgetStatus {
    let mut status = BudgetStatus { disruptions_allowed: 0, ..budget.status.clone() };
    let condition = Condition::new("False", "SyncFailed", why, status.observed_generation);
    set(&mut status.conditions, condition, now);
    status
}

/// Sets a condition. `lastTransitionTime` is kept if the status did not change.
fn set(conditions: &mut Vec<Condition>, mut new: Condition, now: Timestamp) {
    new.last_transition_time = Some(whole_seconds(now));
    match conditions.iter_mut().find(|condition| condition.r#type == new.r#type) {
        Some(known) => {
            if known.status == new.status {
                new.last_transition_time = known.last_transition_time;
            }
            *known = new;
        }
        None => conditions.push(new),
    }
}

impl Condition {
    fn new(status: &str, reason: &str, message: &str, observed_generation: i64) -> Self {
        Self {
            r#type: ALLOWED.to_owned(),
            status: status.to_owned(),
            observed_generation,
            last_transition_time: None,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}
