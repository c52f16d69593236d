//! Which of the nodes that can take a pod should. Pure.
//!
//! Every score is brought to 0..=100 over the candidates and weighted as v1.34's default profile does:
//! preferred taints 3, preferred affinity 2, spread of replicas 2, least and balanced allocation 1 each.

use std::collections::BTreeMap;

use crate::affinity::preferred_weight;
use crate::demand::Amount;
use crate::ledger::NodeInfo;
use crate::taint::discouraging;
use crate::view::PodSpec;

const MAX: i64 = 100;
const ZONE: &str = "topology.kubernetes.io/zone";

/// The total score of each candidate, in their order.
pub(crate) fn scores(
    spec: &PodSpec,
    demand: &Amount,
    owner: Option<&str>,
    candidates: &[&NodeInfo],
) -> Vec<i64> {
    let taints = candidates.iter().map(|node| discouraging(&node.spec.taints, &spec.tolerations) as i64);
    let affinity = candidates.iter().map(|node| preferred_weight(spec, &node.name, &node.labels));
    let taints = fewest_first(taints.collect());
    let affinity = most_first(affinity.collect());
    let spread = spread(owner, candidates);
    let total = |(index, node): (usize, &&NodeInfo)| {
        3 * taints[index] + 2 * affinity[index] + 2 * spread[index] + room(demand, node)
    };
    candidates.iter().enumerate().map(total).collect()
}

fn most_first(values: Vec<i64>) -> Vec<i64> {
    let most = values.iter().copied().max().unwrap_or(0);
    values.into_iter().map(|value| if most == 0 { 0 } else { value * MAX / most }).collect()
}

fn fewest_first(values: Vec<i64>) -> Vec<i64> {
    let most = values.iter().copied().max().unwrap_or(0);
    values.into_iter().map(|value| if most == 0 { MAX } else { MAX - value * MAX / most }).collect()
}

/// Prefers nodes, and zones, with fewer replicas of the same controller.
fn spread(owner: Option<&str>, candidates: &[&NodeInfo]) -> Vec<i64> {
    let Some(owner) = owner else { return vec![0; candidates.len()] };
    let here = |node: &NodeInfo| node.pods_by_owner.get(owner).copied().unwrap_or(0) as i64;
    let mut in_zone: BTreeMap<&str, i64> = BTreeMap::new();
    for node in candidates {
        *in_zone.entry(zone(node)).or_default() += here(node);
    }
    let by_node = fewest_first(candidates.iter().map(|node| here(node)).collect());
    let by_zone = fewest_first(candidates.iter().map(|node| in_zone[zone(node)]).collect());
    by_node.into_iter().zip(by_zone).map(|(node, zone)| (node + 2 * zone) / 3).collect()
}

fn zone(node: &NodeInfo) -> &str {
    node.labels.get(ZONE).map_or("", String::as_str)
}

/// How much is left with the pod on the node, and how evenly.
fn room(demand: &Amount, node: &NodeInfo) -> i64 {
    let left = |has: i64, used: i64| if has <= 0 || used > has { 0 } else { (has - used) * MAX / has };
    let used = &node.requested_for_scoring;
    let (cpu, memory) = (used.cpu + demand.cpu, used.memory + demand.memory);
    let least = (left(node.allocatable.cpu, cpu) + left(node.allocatable.memory, memory)) / 2;
    least + balance(cpu, node.allocatable.cpu, memory, node.allocatable.memory)
}

/// 100 when cpu and memory are used in the same proportion; the difference of two fractions is twice
/// their standard deviation.
fn balance(cpu: i64, all_cpu: i64, memory: i64, all_memory: i64) -> i64 {
    let fraction = |used: i64, all: i64| if all <= 0 { 1.0 } else { (used as f64 / all as f64).min(1.0) };
    let deviation = (fraction(cpu, all_cpu) - fraction(memory, all_memory)).abs() / 2.0;
    ((1.0 - deviation) * MAX as f64) as i64
}
