//! The strategy of pods.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::validation::{self, Rules, status, update};
use super::{apparmor, defaults, disabled, qos, warnings};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Scope, Subresource};
use crate::kinds::metadata;
use crate::strategy::{Lifecycle, NameRule, Validation};

pub(super) struct Pod;

impl Lifecycle for Pod {
    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        (subresource == Some(Subresource::Status)).then_some(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ])
    }

    fn default(&self, pod: &mut Value) {
        defaults::default_pod(pod);
    }

    fn prepare_for_create(&self, pod: &mut Value) {
        let class = qos::class(pod.at("spec"));
        pod.object_mut("status").set("qosClass", class);
        disabled::drop_fields(pod.object_mut("spec"));
        gate(pod);
        merge_label_keys(pod);
        apparmor::fill_in(pod);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        disabled::drop_fields(new.object_mut("spec"));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        let metadata = new.object_mut("metadata");
        metadata.restore("deletionTimestamp", old.at("metadata"));
        metadata.restore("ownerReferences", old.at("metadata"));
        let status = new.object_mut("status");
        if status.text("qosClass").is_empty() {
            status.restore("qosClass", old.at("status"));
        }
        keep_observed_generations(status, old.at("status"));
        drop_disabled_status(status);
    }

    fn prepare_for_subresource_update(&self, subresource: Subresource, new: &mut Value, old: &Value) {
        match subresource {
            Subresource::Status => self.prepare_for_status_update(new, old),
            Subresource::EphemeralContainers => keep_ephemeral_containers(new, old),
            Subresource::Resize => keep_resources(new, old),
            _ => self.prepare_for_update(new, old),
        }
    }

    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        new.at("spec") != old.at("spec")
    }

    fn grace_period(&self, pod: &Value, requested: Option<i64>) -> Option<i64> {
        let (spec, status) = (pod.at("spec"), pod.at("status"));
        let scheduled = !spec.text("nodeName").is_empty();
        let ended = matches!(status.text("phase"), "Failed" | "Succeeded");
        if !scheduled || ended {
            return Some(0);
        }
        let seconds = requested.or(spec.int("terminationGracePeriodSeconds")).unwrap_or(0);
        Some(if seconds < 0 { 1 } else { seconds })
    }
}

impl Validation for Pod {
    fn validate(&self, pod: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(pod, &mut errors);
        validation::check_pod(pod, &Rules::POD, &mut errors);
        validation::check_new_pod(pod, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        update::check_change(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        status::check_change(new, old, &mut errors);
        errors
    }

    fn validate_subresource_update(&self, subresource: Subresource, new: &Value, old: &Value) -> Errors {
        match subresource {
            Subresource::Status => self.validate_status_update(new, old),
            Subresource::EphemeralContainers => update::check_ephemeral_containers(new, old),
            Subresource::Resize => update::check_resize(new, old),
            _ => self.validate_update(new, old),
        }
    }

    /// Warns only about new pods: most updates come from programs, and are frequent.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none() {
            warnings::of_name(new, "the Pod's hostname", &mut found);
            warnings::of_spec(new, None, &mut found);
        }
        found
    }
}

/// Sets the initial condition of a pod with scheduling gates.
fn gate(pod: &mut Value) {
    if pod.at("spec").list("schedulingGates").is_empty() {
        return;
    }
    let now = pod.at("metadata").at("creationTimestamp").clone();
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": null,
        "lastTransitionTime": now,
    });
    pod.object_mut("status").set("conditions", json!([condition]));
}

/// Converts the label keys of affinity terms and spread constraints to requirements on this pod's own values.
fn merge_label_keys(pod: &mut Value) {
    let spec = pod.at("spec");
    if !spec.has("affinity") && !spec.has("topologySpreadConstraints") {
        return;
    }
    let labels = pod.at("metadata").at("labels").clone();
    let spec = pod.object_mut("spec");
    for constraint in spec.list_mut("topologySpreadConstraints") {
        merge_keys(constraint, "matchLabelKeys", "In", &labels);
    }
    let Some(affinity) = spec.at_mut("affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = affinity.at_mut(kind) else { continue };
        for term in affinity.list_mut("requiredDuringSchedulingIgnoredDuringExecution") {
            merge_term(term, &labels);
        }
        for weighted in affinity.list_mut("preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = weighted.at_mut("podAffinityTerm") {
                merge_term(term, &labels);
            }
        }
    }
}

fn merge_term(term: &mut Value, labels: &Value) {
    merge_keys(term, "matchLabelKeys", "In", labels);
    merge_keys(term, "mismatchLabelKeys", "NotIn", labels);
}

fn merge_keys(term: &mut Value, keys: &str, operator: &str, labels: &Value) {
    let requirement = |key: &Value| {
        let value = labels.get(key.as_str()?)?;
        Some(json!({"key": key, "operator": operator, "values": [value]}))
    };
    let requirements: Vec<Value> = term.list(keys).iter().filter_map(requirement).collect();
    let Some(selector) = term.at_mut("labelSelector").filter(|_| !requirements.is_empty()) else { return };
    match selector.at_mut("matchExpressions") {
        Some(Value::Array(expressions)) => expressions.extend(requirements),
        _ => selector.set("matchExpressions", requirements),
    }
}

