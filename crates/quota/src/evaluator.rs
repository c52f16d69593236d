//! Which resources a kind is counted for, and the usage of one object.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::claim::{self, Claim};
use crate::device_claim::{self, DeviceClaim};
use crate::pod::{self, Pod};
use crate::resources::Resources;
use crate::scope::{Scope, Scopes};
use crate::service::{self, Service};

/// Kinds whose count has a second name, from before all kinds could be counted.
const SECOND_NAMES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

/// Kinds that are not counted: not stored, or too many and short-lived.
const NOT_COUNTED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// How objects of a kind are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evaluator {
    Pods,
    Services,
    Claims,
    DeviceClaims,
    /// Any other kind is counted by number, under these names.
    Objects(Vec<String>),
}

/// The fields of an object that determine its usage.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Pod(Box<Pod>),
    Service(Service),
    Claim(Claim),
    DeviceClaim(DeviceClaim),
    Object(Vec<String>),
}

/// Returns the quota resource for the number of a kind's objects.
pub fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

impl Evaluator {
    /// Returns the evaluator of a kind. `None` if it is not counted.
    pub fn of(group: &str, plural: &str) -> Option<Self> {
        if NOT_COUNTED.contains(&(group, plural)) {
            return None;
        }
        Some(match (group, plural) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            ("resource.k8s.io", "resourceclaims") => Self::DeviceClaims,
            ("", plural) if SECOND_NAMES.contains(&plural) => {
                Self::Objects(vec![count_name("", plural), plural.to_owned()])
            }
            _ => Self::Objects(vec![count_name(group, plural)]),
        })
    }

    /// Returns the group and plural of the kind that a quota resource counts. `None` if no kind is counted for it.
    pub fn kind_of(resource: &str) -> Option<(String, String)> {
        let core = |plural: &str| Some((String::new(), plural.to_owned()));
        if let Some(counted) = resource.strip_prefix("count/") {
            let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
            return Self::of(group, plural).map(|_| (group.to_owned(), plural.to_owned()));
        }
        let claimed =
            [(Self::Pods, "pods"), (Self::Services, "services"), (Self::Claims, "persistentvolumeclaims")];
        if let Some((_, plural)) = claimed.iter().find(|(evaluator, _)| evaluator.counts(resource)) {
            return core(plural);
        }
        if Self::DeviceClaims.counts(resource) {
            return Some(("resource.k8s.io".to_owned(), "resourceclaims".to_owned()));
        }
        if SECOND_NAMES.contains(&resource) { core(resource) } else { None }
    }

    /// Whether objects of this kind are counted for a resource.
    pub fn counts(&self, resource: &str) -> bool {
        match self {
            Self::Pods => pod::counts(resource),
            Self::Services => service::COUNTED.contains(&resource),
            Self::Claims => claim::counts(resource),
            Self::DeviceClaims => device_claim::counts(resource),
            Self::Objects(names) => names.iter().any(|name| name == resource),
        }
    }

    /// Decodes an object of this kind.
    pub fn read<'de, D: Deserializer<'de>>(&self, object: D) -> Result<Item, D::Error> {
        Ok(match self {
            Self::Pods => Item::Pod(Box::new(Pod::deserialize(object)?)),
            Self::Services => Item::Service(Service::deserialize(object)?),
            Self::Claims => Item::Claim(Claim::deserialize(object)?),
            Self::DeviceClaims => Item::DeviceClaim(DeviceClaim::deserialize(object)?),
            Self::Objects(names) => Item::Object(names.clone()),
        })
    }
}

impl Item {
    /// Returns the usage of the object.
    pub fn usage(&self, now: Timestamp) -> Resources {
        match self {
            Self::Pod(pod) => pod.usage(now),
            Self::Service(service) => service.usage(),
            Self::Claim(claim) => claim.usage(),
            Self::DeviceClaim(claim) => claim.usage(),
            Self::Object(names) => {
                let mut usage = Resources::new();
                names.iter().for_each(|name| usage.set_count(name, 1));
                usage
            }
        }
    }

