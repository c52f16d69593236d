//! The decision for one pod. Pure: ledger, pod and random draws in, node or reasons out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use setpoint::Cached;

use crate::devices::Claim;
use crate::filter::{Check, Checks, Needs, Obstacle, Refusal, Severity};
use crate::ledger::{Ledger, NodeInfo};
use crate::listers::Listers;
use crate::preempt::{Preemption, preempt};
use crate::score::scores;
use crate::view::Pod;

/// The outcome of a scheduling decision.
pub(crate) enum Decision {
    Bind {
        node: String,
    },
    FitsNowhere(FitError),
    /// The pod cannot be scheduled because something it refers to is invalid.
    Failed(String),
}

/// Why a pod fits on no node, and what can be done about it.
#[derive(Debug)]
pub(crate) struct FitError {
    /// The v1.34 message.
    pub(crate) message: String,
    /// The checks that rejected nodes. The pod is only tried again after a change that affects one of them.
    pub(crate) blocked: Checks,
    pub(crate) preemption_outcome: PreemptionOutcome,
    /// An unused claim that keeps the pod off nodes. Once deallocated, it could get other devices.
    pub(crate) deallocation: Option<Deallocation>,
}

/// A claim whose devices should be deallocated.
pub(crate) struct Deallocation(pub(crate) Cached<Claim>);

impl std::fmt::Debug for Deallocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "devices of {}", self.0.key())
    }
}

/// The outcome of preemption.
#[derive(Debug)]
pub(crate) enum PreemptionOutcome {
    /// Evict lower-priority pods from a node and nominate that node.
    Preempt(Preemption),
    /// Preemption would not help. Clears the nominated node, if there is one.
    None,
    /// No change: a nominated node, if there is one, is kept.
    Wait,
}

/// The search stops when this many nodes fit. Smaller clusters are searched completely.
const MIN_FEASIBLE_NODES: usize = 100;

/// Returns how many feasible nodes are enough. The share shrinks as the cluster grows.
fn feasible_nodes_to_find(nodes: usize) -> usize {
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    if nodes < MIN_FEASIBLE_NODES { nodes } else { (nodes * percent / 100).max(MIN_FEASIBLE_NODES) }
}

/// Finds a node. `draw` in `0..n` breaks ties between `n` equally good nodes.
pub(crate) fn decide(
    pod: &Pod,
    ledger: &mut Ledger,
    listers: &Listers,
    draw: impl Fn(usize) -> usize,
) -> Decision {
    let needs = Needs::of(pod, ledger, listers);
    if let Some(node) = nominated_node(&needs, ledger) {
        return Decision::Bind { node: node.name.clone() };
    }
    let search = Search::new(&needs, ledger);
    if let Some(failure) = search.failure {
        return Decision::Failed(failure);
    }
    if search.candidates.is_empty() {
        return Decision::FitsNowhere(search.fit_error(&needs, ledger, listers, draw));
    }
    let (node, examined, all) = (search.best(pod, ledger, listers, draw), search.examined, search.nodes);
    ledger.next_start = (ledger.next_start + examined) % all;
    Decision::Bind { node }
}

/// Returns the pod's nominated node, if the pod fits there now.
fn nominated_node<'a>(needs: &Needs<'_>, ledger: &'a Ledger) -> Option<&'a NodeInfo> {
    let node = ledger.node(needs.pod.nominated_node()?).filter(|_| needs.refusal.is_none())?;
    needs.obstacle_beside_nominees(node, &node.usage, ledger).is_none().then_some(node)
}

struct Search<'a> {
    /// The number of nodes in the cluster.
    nodes: usize,
    examined: usize,
    candidates: Vec<&'a NodeInfo>,
    obstacles: Vec<(&'a NodeInfo, Obstacle)>,
    /// Why the nodes without an obstacle were not checked.
    passed_over: Option<&'static str>,
    /// Why no node was checked.
    refusal: Option<Refusal>,
    /// The error that ended the search.
    failure: Option<String>,
}

impl<'a> Search<'a> {
    fn new(needs: &Needs<'_>, ledger: &'a Ledger) -> Self {
        let all: Vec<&NodeInfo> = ledger.nodes().collect();
        let mut search = Self {
            nodes: all.len(),
            examined: 0,
            candidates: Vec::new(),
            obstacles: Vec::new(),
            passed_over: None,
            refusal: needs.refusal.clone(),
            failure: None,
        };
        match &needs.named {
            _ if search.refusal.is_some() => {}
            None => search.examine(needs, ledger, &all, ledger.next_start),
            Some(names) => {
                let named: Vec<&NodeInfo> = names.iter().filter_map(|name| ledger.node(name)).collect();
                search.passed_over = Some("node(s) didn't satisfy plugin(s) [NodeAffinity]");
                search.examine(needs, ledger, &named, 0);
            }
        }
        search
    }

