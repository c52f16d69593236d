//! Quota usage of pods.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::names::{COMPUTE, is_huge_pages, is_native, is_requested_huge_pages};
use crate::resources::Resources;
use crate::scope::Scope;

const NUMBER: &str = "count/pods";
const REQUESTS: &str = "requests.";

/// Resources that every container must specify if a quota limits them.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// The pod fields that determine its usage and scopes, extracted while decoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    needs: Resources,
    has_ended: bool,
    /// When it must have terminated.
    ends_by: Option<Timestamp>,
    has_deadline: bool,
    best_effort: bool,
    priority_class: Option<Box<str>>,
    crosses_namespaces: bool,
}

pub(crate) fn counts(resource: &str) -> bool {
    resource == NUMBER
        || resource == "pods"
        || COMPUTE.contains(&resource)
        || is_huge_pages(resource)
        || is_requested_huge_pages(resource)
        || (resource.starts_with(REQUESTS) && !is_native(resource))
}

impl Pod {
    pub(crate) fn usage(&self, now: Timestamp) -> Resources {
        let mut usage = Resources::new();
        usage.set_count(NUMBER, 1);
        if !self.has_ended && self.ends_by.is_none_or(|end| now <= end) {
            usage.add(&self.needs);
        }
        usage
    }

    pub(crate) fn matches(&self, scope: &Scope) -> bool {
        match scope.scope_name.as_str() {
            "Terminating" => self.has_deadline,
            "NotTerminating" => !self.has_deadline,
            "BestEffort" => self.best_effort,
            "NotBestEffort" => !self.best_effort,
            "PriorityClass" => scope.holds(self.priority_class.as_deref()),
            "CrossNamespacePodAffinity" => self.crosses_namespaces,
            _ => false,
        }
    }
}

/// Returns a message about limited resources that containers do not specify, or `None`. Pods with pod-level resources
/// are not checked.
pub fn must_specify<'a>(pod: &Value, limited: impl Iterator<Item = &'a str>) -> Option<String> {
    let pod = Encoded::deserialize(pod).unwrap_or_default();
    if pod.spec.resources.is_pod_level() {
        return None;
    }
    let required: BTreeSet<&str> = limited.filter(|name| REQUIRED.contains(name)).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in pod.spec.containers.iter().chain(pod.spec.init_containers.iter().flatten()) {
        let specified = named(&container.resources.requests, &container.resources.limits);
        for name in required.iter().filter(|name| !specified.contains(name)) {
            missing.entry(name).or_default().insert(&container.name);
        }
    }
    let clause = |(name, containers): (&&str, &BTreeSet<&str>)| {
        let containers: Vec<&str> = containers.iter().copied().collect();
        format!("{name} for: {}", containers.join(","))
    };
    let clauses: Vec<String> = missing.iter().map(clause).collect();
    (!clauses.is_empty()).then(|| format!("must specify {}", clauses.join("; ")))
}

/// Returns a pod's total requests.
pub fn pod_requests(pod: &Value) -> Resources {
    Encoded::deserialize(pod).unwrap_or_default().requests()
}

/// Returns a pod's total limits.
pub fn pod_limits(pod: &Value) -> Resources {
    Encoded::deserialize(pod).unwrap_or_default().limits()
}

/// Returns requests and limits under their quota names.
fn named(requests: &Resources, limits: &Resources) -> Resources {
    let mut named = Resources::new();
    named.set_count("pods", 1);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            named.set(name, *request);
            named.set(format!("{REQUESTS}{name}"), *request);
        }
        if let Some(limit) = limits.get(name) {
            named.set(format!("limits.{name}"), *limit);
        }
    }
    for (name, request) in requests.iter() {
        if is_huge_pages(name) {
            named.set(name, *request);
        }
        if is_huge_pages(name) || is_extended(name) {
            named.set(format!("{REQUESTS}{name}"), *request);
        }
    }
    named
}

