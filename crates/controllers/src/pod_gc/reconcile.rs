//! Periodically checks all pods, and deletes those that must go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use setpoint::client::{DeleteOptions, Optional, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::{
    Cached, Client, ClientError, Clock, Context, Key, Kind, Lister, Outcome, ReconcileError, Reconciler,
};

use super::patch::mark_failed;
use super::plan::{DeletionReason, Removal, missing_nodes, plan};
use super::quarantine::Quarantine;
use super::view::Node;
use crate::workload::pod::Pod;

/// The time between checks.
const PERIOD: Duration = Duration::from_secs(20);

/// Concurrent deletions, two requests each: fast enough to clear a drained zone without flooding the API server.
const CONCURRENCY: usize = 20;

pub(super) struct Sweeper {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    pod_kind: Kind,
    node_kind: Kind,
    threshold: usize,
    quarantine: Mutex<Quarantine>,
}

impl Reconciler for Sweeper {
    type Key = Key;

    /// All pods share one key, since the decision depends on their number.
    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        let pods = self.pods.list(None)?;
        let listed = self.nodes.list(None)?;
        let nodes: BTreeMap<&str, Node> = listed.iter().map(|node| (node.key().name(), **node)).collect();
        let gone = self.deleted_nodes(&pods, &nodes).await;
        let removals = plan(&pods, &nodes, &gone, self.threshold);
        stream::iter(removals)
            .for_each_concurrent(CONCURRENCY, |removal| self.remove_and_count(removal))
            .await;
        Ok(Outcome::CheckAfter(PERIOD))
    }
}

impl Sweeper {
    pub(super) fn new(context: &Context, pods: Lister<Pod>, nodes: Lister<Node>, threshold: usize) -> Self {
        Self {
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            metrics: context.metrics.clone(),
            pods,
            nodes,
            pod_kind: Kind::of::<Pod>(),
            node_kind: Kind::of::<Node>(),
            threshold,
            quarantine: Mutex::default(),
        }
    }

    /// Returns the nodes that have been missing long enough and that the API server confirms do not exist.
    async fn deleted_nodes(&self, pods: &[Cached<Pod>], nodes: &BTreeMap<&str, Node>) -> BTreeSet<Box<str>> {
        let suspects = self.quarantine.lock().pass(&missing_nodes(pods, nodes), self.clock.instant());
        let mut gone = BTreeSet::new();
        for node in suspects {
            match self.client.get(&self.node_kind, &Key::cluster(&*node)).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => _ = gone.insert(node),
                Err(error) => tracing::warn!(%node, %error, "cannot determine whether a node exists"),
            }
        }
        gone
    }

    async fn remove_and_count(&self, removal: Removal) {
        let (pod, reason) = (removal.pod.key().clone(), removal.reason);
        let removed = self.remove(removal).await;
        self.count(pod.namespace().unwrap_or_default(), reason, removed.is_ok());
        match removed {
            Ok(()) => tracing::info!(%pod, ?reason, "deleted a pod"),
            // The next check tries again.
            Err(error) => tracing::warn!(%pod, ?reason, %error, "cannot delete a pod"),
        }
    }

    /// Updates metrics. Finished and out-of-service pods are counted on every attempt, others only on success.
    fn count(&self, namespace: &str, reason: DeletionReason, removed: bool) {
        let labels = [("namespace", namespace), ("reason", reason.label())];
        if !removed {
            let help = "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller \
                        started.";
            self.metrics.count("pod_gc_collector_force_delete_pod_errors", help, &labels, 1);
        }
        if removed || matches!(reason, DeletionReason::Terminated | DeletionReason::OutOfService) {
            let help =
                "Number of pods that are being forcefully deleted since the Pod GC Controller started.";
            self.metrics.count("pod_gc_collector_force_delete_pods", help, &labels, 1);
        }
    }

    async fn remove(&self, Removal { pod, reason }: Removal) -> Result<(), ClientError> {
        if let Some(patch) = mark_failed(&pod, reason, self.clock.now()) {
            let patch = Patch::Strategic(patch);
            self.client.patch(&self.pod_kind, pod.key(), Subresource::Status, patch).await.optional()?;
        }
        let delete =
            DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::of_uid(&*pod.meta().uid) };
        self.client.delete(&self.pod_kind, pod.key(), &delete).await.optional().map(drop)
    }
}
