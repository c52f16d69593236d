//! Applies limits to pods and claims: defaults when mutating, bounds when validating.
//!
//! Pure functions: the namespace's LimitRanges are arguments.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::json::{Json, JsonMut};
use crate::kinds::pod::totals;
use crate::kinds::resources::{amount, amounts};
use crate::quantity::Quantity;

/// The annotation that lists which requests and limits were set by default.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Above this, the value in thousandths does not fit 64 bits.
const MAX_MILLI_VALUE: i64 = i64::MAX / 1000;

/// Sets default requests and limits on a pod's containers.
pub fn default_pod<'a>(ranges: impl IntoIterator<Item = &'a Value>, pod: &mut Value) {
    for range in ranges {
        let limits = range.at("spec").list("limits").iter();
        let limits: Vec<&Value> = limits.filter(|limit| limit.text("type") == "Container").collect();
        let mut set = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            for container in pod.object_mut("spec").list_mut(list) {
                default_container(&limits, container, what, &mut set);
            }
        }
        if !set.is_empty() {
            let text = format!("LimitRanger plugin set: {}", set.join("; "));
            pod.object_mut("metadata").object_mut("annotations").set(ANNOTATION, text);
        }
    }
}

fn default_container(limits: &[&Value], container: &mut Value, what: &str, set: &mut Vec<String>) {
    let name = container.text("name").to_owned();
    for (list, default, kind) in [("requests", "defaultRequest", "request"), ("limits", "default", "limit")] {
        let mut added: Vec<String> = Vec::new();
        for (resource, amount) in
            limits.iter().rev().flat_map(|limit| limit.map(default).into_iter().flatten())
        {
            if !container.at("resources").at(list).has(resource) {
                container.object_mut("resources").object_mut(list).set(resource, amount.clone());
                added.push(resource.clone());
            }
        }
        if !added.is_empty() {
            added.sort();
            set.push(format!("{} {kind} for {what} {name}", added.join(", ")));
        }
    }
}

/// Checks a pod against the LimitRanges.
pub fn check_pod<'a>(ranges: impl IntoIterator<Item = &'a Value>, pod: &Value) -> Result<(), String> {
    check(ranges, |limit, refusals| match limit.text("type") {
        "Container" => {
            let spec = pod.at("spec");
            for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
                let resources = container.at("resources");
                let lookup = |list: &str, resource: &str| amount(resources.at(list), resource);
                check_limit(limit, lookup, refusals);
            }
        }
        "Pod" => {
            let totals = PodTotals::of(pod.at("spec"));
            check_limit(limit, |list, resource| totals.get(list, resource), refusals);
        }
        _ => {}
    })
}

/// Checks a claim against the LimitRanges.
pub fn check_claim<'a>(ranges: impl IntoIterator<Item = &'a Value>, claim: &Value) -> Result<(), String> {
    let requests = claim.at("spec").at("resources").at("requests");
    check(ranges, |limit, refusals| {
        if limit.text("type") == "PersistentVolumeClaim" {
            let lookup =
                |list: &str, resource: &str| amount(requests, resource).filter(|_| list == "requests");
            for (resource, enforced) in amounts(limit.at("min")) {
                refusals.extend(below_minimum(limit, resource, enforced, &lookup));
            }
            for (resource, enforced) in amounts(limit.at("max")) {
                refusals.extend(request_above_maximum(limit, resource, enforced, &lookup));
            }
        }
    })
}

/// Reports all violations of the first LimitRange that is violated.
fn check<'a>(
    ranges: impl IntoIterator<Item = &'a Value>,
    check_limit: impl Fn(&Value, &mut Vec<String>),
) -> Result<(), String> {
    for range in ranges {
        let mut refusals = Vec::new();
        for limit in range.at("spec").list("limits") {
            check_limit(limit, &mut refusals);
        }
        let mut seen = BTreeSet::new();
        refusals.retain(|refusal| seen.insert(refusal.clone()));
        match refusals.as_slice() {
            [] => {}
            [only] => return Err(only.clone()),
            all => return Err(format!("[{}]", all.join(", "))),
        }
    }
    Ok(())
}

/// The resources of a pod as a whole: its own requests and limits, or else the sum of its containers'.
struct PodTotals<'a> {
    spec: &'a Value,
    requests: Vec<(String, Quantity)>,
    limits: Vec<(String, Quantity)>,
}

impl<'a> PodTotals<'a> {
    fn of(spec: &'a Value) -> Self {
        Self { spec, requests: totals::total(spec, "requests"), limits: totals::total(spec, "limits") }
    }

    fn get(&self, list: &str, resource: &str) -> Option<Quantity> {
        let own = || amount(self.spec.at("resources").at(list), resource);
        let own = matches!(resource, "cpu" | "memory").then(own).flatten();
        let sums = if list == "requests" { &self.requests } else { &self.limits };
        own.or_else(|| sums.iter().find(|(name, _)| name == resource).map(|(_, sum)| *sum))
    }
}

fn check_limit(limit: &Value, lookup: impl Fn(&str, &str) -> Option<Quantity>, refusals: &mut Vec<String>) {
    for (resource, enforced) in amounts(limit.at("min")) {
        refusals.extend(below_minimum(limit, resource, enforced, &lookup));
    }
    for (resource, enforced) in amounts(limit.at("max")) {
        refusals.extend(above_maximum(limit, resource, enforced, &lookup));
    }
    for (resource, enforced) in amounts(limit.at("maxLimitRequestRatio")) {
        refusals.extend(above_ratio(limit, resource, enforced, &lookup));
    }
}

