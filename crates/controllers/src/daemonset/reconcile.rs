//! Observe, plan, apply, then history and status.

use std::sync::Arc;

use futures::future::join_all;
use setpoint::batch::slow_start;
use setpoint::client::Subresource;
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Expectations, Key, Kind, Lister, Outcome, ReconcileError,
    Reconciler, Recorder, UpdateBody,
};

use super::backoff::Failures;
use super::bodies::Templates;
use super::plan::{Observed, Plan, manage};
use super::revisions::{History, RevisionLookup, excess, hash_of, history};
use super::rolling::rolling_update;
use super::status::{next_check, status};
use super::view::{DaemonSet, DaemonSetStatus, Node};
use crate::workload::claims::{Claimant, Claims};
use crate::workload::dependents::Dependents;
use crate::workload::history::RevisionStore;
use crate::workload::pod::Pod;
use crate::workload::pod_control::{PodControl, namespace_is_terminating};
use crate::workload::throttle::Throttle;

/// The maximum number of pods created, and deleted, before the cache must show them.
const BURST: usize = 250;

/// The size of the first batch of creations. It doubles after each successful batch.
const SLOW_START: usize = 1;

pub(super) struct DaemonSets {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    pub(super) kind: Kind,
    pub(super) sets: Lister<DaemonSet>,
    pub(super) nodes: Lister<Node>,
    pub(super) pods: Dependents<Pod>,
    pub(super) revision_store: RevisionStore,
    pub(super) expectations: Arc<Expectations<Key>>,
    pub(super) throttle: Arc<Throttle<Key>>,
    pub(super) failures: Failures,
    pub(super) pod_control: PodControl,
}

impl Reconciler for DaemonSets {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(set) = self.sets.get(key)? else {
            self.expectations.forget(key);
            self.throttle.forget(key);
            self.failures.forget(key);
            self.revision_store.forget(key);
            return Ok(Outcome::Settled);
        };
        if set.spec.selector.is_empty() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder.event(&self.kind, set.object(), EventType::Warning, "SelectingAll", message);
            return Ok(Outcome::Settled);
        }
        if set.meta().is_being_deleted() {
            return Ok(Outcome::Settled);
        }
        self.throttle.reconciled(key);
        // Check this before listing pods: events observed after the list must not count for it.
        let caught_up = self.expectations.satisfied(key);
        let pods = self.claim_pods(&set).await?;
        match self.history(&set, &pods).await? {
            // Wait until the cache shows all created revisions. Its event wakes the set.
            None => Ok(Outcome::Settled),
            Some(RevisionLookup::Collision) => self.collided(&set).await,
            Some(RevisionLookup::History(history)) => self.sync(&set, &history, &pods, caught_up).await,
        }
    }
}

impl DaemonSets {
    fn claimant<'a>(&'a self, set: &'a Cached<DaemonSet>) -> Claimant<'a> {
        Claimant { kind: &self.kind, owner: set.object(), finalizer: None }
    }

    async fn claim_pods(&self, set: &Cached<DaemonSet>) -> Result<Vec<Cached<Pod>>, ReconcileError> {
        let candidates = self.pods.claimable_by(set.meta())?;
        let claims = Claims::of(set.meta(), &set.spec.selector, candidates, |_| true);
        claims.carry_out(&self.client, &self.claimant(set)).await
    }

    async fn history(
        &self,
        set: &Cached<DaemonSet>,
        pods: &[Cached<Pod>],
    ) -> Result<Option<RevisionLookup>, ReconcileError> {
        let Some(candidates) = self.revision_store.claimable_by(set.object())? else { return Ok(None) };
        let claims = Claims::of(set.meta(), &set.spec.selector, candidates, |_| true);
        let revisions = claims.carry_out(&self.client, &self.claimant(set)).await?;
        history((&self.client, &self.revision_store), set, revisions, pods).await.map(Some)
    }

    /// Increments the collision count, so that the next revision gets a different name.
    async fn collided(&self, set: &Cached<DaemonSet>) -> Result<Outcome, ReconcileError> {
        let mut status = set.status.clone();
        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
        self.write_status(set, &status).await?;
        Ok(Outcome::Requeue)
    }