fn is_extended(resource: &str) -> bool {
    !is_native(resource) && !resource.starts_with(REQUESTS)
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Encoded::deserialize(deserializer)?.facts())
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Encoded {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    deletion_timestamp: Option<Timestamp>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Vec<Container>,
    init_containers: Option<Vec<Container>>,
    overhead: Resources,
    resources: Requirements,
    active_deadline_seconds: Option<i64>,
    priority_class_name: Option<Box<str>>,
    affinity: Option<Affinities>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    restart_policy: Option<String>,
    resources: Requirements,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct Requirements {
    requests: Resources,
    limits: Resources,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    qos_class: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    r#type: String,
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    resources: Option<Requirements>,
    allocated_resources: Resources,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Affinities {
    pod_affinity: Option<Affinity>,
    pod_anti_affinity: Option<Affinity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    required_during_scheduling_ignored_during_execution: Option<Vec<Term>>,
    preferred_during_scheduling_ignored_during_execution: Option<Vec<WeightedTerm>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WeightedTerm {
    pod_affinity_term: Term,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    namespaces: Option<Vec<String>>,
    namespace_selector: Option<serde::de::IgnoredAny>,
}

impl Encoded {
    fn facts(self) -> Pod {
        let grace = self.metadata.deletion_grace_period_seconds.map(SignedDuration::from_secs);
        let ends_by = self.metadata.deletion_timestamp.zip(grace);
        Pod {
            needs: named(&self.requests(), &self.limits()),
            has_ended: matches!(self.status.phase.as_str(), "Failed" | "Succeeded"),
            ends_by: ends_by.and_then(|(end, grace)| end.checked_add(grace).ok()),
            has_deadline: self.spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0),
            best_effort: self.is_best_effort(),
            crosses_namespaces: self.spec.affinity.as_ref().is_some_and(Affinities::cross_namespaces),
            priority_class: self.spec.priority_class_name.filter(|name| !name.is_empty()),
        }
    }

    fn requests(&self) -> Resources {
        let mut requests = self.at_once(|container| self.actual(container).requests);
        for (name, request) in self.spec.resources.pod_level(|all| &all.requests) {
            requests.set(name, *request);
        }
        requests.add(&self.spec.overhead);
        requests
    }

    fn limits(&self) -> Resources {
        let mut limits = self.at_once(|container| self.actual(container).limits);
        for (name, limit) in self.spec.resources.pod_level(|all| &all.limits) {
            limits.set(name, *limit);
        }
        let overhead = self.spec.overhead.only(|name| limits.get(name).is_some_and(|limit| !limit.is_zero()));
        limits.add(&overhead);
        limits
    }

    /// Returns the maximum of each resource used at the same time: by all main containers and sidecars, or by an init
    /// container and the sidecars started before it.
    fn at_once(&self, of: impl Fn(&Container) -> Resources) -> Resources {
        let mut together = Resources::new();
        self.spec.containers.iter().for_each(|container| together.add(&of(container)));
        let (mut beside, mut first) = (Resources::new(), Resources::new());
        for container in self.spec.init_containers.iter().flatten() {
            let own = of(container);
            if container.is_sidecar() {
                together.add(&own);
                beside.add(&own);
                first.raise_to(&beside);
            } else {
                let mut now = own;
                now.add(&beside);
                first.raise_to(&now);
            }
        }
        together.raise_to(&first);
        together
    }

    /// Returns a container's actual resources, or those after a pending resize if larger.
    fn actual(&self, container: &Container) -> Requirements {
        let statuses =
            self.status.container_statuses.iter().chain(&self.status.init_container_statuses).flatten();
        let first = self.spec.init_containers.iter().flatten().any(|init| init.name == container.name);
        let counted = !first || container.is_sidecar();
        let status = statuses.filter(|_| counted).find(|status| status.name == container.name);
        let Some((status, actual)) = status.and_then(|status| Some((status, status.resources.as_ref()?)))
        else {
            return container.resources.clone();
        };
        let mut most =
            if self.resize_is_infeasible() { Requirements::default() } else { container.resources.clone() };
        most.requests.raise_to(&actual.requests);
        most.requests.raise_to(&status.allocated_resources);
        most.limits.raise_to(&actual.limits);
        most
    }

    fn resize_is_infeasible(&self) -> bool {
        let pending =
            self.status.conditions.iter().flatten().find(|condition| condition.r#type == "PodResizePending");
        pending.is_some_and(|condition| condition.reason == "Infeasible")
    }

    /// Whether the pod requests no CPU and memory.
    fn is_best_effort(&self) -> bool {
        if let Some(class) = self.status.qos_class.as_deref().filter(|class| !class.is_empty()) {
            return class == "BestEffort";
        }
        if self.spec.resources.is_pod_level() {
            return self.spec.resources.is_unset();
        }
        let containers = self.spec.containers.iter().chain(self.spec.init_containers.iter().flatten());
        containers.map(|container| &container.resources).all(Requirements::is_unset)
    }
}

impl Container {
    /// Whether it is a sidecar.
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl Requirements {
    /// Lists the resources that can be set at pod level.
    fn pod_level<'a>(
        &'a self,
        of: impl Fn(&'a Self) -> &'a Resources,
    ) -> impl Iterator<Item = (&'a str, &'a setpoint_quantity::Quantity)> {
        of(self).iter().filter(|(name, _)| matches!(*name, "cpu" | "memory") || is_huge_pages(name))
    }

    fn is_pod_level(&self) -> bool {
        self.pod_level(|all| &all.requests).chain(self.pod_level(|all| &all.limits)).next().is_some()
    }

    fn is_unset(&self) -> bool {
        let some = |list: &Resources| {
            ["cpu", "memory"].iter().any(|name| list.get(name).is_some_and(|amount| amount.sign() > 0))
        };
        !some(&self.requests) && !some(&self.limits)
    }
}

impl Affinities {
    /// Whether any term refers to pods of other namespaces.
    fn cross_namespaces(&self) -> bool {
        [&self.pod_affinity, &self.pod_anti_affinity].into_iter().flatten().any(Affinity::crosses_namespaces)
    }
}

impl Affinity {
    fn crosses_namespaces(&self) -> bool {
        let required = self.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = self.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|weighted| &weighted.pod_affinity_term)).any(Term::crosses_namespaces)
    }
}

impl Term {
    fn crosses_namespaces(&self) -> bool {
        self.namespaces.as_ref().is_some_and(|namespaces| !namespaces.is_empty())
            || self.namespace_selector.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_container_must_specify_what_a_quota_limits() {
        let pod = json!({"spec": {
            "containers": [
                {"name": "b", "resources": {"requests": {"cpu": "1"}}},
                {"name": "a", "resources": {"limits": {"memory": "1"}}},
            ],
        }});
        let check = |limited: &[&str], expected: Option<&str>| {
            assert_eq!(must_specify(&pod, limited.iter().copied()).as_deref(), expected);
        };
        check(&["pods", "requests.storage"], None);
        check(&["requests.cpu"], Some("must specify requests.cpu for: a"));
        check(
            &["limits.memory", "memory", "pods"],
            Some("must specify limits.memory for: b; memory for: a,b"),
        );
        let whole = json!({"spec": {"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "1"}}}});
        assert_eq!(must_specify(&whole, ["requests.cpu"].into_iter()), None);
    }

    #[test]
    fn a_container_that_is_being_resized_counts_for_the_more_of_before_and_after() {
        let pod = |reason: &str| {
            json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {
                    "conditions": [{"type": "PodResizePending", "reason": reason}],
                    "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}, "allocatedResources": {"cpu": "700m"}}],
                },
            })
        };
        let cpu = |pod: Value| pod_requests(&pod).get("cpu").unwrap().to_string();
        assert_eq!(cpu(pod("Deferred")), "1");
        assert_eq!(cpu(pod("Infeasible")), "700m");
    }
}
