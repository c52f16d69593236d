//! Reports pods that cannot be bound: writes the `PodScheduled` condition and the nominated node, and evicts preemption
//! victims.

use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::conditions::whole_seconds;
use setpoint::{EventType, Outcome, ReconcileError};

use crate::decide::{Deallocation, FitError, PreemptionOutcome};
use crate::preempt::Preemption;
use crate::reconcile::{COMPONENT, RETRY_UNSCHEDULABLE_AFTER, Scheduler, ignore_gone, pod_kind};
use crate::view::{Condition, Pod, PodView};

impl Scheduler {
    /// Sets the `PodScheduled` condition to `SchedulerError`, and retries later.
    pub(crate) async fn fail(&self, pod: &Pod, message: &str) -> Result<Outcome, ReconcileError> {
        if !has_condition(pod, "SchedulerError", message) {
            self.recorder.event(&pod_kind(), pod.object(), EventType::Warning, "FailedScheduling", message);
            let condition = self.condition(pod, "PodScheduled", "False", "SchedulerError", message);
            self.patch_status(pod, json!({"conditions": [condition]}), "set the SchedulerError condition")
                .await?;
        }
        Err(ReconcileError::retry(format!("bind pod {}: {message}", pod.key())))
    }

    /// Sets the `PodScheduled` condition to `Unschedulable`, and carries out the preemption if there is one.
    pub(crate) async fn report(&self, pod: &Pod, fit_error: &FitError) -> Result<Outcome, ReconcileError> {
        let mut status = json!({});
        let nominated = match &fit_error.preemption_outcome {
            PreemptionOutcome::Preempt(preemption) => {
                self.evict_victims(pod, preemption).await?;
                &preemption.node
            }
            PreemptionOutcome::None => "",
            PreemptionOutcome::Wait => &pod.status.nominated_node_name,
        };
        if pod.status.nominated_node_name != *nominated {
            status["nominatedNodeName"] = if nominated.is_empty() { json!(null) } else { json!(nominated) };
        }
        if let Some(Deallocation(claim)) = &fit_error.deallocation {
            self.deallocate(claim).await?;
        }
        let message = &fit_error.message;
        if !has_condition(pod, "Unschedulable", message) {
            self.recorder.event(&pod_kind(), pod.object(), EventType::Warning, "FailedScheduling", message);
            status["conditions"] =
                json!([self.condition(pod, "PodScheduled", "False", "Unschedulable", message)]);
        }
        if status.as_object().is_some_and(|fields| !fields.is_empty()) {
            self.patch_status(pod, status, "set the Unschedulable condition").await?;
        }
        Ok(Outcome::CheckAfter(RETRY_UNSCHEDULABLE_AFTER))
    }

    /// Evicts the victims, and clears the nomination of lower-priority pods on the node.
    async fn evict_victims(&self, pod: &Pod, preemption: &Preemption) -> Result<(), ReconcileError> {
        for displaced in &preemption.displaced {
            self.shared.state.lock().ledger.forget_nomination(&displaced.meta().uid);
            self.patch_status(displaced, json!({"nominatedNodeName": null}), "clear its nominated node")
                .await?;
        }
        // Victims that are already being deleted need no second request.
        for victim in preemption.victims.iter().filter(|victim| !victim.meta().is_being_deleted()) {
            self.evict_victim(victim, pod, &preemption.node).await?;
        }
        Ok(())
    }

    async fn evict_victim(&self, victim: &Pod, pod: &Pod, node: &str) -> Result<(), ReconcileError> {
        let scheduler = match pod.spec.scheduler_name.as_str() {
            "" => COMPONENT,
            name => name,
        };
        let message = format!("{scheduler}: preempting to accommodate a higher priority pod");
        let condition = self.condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", &message);
        self.patch_status(victim, json!({"conditions": [condition]}), "mark it as preempted").await?;
        let delete = setpoint::client::DeleteOptions::of_uid(&*victim.meta().uid);
        let deleted = self.client.delete(&pod_kind(), victim.key(), &delete).await;
        let is_deleted = deleted.is_ok();
        ignore_gone(deleted, format!("preempt pod {}", victim.key()))?;
        if is_deleted {
            let message = format!("Preempted by pod {} on node {node}", pod.meta().uid);
            self.recorder.event(&pod_kind(), victim.object(), EventType::Normal, "Preempted", message);
        }
        Ok(())
    }

    /// Builds a pod condition. `lastTransitionTime` is only set when the status changes.
    fn condition(&self, pod: &Pod, name: &str, status: &str, reason: &str, message: &str) -> Value {
        let mut condition = json!({"type": name, "status": status, "reason": reason, "message": message,
            "observedGeneration": pod.meta().generation});
        let is_so = |known: &Condition| known.condition_type == name && known.status == status;
        if !pod.status.conditions.iter().any(is_so) {
            condition["lastTransitionTime"] = whole_seconds(self.shared.clock.now()).to_string().into();
        }
        condition
    }

    async fn patch_status(&self, pod: &Pod, status: Value, attempted: &str) -> Result<(), ReconcileError> {
        let patch = Patch::strategic(&json!({"metadata": {"uid": &pod.meta().uid}, "status": status}));
        let written =
            self.client.patch_ignoring_response(&pod_kind(), pod.key(), Subresource::Status, patch).await;
        ignore_gone(written, format!("patch the status of pod {}: {attempted}", pod.key())).map(drop)
    }
}

fn has_condition(pod: &PodView, reason: &str, message: &str) -> bool {
    pod.status.conditions.iter().any(|condition| {
        condition.condition_type == "PodScheduled"
            && condition.status == "False"
            && condition.reason == reason
            && condition.message == message
    })
}
