//! Which nodes can take a pod. Pure.
//!
//! The checks run in v1.34's order, and the first that fails gives its reasons; only the resource check
//! gives several.

use crate::affinity::matches_required;
use crate::demand::Amount;
use crate::ledger::{NodeInfo, host_ports};
use crate::taint::untolerated;
use crate::view::{PodSpec, Port, Taint};

/// Why a node cannot take the pod: nothing, if it can.
pub(crate) fn obstacles(spec: &PodSpec, demand: &Amount, node: &NodeInfo) -> Vec<String> {
    if node.spec.unschedulable && !tolerates_unschedulable(spec) {
        return vec!["node(s) were unschedulable".into()];
    }
    if let Some(taint) = untolerated(&node.spec.taints, &spec.tolerations) {
        return vec![format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value)];
    }
    if !matches_required(spec, &node.name, &node.labels) {
        return vec!["node(s) didn't match Pod's node affinity/selector".into()];
    }
    if host_ports(spec).any(|port| node.ports.iter().any(|taken| clash(port, taken))) {
        return vec!["node(s) didn't have free ports for the requested pod ports".into()];
    }
    shortages(demand, node)
}

fn tolerates_unschedulable(spec: &PodSpec) -> bool {
    let key = "node.kubernetes.io/unschedulable".into();
    let cordon = Taint { key, value: String::new(), effect: crate::taint::NO_SCHEDULE.into() };
    spec.tolerations.iter().any(|toleration| toleration.tolerates(&cordon))
}

/// Two ports clash on the same address, or if either is on all of them.
fn clash(a: &Port, b: &Port) -> bool {
    let anywhere = |port: &Port| port.host_ip.is_empty() || port.host_ip == "0.0.0.0";
    let protocol =
        |port: &Port| if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() };
    a.host_port == b.host_port
        && protocol(a) == protocol(b)
        && (anywhere(a) || anywhere(b) || a.host_ip == b.host_ip)
}

fn shortages(demand: &Amount, node: &NodeInfo) -> Vec<String> {
    let (has, used) = (&node.allocatable, &node.requested);
    let mut short = Vec::new();
    if used.pods + 1 > has.pods {
        short.push("Too many pods".into());
    }
    let mut check = |name: &str, wanted: i64, has: i64, used: i64| {
        if wanted > 0 && wanted > has - used {
            short.push(format!("Insufficient {name}"));
        }
    };
    check("cpu", demand.cpu, has.cpu, used.cpu);
    check("memory", demand.memory, has.memory, used.memory);
    check("ephemeral-storage", demand.ephemeral_storage, has.ephemeral_storage, used.ephemeral_storage);
    for (name, wanted) in &demand.extended {
        let of = |amount: &Amount| amount.extended.get(name).copied().unwrap_or(0);
        check(name, *wanted, of(has), of(used));
    }
    short
}
