//! `podFailurePolicy`: what a pod failure means for its Job. Pure.

use serde::Deserialize;
use setpoint::Cached;

use super::pod::{Exit, JobPod};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FailurePolicy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    action: Action,
    #[serde(default)]
    on_exit_codes: Option<OnExitCodes>,
    #[serde(default)]
    on_pod_conditions: Option<Vec<OnCondition>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Action {
    FailJob,
    FailIndex,
    Ignore,
    Count,
    /// An action of a later version. The rule is skipped.
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OnExitCodes {
    #[serde(default)]
    container_name: Option<Box<str>>,
    operator: Operator,
    #[serde(default)]
    values: Vec<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, Deserialize)]
struct OnCondition {
    r#type: Box<str>,
    #[serde(default = "true_")]
    status: Box<str>,
}

fn true_() -> Box<str> {
    "True".into()
}

/// The meaning of a pod failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The whole Job fails, with this message.
    FailJob(String),
    /// Its index fails.
    FailIndex,
    /// Not counted.
    Ignore,
    /// Counted as a failure.
    Count,
}

/// Returns the action of the first rule that matches a failed pod.
pub(super) fn action(policy: Option<&FailurePolicy>, pod: &Cached<JobPod>) -> Option<&'static str> {
    let mut rules = policy?.rules.iter().enumerate();
    let deciding = rules.find(|(at, rule)| rule.verdict(*at, pod).is_some())?.1;
    match deciding.action {
        Action::FailJob => Some("FailJob"),
        Action::FailIndex => Some("FailIndex"),
        Action::Ignore => Some("Ignore"),
        Action::Count => Some("Count"),
        Action::Unknown => None,
    }
}

/// Evaluates the first matching rule. Without a policy or a match, the failure counts.
pub(super) fn verdict(policy: Option<&FailurePolicy>, pod: &Cached<JobPod>) -> Verdict {
    let rules = policy.map_or(&[][..], |policy| &policy.rules).iter().enumerate();
    rules.into_iter().find_map(|(at, rule)| rule.verdict(at, pod)).unwrap_or(Verdict::Count)
}

impl Rule {
    fn verdict(&self, at: usize, pod: &Cached<JobPod>) -> Option<Verdict> {
        let matched = self.matched(pod)?;
        match self.action {
            Action::FailJob => {
                Some(Verdict::FailJob(format!("{matched} matching FailJob rule at index {at}")))
            }
            Action::FailIndex => Some(Verdict::FailIndex),
            Action::Ignore => Some(Verdict::Ignore),
            Action::Count => Some(Verdict::Count),
            Action::Unknown => None,
        }
    }

    /// Describes what the rule matches about the pod.
    fn matched(&self, pod: &Cached<JobPod>) -> Option<String> {
        if let Some(exit_codes) = &self.on_exit_codes {
            let Exit { container, code } = pod.exits.iter().find(|exit| exit_codes.matches(exit))?;
            return Some(format!("Container {container} for pod {} failed with exit code {code}", pod.key()));
        }
        let patterns = self.on_pod_conditions.as_ref()?;
        let is_meant = |condition: &&(Box<str>, Box<str>)| {
            patterns.iter().any(|pattern| (&pattern.r#type, &pattern.status) == (&condition.0, &condition.1))
        };
        let (r#type, _) = pod.conditions.iter().find(is_meant)?;
        Some(format!("Pod {} has condition {type}", pod.key()))
    }
}

impl OnExitCodes {
    fn matches(&self, exit: &Exit) -> bool {
        let named = self.container_name.as_ref().is_none_or(|name| *name == exit.container);
        named
            && match self.operator {
                Operator::In => self.values.contains(&exit.code),
                Operator::NotIn => !self.values.contains(&exit.code),
                Operator::Unknown => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;

    fn policy(rules: Value) -> FailurePolicy {
        serde_json::from_value(json!({"rules": rules})).unwrap()
    }

    fn pod() -> Cached<JobPod> {
        let ended =
            |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        cached(json!({"metadata": {"name": "p", "namespace": "ns"}, "status": {
            "phase": "Failed",
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget", "status": "True"}],
            "containerStatuses": [ended("ok", 0), ended("main", 42), {"name": "runs", "state": {"running": {}}}],
            "initContainerStatuses": [ended("init", 7)],
        }}))
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let check = |rules: Value, expected: Verdict| {
            assert_eq!(verdict(Some(&policy(rules.clone())), &pod()), expected, "{rules}");
        };
        let on = |action: &str, operator: &str, values: &[i32]| json!({"action": action, "onExitCodes": {"operator": operator, "values": values}});
        let fail_job = |message: &str| Verdict::FailJob(message.into());
        check(json!([]), Verdict::Count);
        check(json!([on("Ignore", "In", &[1, 2])]), Verdict::Count);
        check(json!([on("Ignore", "In", &[42])]), Verdict::Ignore);
        check(json!([on("Ignore", "In", &[0])]), Verdict::Count);
        check(json!([on("FailIndex", "NotIn", &[7])]), Verdict::FailIndex);
        check(json!([on("Count", "In", &[42]), on("Ignore", "In", &[42])]), Verdict::Count);
        check(json!([on("Later", "In", &[42]), on("Ignore", "In", &[42])]), Verdict::Ignore);
        check(
            json!([on("Ignore", "In", &[1]), on("FailJob", "In", &[7])]),
            fail_job("Container init for pod ns/p failed with exit code 7 matching FailJob rule at index 1"),
        );
        let named = |name: &str| json!([{"action": "Ignore", "onExitCodes": {"containerName": name, "operator": "NotIn", "values": [1]}}]);
        check(named("main"), Verdict::Ignore);
        check(named("ok"), Verdict::Count);
        check(named("runs"), Verdict::Count);
        let disrupted = |action: &str, status: &str| json!([{"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": status}]}]);
        check(disrupted("Ignore", "True"), Verdict::Ignore);
        check(disrupted("Ignore", "False"), Verdict::Count);
        check(
            disrupted("FailJob", "True"),
            fail_job("Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"),
        );
        assert_eq!(verdict(None, &pod()), Verdict::Count);
    }
}
