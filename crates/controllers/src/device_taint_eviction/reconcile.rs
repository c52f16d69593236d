//! Checks a pod, and deletes it when its eviction is due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::metrics::Metrics;
use setpoint::object::DecodeError;
use setpoint::{
    Cached, Client, Clock, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder,
};
use setpoint_device::{Rule, RuleLister};

use super::devices::taints_of;
use super::plan::eviction_time;
use super::view::{Allocated, Claim, Slice};
use crate::resource_claim::view::{Named, Pod, owning_pod};
use crate::workload::eviction::Evicting;

const EVICTING: Evicting = Evicting {
    reason: "DeletionByDeviceTaintManager",
    message: "Device Taint manager: deleting due to NoExecute taint",
};

/// Pods with a pending eviction. Bounded by the pods that use tainted devices.
pub(super) type Due = BTreeSet<Key>;

pub(super) struct Caches {
    pub(super) pods: Lister<Pod>,
    pub(super) claims: Lister<Claim>,
    pub(super) slices: Lister<Slice>,
    pub(super) rules: RuleLister,
}

pub(super) struct Evictor {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    /// Recorder for errors in rules. Their event source is the component that applies the rules.
    pub(super) of_rules: Recorder,
    pub(super) caches: Caches,
    pub(super) metrics: Metrics,
    pub(super) due: Arc<Mutex<Due>>,
}

impl Reconciler for Evictor {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(pod) = self.caches.pods.get(key)? else {
            self.due.lock().remove(key);
            return Ok(Outcome::Settled);
        };
        if pod.spec.node_name.is_empty() || pod.meta().is_being_deleted() {
            self.due.lock().remove(key);
            return Ok(Outcome::Settled);
        }
        let Some(time) = self.caches.eviction_time(&pod, &mut |rule, why| self.rule_event(rule, why))? else {
            if self.due.lock().remove(key) {
                self.event(&pod, "Cancelling deletion");
            }
            return Ok(Outcome::Settled);
        };
        self.due.lock().insert(key.clone());
        if let Some(left) = left(time, self.clock.now()) {
            return Ok(Outcome::CheckAfter(left));
        }
        self.event(&pod, "Marking for deletion");
        EVICTING.end(&self.client, &self.clock, key, &pod.meta().uid).await?;
        self.due.lock().remove(key);
        self.count_deletion(time);
        Ok(Outcome::Settled)
    }
}

/// Histogram buckets, 5 ms to 4 minutes.
const DELETION_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

fn left(time: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(time.duration_since(now)).ok().filter(|left| !left.is_zero())
}

impl Evictor {
    fn event(&self, pod: &Cached<Pod>, what: &str) {
        let (kind, reason) = (Kind::of::<Pod>(), "DeviceTaintManagerEviction");
        self.recorder.event(&kind, pod.object(), EventType::Normal, reason, what);
    }

    fn count_deletion(&self, due: Timestamp) {
        let help = "Pods this process evicted because of a device taint.";
        self.metrics.count("device_taint_eviction_controller_pod_deletions", help, &[], 1);
        let (name, help) = (
            "device_taint_eviction_controller_pod_deletion_duration_seconds",
            "Seconds from a device taint taking effect to the eviction of a pod that does not tolerate it.",
        );
        let late = self.clock.now().duration_since(due).as_secs_f64();
        self.metrics.observe(name, help, DELETION_SECONDS, &[], late);
    }

    fn rule_event(&self, rule: &Cached<Rule>, why: String) {
        let (kind, reason) = (Kind::of::<Rule>(), "CELRuntimeError");
        self.of_rules.event(&kind, rule.object(), EventType::Warning, reason, why);
    }
}

impl Caches {
    /// Returns when a pod must be evicted: the earliest time of its claims.
    fn eviction_time(
        &self,
        pod: &Cached<Pod>,
        failed: &mut dyn FnMut(&Cached<Rule>, String),
    ) -> Result<Option<Timestamp>, DecodeError> {
        let (mut earliest, mut known) = (None, None);
        for request in &pod.spec.resource_claims {
            let Named::Claim { name, of_pod } = pod.claim_of(request) else { continue };
            let Some(claim) = self.claims.get(&pod.key().sibling(name))? else { continue };
            let Some(allocation) = &claim.status.allocation else { continue };
            if !is_for(&claim, pod, of_pod) {
                continue;
            }
            if known.is_none() {
                known = Some((self.slices.list(None)?, self.rules.read()?));
            }
            let Some((slices, rules)) = &known else { continue };
            let taints = |device: &Allocated| taints_of(device, slices, rules, &mut *failed);
            let time = eviction_time(&allocation.devices.results, taints);
            earliest = [earliest, time].into_iter().flatten().min();
        }
        Ok(earliest)
    }
}

/// Whether a claim is reserved for a pod and, if it was generated from a template, for this one.
fn is_for(claim: &Cached<Claim>, pod: &Cached<Pod>, of_pod: bool) -> bool {
    let uid = &*pod.meta().uid;
    let own = !of_pod || owning_pod(claim.meta()).is_some_and(|owner| &*owner.uid == uid);
    own && claim.status.reserved_for.iter().any(|consumer| consumer.is_pod() && consumer.uid == uid)
}