    fn examine(&mut self, needs: &Needs<'_>, ledger: &'a Ledger, nodes: &[&'a NodeInfo], start: usize) {
        let feasible_nodes_to_find = feasible_nodes_to_find(nodes.len());
        for offset in 0..nodes.len() {
            let node = nodes[(start + offset) % nodes.len()];
            self.examined += 1;
            match needs.obstacle_beside_nominees(node, &node.usage, ledger) {
                None => self.candidates.push(node),
                Some(obstacle) if obstacle.severity == Severity::Fatal => {
                    self.failure = Some(obstacle.reasons.join(", "));
                    return;
                }
                Some(obstacle) => self.obstacles.push((node, obstacle)),
            }
            if self.candidates.len() >= feasible_nodes_to_find {
                break;
            }
        }
    }

    fn best(&self, pod: &Pod, ledger: &Ledger, listers: &Listers, draw: impl Fn(usize) -> usize) -> String {
        if let [only] = self.candidates[..] {
            return only.name.clone();
        }
        let scores = scores(pod, &self.candidates, ledger, listers);
        let best = scores.iter().copied().max().unwrap_or(0);
        let scored = self.candidates.iter().zip(&scores);
        let tied: Vec<&NodeInfo> =
            scored.filter(|(_, score)| **score == best).map(|(node, _)| *node).collect();
        tied[draw(tied.len()).min(tied.len() - 1)].name.clone()
    }

    fn fit_error(
        &self,
        needs: &Needs<'_>,
        ledger: &Ledger,
        listers: &Listers,
        draw: impl Fn(usize) -> usize,
    ) -> FitError {
        let mut blocked = Checks::default();
        self.obstacles.iter().for_each(|(_, obstacle)| blocked.insert(obstacle.check));
        if self.passed_over.is_some() {
            blocked.insert(Check::NodeAffinity);
        }
        if let Some(refusal) = &self.refusal {
            blocked.insert(refusal.check);
        }
        if self.nodes == 0 {
            let message = "no nodes available to schedule pods".into();
            return FitError {
                message,
                blocked: Checks::all(),
                preemption_outcome: PreemptionOutcome::Wait,
                deallocation: None,
            };
        }
        if let Some(Refusal { check: Check::NodeAffinity | Check::Volumes, message }) = &self.refusal {
            // In v1.34 the PreFilter phase fails before DynamicResources runs, so its PostFilter finds no state and
            // appends "not found".
            let message = format!("0/{} nodes are available: {message}. not found", self.nodes);
            return FitError {
                message,
                blocked,
                preemption_outcome: PreemptionOutcome::Wait,
                deallocation: None,
            };
        }
        let message = match &self.refusal {
            Some(refusal) => format!("0/{} nodes are available: {}.", self.nodes, refusal.message),
            None => {
                let obstacles = self.obstacles.iter().flat_map(|(_, obstacle)| obstacle.reasons.iter());
                let absent = self.passed_over.map(|reason| (reason, self.nodes - self.obstacles.len()));
                fit_error_message(self.nodes, obstacles, absent)
            }
        };
        let (deallocation, about_claims) = self.pick_deallocation(needs, &draw);
        let (preemption_outcome, words) = preempt(needs, &self.obstacles, self.nodes, ledger, listers, draw);
        let message = match words {
            Some(words) => format!("{message} {about_claims}, preemption: {words}"),
            None => message,
        };
        FitError { message, blocked, preemption_outcome, deallocation }
    }

    /// Picks a claim to deallocate, and returns v1.34's message about it.
    fn pick_deallocation(
        &self,
        needs: &Needs<'_>,
        draw: impl Fn(usize) -> usize,
    ) -> (Option<Deallocation>, &'static str) {
        let Some(devices) = &needs.devices else { return (None, "no new claims to deallocate") };
        let by_devices = self.obstacles.iter().filter(|(_, obstacle)| obstacle.check == Check::Devices);
        let mut idle = devices.deallocatable(needs.pod, by_devices.map(|(node, _)| *node));
        if idle.is_empty() {
            return (None, "still not schedulable");
        }
        let drawn = draw(idle.len()).min(idle.len() - 1);
        (Some(Deallocation(idle.swap_remove(drawn))), "deallocation of ResourceClaim completed")
    }
}

/// Builds the message that counts nodes per reason. `absent` is the reason for, and number of, nodes that were not
/// checked.
pub(crate) fn fit_error_message<'a>(
    nodes: usize,
    reasons: impl Iterator<Item = &'a Cow<'static, str>>,
    absent: Option<(&'static str, usize)>,
) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    if let Some((reason, count)) = absent.filter(|(_, count)| *count > 0) {
        *counts.entry(reason).or_default() += count;
    }
    let mut counted: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.sort();
    format!("0/{nodes} nodes are available: {}.", counted.join(", "))
}

#[cfg(test)]
mod tests;
