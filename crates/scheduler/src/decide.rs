//! The decision for one pod. Pure: ledger, pod and random draws in, node or reasons out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use setpoint::Cached;

use crate::devices::Claim;
use crate::filter::{Check, Checks, Needs, Obstacle, Refusal, Severity};
use crate::ledger::{Ledger, NodeInfo};
use crate::preempt::{Preemption, preempt};
use crate::score::scores;
use crate::surroundings::Surroundings;
use crate::view::Pod;

/// The outcome of a scheduling decision.
pub(crate) enum Decision {
    Bind {
        node: String,
    },
    FitsNowhere(Misfit),
    /// The pod cannot be scheduled because something it refers to is invalid.
    Failed(String),
}

/// Why a pod fits on no node, and what can be done about it.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The v1.34 message.
    pub(crate) message: String,
    /// The checks that rejected nodes. The pod is only tried again after a change that affects one of them.
    pub(crate) blocked: Checks,
    pub(crate) remedy: Remedy,
    /// An unused claim that keeps the pod off nodes. Once deallocated, it could get other devices.
    pub(crate) let_go: Option<LetGo>,
}

/// A claim whose devices should be deallocated.
pub(crate) struct LetGo(pub(crate) Cached<Claim>);

impl std::fmt::Debug for LetGo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "devices of {}", self.0.key())
    }
}

/// The outcome of preemption.
#[derive(Debug)]
pub(crate) enum Remedy {
    /// Evict lower-priority pods from a node and nominate that node.
    Preempt(Preemption),
    /// Preemption would not help. Clears the nominated node, if there is one.
    None,
    /// No change: a nominated node, if there is one, is kept.
    Wait,
}

/// The search stops when this many nodes fit. Smaller clusters are searched completely.
const ENOUGH_NODES: usize = 100;

/// Returns how many feasible nodes are enough. The share shrinks as the cluster grows.
fn enough(nodes: usize) -> usize {
    let percent = 50usize.saturating_sub(nodes / 125).max(5);
    if nodes < ENOUGH_NODES { nodes } else { (nodes * percent / 100).max(ENOUGH_NODES) }
}

/// Finds a node. `draw` in `0..n` breaks ties between `n` equally good nodes.
pub(crate) fn decide(
    pod: &Pod,
    ledger: &mut Ledger,
    surroundings: &Surroundings,
    draw: impl Fn(usize) -> usize,
) -> Decision {
    let needs = Needs::of(pod, ledger, surroundings);
    if let Some(node) = promised(&needs, ledger) {
        return Decision::Bind { node: node.name.clone() };
    }
    let search = Search::new(&needs, ledger);
    if let Some(failure) = search.failure {
        return Decision::Failed(failure);
    }
    if search.candidates.is_empty() {
        return Decision::FitsNowhere(search.misfit(&needs, ledger, surroundings, draw));
    }
    let (node, looked_at, all) =
        (search.best(pod, ledger, surroundings, draw), search.looked_at, search.nodes);
    ledger.next_start = (ledger.next_start + looked_at) % all;
    Decision::Bind { node }
}

/// Returns the pod's nominated node, if the pod fits there now.
fn promised<'a>(needs: &Needs<'_>, ledger: &'a Ledger) -> Option<&'a NodeInfo> {
    let node = ledger.node(needs.pod.nominated_node()?).filter(|_| needs.refusal.is_none())?;
    needs.obstacle_beside_nominees(node, &node.room, ledger).is_none().then_some(node)
}