    async fn sync(
        &self,
        set: &Cached<DaemonSet>,
        history: &History,
        pods: &[Cached<Pod>],
        caught_up: bool,
    ) -> Result<Outcome, ReconcileError> {
        let nodes = self.nodes.list(None)?;
        let observed = Observed::new(set, hash_of(&history.current), &nodes, pods);
        let acted = match caught_up {
            true => self.act(&observed, history, pods).await,
            false => Ok(Outcome::Settled),
        };
        let now = self.clock.now();
        let status = status(&observed, caught_up, now);
        if status != set.status {
            self.write_status(set, &status).await?;
        }
        let next = next_check(&observed, now).map_or(Outcome::Settled, Outcome::CheckAfter);
        Ok(acted?.and(next))
    }

    /// Creates and deletes pods. Continues a rolling update if there is nothing to repair.
    async fn act(
        &self,
        observed: &Observed<'_>,
        history: &History,
        pods: &[Cached<Pod>],
    ) -> Result<Outcome, ReconcileError> {
        let (key, generation) = (observed.set.key(), observed.set.status.observed_generation);
        let held_back = |node: &str| self.failures.remaining(key, generation, node);
        let managed = manage(observed, held_back, self.clock.now());
        let wait = managed.wait.map_or(Outcome::Settled, Outcome::CheckAfter);
        let rolls = managed.is_empty() && observed.set.spec.update_strategy.is_rolling();
        self.apply(observed, managed).await?;
        if rolls {
            self.apply(observed, rolling_update(observed, self.clock.now())).await?;
        }
        for revision in excess(observed.set, history, pods) {
            self.revision_store.delete(key, revision).await?;
        }
        Ok(wait)
    }

    async fn apply(&self, observed: &Observed<'_>, plan: Plan) -> Result<(), ReconcileError> {
        let (set, key) = (observed.set, observed.set.key());
        for (event_type, reason, message) in &plan.events {
            self.recorder.event(&self.kind, set.object(), *event_type, reason, message.clone());
        }
        for node in &plan.failed {
            self.failures.count(key, set.status.observed_generation, node);
        }
        if plan.is_empty() {
            return Ok(());
        }
        let (create, delete) =
            (&plan.create[..plan.create.len().min(BURST)], &plan.delete[..plan.delete.len().min(BURST)]);
        self.expectations.expect_deletions(key, delete.iter().map(|pod| pod.meta().uid.to_string()));
        self.expectations.raise_creations(key, create.len());
        let created = self.create(observed, create).await;
        let deleted = self.delete(set, delete).await;
        match created.or(deleted) {
            Some(error) => Err(error.into_reconcile_error(format!("sync the pods of daemonset {key}"))),
            None => Ok(()),
        }
    }

    async fn create(&self, observed: &Observed<'_>, nodes: &[Box<str>]) -> Option<ClientError> {
        let set = observed.set;
        let templates = Templates::of(set, observed.hash);
        let owner = controller_ref(&self.kind, set.meta());
        let started = slow_start(nodes.len(), SLOW_START, |nth| {
            let template = templates.pod(&nodes[nth]).unwrap_or_else(|| set.spec.template.clone());
            let owner = &owner;
            async move { self.pod_control.create(set.object(), owner, &template).await }
        });
        let started = started.await;
        // Failed and skipped creations will not be observed.
        self.expectations.creations_observed(set.key(), nodes.len() - started.succeeded);
        started.failure.filter(|error| !namespace_is_terminating(error))
    }

    async fn delete(&self, set: &Cached<DaemonSet>, pods: &[Cached<Pod>]) -> Option<ClientError> {
        let deletions = pods.iter().map(|pod| async {
            let deleted = self.pod_control.delete(set.object(), pod.object()).await;
            if !matches!(deleted, Ok(true)) {
                // Failed deletions will not be observed.
                self.expectations.deletion_observed(set.key(), &pod.meta().uid);
            }
            deleted.err()
        });
        join_all(deletions).await.into_iter().flatten().next()
    }

    async fn write_status(
        &self,
        set: &Cached<DaemonSet>,
        status: &DaemonSetStatus,
    ) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(set.object()).set(&["status"], status);
        let written = self.client.update(&self.kind, set.key(), Subresource::Status, &body).await;
        written.map(drop).attempting(format!("update the status of daemonset {}", set.key()))
    }
}
