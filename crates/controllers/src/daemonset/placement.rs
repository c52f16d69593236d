//! Which nodes run a daemon pod. Pure.

use setpoint::{Cached, Labels};
use setpoint_placement::{NO_EXECUTE, NO_SCHEDULE, Toleration, untolerated};

use super::view::{Node, PlacementSpec};

/// Taints that every daemon pod tolerates, with their effects.
pub(super) const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The taint that daemon pods with host network also tolerate.
pub(super) const NETWORK_UNAVAILABLE: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Whether a node should run a daemon pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It should run one.
    Run,
    /// It gets no new pod, but keeps an existing one.
    Keep,
    /// It should not run one.
    Not,
}

/// The placement rules of a pod template.
pub(super) struct Placement {
    spec: PlacementSpec,
    tolerations: Vec<Toleration>,
}

impl Placement {
    pub(super) fn of(spec: PlacementSpec) -> Self {
        let mut tolerations = spec.tolerations.clone().unwrap_or_default();
        let network = spec.host_network.then_some(NETWORK_UNAVAILABLE);
        let always = TOLERATED.into_iter().chain(network).map(|(key, effect)| Toleration {
            key: key.into(),
            operator: "Exists".into(),
            effect: effect.into(),
            ..Toleration::default()
        });
        tolerations.extend(always);
        Self { spec, tolerations }
    }

    pub(super) fn verdict(&self, node: &Cached<Node>) -> Verdict {
        let (name, labels) = (&*node.meta().name, &node.meta().labels);
        let named = self.spec.node_name.is_empty() || *self.spec.node_name == *name;
        if !named || !self.fits(name, labels) {
            return Verdict::Not;
        }
        let repels = |effects: &[&str]| untolerated(&node.spec.taints, &self.tolerations, effects).is_some();
        if !repels(&[NO_EXECUTE, NO_SCHEDULE]) {
            Verdict::Run
        } else if !repels(&[NO_EXECUTE]) {
            Verdict::Keep
        } else {
            Verdict::Not
        }
    }

    /// Whether a node matches the selector and affinity.
    fn fits(&self, node: &str, labels: &Labels) -> bool {
        let mut selector = self.spec.node_selector.iter().flatten();
        let selected = selector.all(|(key, value)| labels.get(key) == Some(value));
        selected && self.spec.required().is_none_or(|required| required.matches(node, labels))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn name_labels_and_taints_of_a_node_decide_whether_it_runs_a_daemon() {
        let check = |spec: Value, taints: Value, expected: Verdict| {
            let placement = Placement::of(serde_json::from_value(spec.clone()).unwrap());
            let node: Cached<Node> = cached(json!({
                "metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}}, "spec": {"taints": taints},
            }));
            assert_eq!(placement.verdict(&node), expected, "{spec} on {taints}");
        };
        let none = || json!([]);
        let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        check(json!({}), none(), Verdict::Run);
        check(json!({}), Value::Null, Verdict::Run);
        check(json!({"nodeName": "n"}), none(), Verdict::Run);
        check(json!({"nodeName": "m"}), none(), Verdict::Not);
        check(json!({"nodeSelector": {"zone": "a"}}), none(), Verdict::Run);
        check(json!({"nodeSelector": {"zone": "b"}}), none(), Verdict::Not);
        check(
            required(json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}])),
            none(),
            Verdict::Run,
        );
        check(
            required(json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}])),
            none(),
            Verdict::Not,
        );
        check(
            required(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])),
            none(),
            Verdict::Run,
        );
        check(required(json!([{}])), none(), Verdict::Not);
        check(json!({}), taint("gpu", "NoSchedule"), Verdict::Keep);
        check(json!({}), taint("gpu", "NoExecute"), Verdict::Not);
        check(json!({}), taint("gpu", "PreferNoSchedule"), Verdict::Run);
        check(
            json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
            taint("gpu", "NoExecute"),
            Verdict::Run,
        );
        check(json!({}), taint("node.kubernetes.io/unschedulable", "NoSchedule"), Verdict::Run);
        check(json!({}), taint("node.kubernetes.io/not-ready", "NoExecute"), Verdict::Run);
        check(json!({}), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), Verdict::Keep);
        check(
            json!({"hostNetwork": true}),
            taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
            Verdict::Run,
        );
    }
}
