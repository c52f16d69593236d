//! Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{CORE, entry, metadata, resources};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource};
use crate::strategy::{Initial, Lifecycle, NameRule, Preserved, Semantics, StatusEndpoint, Validation};
use crate::table::Column;

mod validation;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["no".into()],
        subresources: vec![Subresource::Proxy, Subresource::Status],
        columns: columns(),
        field_selectors: vec![FieldSelector {
            path: "spec.unschedulable",
            value: |node| node.at("spec").flag("unschedulable").to_string(),
        }],
        semantics: Semantics {
            counts_generations: false,
            // A kubelet registers its node with a status.
            status: Some(StatusEndpoint { initial: Initial::AsSent, preserved: Preserved::Spec }),
            ..Semantics::default()
        },
        ..entry(&CORE, "Node", "nodes", Node)
    }
}

const VERSION: &str = "Kubelet Version reported by the node.";
const ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the downward API (status.hostIP).";
const OS_IMAGE: &str =
    "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).";
const KERNEL: &str = "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).";
const RUNTIME: &str =
    "ContainerRuntime Version reported by the node through runtime remote API (e.g. containerd://1.4.2).";

fn columns() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Status", "The status of the node", |node, _| status(node).into()),
        Column::text("Roles", "The roles of the node", |node, _| roles(node).into()),
        Column::age(),
        Column::text("Version", VERSION, |node, _| info(node).text("kubeletVersion").into()),
        Column::text("Internal-IP", ADDRESSES, |node, _| address(node, "InternalIP").into()).wide(),
        Column::text("External-IP", ADDRESSES, |node, _| address(node, "ExternalIP").into()).wide(),
        Column::text("OS-Image", OS_IMAGE, |node, _| known(info(node).text("osImage"))).wide(),
        Column::text("Kernel-Version", KERNEL, |node, _| known(info(node).text("kernelVersion"))).wide(),
        Column::text("Container-Runtime", RUNTIME, |node, _| {
            known(info(node).text("containerRuntimeVersion"))
        })
        .wide(),
    ]
}

fn info(node: &Value) -> &Value {
    node.at("status").at("nodeInfo")
}

fn known(text: &str) -> Value {
    if text.is_empty() { "<unknown>".into() } else { text.into() }
}

fn status(node: &Value) -> String {
    let conditions = node.at("status").list("conditions");
    let ready = conditions.iter().rev().find(|condition| condition.text("type") == "Ready");
    let ready = match ready.map(|condition| condition.text("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if node.at("spec").flag("unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

fn roles(node: &Value) -> String {
    let labels = node.at("metadata").map("labels").into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    match roles.is_empty() {
        true => "<none>".into(),
        false => roles.into_iter().collect::<Vec<_>>().join(","),
    }
}

fn address<'a>(node: &'a Value, of: &str) -> &'a str {
    let addresses = node.at("status").list("addresses");
    addresses
        .iter()
        .find(|address| address.text("type") == of)
        .map_or("<none>", |address| address.text("address"))
}

struct Node;

impl Lifecycle for Node {
    fn default(&self, node: &mut Value) {
        if let Some(spec) = node.at_mut("spec") {
            default_pod_cidrs(spec);
        }
        let status = node.object_mut("status");
        for list in ["capacity", "allocatable"] {
            if let Some(list) = status.at_mut(list) {
                resources::default_list(list);
            }
        }
        if !status.has("allocatable") && status.has("capacity") {
            let capacity = status.at("capacity").clone();
            status.set("allocatable", capacity);
        }
    }

    fn prepare_for_create(&self, node: &mut Value) {
        node.object_mut("spec").unset("configSource");
        node.object_mut("status").unset("config");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        if !old.at("spec").has("configSource") {
            new.object_mut("spec").unset("configSource");
        }
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        if !old.at("status").has("config") {
            new.object_mut("status").unset("config");
        }
    }
}

impl Validation for Node {
    fn validate(&self, node: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(node, &mut errors);
        validation::check(node, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        validation::check(new, &mut errors);
        errors.extend(self.validate_status_update(new, old));
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        validation::check_change(new, old, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let spec = new.at("spec");
        let mut warnings = Vec::new();
        if spec.has("configSource") {
            warnings.push("spec.configSource: the feature is removed".into());
        }
        if !spec.text("externalID").is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
        }
        warnings
    }
}

/// Synchronizes `podCIDR`, the first of `podCIDRs`; if they differ, the former wins, for old clients.
fn default_pod_cidrs(spec: &mut Value) {
    let single = spec.text("podCIDR");
    let first = spec.list("podCIDRs").first().and_then(Value::as_str).unwrap_or_default();
    if single == first {
        return;
    }
    if single.is_empty() {
        let first = first.to_owned();
        spec.set("podCIDR", first);
    } else {
        let cidrs = json!([single]);
        spec.set("podCIDRs", cidrs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    #[test]
    fn a_node_is_filled_in() {
        let mut node = json!({"spec": {"podCIDR": "10.1.0.0/24"}, "status": {"capacity": {"cpu": "4000m"}}});
        Node.default(&mut node);
        assert_eq!(node["spec"]["podCIDRs"], json!(["10.1.0.0/24"]));
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "4"}));
    }

    #[test]
    fn a_row_summarizes_a_node() {
        let node = json!({"metadata": {"labels": {"node-role.kubernetes.io/x": "", "kubernetes.io/role": "y"}},
            "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "False"}],
            "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}});
        assert_eq!(status(&node), "NotReady,SchedulingDisabled");
        assert_eq!(roles(&node), "x,y");
        assert_eq!((address(&node, "InternalIP"), address(&node, "ExternalIP")), ("1.2.3.4", "<none>"));
    }

    #[test]
    fn taints_are_well_formed_and_unique() {
        let node = |taints: Value| json!({"spec": {"taints": taints}});
        check::create(
            &Node,
            node(json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}])),
            &[],
        );
        check::create(
            &Node,
            node(json!([{"key": "-", "value": "-", "effect": "X"}, {"key": "a"}, {"key": "a"}])),
            &[
                "Invalid metadata.taints[0].key",
                "Invalid metadata.taints[0].value",
                "NotSupported metadata.taints[0].effect",
                "Required metadata.taints[1].effect",
                "Required metadata.taints[2].effect",
                "Duplicate metadata.taints[2]",
            ],
        );
    }

    #[test]
    fn networks_and_the_provider_are_set_once() {
        let with = |spec: Value| json!({"spec": spec});
        check::create(&Node, with(json!({"podCIDRs": ["x"]})), &["Invalid spec.podCIDRs[0]"]);
        check::create(
            &Node,
            with(json!({"podCIDRs": ["10.0.0.0/24", "10.1.0.0/24"]})),
            &["Invalid spec.podCIDRs"],
        );
        let old = with(json!({"podCIDR": "10.0.0.0/24", "providerID": "a"}));
        check::update(
            &Node,
            with(json!({"podCIDR": "10.1.0.0/24", "providerID": "b"})),
            &old,
            &["Forbidden spec.podCIDRs", "Forbidden spec.providerID"],
        );
        check::update(&Node, old, &with(json!({})), &[]);
    }
}
