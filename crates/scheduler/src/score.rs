//! Scoring: which of the feasible nodes is best. Pure.
//!
//! Each score is normalized to 0..=100 over the candidates and weighted like v1.34's default profile: preferred taints
//! 3, preferred node affinity 2, topology spread 2, inter-pod affinity 2, least allocated, balanced allocation and
//! image locality 1 each. A score that would be equal for all candidates is skipped.

use setpoint_placement::{Amount, PREFER_NO_SCHEDULE, Taint, Toleration};

use crate::demand::{demand, demand_for_scoring};
use crate::image;
use crate::ledger::{Ledger, NodeInfo};
use crate::listers::Listers;
use crate::view::Pod;
use crate::{interpod, spread};

const MAX: i64 = 100;

/// Returns the total score of each candidate, in order.
pub(crate) fn scores(pod: &Pod, candidates: &[&NodeInfo], ledger: &Ledger, listers: &Listers) -> Vec<i64> {
    let mut totals = allocation(pod, candidates);
    let mut add = |weight: i64, scores: Option<Vec<i64>>| {
        for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
            *total += weight * score;
        }
    };
    add(3, preferred_taints(pod, candidates));
    add(2, preferred_affinity(pod, candidates));
    add(2, spread::scores(pod, candidates, ledger, listers));
    add(2, interpod::scores(pod, candidates, ledger, listers));
    add(1, image::scores(pod, candidates, ledger));
    totals
}

/// Scores free resources and, for pods with requests, balance.
fn allocation(pod: &Pod, candidates: &[&NodeInfo]) -> Vec<i64> {
    let (asks, counts) = (demand(pod), demand_for_scoring(pod));
    let best_effort = asks.cpu == 0 && asks.memory == 0;
    let score = |node: &&NodeInfo| {
        let balanced = if best_effort { 0 } else { balance(&asks, &node.usage.requested, &node.allocatable) };
        least(&counts, &node.usage.requested_for_scoring, &node.allocatable) + balanced
    };
    candidates.iter().map(score).collect()
}

fn least(asks: &Amount, used: &Amount, has: &Amount) -> i64 {
    // A resource that the node does not have is left out.
    let left = |has: i64, used: i64| (has > 0).then(|| if used > has { 0 } else { (has - used) * MAX / has });
    let (cpu, memory) = (left(has.cpu, used.cpu + asks.cpu), left(has.memory, used.memory + asks.memory));
    match (cpu, memory) {
        (Some(cpu), Some(memory)) => (cpu + memory) / 2,
        (one, other) => one.or(other).unwrap_or(0),
    }
}

/// Returns 100 if cpu and memory are used in the same proportion. The difference of two fractions is twice their
/// standard deviation.
fn balance(asks: &Amount, used: &Amount, has: &Amount) -> i64 {
    let fraction = |used: i64, all: i64| (all > 0).then(|| (used as f64 / all as f64).min(1.0));
    let cpu = fraction(used.cpu + asks.cpu, has.cpu);
    let memory = fraction(used.memory + asks.memory, has.memory);
    let deviation = cpu.zip(memory).map_or(0.0, |(cpu, memory)| (cpu - memory).abs() / 2.0);
    ((1.0 - deviation) * MAX as f64) as i64
}

fn preferred_taints(pod: &Pod, candidates: &[&NodeInfo]) -> Option<Vec<i64>> {
    let soft = |node: &&NodeInfo| node.spec.taints.iter().any(|taint| *taint.effect == *PREFER_NO_SCHEDULE);
    if !candidates.iter().any(soft) {
        return None;
    }
    let counts: Vec<i64> =
        candidates.iter().map(|node| discouraging(&node.spec.taints, &pod.spec.tolerations)).collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    Some(counts.into_iter().map(|count| if most == 0 { MAX } else { MAX - count * MAX / most }).collect())
}

/// Counts `PreferNoSchedule` taints that are not tolerated.
fn discouraging(taints: &[Taint], tolerations: &[Toleration]) -> i64 {
    let soft = |taint: &&Taint| *taint.effect == *PREFER_NO_SCHEDULE;
    let relevant = |t: &&Toleration| t.effect.is_empty() || *t.effect == *PREFER_NO_SCHEDULE;
    let tolerated = |taint: &&Taint| tolerations.iter().filter(relevant).any(|t| t.tolerates(taint));
    taints.iter().filter(soft).filter(|taint| !tolerated(taint)).count() as i64
}

fn preferred_affinity(pod: &Pod, candidates: &[&NodeInfo]) -> Option<Vec<i64>> {
    let affinity = &pod.spec.affinity.node_affinity;
    if affinity.preferred.is_empty() {
        return None;
    }
    let weights: Vec<i64> =
        candidates.iter().map(|node| affinity.preference(&node.name, &node.labels)).collect();
    let most = weights.iter().copied().max().unwrap_or(0);
    Some(weights.into_iter().map(|weight| if most == 0 { 0 } else { weight * MAX / most }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptier_and_more_balanced_nodes_score_higher() {
        let amount = |cpu, memory| Amount { cpu, memory, ..Amount::default() };
        let check = |asks: Amount, used: Amount, has: Amount, expected: (i64, i64)| {
            assert_eq!((least(&asks, &used, &has), balance(&asks, &used, &has)), expected, "{has:?}");
        };
        check(amount(0, 0), amount(0, 0), amount(4000, 10000), (100, 100));
        check(amount(3000, 5000), amount(0, 0), amount(4000, 10000), (37, 87));
        check(amount(3000, 5000), amount(0, 0), amount(6000, 10000), (50, 100));
        check(amount(3000, 5000), amount(3000, 5000), amount(10000, 20000), (45, 95));
        check(amount(6000, 0), amount(0, 0), amount(4000, 10000), (50, 50));
        check(amount(1000, 0), amount(0, 0), amount(4000, 0), (75, 100));
        check(amount(0, 0), amount(0, 0), amount(0, 0), (0, 100));
    }
}
