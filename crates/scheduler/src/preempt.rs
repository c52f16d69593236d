//! Preemption: whom to evict so that a pod of higher priority fits. Pure.
//!
//! On each node where eviction could help, all lower-priority pods are removed hypothetically, then reprieved in order
//! of priority as long as the pod still fits. The rest are the victims. The node where eviction does the least harm
//! wins.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::decide::{PreemptionOutcome, fit_error_message};
use crate::filter::{Needs, Obstacle};
use crate::ledger::{Ledger, NodeInfo, PodInfo, is_being_preempted};
use crate::listers::Listers;
use crate::view::{BudgetView, Pod};
use setpoint::Cached;

/// A tenth of the nodes, and at least 100, are evaluated.
const SHARE: usize = 10;
const AT_LEAST: usize = 100;

/// The victims, and the node they are evicted from.
#[derive(Clone)]
pub(crate) struct Preemption {
    pub(crate) node: String,
    pub(crate) victims: Vec<Pod>,
    /// Lower-priority pods nominated for the node.
    pub(crate) displaced: Vec<Pod>,
}

impl std::fmt::Debug for Preemption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let victims: Vec<_> = self.victims.iter().map(|pod| pod.key()).collect();
        write!(f, "{victims:?} off {}", self.node)
    }
}

/// Finds a preemption for a pod rejected by these obstacles, or the message why there is none.
pub(crate) fn preempt(
    needs: &Needs<'_>,
    obstacles: &[(&NodeInfo, Obstacle)],
    nodes: usize,
    ledger: &Ledger,
    listers: &Listers,
    draw: impl Fn(usize) -> usize,
) -> (PreemptionOutcome, Option<String>) {
    if let Some(why) = ineligible(needs.pod, obstacles, ledger) {
        return (PreemptionOutcome::Wait, Some(why.into()));
    }
    let freeable: Vec<&NodeInfo> =
        obstacles.iter().filter(|(_, obstacle)| obstacle.is_resolvable()).map(|(node, _)| *node).collect();
    let budgets = listers.budgets.list(None).unwrap_or_default();
    let start = if freeable.is_empty() { 0 } else { draw(freeable.len()) };
    let feasible_nodes_to_find = (freeable.len() / SHARE).max(AT_LEAST).min(freeable.len());
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut hopeless = 0;
    for offset in 0..freeable.len() {
        let node = freeable[(start + offset) % freeable.len()];
        match victims_on(node, needs, ledger, &budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(obstacle) => {
                hopeless += 1;
                reasons.extend(obstacle.reasons);
            }
        }
        if candidates.len() >= feasible_nodes_to_find
            && candidates.iter().any(|candidate| candidate.violations == 0)
        {
            break;
        }
    }
    let Some(best) = candidates.into_iter().min_by_key(Candidate::cost) else {
        let absent = Some(("Preemption is not helpful for scheduling", nodes - hopeless));
        return (PreemptionOutcome::None, Some(fit_error_message(nodes, reasons.iter(), absent)));
    };
    (PreemptionOutcome::Preempt(best.carried_out_for(needs.pod, ledger)), None)
}

/// Returns why a pod may not preempt others now.
fn ineligible(pod: &Pod, obstacles: &[(&NodeInfo, Obstacle)], ledger: &Ledger) -> Option<&'static str> {
    if pod.spec.preemption_policy == "Never" {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod.nominated_node()?;
    let lost = obstacles.iter().any(|(node, obstacle)| node.name == nominated && !obstacle.is_resolvable());
    let goes = |pod_info: &PodInfo| {
        pod_info.pod.spec.priority < pod.spec.priority && is_being_preempted(&pod_info.pod)
    };
    let waits = ledger.node(nominated).is_some_and(|node| node.pods.values().any(goes));
    (!lost && waits).then_some("not eligible due to a terminating pod on the nominated node.")
}

struct Candidate<'a> {
    node: &'a NodeInfo,
    /// Highest priority first.
    victims: Vec<&'a Pod>,
    /// The number of victims whose eviction violates a disruption budget.
    violations: usize,
}

