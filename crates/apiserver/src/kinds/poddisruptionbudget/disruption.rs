//! Decides whether a budget allows a pod's eviction.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json::{Json, JsonMut};
use crate::kinds::selector;
use crate::metadata::seconds;
use crate::validation::has_condition;

/// Maximum evicted pods that the controller has not confirmed yet.
const MAX_UNCONFIRMED: usize = 2000;

/// Why a budget rejects an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The controller has not yet processed the current budget.
    Unobserved,
    /// Too few pods would be healthy.
    Exhausted {
        needed: i64,
        healthy: i64,
    },
    Negative,
    TooManyUnconfirmed,
}

/// Whether a pod can be evicted without any budget: it is not serving, or is already being deleted.
pub(crate) fn needs_no_budget(pod: &Value) -> bool {
    matches!(pod.at("status").text("phase"), "Succeeded" | "Failed" | "Pending") || is_terminating(pod)
}

/// Whether such a pod could still become one that needs a budget.
pub(crate) fn may_become_healthy(pod: &Value) -> bool {
    !matches!(pod.at("status").text("phase"), "Succeeded" | "Failed") && !is_terminating(pod)
}

fn is_terminating(pod: &Value) -> bool {
    pod.at("metadata").has("deletionTimestamp")
}

/// Whether a budget covers a pod in its namespace.
pub(crate) fn guards(budget: &Value, pod: &Value) -> bool {
    let wanted = budget.at("spec").at("selector");
    !wanted.is_null() && selector::matches(wanted, pod.at("metadata").at("labels"))
}

/// Whether the budget allows the eviction without using a disruption, because the pod is not healthy and the healthy
/// ones suffice.
pub(crate) fn is_free(budget: &Value, pod: &Value) -> bool {
    let is_ready = has_condition(pod.at("status"), "Ready");
    let (needed, healthy) = health(budget);
    let always = budget.at("spec").text("unhealthyPodEvictionPolicy") == "AlwaysAllow";
    !is_ready && (always || needed > 0 && healthy >= needed)
}

fn health(budget: &Value) -> (i64, i64) {
    let status = budget.at("status");
    (status.count("desiredHealthy"), status.count("currentHealthy"))
}

/// Returns the budget after an eviction.
pub(crate) fn spend(budget: &Value, pod: &str, now: Timestamp) -> Result<Value, Refusal> {
    let status = budget.at("status");
    let allowed = status.count("disruptionsAllowed");
    if status.count("observedGeneration") < budget.at("metadata").count("generation") {
        return Err(Refusal::Unobserved);
    }
    if allowed < 0 {
        return Err(Refusal::Negative);
    }
    if status.map("disruptedPods").is_some_and(|pods| pods.len() > MAX_UNCONFIRMED) {
        return Err(Refusal::TooManyUnconfirmed);
    }
    if allowed == 0 {
        let (needed, healthy) = health(budget);
        return Err(Refusal::Exhausted { needed, healthy });
    }
    let mut spent = budget.clone();
    let status = spent.object_mut("status");
    status.set("disruptionsAllowed", allowed - 1);
    if allowed == 1 {
        set_exhausted(status, now);
    }
    status.object_mut("disruptedPods").set(pod, seconds(now));
    Ok(spent)
}

/// Sets the condition that no more disruptions are allowed.
fn set_exhausted(status: &mut Value, now: Timestamp) {
    let mut conditions = status.list("conditions").to_vec();
    let at = conditions.iter().position(|condition| condition.text("type") == "DisruptionAllowed");
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": seconds(now),
    });
    if status.count("observedGeneration") != 0 {
        condition.restore("observedGeneration", status);
    }
    match at {
        Some(at) => {
            if conditions[at].text("status") == "False" {
                condition.restore("lastTransitionTime", &conditions[at]);
            }
            conditions[at] = condition;
        }
        None => conditions.push(condition),
    }
    status.set("conditions", conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(allowed: i64) -> Value {
        json!({"metadata": {"generation": 2}, "spec": {"selector": {"matchLabels": {"a": "b"}}},
            "status": {"observedGeneration": 2, "disruptionsAllowed": allowed, "desiredHealthy": 2, "currentHealthy": 2}})
    }

    fn now() -> Timestamp {
        "2020-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn each_eviction_decrements_the_allowed_disruptions() {
        let spent = spend(&budget(2), "p", now()).unwrap();
        assert_eq!(spent["status"]["disruptionsAllowed"], 1);
        assert_eq!(spent["status"]["disruptedPods"], json!({"p": "2020-01-01T00:00:00Z"}));
        assert!(spent["status"].get("conditions").is_none());
        let spent = spend(&spent, "q", now()).unwrap();
        assert_eq!(spent["status"]["conditions"][0]["reason"], "InsufficientPods");
        assert_eq!(spend(&spent, "r", now()), Err(Refusal::Exhausted { needed: 2, healthy: 2 }));
    }

    #[test]
    fn a_budget_with_an_outdated_status_allows_no_eviction() {
        let mut unseen = budget(1);
        unseen["metadata"]["generation"] = 3.into();
        assert_eq!(spend(&unseen, "p", now()), Err(Refusal::Unobserved));
        assert_eq!(spend(&budget(-1), "p", now()), Err(Refusal::Negative));
    }

    #[test]
    fn unready_pods_can_be_evicted_without_budget() {
        let pod = |phase: &str, ready: &str| {
            json!({"metadata": {"labels": {"a": "b"}},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
        };
        assert!(needs_no_budget(&pod("Pending", "False")) && may_become_healthy(&pod("Pending", "False")));
        assert!(!needs_no_budget(&pod("Running", "True")));
        assert!(guards(&budget(1), &pod("Running", "True")));
        assert!(!guards(&json!({"spec": {}}), &pod("Running", "True")));
        assert!(is_free(&budget(0), &pod("Running", "False")));
        assert!(!is_free(&budget(0), &pod("Running", "True")));
    }
}
