//! Assesses a pod against every node: the check that rejects it there, what is missing, and whether preemption could
//! help. Pure, for tools that explain a decision.
//!
//! Invariant: nodes are rejected by the same checks as in a decision, in the same order. A decision may stop at the
//! first nodes that fit, an assessment looks at all of them.

use std::borrow::Cow;

use setpoint::object::DecodeError;
use setpoint::{Cached, Lister, Object};
use setpoint_placement::Amount;

use crate::decide::{PreemptionOutcome, fit_error_message};
use crate::demand::demand;
use crate::devices::{Claim, DeviceCaches};
use crate::filter::{Check, Needs, Obstacle};
use crate::ledger::{Ledger, NodeInfo};
use crate::listers::Listers;
use crate::preempt::preempt;
use crate::view::{NodeView, Pod};
use crate::volumes::VolumeCaches;

/// The objects that decisions depend on. Kinds that the pod does not involve may be left empty.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub nodes: Vec<Object>,
    pub pods: Vec<Object>,
    pub namespaces: Vec<Object>,
    pub budgets: Vec<Object>,
    pub claims: Vec<Object>,
    pub volumes: Vec<Object>,
    pub classes: Vec<Object>,
    pub csi_nodes: Vec<Object>,
    pub csi_drivers: Vec<Object>,
    pub capacities: Vec<Object>,
    pub attachments: Vec<Object>,
    pub device_claims: Vec<Object>,
    pub device_classes: Vec<Object>,
    pub device_slices: Vec<Object>,
}

/// A cluster that pods can be assessed against.
pub struct Assessor {
    ledger: Ledger,
    listers: Listers,
}

/// Where a pod could run, and why not elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    /// Nodes that can take the pod.
    pub feasible: Vec<String>,
    /// Why the pod fits on no node at all, independent of the nodes.
    pub refusal: Option<String>,
    /// The other nodes, in name order.
    pub rejections: Vec<Rejection>,
    /// The reasons, counted as in v1.34's message.
    pub message: String,
    /// `None` if a node can take the pod.
    pub preemption: Option<Preemption>,
}

/// Why a node cannot take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub node: String,
    /// The plugin of v1.34 that rejects.
    pub filter: &'static str,
    pub reasons: Vec<String>,
    /// Whether evicting pods from the node could help.
    pub preemptible: bool,
    /// The resources that the node lacks.
    pub shortages: Vec<Shortage>,
}

/// A resource of which a node has too little left. CPU is in millicores, everything else in whole units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub requested: i64,
    pub free: i64,
    pub allocatable: i64,
}

/// Whether evicting pods of lower priority would make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// The pods to evict, as `NAMESPACE/NAME`.
    Possible {
        node: String,
        victims: Vec<String>,
    },
    Impossible {
        why: String,
    },
}

impl Assessor {
    /// Counts what the pods take on the nodes.
    pub fn new(inputs: Inputs) -> Result<Self, DecodeError> {
        let mut ledger = Ledger::default();
        for node in &inputs.nodes {
            ledger.put_node(node, node.view::<NodeView>()?);
        }
        for pod in &inputs.pods {
            ledger.put_pod(&Pod::new(pod.clone())?);
        }
        for claim in &inputs.device_claims {
            ledger.devices.follow(&Cached::<Claim>::new(claim.clone())?);
        }
        Ok(Self { ledger, listers: listers(inputs) })
    }

    /// Assesses a pod as if it had no node yet.
    pub fn assess(&self, pod: Object) -> Result<Assessment, DecodeError> {
        let pod = Pod::new(pod)?;
        let needs = Needs::of(&pod, &self.ledger, &self.listers);
        let nodes: Vec<&NodeInfo> = self.ledger.nodes().collect();
        let (mut assessment, mut obstacles) = (Assessment::default(), Vec::new());
        if let Some(refusal) = &needs.refusal {
            assessment.refusal = Some(refusal.message.clone());
        }
        let wanted = demand(&pod);
        for node in nodes.iter().filter(|_| needs.refusal.is_none()) {
            match self.obstacle(&needs, node) {
                None => assessment.feasible.push(node.name.clone()),
                Some(obstacle) => {
                    assessment.rejections.push(rejection(node, &obstacle, &wanted));
                    obstacles.push((*node, obstacle));
                }
            }
        }
        assessment.message = match &assessment.refusal {
            Some(refusal) => format!("0/{} nodes are available: {refusal}.", nodes.len()),
            None => message(nodes.len(), &obstacles),
        };
        if assessment.feasible.is_empty() && assessment.refusal.is_none() {
            assessment.preemption = Some(self.preemption(&needs, &obstacles, nodes.len()));
        }
        Ok(assessment)
    }

    fn obstacle(&self, needs: &Needs<'_>, node: &NodeInfo) -> Option<Obstacle> {
        if needs.named.as_ref().is_some_and(|names| !names.contains(&*node.name)) {
            let reason = "node(s) didn't match Pod's node affinity/selector";
            return Some(Obstacle::firm(Check::NodeAffinity, reason));
        }
        needs.obstacle_beside_nominees(node, &node.usage, &self.ledger)
    }

    fn preemption(&self, needs: &Needs<'_>, obstacles: &[(&NodeInfo, Obstacle)], nodes: usize) -> Preemption {
        let (outcome, why) = preempt(needs, obstacles, nodes, &self.ledger, &self.listers, |_| 0);
        match outcome {
            PreemptionOutcome::Preempt(found) => Preemption::Possible {
                node: found.node,
                victims: found.victims.iter().map(|pod| pod.key().to_string()).collect(),
            },
            _ => Preemption::Impossible { why: why.unwrap_or_default() },
        }
    }
}