impl Candidate<'_> {
    /// A sort key, the lowest wins: budget violations, highest victim priority, sum of priorities (shifted so that more
    /// victims never lower it), number of victims, and the start time of the highest-priority victims (later is
    /// better).
    fn cost(&self) -> (usize, i32, i64, usize, Reverse<i64>) {
        let highest = self.victims.iter().map(|pod| pod.spec.priority).max().unwrap_or(i32::MIN);
        let sum = self.victims.iter().map(|pod| i64::from(pod.spec.priority) + i64::from(i32::MAX) + 1).sum();
        let highest_ones = self.victims.iter().filter(|pod| pod.spec.priority == highest);
        let earliest = highest_ones.map(|pod| started(pod)).min().unwrap_or(i64::MAX);
        (self.violations, highest, sum, self.victims.len(), Reverse(earliest))
    }

    fn carried_out_for(&self, pod: &Pod, ledger: &Ledger) -> Preemption {
        let less = |other: &&Pod| other.spec.priority < pod.spec.priority;
        Preemption {
            node: self.node.name.clone(),
            victims: self.victims.iter().map(|victim| (*victim).clone()).collect(),
            displaced: ledger.nominees(&self.node.name).filter(less).cloned().collect(),
        }
    }
}

/// Returns when a pod started. Pods without a start time sort last.
fn started(pod: &Pod) -> i64 {
    pod.status.start_time.map_or(i64::MAX, |time| time.as_second())
}

fn victims_on<'a>(
    node: &'a NodeInfo,
    needs: &Needs<'_>,
    ledger: &Ledger,
    budgets: &[Cached<BudgetView>],
) -> Result<Candidate<'a>, Obstacle> {
    let (mut needs, mut usage) = (needs.clone(), node.usage.clone());
    let priority = needs.pod.spec.priority;
    let mut lesser: Vec<&PodInfo> =
        node.pods.values().filter(|pod_info| pod_info.pod.spec.priority < priority).collect();
    if lesser.is_empty() {
        let check = crate::filter::Check::Resources;
        return Err(Obstacle::firm(check, "No preemption victims found for incoming pod"));
    }
    for pod_info in &lesser {
        usage.subtract(pod_info);
        needs.left(&pod_info.pod, node);
    }
    if let Some(obstacle) = needs.obstacle_beside_nominees(node, &usage, ledger) {
        return Err(obstacle);
    }
    lesser.sort_by_key(|pod_info| (Reverse(pod_info.pod.spec.priority), started(&pod_info.pod)));
    let (violating, others) = by_budgets(&lesser, budgets);
    let mut candidate = Candidate { node, victims: Vec::new(), violations: 0 };
    for (pod_info, violates) in
        violating.iter().map(|pod_info| (pod_info, 1)).chain(others.iter().map(|pod_info| (pod_info, 0)))
    {
        usage.add(pod_info);
        needs.arrived(&pod_info.pod, node);
        if needs.obstacle_beside_nominees(node, &usage, ledger).is_some() {
            usage.subtract(pod_info);
            needs.left(&pod_info.pod, node);
            candidate.victims.push(&pod_info.pod);
            candidate.violations += violates;
        }
    }
    candidate.victims.sort_by_key(|pod| (Reverse(pod.spec.priority), started(pod)));
    Ok(candidate)
}

/// Splits pods into those whose eviction violates a disruption budget and the others, keeping their order.
fn by_budgets<'a>(
    lesser: &[&'a PodInfo],
    budgets: &[Cached<BudgetView>],
) -> (Vec<&'a PodInfo>, Vec<&'a PodInfo>) {
    let mut left: Vec<i32> = budgets.iter().map(|budget| budget.status.disruptions_allowed).collect();
    let mut violates = |pod_info: &&PodInfo| {
        let meta = pod_info.pod.meta();
        let mut violated = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let selector = budget.spec.selector.as_ref().filter(|selector| !selector.is_empty());
            let concerns = budget.meta().namespace == meta.namespace
                && selector.is_some_and(|selector| selector.matches(&meta.labels))
                && !budget.status.disrupted_pods.contains_key(&*meta.name);
            if concerns && !meta.labels.is_empty() {
                *left -= 1;
                violated |= *left < 0;
            }
        }
        violated
    };
    lesser.iter().copied().partition(|pod_info| violates(pod_info))
}
