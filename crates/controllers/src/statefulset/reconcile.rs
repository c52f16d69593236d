//! Observe, plan, apply, then status and history.

use std::sync::atomic::{AtomicBool, Ordering};

use setpoint::batch::slow_start;
use setpoint::client::{DeleteOptions, Subresource};
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler,
    Recorder, UpdateBody,
};

use super::bodies::{identity, pod_template, volumes};
use super::claims::{Owners, claim_body, is_stale_claim};
use super::plan::{Action, Plan, has_identity, has_storage, plan};
use super::revisions::{History, excess, history};
use super::status::{next_check, status};
use super::view::{
    Claim, ClaimTemplate, RetentionPolicyType, StatefulSet, StatefulSetStatus, claim_name, ordinal_in,
    pod_name,
};
use crate::workload::claims::{Claimant, Claims};
use crate::workload::dependents::Dependents;
use crate::workload::history::RevisionStore;
use crate::workload::pod::Pod;

/// The size of the first batch of a parallel set. It doubles after each successful batch.
const SLOW_START: usize = 1;

pub(super) struct StatefulSets {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    pub(super) kind: Kind,
    pub(super) pods_kind: Kind,
    pub(super) claims_kind: Kind,
    pub(super) sets: Lister<StatefulSet>,
    pub(super) pods: Dependents<Pod>,
    pub(super) claims: Lister<Claim>,
    pub(super) revision_store: RevisionStore,
    /// Whether rolling updates honor `maxUnavailable`.
    pub(super) several_at_once: bool,
}

/// The result of applying a plan.
#[derive(Default)]
struct Applied {
    /// The number of outdated pods deleted.
    renewed: i32,
    /// Whether to check again, because something to wait for causes no event.
    recheck: bool,
    failure: Option<ReconcileError>,
}

impl Reconciler for StatefulSets {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(set) = self.sets.get(key)? else {
            self.revision_store.forget(key);
            return Ok(Outcome::Settled);
        };
        // Wait until the cache shows all created revisions. Its event wakes the set.
        let Some(history) = self.history(&set).await? else { return Ok(Outcome::Settled) };
        let pods = self.claim_pods(&set).await?;
        let plan = plan(&set, &pods, &history.names, self.several_at_once, self.clock.now());
        let applied = self.apply(&set, &history, plan).await;

        let now = self.clock.now();
        let status = status(&set, &pods, &history.names, history.collision_count, applied.renewed, now);
        if status != set.status {
            self.write_status(&set, &status).await?;
        }
        for revision in excess(&set, &history, &pods) {
            self.revision_store.delete(key, revision).await?;
        }
        if let Some(failure) = applied.failure {
            return Err(failure);
        }
        if applied.recheck {
            return Ok(Outcome::Requeue);
        }
        Ok(next_check(&set, &pods, now).map_or(Outcome::Settled, Outcome::CheckAfter))
    }
}

impl StatefulSets {
    fn claimant<'a>(&'a self, set: &'a Cached<StatefulSet>) -> Claimant<'a> {
        Claimant { kind: &self.kind, owner: set.object(), finalizer: None }
    }

    async fn history(&self, set: &Cached<StatefulSet>) -> Result<Option<History>, ReconcileError> {
        let Some(candidates) = self.revision_store.claimable_by(set.object())? else { return Ok(None) };
        let mut claims = Claims::of(set.meta(), &set.spec.selector, candidates, |_| true);
        // A revision whose labels have changed still belongs to the set.
        claims.release.clear();
        let revisions = claims.carry_out(&self.client, &self.claimant(set)).await?;
        history(&self.revision_store, set, revisions).await.map(Some)
    }

    async fn claim_pods(&self, set: &Cached<StatefulSet>) -> Result<Vec<Cached<Pod>>, ReconcileError> {
        let candidates = self.pods.claimable_by(set.meta())?;
        let is_member = |pod: &Cached<Pod>| ordinal_in(set.meta(), pod.meta()).is_some();
        let claims = Claims::of(set.meta(), &set.spec.selector, candidates, is_member);
        claims.carry_out(&self.client, &self.claimant(set)).await
    }

    /// Applies a plan stage by stage. Stops after a stage that fails.
    async fn apply(&self, set: &Cached<StatefulSet>, history: &History, plan: Plan) -> Applied {
        let mut applied = Applied::default();
        let recheck = AtomicBool::new(false);
        for stage in plan {
            let started =
                slow_start(stage.len(), SLOW_START, |nth| self.perform(set, history, &stage[nth], &recheck));
            applied.failure = started.await.failure;
            if applied.failure.is_some() {
                break;
            }
            let renewals = stage.iter().filter(|action| matches!(action, Action::Renew { .. })).count();
            applied.renewed += i32::try_from(renewals).unwrap_or(i32::MAX);
        }
        applied.recheck = recheck.into_inner();
        applied
    }

