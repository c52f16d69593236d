//! Pod bodies: the DaemonSet's template, bound to one node. Pure.

use serde_json::{Map, Value, json};

use super::placement::{NETWORK_UNAVAILABLE, TOLERATED};
use super::view::DaemonSet;
use crate::workload::history::REVISION_LABEL;
use crate::workload::template::{PodTemplate, TemplateMetadata, with_label};

const GENERATION_LABEL: &str = "pod-template-generation";

/// The pod template of one revision.
pub(super) struct Templates {
    metadata: TemplateMetadata,
    spec: Map<String, Value>,
}

impl Templates {
    /// Prepares a template once for many nodes. Only the node-specific part is left to fill in.
    pub(super) fn of(set: &DaemonSet, hash: &str) -> Self {
        let template = &set.spec.template;
        let mut metadata = template.metadata.clone();
        if let Some(generation) = set.template_generation() {
            metadata.labels = with_label(&metadata.labels, GENERATION_LABEL, &generation.to_string());
        }
        metadata.labels = with_label(&metadata.labels, REVISION_LABEL, hash);
        let mut spec: Map<String, Value> = serde_json::from_str(template.spec.get()).unwrap_or_default();
        let network = (spec.get("hostNetwork") == Some(&Value::Bool(true))).then_some(NETWORK_UNAVAILABLE);
        for (key, effect) in TOLERATED.into_iter().chain(network) {
            tolerate(&mut spec, key, effect);
        }
        Self { metadata, spec }
    }

    /// Returns the template of the pod for a node.
    pub(super) fn pod(&self, node: &str) -> Option<PodTemplate> {
        let mut spec = self.spec.clone();
        let affinity = object(spec.entry("affinity").or_insert_with(|| json!({})));
        let node_affinity = object(affinity.entry("nodeAffinity").or_insert_with(|| json!({})));
        let by_name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let only = json!({"nodeSelectorTerms": [{"matchFields": [by_name]}]});
        node_affinity.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), only);
        let spec = serde_json::value::to_raw_value(&spec).ok()?;
        Some(PodTemplate { metadata: self.metadata.clone(), spec })
    }
}

/// Adds a toleration, replacing one that differs only in `tolerationSeconds`.
fn tolerate(spec: &mut Map<String, Value>, key: &str, effect: &str) {
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if !tolerations.is_array() {
        *tolerations = json!([]);
    }
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    let same = |one: &Value| {
        (
            one["key"].as_str(),
            one["effect"].as_str(),
            one["operator"].as_str(),
            one["value"].as_str().unwrap_or(""),
        ) == (Some(key), Some(effect), Some("Exists"), "")
    };
    let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
    match tolerations.iter_mut().find(|one| same(one)) {
        Some(known) => *known = toleration,
        None => tolerations.push(toleration),
    }
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("made one if it was none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn a_daemon_pod_targets_one_node_and_has_the_daemon_tolerations() {
        let brief = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let set: setpoint::Cached<DaemonSet> = cached(json!({
            "metadata": {"name": "d", "annotations": {"deprecated.daemonset.template.generation": "3"}},
            "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {
                "hostNetwork": true, "tolerations": [brief],
                "affinity": {"podAffinity": {}, "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}}},
        }));
        let pod = Templates::of(&set, "h").pod("n1").unwrap();
        let labels: Vec<_> = pod.metadata.labels.iter().collect();
        assert_eq!(
            labels,
            [("app", "d"), ("controller-revision-hash", "h"), ("pod-template-generation", "3")]
        );
        let spec: Value = serde_json::from_str(pod.spec.get()).unwrap();
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(7));
        assert!(spec["tolerations"][0].get("tolerationSeconds").is_none());
        let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(required["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["n1"]));
        assert!(spec["affinity"]["podAffinity"].is_object());
    }
}
