//! Removes the tracking finalizer from pods that no Job will count any more.
//!
//! A Job that finishes or is deleted has already counted its pods. Pods still tracked by then are orphans, or were
//! created while the Job went away.

use std::sync::Arc;

use serde_json::json;
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::indexer::Indexer;
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, ClientError, Key, Kind, Object, Outcome, ReconcileError, Reconciler};

use super::view::{Job, TRACKING};
use crate::workload::owners::Owners;

pub(super) struct OrphanedPods {
    pub(super) finalizer_removal: FinalizerRemoval,
    pub(super) pods: Arc<Indexer>,
    pub(super) jobs: Owners<Job>,
    /// Whether externally managed Jobs are left alone (`managedBy`).
    pub(super) respects_managed_by: bool,
}

impl Reconciler for OrphanedPods {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        if let Some(pod) = self.pods.get(key).filter(|pod| self.is_orphaned(pod)) {
            self.finalizer_removal.release(&pod).await.attempting(format!("release orphaned pod {key}"))?;
        }
        Ok(Outcome::Settled)
    }
}

impl OrphanedPods {
    /// Whether no Job will count the pod: it has none, or a finished one.
    fn is_orphaned(&self, pod: &Object) -> bool {
        if !pod.meta().has_finalizer(TRACKING) {
            return false;
        }
        let Some(controller) = pod.meta().controller() else { return true };
        if (&*controller.api_version, &*controller.kind) != ("batch/v1", "Job") {
            return false;
        }
        self.jobs
            .of(pod)
            .is_none_or(|job| job.is_finished() && !(self.respects_managed_by && job.is_managed_elsewhere()))
    }
}

/// Removes the tracking finalizer from pods. Cheap to clone.
#[derive(Clone)]
pub(super) struct FinalizerRemoval {
    client: Client,
    pods: Kind,
}

impl FinalizerRemoval {
    pub(super) fn new(client: Client) -> Self {
        Self { client, pods: Kind::of::<super::pod::JobPod>() }
    }

    /// Removes the finalizer of a pod. Does nothing if the pod is gone.
    pub(super) async fn release(&self, pod: &Object) -> Result<(), ClientError> {
        let patch =
            json!({"metadata": {"uid": pod.meta().uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}});
        let released =
            self.client.patch(&self.pods, pod.key(), Subresource::None, Patch::strategic(&patch)).await;
        match released.optional() {
            // A uid conflict: the pod is gone and another one has its name.
            Err(error) if error.is_conflict() => Ok(()),
            released => released.map(drop),
        }
    }
}
