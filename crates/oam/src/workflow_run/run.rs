//! A decoded WorkflowRun, and its status.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use setpoint::{Kind, View};

use crate::apply::tracker::AppRef;
use crate::crds;
use crate::model::{Condition, Mode, Step, StepStatus, WorkflowStatus, bounded};

/// The only condition of a run.
const CONDITION: &str = "WorkflowRun";

/// A WorkflowRun with its metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkflowRun {
    pub(super) metadata: Meta,
    pub(super) spec: RunSpec,
    pub(super) status: RunStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(super) annotations: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RunSpec {
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(super) context: Map<String, Value>,
    pub(super) mode: Option<Mode>,
    pub(super) workflow_spec: Option<Steps>,
    pub(super) workflow_ref: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Steps {
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(super) steps: Vec<Step>,
}

/// The status of a run: like that of an application's workflow, except for the mode.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RunStatus {
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    mode: Mode,
    pub(super) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    suspend: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    suspend_state: String,
    terminated: bool,
    pub(super) finished: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) context_backend: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<Timestamp>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepStatus>,
}

impl View for WorkflowRun {
    fn kind() -> Kind {
        crds::WORKFLOW_RUN.kind()
    }
}

impl WorkflowRun {
    pub(super) fn annotation(&self, name: &str) -> &str {
        self.metadata.annotations.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn reference(&self) -> AppRef {
        AppRef {
            name: self.metadata.name.clone(),
            namespace: self.metadata.namespace.clone(),
            uid: self.metadata.uid.clone(),
            ..AppRef::default()
        }
    }
}

impl RunStatus {
    /// Returns the state of the workflow.
    pub(super) fn workflow(&self) -> WorkflowStatus {
        WorkflowStatus {
            status: self.status.clone(),
            message: self.message.clone(),
            suspend: self.suspend,
            suspend_state: self.suspend_state.clone(),
            terminated: self.terminated,
            finished: self.finished,
            context_backend: self.context_backend.clone(),
            start_time: self.start_time,
            end_time: self.end_time,
            steps: self.steps.clone(),
            ..WorkflowStatus::default()
        }
    }

    /// Copies the state of the workflow.
    pub(super) fn set_workflow(&mut self, workflow: WorkflowStatus) {
        let (steps, sub_steps) = workflow.mode.split_once('-').unwrap_or(("", ""));
        self.mode = Mode { steps: steps.to_owned(), sub_steps: sub_steps.to_owned() };
        self.status = workflow.status;
        self.message = workflow.message;
        self.suspend = workflow.suspend;
        self.suspend_state = workflow.suspend_state;
        self.terminated = workflow.terminated;
        self.finished = workflow.finished;
        self.context_backend = workflow.context_backend;
        self.start_time = workflow.start_time;
        self.end_time = workflow.end_time;
        self.steps = workflow.steps;
    }

    /// Records that the run has succeeded.
    pub(super) fn succeed(&mut self, now: Timestamp) {
        self.set("True", "Available", String::new(), now);
    }

    /// Returns whether no step has started: the run is new, or was restarted.
    pub(super) fn is_new(&self) -> bool {
        self.start_time.is_none()
    }

    /// Starts the run.
    pub(super) fn begin(&mut self, now: Timestamp) {
        (self.start_time, self.status) = (Some(now), "executing".to_owned());
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.terminated
    }

    /// Ends a terminated run.
    pub(super) fn end(&mut self) {
        (self.finished, self.status) = (true, "terminated".to_owned());
    }

    /// Records why the run cannot start. It is requeued.
    pub(super) fn problem(&mut self, why: String, now: Timestamp) {
        self.status = crate::workflow::engine::INITIALIZING.to_owned();
        self.set("False", "ReconcileError", bounded(why), now);
    }

    /// Returns why the run cannot start.
    pub(super) fn blocked(&self) -> Option<&str> {
        let condition = self.conditions.iter().find(|condition| condition.status == "False");
        condition.map(|condition| condition.message.as_str())
    }

    /// Clears the error that kept the run from starting.
    pub(super) fn clear(&mut self) {
        self.conditions.clear();
    }

    fn set(&mut self, status: &str, reason: &str, message: String, now: Timestamp) {
        let since = self.conditions.iter().find(|known| known.status == status);
        let since = since.and_then(|known| known.last_transition_time).unwrap_or(now);
        self.conditions = vec![Condition {
            kind: CONDITION.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: Some(since),
        }];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_the_state_of_its_workflow() {
        let workflow = WorkflowStatus {
            mode: "StepByStep-DAG".into(),
            status: "executing".into(),
            suspend: true,
            ..WorkflowStatus::default()
        };
        let mut status = RunStatus::default();
        status.set_workflow(workflow.clone());
        assert_eq!(status.mode, Mode { steps: "StepByStep".into(), sub_steps: "DAG".into() });
        assert_eq!(WorkflowStatus { mode: workflow.mode.clone(), ..status.workflow() }, workflow);
    }
}
