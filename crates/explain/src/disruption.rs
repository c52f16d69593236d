//! PodDisruptionBudgets that allow no eviction.

use serde::Deserialize;
use setpoint::LabelSelector;

use crate::inquiry::{Inquiry, node_of};
use crate::kinds::{BUDGET, POD};
use crate::model::{Evidence, Node};
use crate::pods;
use crate::read::Read;
use crate::snapshot::Item;

pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, budget: &'a Item) -> Node {
    let count = |field: &str| budget.number(&format!("/status/{field}")).unwrap_or_default();
    let (allowed, healthy, desired, expected) = (
        count("disruptionsAllowed"),
        count("currentHealthy"),
        count("desiredHealthy"),
        count("expectedPods"),
    );
    let condition = budget.condition("DisruptionAllowed");
    let numbers =
        format!("{healthy} of {expected} pods are healthy, {desired} have to be, {allowed} may be disrupted");
    let node = node_of(budget)
        .evidence(condition.map(|condition| condition.evidence()))
        .evidence([Evidence::field("status", &numbers)]);
    if let Some(failed) = condition.filter(|condition| condition.reason == "SyncFailed") {
        let text = format!("cannot be computed (SyncFailed): {}", failed.message);
        return node.blocked(
            text,
            "give the pods a controller with a scale subresource, or use an integer minAvailable",
        );
    }
    if !budget.has("/status/observedGeneration") {
        return node.progressing("has not been computed yet");
    }
    if expected == 0 {
        return node.converged("selects no pods");
    }
    if allowed > 0 {
        return node.converged(numbers);
    }
    if desired >= expected {
        let how = if healthy >= expected {
            "although all pods are healthy"
        } else {
            "even if all pods are healthy"
        };
        let text = format!("allows no disruption {how} ({}): {numbers}", rule(budget));
        return node.blocked(text, "run more replicas, or lower minAvailable (raise maxUnavailable)").root();
    }
    let members = members(inquiry, budget);
    let unhealthy: Vec<&'a Item> =
        members.into_iter().filter(|pod| !pods::is_ready(pod) && !pods::has_ended(pod)).collect();
    let children = pods::explain_all(inquiry, &unhealthy);
    node.blocked(format!("allows no disruption: {numbers}"), "make its pods ready").children(children)
}

fn rule(budget: &Item) -> String {
    for field in ["minAvailable", "maxUnavailable"] {
        match budget.at(&format!("/spec/{field}")) {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => return format!("{field}: {text}"),
            value => return format!("{field}: {value}"),
        }
    }
    "no rule".to_owned()
}

/// Returns the selector of a budget. A budget without a selector has no pods.
fn selector(budget: &Item) -> Option<LabelSelector> {
    LabelSelector::deserialize(budget.at("/spec/selector")).ok()
}

fn members<'a>(inquiry: &Inquiry<'a>, budget: &Item) -> Vec<&'a Item> {
    let Some(selector) = selector(budget) else { return Vec::new() };
    let pods = inquiry.list(&POD, budget.namespace());
    pods.into_iter().filter(|pod| selector.matches(&pod.object.meta().labels)).collect()
}

/// Lists the budgets that prevent the eviction of a pod.
pub(crate) fn blocking<'a>(inquiry: &Inquiry<'a>, pod: &Item) -> Vec<&'a Item> {
    let budgets = inquiry.list(&BUDGET, pod.namespace());
    let is_blocking = |budget: &&&Item| {
        budget.number("/status/disruptionsAllowed").unwrap_or_default() == 0
            && selector(budget).is_some_and(|selector| selector.matches(&pod.object.meta().labels))
    };
    budgets.iter().filter(is_blocking).copied().collect()
}
