//! Phases and conditions of an application.

use jiff::Timestamp;

use crate::model::{Condition, Service, Status, WorkflowStatus, bounded};

/// Phases of an application.
pub(crate) mod phase {
    pub(crate) const STARTING: &str = "starting";
    pub(crate) const RENDERING: &str = "rendering";
    pub(crate) const GENERATING_POLICY: &str = "generatingPolicy";
    pub(crate) const RUNNING_WORKFLOW: &str = "runningWorkflow";
    pub(crate) const SUSPENDING: &str = "workflowSuspending";
    pub(crate) const FAILED: &str = "workflowFailed";
    pub(crate) const TERMINATED: &str = "workflowTerminated";
    pub(crate) const RUNNING: &str = "running";
    pub(crate) const UNHEALTHY: &str = "unhealthy";
    pub(crate) const DELETING: &str = "deleting";
}

/// The stages of a reconcile, in order. Each has a condition.
pub(crate) const STAGES: [&str; 6] = ["Parsed", "Revision", "Policy", "Render", "Workflow", "Ready"];

impl Status {
    /// Sets a condition to `True`.
    pub(crate) fn ready(&mut self, kind: &str, now: Timestamp) {
        let reason = if kind == "Ready" { "ReconcileSuccess" } else { "Available" };
        self.set(kind, "True", reason, String::new(), now);
    }

    /// Sets a condition to `False`, with the reason.
    pub(crate) fn problem(&mut self, kind: &str, message: impl Into<String>, now: Timestamp) {
        self.set(kind, "False", "ReconcileError", bounded(message.into()), now);
    }

    pub(crate) fn drop_condition(&mut self, kind: &str) {
        self.conditions.retain(|condition| condition.kind != kind);
    }

    /// Returns whether a changed cluster may affect the application: it has objects there, or something is missing.
    pub(crate) fn concerns(&self, cluster: &str) -> bool {
        self.status != phase::RUNNING
            || self.conditions.iter().any(|condition| condition.status == "False")
            || self.applied_resources.iter().any(|applied| applied["cluster"] == cluster)
            || self.services.iter().any(|service| service.cluster == cluster)
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: String, now: Timestamp) {
        let known = self.conditions.iter_mut().find(|condition| condition.kind == kind);
        match known {
            Some(known) => {
                if known.status != status {
                    known.last_transition_time = Some(now);
                }
                (known.status, known.reason, known.message) = (status.into(), reason.into(), message);
            }
            None => {
                let condition = Condition {
                    kind: kind.into(),
                    status: status.into(),
                    reason: reason.into(),
                    message,
                    last_transition_time: Some(now),
                };
                let rank =
                    |kind: &str| STAGES.iter().position(|stage| *stage == kind).unwrap_or(STAGES.len());
                let at = self.conditions.iter().position(|other| rank(&other.kind) > rank(kind));
                self.conditions.insert(at.unwrap_or(self.conditions.len()), condition);
            }
        }
    }
}

/// Derives the phase from the workflow and the health of services.
pub(crate) fn phase_of(workflow: &WorkflowStatus, services: &[Service]) -> &'static str {
    match workflow.status.as_str() {
        "failed" => phase::FAILED,
        "terminated" => phase::TERMINATED,
        "suspending" => phase::SUSPENDING,
        "succeeded" if services.iter().all(Service::is_healthy) => phase::RUNNING,
        "succeeded" => phase::UNHEALTHY,
        _ => phase::RUNNING_WORKFLOW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_the_order_of_stages_and_their_times() {
        let (mut status, first) = (Status::default(), Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_second(9).unwrap();
        status.ready("Workflow", first);
        status.ready("Parsed", first);
        status.ready("Parsed", later);
        assert_eq!(status.conditions[0].kind, "Parsed");
        assert_eq!(status.conditions[0].last_transition_time, Some(first));
        status.problem("Parsed", "ü".repeat(1_000_000), later);
        assert_eq!(status.conditions[0].last_transition_time, Some(later));
        assert!(status.conditions[0].message.len() <= 1_024);
    }
}