    /// Whether a quota with these scopes covers the object. Scopes apply to pods and claims only: a quota with scopes
    /// covers nothing else.
    pub fn is_in(&self, scopes: &Scopes) -> bool {
        scopes.all().all(|scope| self.matches(&scope))
    }

    /// Whether the object matches a scope.
    pub fn matches(&self, scope: &Scope) -> bool {
        match self {
            Self::Pod(pod) => pod.matches(scope),
            Self::Claim(claim) => claim.matches(scope),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(group: &str, plural: &str, object: Value, expected: Value) {
        let item = Evaluator::of(group, plural).expect("counted").read(object.clone()).expect("an object");
        let usage = item.usage("2025-01-01T00:00:00Z".parse().expect("a time"));
        assert_eq!(serde_json::to_value(usage).expect("a map"), expected, "{object}");
    }

    #[test]
    fn any_kind_counts_for_its_number() {
        check("apps", "deployments", json!({}), json!({"count/deployments.apps": "1"}));
        check("", "secrets", json!({}), json!({"count/secrets": "1", "secrets": "1"}));
        assert_eq!(Evaluator::of("", "events"), None);
        for (resource, group, plural) in [
            ("count/deployments.apps", "apps", "deployments"),
            ("requests.cpu", "", "pods"),
            ("requests.storage", "", "persistentvolumeclaims"),
            ("gold.storageclass.storage.k8s.io/requests.storage", "", "persistentvolumeclaims"),
            ("services.nodeports", "", "services"),
            ("gpu.deviceclass.resource.k8s.io/devices", "resource.k8s.io", "resourceclaims"),
            ("configmaps", "", "configmaps"),
            ("requests.example.com/gpu", "", "pods"),
        ] {
            assert_eq!(
                Evaluator::kind_of(resource),
                Some((group.to_owned(), plural.to_owned())),
                "{resource}"
            );
        }
        assert_eq!(Evaluator::kind_of("limits.example.com/gpu"), None);
        assert_eq!(Evaluator::kind_of("count/events"), None);
    }

    #[test]
    fn services_count_for_their_ports_and_balancers() {
        let ports = json!([{"nodePort": 30000}, {}]);
        let usage = |ports: &str, balancers: &str| json!({"count/services": "1", "services": "1", "services.loadbalancers": balancers, "services.nodeports": ports});
        let service = |kind: &str| json!({"spec": {"type": kind, "ports": ports}});
        check("", "services", service("ClusterIP"), usage("0", "0"));
        check("", "services", service("NodePort"), usage("2", "0"));
        check("", "services", service("LoadBalancer"), usage("2", "1"));
        let mut without = service("LoadBalancer");
        without["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
        check("", "services", without, usage("1", "1"));
    }

    #[test]
    fn claims_count_for_storage_also_of_their_class() {
        let claim = json!({
            "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1500m"}}},
            "status": {"allocatedResources": {"storage": "3"}},
        });
        let expected = json!({
            "count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "3",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
            "gold.storageclass.storage.k8s.io/requests.storage": "3",
        });
        check("", "persistentvolumeclaims", claim, expected);
        let plain = json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}});
        let expected = json!({"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "2"});
        check("", "persistentvolumeclaims", plain, expected);
    }

    #[test]
    fn device_claims_count_for_the_devices_of_each_class() {
        let exactly = |class: &str, mode: &str, count: i64| json!({"deviceClassName": class, "allocationMode": mode, "count": count});
        let requests = json!([
            {"name": "a", "exactly": exactly("gpu", "ExactCount", 2)},
            {"name": "b", "firstAvailable": [exactly("gpu", "ExactCount", 1), exactly("gpu", "ExactCount", 4), exactly("nic", "All", 0)]},
        ]);
        let claim = json!({"spec": {"devices": {"requests": requests}}});
        let expected = json!({
            "count/resourceclaims.resource.k8s.io": "1",
            "gpu.deviceclass.resource.k8s.io/devices": "6",
            "nic.deviceclass.resource.k8s.io/devices": "32",
        });
        check("resource.k8s.io", "resourceclaims", claim, expected);
    }

    fn pod(spec: Value) -> Value {
        json!({"spec": spec, "status": {"phase": "Running"}})
    }

    fn container(requests: Value, limits: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
    }

    #[test]
    fn pods_count_for_their_peak_demand() {
        let spec = json!({
            "containers": [container(json!({"cpu": "1", "memory": "1Gi"}), json!({"cpu": "2"})), container(json!({"cpu": "500m"}), json!({}))],
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}},
                container(json!({"cpu": "2"}), json!({})),
            ],
            "overhead": {"cpu": "100m"},
        });
        let expected = json!({
            "count/pods": "1", "pods": "1", "cpu": "2350m", "requests.cpu": "2350m", "limits.cpu": "2100m",
            "memory": "1Gi", "requests.memory": "1Gi",
        });
        check("", "pods", pod(spec), expected);
        let extended = json!({"containers": [container(json!({"example.com/gpu": "2", "hugepages-2Mi": "4Mi"}), json!({}))]});
        let expected = json!({
            "count/pods": "1", "pods": "1", "requests.example.com/gpu": "2", "hugepages-2Mi": "4Mi",
            "requests.hugepages-2Mi": "4Mi",
        });
        check("", "pods", pod(extended), expected);
    }

    #[test]
    fn pod_level_requests_replace_the_sum() {
        let spec = json!({
            "containers": [container(json!({"cpu": "1"}), json!({"cpu": "1"}))],
            "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
        });
        let expected =
            json!({"count/pods": "1", "pods": "1", "cpu": "3", "requests.cpu": "3", "limits.cpu": "4"});
        check("", "pods", pod(spec), expected);
    }

    #[test]
    fn pods_that_have_ended_or_should_have_count_for_their_number_only() {
        let only = json!({"count/pods": "1"});
        check("", "pods", json!({"spec": {}, "status": {"phase": "Failed"}}), only.clone());
        let mut ending = pod(json!({}));
        ending["metadata"] =
            json!({"deletionTimestamp": "2024-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30});
        check("", "pods", ending.clone(), only);
        ending["metadata"]["deletionGracePeriodSeconds"] = json!(90);
        check("", "pods", ending, json!({"count/pods": "1", "pods": "1"}));
    }

    #[test]
    fn scopes_select_pods() {
        let read = |pod: Value| Evaluator::Pods.read(pod).expect("a pod");
        let scopes = |json: Value| serde_json::from_value::<Scopes>(json).expect("scopes");
        let check = |spec: Value, quota: Value, expected: bool| {
            assert_eq!(read(pod(spec.clone())).is_in(&scopes(quota.clone())), expected, "{spec} in {quota}");
        };
        check(json!({}), json!({"scopes": ["BestEffort", "NotTerminating"]}), true);
        check(json!({"activeDeadlineSeconds": 5}), json!({"scopes": ["Terminating"]}), true);
        check(
            json!({"activeDeadlineSeconds": 5}),
            json!({"scopes": ["BestEffort", "NotTerminating"]}),
            false,
        );
        let burstable = json!({"containers": [container(json!({"cpu": "1"}), json!({}))]});
        check(burstable.clone(), json!({"scopes": ["BestEffort"]}), false);
        check(burstable, json!({"scopes": ["NotBestEffort"]}), true);
        let priority = |operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        let high = json!({"priorityClassName": "high"});
        check(high.clone(), priority("In", &["high", "low"]), true);
        check(high.clone(), priority("NotIn", &["high"]), false);
        check(high.clone(), priority("Exists", &[]), true);
        check(high, priority("DoesNotExist", &[]), false);
        check(json!({}), priority("DoesNotExist", &[]), true);
        let term = json!({"podAffinityTerm": {"namespaces": ["other"]}});
        let far = json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}});
        check(far, json!({"scopes": ["CrossNamespacePodAffinity"]}), true);
        check(json!({}), json!({"scopes": ["CrossNamespacePodAffinity"]}), false);
    }
}