struct Search<'a> {
    /// The number of nodes in the cluster.
    nodes: usize,
    looked_at: usize,
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
            looked_at: 0,
            candidates: Vec::new(),
            obstacles: Vec::new(),
            passed_over: None,
            refusal: needs.refusal.clone(),
            failure: None,
        };
        match &needs.named {
            _ if search.refusal.is_some() => {}
            None => search.look_at(needs, ledger, &all, ledger.next_start),
            Some(names) => {
                let named: Vec<&NodeInfo> = names.iter().filter_map(|name| ledger.node(name)).collect();
                search.passed_over = Some("node(s) didn't satisfy plugin(s) [NodeAffinity]");
                search.look_at(needs, ledger, &named, 0);
            }
        }
        search
    }

    fn look_at(&mut self, needs: &Needs<'_>, ledger: &'a Ledger, nodes: &[&'a NodeInfo], start: usize) {
        let enough = enough(nodes.len());
        for offset in 0..nodes.len() {
            let node = nodes[(start + offset) % nodes.len()];
            self.looked_at += 1;
            match needs.obstacle_beside_nominees(node, &node.room, ledger) {
                None => self.candidates.push(node),
                Some(obstacle) if obstacle.severity == Severity::Fatal => {
                    self.failure = Some(obstacle.reasons.join(", "));
                    return;
                }
                Some(obstacle) => self.obstacles.push((node, obstacle)),
            }
            if self.candidates.len() >= enough {
                break;
            }
        }
    }

    fn best(
        &self,
        pod: &Pod,
        ledger: &Ledger,
        surroundings: &Surroundings,
        draw: impl Fn(usize) -> usize,
    ) -> String {
        if let [only] = self.candidates[..] {
            return only.name.clone();
        }
        let scores = scores(pod, &self.candidates, ledger, surroundings);
        let best = scores.iter().copied().max().unwrap_or(0);
        let scored = self.candidates.iter().zip(&scores);
        let tied: Vec<&NodeInfo> =
            scored.filter(|(_, score)| **score == best).map(|(node, _)| *node).collect();
        tied[draw(tied.len()).min(tied.len() - 1)].name.clone()
    }

    fn misfit(
        &self,
        needs: &Needs<'_>,
        ledger: &Ledger,
        surroundings: &Surroundings,
        draw: impl Fn(usize) -> usize,
    ) -> Misfit {
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
            return Misfit { message, blocked: Checks::all(), remedy: Remedy::Wait, let_go: None };
        }
        if let Some(Refusal { check: Check::NodeAffinity | Check::Volumes, message }) = &self.refusal {
            // In v1.34 the PreFilter phase fails before DynamicResources runs, so its PostFilter finds no state and
            // appends "not found".
            let message = format!("0/{} nodes are available: {message}. not found", self.nodes);
            return Misfit { message, blocked, remedy: Remedy::Wait, let_go: None };
        }
        let message = match &self.refusal {
            Some(refusal) => format!("0/{} nodes are available: {}.", self.nodes, refusal.message),
            None => {
                let obstacles = self.obstacles.iter().flat_map(|(_, obstacle)| obstacle.reasons.iter());
                let absent = self.passed_over.map(|reason| (reason, self.nodes - self.obstacles.len()));
                misfit_message(self.nodes, obstacles, absent)
            }
        };
        let (let_go, about_claims) = self.let_go(needs, &draw);
        let (remedy, words) = preempt(needs, &self.obstacles, self.nodes, ledger, surroundings, draw);
        let message = match words {
            Some(words) => format!("{message} {about_claims}, preemption: {words}"),
            None => message,
        };
        Misfit { message, blocked, remedy, let_go }
    }

    /// Picks a claim to deallocate, and returns v1.34's message about it.
    fn let_go(&self, needs: &Needs<'_>, draw: impl Fn(usize) -> usize) -> (Option<LetGo>, &'static str) {
        let Some(devices) = &needs.devices else { return (None, "no new claims to deallocate") };
        let by_devices = self.obstacles.iter().filter(|(_, obstacle)| obstacle.check == Check::Devices);
        let mut idle = devices.idle_elsewhere(needs.pod, by_devices.map(|(node, _)| *node));
        if idle.is_empty() {
            return (None, "still not schedulable");
        }
        let drawn = draw(idle.len()).min(idle.len() - 1);
        (Some(LetGo(idle.swap_remove(drawn))), "deallocation of ResourceClaim completed")
    }
}

/// Builds the message that counts nodes per reason. `absent` is the reason for, and number of, nodes that were not
/// checked.
pub(crate) fn misfit_message<'a>(
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