fn listers(inputs: Inputs) -> Listers {
    Listers {
        namespaces: Lister::from_objects(inputs.namespaces),
        // These only spread and score pods.
        services: Lister::from_objects([]),
        replica_sets: Lister::from_objects([]),
        stateful_sets: Lister::from_objects([]),
        replication_controllers: Lister::from_objects([]),
        budgets: Lister::from_objects(inputs.budgets),
        volumes: VolumeCaches::of_objects(
            (inputs.claims, inputs.volumes, inputs.classes),
            (inputs.csi_nodes, inputs.csi_drivers, inputs.capacities, inputs.attachments),
            inputs.pods,
        ),
        devices: DeviceCaches::of_objects(inputs.device_claims, inputs.device_classes, inputs.device_slices),
    }
}

fn message(nodes: usize, obstacles: &[(&NodeInfo, Obstacle)]) -> String {
    let reasons = obstacles.iter().flat_map(|(_, obstacle)| obstacle.reasons.iter());
    fit_error_message(nodes, reasons, None)
}

fn rejection(node: &NodeInfo, obstacle: &Obstacle, wanted: &Amount) -> Rejection {
    Rejection {
        node: node.name.clone(),
        filter: filter_name(obstacle.check),
        reasons: obstacle.reasons.iter().map(Cow::to_string).collect(),
        preemptible: obstacle.is_resolvable(),
        shortages: if obstacle.check == Check::Resources { shortages(node, wanted) } else { Vec::new() },
    }
}

fn shortages(node: &NodeInfo, wanted: &Amount) -> Vec<Shortage> {
    let (has, used) = (&node.allocatable, &node.usage.requested);
    let of = |amounts: &Amount, name: &str| amounts.extended.get(name).copied().unwrap_or(0);
    let built_in = [
        ("cpu", wanted.cpu, has.cpu, used.cpu),
        ("memory", wanted.memory, has.memory, used.memory),
        ("ephemeral-storage", wanted.ephemeral_storage, has.ephemeral_storage, used.ephemeral_storage),
        ("pods", wanted.pods, has.pods, used.pods),
    ];
    let extended =
        wanted.extended.iter().map(|(name, wanted)| (name.as_str(), *wanted, of(has, name), of(used, name)));
    let all = built_in.into_iter().chain(extended);
    all.filter(|(_, wanted, has, used)| *wanted > 0 && *wanted > has - used)
        .map(|(name, requested, allocatable, used)| Shortage {
            resource: name.to_owned(),
            requested,
            free: allocatable - used,
            allocatable,
        })
        .collect()
}

/// The name of the plugin that makes this check in v1.34.
fn filter_name(check: Check) -> &'static str {
    match check {
        Check::Cordon => "NodeUnschedulable",
        Check::Taints => "TaintToleration",
        Check::NodeAffinity => "NodeAffinity",
        Check::Ports => "NodePorts",
        Check::Resources => "NodeResourcesFit",
        Check::Spread => "PodTopologySpread",
        Check::PodAffinity => "InterPodAffinity",
        Check::VolumeUse => "VolumeRestrictions",
        Check::Volumes => "VolumeBinding",
        Check::Devices => "DynamicResources",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(value: Value) -> Object {
        Object::from_json(value.to_string().into()).expect("an object")
    }

    fn node(name: &str, cpu: &str, spec: Value) -> Object {
        object(json!({"metadata": {"name": name}, "spec": spec,
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}}))
    }

    fn pod(name: &str, on: &str, cpu: &str, priority: i32) -> Object {
        object(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {
            "nodeName": on, "priority": priority, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}}))
    }

    fn assessor() -> Assessor {
        let taint = json!({"taints": [{"key": "gpu", "value": "", "effect": "NoSchedule"}]});
        let nodes = vec![node("a", "1", json!({})), node("b", "4", taint)];
        let inputs = Inputs { nodes, pods: vec![pod("low", "a", "600m", 0)], ..Inputs::default() };
        Assessor::new(inputs).expect("the objects can be read")
    }

    #[test]
    fn each_node_has_the_check_that_rejects_it_and_what_is_missing() {
        let found = assessor().assess(pod("p", "", "700m", 0)).expect("a pod");
        assert!(found.feasible.is_empty());
        let filters: Vec<_> = found.rejections.iter().map(|one| (one.node.as_str(), one.filter)).collect();
        assert_eq!(filters, [("a", "NodeResourcesFit"), ("b", "TaintToleration")]);
        let missing = Shortage { resource: "cpu".into(), requested: 700, free: 400, allocatable: 1000 };
        assert_eq!(found.rejections[0].shortages, [missing]);
        assert!(found.message.contains("1 Insufficient cpu"), "{}", found.message);
        assert!(matches!(found.preemption, Some(Preemption::Impossible { .. })));
    }

    #[test]
    fn a_smaller_request_and_a_higher_priority_both_help() {
        let found = assessor().assess(pod("p", "", "400m", 0)).expect("a pod");
        assert_eq!(found.feasible, ["a"]);
        let found = assessor().assess(pod("p", "", "700m", 10)).expect("a pod");
        let expected = Preemption::Possible { node: "a".into(), victims: vec!["default/low".into()] };
        assert_eq!(found.preemption, Some(expected));
    }
}