type Lookup<'a> = &'a dyn Fn(&str, &str) -> Option<Quantity>;

fn below_minimum(limit: &Value, resource: &str, enforced: Quantity, lookup: Lookup<'_>) -> Option<String> {
    let bound = format!("minimum {resource} usage per {} is {enforced}", limit.text("type"));
    match (lookup("requests", resource), lookup("limits", resource)) {
        (None, _) => Some(format!("{bound}.  No request is specified")),
        (Some(request), _) if request < enforced => Some(format!("{bound}, but request is {request}")),
        (_, Some(limit)) if limit < enforced => Some(format!("{bound}, but limit is {limit}")),
        _ => None,
    }
}

fn above_maximum(limit: &Value, resource: &str, enforced: Quantity, lookup: Lookup<'_>) -> Option<String> {
    let bound = format!("maximum {resource} usage per {} is {enforced}", limit.text("type"));
    match (lookup("requests", resource), lookup("limits", resource)) {
        (_, None) => Some(format!("{bound}.  No limit is specified")),
        (_, Some(limit)) if limit > enforced => Some(format!("{bound}, but limit is {limit}")),
        (Some(request), _) if request > enforced => Some(format!("{bound}, but request is {request}")),
        _ => None,
    }
}

fn request_above_maximum(
    limit: &Value,
    resource: &str,
    enforced: Quantity,
    lookup: Lookup<'_>,
) -> Option<String> {
    let bound = format!("maximum {resource} usage per {} is {enforced}", limit.text("type"));
    match lookup("requests", resource) {
        None => Some(format!("{bound}.  No request is specified")),
        Some(request) if request > enforced => Some(format!("{bound}, but request is {request}")),
        Some(_) => None,
    }
}

fn above_ratio(limit: &Value, resource: &str, enforced: Quantity, lookup: Lookup<'_>) -> Option<String> {
    let bound = format!("{resource} max limit to request ratio per {} is {enforced}", limit.text("type"));
    let positive = |list| lookup(list, resource).filter(|amount| !amount.is_zero());
    let Some(request) = positive("requests") else {
        return Some(format!("{bound}, but no request is specified or request is 0"));
    };
    let Some(limit) = positive("limits") else {
        return Some(format!("{bound}, but no limit is specified or limit is 0"));
    };
    let fine = [request, limit, enforced].iter().all(|amount| amount.value() <= MAX_MILLI_VALUE);
    let ratio = match fine {
        true => limit.milli_value() as f64 / request.milli_value() as f64,
        false => limit.value() as f64 / request.value() as f64,
    };
    let exceeded = match enforced.value() <= MAX_MILLI_VALUE {
        true => ratio * 1000.0 > enforced.milli_value() as f64,
        false => ratio > enforced.value() as f64,
    };
    exceeded.then(|| format!("{bound}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(limit: Value) -> [Value; 1] {
        [json!({"spec": {"limits": [limit]}})]
    }

    #[test]
    fn containers_get_default_requests_and_the_pod_is_annotated() {
        let ranges = range(json!({"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"},
            "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}));
        let mut pod = json!({"spec": {"containers": [{"name": "x"}, {"name": "y", "resources": {"requests": {"memory": "5Mi"}}}],
            "initContainers": [{"name": "i"}]}});
        default_pod(&ranges, &mut pod);
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu, memory request for container x; cpu, memory limit for container x; \
             cpu request for container y; cpu, memory limit for container y; \
             cpu, memory request for init container i; cpu, memory limit for init container i"
        );
        assert_eq!(
            pod["spec"]["containers"][1]["resources"],
            json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "5Mi"}})
        );
    }

    #[test]
    fn a_pod_with_explicit_requests_is_unchanged() {
        let mut pod = json!({"spec": {"containers": [{"name": "x"}]}});
        let before = pod.clone();
        default_pod(&range(json!({"type": "Container", "max": {"cpu": "1"}})), &mut pod);
        assert_eq!(pod, before);
    }

    #[test]
    fn bounds_hold_for_containers_and_for_pods_as_a_whole() {
        let with =
            |resources: Value| json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let check = |limit: Value, pod: &Value| check_pod(&range(limit), pod).err().unwrap_or_default();
        let pod = with(json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}));
        for (limit, refusal) in [
            (json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}), ""),
            (
                json!({"type": "Container", "max": {"cpu": "1"}}),
                "maximum cpu usage per Container is 1, but limit is 2",
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "1500m"}}),
                "minimum cpu usage per Pod is 1500m, but request is 1",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "1"}}),
                "maximum memory usage per Pod is 1.  No limit is specified",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}}),
                "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1", "memory": "1"}}),
                "[maximum cpu usage per Container is 1, but limit is 2, \
                 maximum memory usage per Container is 1.  No limit is specified]",
            ),
        ] {
            assert_eq!(check(limit, &pod), refusal);
        }
    }

    #[test]
    fn bounds_hold_for_claims() {
        let claim = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
        let limits = range(json!({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}));
        assert_eq!(
            check_claim(&limits, &claim).unwrap_err(),
            "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
        );
    }
}