    async fn perform(
        &self,
        set: &Cached<StatefulSet>,
        history: &History,
        action: &Action,
        recheck: &AtomicBool,
    ) -> Result<(), ReconcileError> {
        match action {
            Action::Create { ordinal, updated } => {
                if self.has_stale_claims(set, *ordinal)? {
                    recheck.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                self.create(set, history, *ordinal, *updated).await
            }
            Action::Provide { pod, ordinal } => {
                self.make_claims(set, *ordinal).await?;
                self.update_claim_owners(set, pod, *ordinal).await.map(drop)
            }
            Action::UpdatePod { pod, ordinal } => self.update_pod(set, pod, *ordinal).await,
            Action::UpdateClaimOwners { pod, ordinal } => {
                self.update_claim_owners(set, pod, *ordinal).await.map(drop)
            }
            Action::Delete { pod } | Action::Renew { pod } => self.delete(set, pod).await,
        }
    }

    fn claim(
        &self,
        set: &Cached<StatefulSet>,
        template: &ClaimTemplate,
        ordinal: usize,
    ) -> Result<Option<Cached<Claim>>, ReconcileError> {
        Ok(self.claims.get(&set.key().sibling(claim_name(set, template, ordinal)))?)
    }

    /// Whether a claim of the ordinal is about to be deleted with an earlier pod. The new pod has to wait for that.
    fn has_stale_claims(&self, set: &Cached<StatefulSet>, ordinal: usize) -> Result<bool, ReconcileError> {
        if set.spec.persistent_volume_claim_retention_policy.when_scaled == RetentionPolicyType::Retain {
            return Ok(false);
        }
        let pod = pod_name(set.meta(), ordinal);
        for template in &set.spec.volume_claim_templates {
            if self.claim(set, template, ordinal)?.is_some_and(|claim| is_stale_claim(claim.meta(), &pod)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn create(
        &self,
        set: &Cached<StatefulSet>,
        history: &History,
        ordinal: usize,
        updated: bool,
    ) -> Result<(), ReconcileError> {
        let name = pod_name(set.meta(), ordinal);
        if let Err(error) = self.make_claims(set, ordinal).await {
            // A claim that is not in the cache yet is not worth reporting.
            if !matches!(error, ReconcileError::Conflict { .. }) {
                self.record_pod(set, "create", &name, Some(&error.report()));
            }
            return Err(error);
        }
        let (template, revision) = match updated {
            true => (&history.update, &history.names.update),
            false => (&history.current, &history.names.current),
        };
        let template = pod_template(set, template, revision, ordinal);
        let owner = controller_ref(&self.kind, set.meta());
        let prefix = format!("{}-", set.meta().name);
        let body = template.pod(&name, &prefix, &owner);
        match self.client.create(&self.pods_kind, set.key().namespace(), &body).await {
            Ok(_) => {
                self.record_pod(set, "create", &name, None);
                Ok(())
            }
            // Not in the cache yet. Its event wakes the set.
            Err(error) if error.is_already_exists() => {
                Err(ReconcileError::conflict(format!("create pod {name}: there is one")))
            }
            Err(error) => {
                self.record_pod(set, "create", &name, Some(&error.to_string()));
                Err(error.into_reconcile_error(format!("create pod {name} of {}", set.key())))
            }
        }
    }

    /// Creates the missing claims of an ordinal.
    async fn make_claims(&self, set: &Cached<StatefulSet>, ordinal: usize) -> Result<(), ReconcileError> {
        for template in &set.spec.volume_claim_templates {
            let name = claim_name(set, template, ordinal);
            match self.claim(set, template, ordinal)? {
                Some(claim) if claim.meta().is_being_deleted() => {
                    return Err(ReconcileError::retry(format!("pvc {name} is being deleted")));
                }
                Some(_) => {}
                None => self.make_claim(set, template, ordinal, &name).await?,
            }
        }
        Ok(())
    }

    async fn make_claim(
        &self,
        set: &Cached<StatefulSet>,
        template: &ClaimTemplate,
        ordinal: usize,
        name: &str,
    ) -> Result<(), ReconcileError> {
        let body = claim_body(set, template, ordinal);
        let made = self.client.create(&self.claims_kind, set.key().namespace(), &body).await;
        let pod = pod_name(set.meta(), ordinal);
        match &made {
            Ok(_) => self.record(
                set,
                EventType::Normal,
                "SuccessfulCreate",
                format!("create Claim {name} Pod {pod} in StatefulSet {} success", set.meta().name),
            ),
            // Not in the cache yet.
            Err(error) if error.is_already_exists() => {
                return Err(ReconcileError::conflict(format!("failed to create PVC {name}: there is one")));
            }
            Err(error) => self.record(
                set,
                EventType::Warning,
                "FailedCreate",
                format!(
                    "create Claim {name} for Pod {pod} in StatefulSet {} failed error: {error}",
                    set.meta().name
                ),
            ),
        }
        made.map(drop).attempting(format!("failed to create PVC {name}"))
    }

    /// Fixes the owner references of a pod's claims. Returns whether anything changed.
    async fn update_claim_owners(
        &self,
        set: &Cached<StatefulSet>,
        pod: &Cached<Pod>,
        ordinal: usize,
    ) -> Result<bool, ReconcileError> {
        let owners = Owners { set, pod, wanted: set.spec.has_ordinal(ordinal) };
        let mut changed = false;
        for template in &set.spec.volume_claim_templates {
            let Some(claim) = self.claim(set, template, ordinal)? else { continue };
            let Some(corrected) = owners.corrected(&claim) else { continue };
            if owners.has_other_controller(claim.meta()) {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim",
                    claim.meta().name
                );
                self.record(set, EventType::Warning, "ConflictingController", message);
            }
            let body = UpdateBody::of(claim.object()).set(&["metadata", "ownerReferences"], &corrected);
            let updated = self.client.update(&self.claims_kind, claim.key(), Subresource::None, &body).await;
            updated.attempting(format!(
                "could not update claim {} for delete policy ownerRefs",
                claim.meta().name
            ))?;
            changed = true;
        }
        Ok(changed)
    }

    /// Fixes a pod's labels, volumes and claims.
    async fn update_pod(
        &self,
        set: &Cached<StatefulSet>,
        pod: &Cached<Pod>,
        ordinal: usize,
    ) -> Result<(), ReconcileError> {
        let (identified, stored) = (has_identity(pod.meta()), has_storage(set, pod, ordinal));
        let name = &pod.meta().name;
        let updated_pod = async {
            if !stored {
                self.make_claims(set, ordinal).await?;
            }
            let owners_changed = self.update_claim_owners(set, pod, ordinal).await?;
            if identified && stored {
                return Ok(owners_changed);
            }
            let labels = identity(set, &pod.meta().labels, ordinal);
            let mut body = UpdateBody::of(pod.object()).set(&["metadata", "labels"], &labels);
            if !stored {
                let spec: serde_json::Value = pod.object().decode()?;
                body = body.set(&["spec", "volumes"], &volumes(set, ordinal, spec["spec"].get("volumes")));
            }
            let updated = self.client.update(&self.pods_kind, pod.key(), Subresource::None, &body).await;
            updated.attempting(format!("update pod {name}")).map(|_| true)
        };
        match updated_pod.await {
            Ok(changed) => {
                if changed {
                    self.record_pod(set, "update", name, None);
                }
                Ok(())
            }
            Err(error) => {
                self.record_pod(set, "update", name, Some(&error.report()));
                Err(error)
            }
        }
    }

    async fn delete(&self, set: &Cached<StatefulSet>, pod: &Cached<Pod>) -> Result<(), ReconcileError> {
        let delete = DeleteOptions::of_uid(pod.meta().uid.to_string());
        let deleted: Result<(), ClientError> = self.client.delete(&self.pods_kind, pod.key(), &delete).await;
        match deleted {
            Ok(()) => self.record_pod(set, "delete", &pod.meta().name, None),
            // The pod is gone or was recreated.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => {
                self.record_pod(set, "delete", &pod.meta().name, Some(&error.to_string()));
                return Err(error.into_reconcile_error(format!("delete pod {}", pod.key())));
            }
        }
        Ok(())
    }

    async fn write_status(
        &self,
        set: &Cached<StatefulSet>,
        status: &StatefulSetStatus,
    ) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(set.object()).set(&["status"], status);
        let written = self.client.update(&self.kind, set.key(), Subresource::Status, &body).await;
        written.map(drop).attempting(format!("update the status of statefulset {}", set.key()))
    }

    /// Records an event about an action on a pod.
    fn record_pod(&self, set: &Cached<StatefulSet>, verb: &str, pod: &str, error: Option<&str>) {
        let set_name = &set.meta().name;
        let done = match verb {
            "create" => ["SuccessfulCreate", "FailedCreate"],
            "update" => ["SuccessfulUpdate", "FailedUpdate"],
            _ => ["SuccessfulDelete", "FailedDelete"],
        };
        match error {
            None => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set_name} successful");
                self.record(set, EventType::Normal, done[0], message);
            }
            Some(error) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set_name} failed error: {error}");
                self.record(set, EventType::Warning, done[1], message);
            }
        }
    }

    fn record(&self, set: &Cached<StatefulSet>, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&self.kind, set.object(), event_type, reason, message);
    }
}
