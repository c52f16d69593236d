//! Observe, plan, apply, then status.

use std::sync::Arc;

use futures::future::join_all;
use setpoint::batch::slow_start;
use setpoint::client::Subresource;
use setpoint::metrics::Metrics;
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, Expectations, Key, Kind, Outcome, OwnerRef, ReconcileError,
    Reconciler, UpdateBody,
};

use super::observe::Observer;
use super::plan::{Action, Plan, plan};
use super::rank::age_ratios;
use super::status::{Failed, next_check, status};
use super::{ReplicaSetStatus, Replicated};
use crate::workload::claims::recheck;
use crate::workload::pod::Pod;
use crate::workload::pod_control::{PodControl, namespace_is_terminating};
use crate::workload::throttle::Throttle;

/// The size of the first batch of creations. It doubles after each successful batch.
const SLOW_START: usize = 1;

/// Histogram buckets: 0.25, doubling.
const AGE_RATIOS: &[f64] = &[0.25, 0.5, 1.0, 2.0, 4.0, 8.0];

pub(super) struct ReplicaSets<R> {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) kind: Kind,
    pub(super) observer: Observer<R>,
    pub(super) expectations: Arc<Expectations<Key>>,
    pub(super) throttle: Arc<Throttle<Key>>,
    pub(super) metrics: Metrics,
    pub(super) pod_control: PodControl,
}

/// The result of applying a plan.
#[derive(Default)]
struct Applied {
    /// A failed create or delete, reported in the status.
    failure: Option<Failure>,
    /// Whether a pod to adopt was gone, so that the plan counted one too many.
    lost_a_claim: bool,
}

struct Failure {
    failed: Failed,
    message: String,
    source: ClientError,
}

impl<R: Replicated> Reconciler for ReplicaSets<R> {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(set) = self.observer.set(key)? else {
            self.expectations.forget(key);
            self.throttle.forget(key);
            return Ok(Outcome::Settled);
        };
        self.throttle.reconciled(key);
        let observed = self.observer.observe(&set)?;
        let plan = plan(&set, &observed, self.clock.now());
        self.count_ages(&plan);
        let applied = self.apply(&set, plan.actions).await?;

        let now = self.clock.now();
        let failure = applied.failure.as_ref().map(|failure| (failure.failed, &*failure.message));
        let status = ReplicaSetStatus {
            terminating_replicas: observed.terminating,
            ..status(&set, &plan.pods, failure, now)
        };
        if status != *set.status() {
            self.write_status(&set, &status).await?;
        }
        if let Some(failure) = applied.failure {
            return Err(failure
                .source
                .into_reconcile_error(format!("{} pods of {key}", failure.failed.verb())));
        }
        if applied.lost_a_claim {
            return Ok(Outcome::Requeue);
        }
        let next = next_check(&set, &status, &plan.pods, now);
        Ok(next.map_or(Outcome::Settled, Outcome::CheckAfter))
    }
}

impl<R: Replicated> ReplicaSets<R> {
    /// Records the age ratios of deleted ready pods.
    fn count_ages(&self, plan: &Plan) {
        let deleted = plan.actions.iter().find_map(|action| match action {
            Action::Delete { pods } => Some(pods).filter(|pods| pods.len() < plan.pods.len()),
            _ => None,
        });
        let Some(deleted) = deleted else { return };
        let name = "replicaset_controller_sorting_deletion_age_ratio";
        let help = "Age of a Ready pod chosen for deletion, divided by the age of the youngest Ready pod. Below 2 when the logarithmic ranking works.";
        for ratio in age_ratios(&plan.pods, deleted, self.clock.now()) {
            self.metrics.observe(name, help, AGE_RATIOS, &[], ratio);
        }
    }

    /// Applies a plan. A failed adoption or release ends it, because the rest depends on it.
    async fn apply(&self, set: &Cached<R>, actions: Vec<Action>) -> Result<Applied, ReconcileError> {
        let owner = controller_ref(&self.kind, set.meta());
        let mut applied = Applied::default();
        for action in actions {
            match action {
                Action::Adopt { pod, recheck_owner } => {
                    if recheck_owner {
                        recheck(&self.client, &self.kind, set.object()).await?;
                    }
                    let adopted = self.pod_control.adopt(&owner, pod.object()).await;
                    applied.lost_a_claim |= !adopted.attempting(format!("adopt pod {}", pod.key()))?;
                }
                Action::Release { pod } => {
                    let released = self.pod_control.release(set.meta(), pod.object()).await;
                    released.attempting(format!("release pod {}", pod.key()))?;
                }
                Action::Create { count } => applied.failure = self.create(set, &owner, count).await,
                Action::Delete { pods } => applied.failure = self.delete(set, &pods).await,
            }
        }
        Ok(applied)
    }

    async fn create(&self, set: &Cached<R>, owner: &OwnerRef, count: usize) -> Option<Failure> {
        let key = set.key();
        self.expectations.expect_creations(key, count);
        let template = &set.spec().template;
        let started =
            slow_start(count, SLOW_START, |_| self.pod_control.create(set.object(), owner, template)).await;
        // Failed and skipped creations will not be observed.
        self.expectations.creations_observed(key, count - started.succeeded);
        let source = started.failure.filter(|error| !namespace_is_terminating(error))?;
        Some(Failure { failed: Failed::Create, message: source.to_string(), source })
    }

    async fn delete(&self, set: &Cached<R>, pods: &[Cached<Pod>]) -> Option<Failure> {
        let key = set.key();
        self.expectations.expect_deletions(key, pods.iter().map(|pod| pod.meta().uid.to_string()));
        let deletions = pods.iter().map(|pod| async {
            let deleted = self.pod_control.delete(set.object(), pod.object()).await;
            if !matches!(deleted, Ok(true)) {
                // Failed deletions will not be observed.
                self.expectations.deletion_observed(key, &pod.meta().uid);
            }
            deleted.err()
        });
        let source = join_all(deletions).await.into_iter().flatten().next()?;
        Some(Failure { failed: Failed::Delete, message: format!("unable to delete pods: {source}"), source })
    }

    async fn write_status(&self, set: &Cached<R>, status: &ReplicaSetStatus) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(set.object()).set(&["status"], status);
        let written = self.client.update(&self.kind, set.key(), Subresource::Status, &body).await;
        written.map(drop).attempting(format!("update the status of {} {}", self.kind.kind(), set.key()))
    }
}
