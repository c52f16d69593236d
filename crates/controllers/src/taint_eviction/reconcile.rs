//! Checks a pod, and deletes it when its eviction is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::metrics::Metrics;
use setpoint::object::DecodeError;
use setpoint::recorder::Reference;
use setpoint::{
    Cached, Client, Clock, EventType, Key, Lister, Outcome, ReconcileError, Reconciler, Recorder,
};

use super::schedule::{Decision, Schedule};
use super::toleration::tolerated;
use super::view::{NodeTaints, PodTolerations};
use crate::workload::eviction::Evicting;

const EVICTING: Evicting =
    Evicting { reason: "DeletionByTaintManager", message: "Taint manager: deleting due to NoExecute taint" };

/// Histogram buckets, 5 ms to 4 minutes.
const LATE_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

pub(super) struct Evictor {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
    pub(super) pods: Lister<PodTolerations>,
    pub(super) nodes: Lister<NodeTaints>,
    pub(super) schedule: Arc<Mutex<Schedule>>,
}

impl Reconciler for Evictor {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.pods.get(key)? else {
            if self.schedule.lock().forget(key) {
                self.event(key, "Cancelling deletion of Pod");
            }
            return Ok(Outcome::Settled);
        };
        if pod.node.is_empty() || pod.meta().is_being_deleted() {
            self.schedule.lock().forget(key);
            return Ok(Outcome::Settled);
        }
        match self.decide(&pod)? {
            Decision::Keep { cancelled } => {
                if cancelled {
                    self.event(key, "Cancelling deletion of Pod");
                }
                Ok(Outcome::Settled)
            }
            Decision::EvictIn(time) => Ok(Outcome::CheckAfter(time)),
            Decision::Evict { late } => self.evict(&pod, late).await.map(|()| Outcome::Settled),
        }
    }
}

impl Evictor {
    /// Decides about a pod. If its node is gone, a scheduled eviction is kept: such pods are garbage collected anyway.
    fn decide(&self, pod: &Cached<PodTolerations>) -> Result<Decision, DecodeError> {
        let now = self.clock.instant();
        let node = self.nodes.get(&Key::cluster(&*pod.node))?;
        let mut schedule = self.schedule.lock();
        Ok(match node {
            Some(node) => schedule.decide(pod.key(), tolerated(&node.taints, &pod.tolerations), now),
            None => schedule.scheduled(pod.key(), now),
        })
    }

    async fn evict(&self, pod: &Cached<PodTolerations>, late: Duration) -> Result<(), ReconcileError> {
        let began = self.clock.instant();
        self.event(pod.key(), "Marking for deletion Pod");
        if EVICTING.end(&self.client, &self.clock, pod.key(), &pod.meta().uid).await? {
            self.schedule.lock().forget(pod.key());
            self.count(late + self.clock.instant().saturating_duration_since(began));
        }
        Ok(())
    }

    fn count(&self, late: Duration) {
        let help = "Pods this process evicted because of a node taint.";
        self.metrics.count("taint_eviction_controller_pod_deletions", help, &[], 1);
        let name = "taint_eviction_controller_pod_deletion_duration_seconds";
        let help = "Seconds from a node taint taking effect for a pod to the pod's eviction.";
        self.metrics.observe(name, help, LATE_SECONDS, &[], late.as_secs_f64());
    }

    fn event(&self, pod: &Key, what: &str) {
        let about = Reference {
            kind: "Pod".to_owned(),
            api_version: "v1".to_owned(),
            namespace: pod.namespace().unwrap_or_default().to_owned(),
            name: pod.name().to_owned(),
            ..Reference::default()
        };
        let message = format!("{what} {pod}");
        self.recorder.event_about(about, EventType::Normal, "TaintManagerEviction", message, BTreeMap::new());
    }
}