/// Restores observed generations that an old client omitted.
fn keep_observed_generations(status: &mut Value, old: &Value) {
    if status.count("observedGeneration") == 0 {
        status.restore("observedGeneration", old);
    }
    let mut known: BTreeMap<&str, VecDeque<&Value>> = BTreeMap::new();
    for condition in old.list("conditions") {
        known.entry(condition.text("type")).or_default().push_back(condition);
    }
    for condition in status.list_mut("conditions") {
        // Types may repeat: matches the first in the new list with the first in the old.
        let same = known.get_mut(condition.text("type"));
        let Some(old) = same.and_then(VecDeque::pop_front) else { continue };
        if condition.count("observedGeneration") == 0 {
            condition.restore("observedGeneration", old);
        }
    }
}

/// Drops status fields of features that v1.34 disables.
fn drop_disabled_status(status: &mut Value) {
    status.unset("extendedResourceClaimStatus");
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for container in status.list_mut(list) {
            container.unset("allocatedResourcesStatus");
        }
    }
}

/// Restores everything but the ephemeral containers.
fn keep_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = new.at_mut("spec").and_then(|spec| spec.unset("ephemeralContainers"));
    restore_all(new, old);
    let spec = new.object_mut("spec");
    match containers {
        Some(containers) => spec.set("ephemeralContainers", containers),
        None => _ = spec.unset("ephemeralContainers"),
    }
    disabled::drop_fields(spec);
}

/// Restores everything but the containers' resources. Changes to the containers themselves are left for validation to
/// reject.
fn keep_resources(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let (new_spec, old_spec) = (new.at("spec"), old.at("spec"));
    if lists.iter().any(|list| new_spec.list(list).len() != old_spec.list(list).len()) {
        return;
    }
    let resized = lists.map(|list| resized(new_spec.list(list), old_spec.list(list)));
    restore_all(new, old);
    let spec = new.object_mut("spec");
    for (list, containers) in lists.into_iter().zip(resized) {
        if !containers.is_empty() {
            spec.set(list, containers);
        }
    }
    disabled::drop_fields(spec);
}

fn resized(new: &[Value], old: &[Value]) -> Vec<Value> {
    if new.iter().zip(old).any(|(new, old)| new.text("name") != old.text("name")) {
        return new.to_vec();
    }
    let resize = |(new, old): (&Value, &Value)| {
        let mut container = old.clone();
        container.restore("resources", new);
        container.restore("resizePolicy", new);
        container
    };
    new.iter().zip(old).map(resize).collect()
}

fn restore_all(new: &mut Value, old: &Value) {
    new.restore("spec", old);
    new.restore("status", old);
    let metadata = new.object_mut("metadata");
    for field in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"]
    {
        metadata.restore(field, old.at("metadata"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::pod;

    #[test]
    fn a_new_pod_is_pending_whatever_status_it_claims() {
        let mut pod = json!({"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": "g"}]}, "status": {"phase": "Running"}});
        pod::kind().semantics.prepare_for_create(&mut pod);
        Pod.prepare_for_create(&mut pod);
        assert_eq!(pod["status"]["phase"], "Pending");
        assert_eq!(pod["status"]["qosClass"], "BestEffort");
        assert_eq!(pod["status"]["conditions"][0]["lastTransitionTime"], "2020-01-01T00:00:00Z");
    }

    #[test]
    fn label_keys_become_requirements() {
        let mut pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": {"x": "y"}}, "matchLabelKeys": ["a", "b"]},
            {"matchLabelKeys": ["a"]}]}});
        Pod.prepare_for_create(&mut pod);
        let constraints = &pod["spec"]["topologySpreadConstraints"];
        assert_eq!(
            constraints[0]["labelSelector"]["matchExpressions"],
            json!([{"key": "a", "operator": "In", "values": ["1"]}])
        );
        assert!(constraints[1].get("labelSelector").is_none());
    }

    #[test]
    fn pods_that_are_not_running_have_no_grace_period() {
        let running = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        for (pod, requested, expected) in [
            (json!({"spec": {"terminationGracePeriodSeconds": 30}}), None, 0),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}), Some(5), 0),
            (running.clone(), None, 30),
            (running.clone(), Some(5), 5),
            (running, Some(-1), 1),
        ] {
            assert_eq!(Pod.grace_period(&pod, requested), Some(expected), "{pod}");
        }
    }

    #[test]
    fn a_resize_changes_nothing_but_resources() {
        let old =
            json!({"spec": {"containers": [{"name": "c", "image": "a", "resources": {}}], "nodeName": "n"}});
        let mut new = json!({"spec": {"containers": [{"name": "c", "image": "b", "resources": {"limits": {"cpu": "1"}}}]}});
        Pod.prepare_for_subresource_update(Subresource::Resize, &mut new, &old);
        assert_eq!(
            new["spec"],
            json!({"containers": [{"name": "c", "image": "a", "resources": {"limits": {"cpu": "1"}}}], "nodeName": "n"})
        );
    }

    #[test]
    fn a_status_update_keeps_observed_generations() {
        let old = json!({"spec": {}, "status": {"observedGeneration": 3, "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "observedGeneration": 2}]}});
        let mut new = json!({"spec": {"x": 1}, "status": {"conditions": [{"type": "Ready"}]}});
        pod::kind().semantics.prepare_for_update(Some(Subresource::Status), &mut new, &old);
        Pod.prepare_for_status_update(&mut new, &old);
        assert_eq!(new["status"], old["status"]);
        assert_eq!(new["spec"], json!({}));
    }
}
