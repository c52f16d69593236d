//! Observe, plan, apply, then status.

use serde::Serialize;
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::owner::{adoption, controller_ref, release};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Clock, EventType, Key, Kind, LabelSelector, Labels, Outcome, OwnerRef,
    ReconcileError, Reconciler, Recorder, UpdateBody,
};

use super::members::{Member, template_hash};
use super::observe::Observer;
use super::plan::{Plan, Sync, plan};
use super::progress::{self, CREATE_ERROR, NewSet, NextCheck};
use super::revision::{Annotations, REVISION, ROLLBACK_TO};
use super::rollback::Rollback;
use super::status;
use super::view::{Deployment, DeploymentStatus};
use crate::replicaset::ReplicaSet;
use crate::workload::claims::recheck;
use crate::workload::pod_control::namespace_is_terminating;
use crate::workload::template::{HASH_LABEL, PodTemplate, with_label};

pub(super) struct Deployments {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) clock: Clock,
    pub(super) kind: Kind,
    pub(super) sets: Kind,
    pub(super) observer: Observer,
}

/// Why the new ReplicaSet was not created.
enum NotCreated {
    /// It already exists, but is not in the cache yet.
    AlreadyThere,
    /// Another ReplicaSet has its name.
    Collision,
    /// Nothing can be created in this namespace.
    NamespaceIsTerminating,
    Failed(ClientError),
}

impl Reconciler for Deployments {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(deployment) = self.observer.deployment(key)? else { return Ok(Outcome::Settled) };
        let observed = self.observer.observe(&deployment)?;
        match plan(&deployment, &observed) {
            Plan::SelectsEverything => self.refuse(&deployment).await,
            Plan::Claim { adopt, release } => self.claim(&deployment, &adopt, &release).await,
            Plan::Sync(sync) => self.sync(&deployment, sync).await,
        }
    }
}

impl Deployments {
    async fn refuse(&self, deployment: &Cached<Deployment>) -> Result<Outcome, ReconcileError> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.record(deployment, EventType::Warning, "SelectingAll", message.into());
        self.write_status(deployment, &status::refused(deployment), None).await?;
        Ok(Outcome::Settled)
    }

    /// Adopts and releases ReplicaSets. Their events wake the Deployment again.
    async fn claim(
        &self,
        deployment: &Cached<Deployment>,
        adopt: &[Cached<ReplicaSet>],
        released: &[Cached<ReplicaSet>],
    ) -> Result<Outcome, ReconcileError> {
        if !adopt.is_empty() {
            recheck(&self.client, &self.kind, deployment.object()).await?;
        }
        let owner = controller_ref(&self.kind, deployment.meta());
        for set in adopt {
            match self.patch_set(set, adoption(&owner, set.meta())).await {
                Err(error) if error.is_not_found() => {}
                adopted => adopted.attempting(format!("adopt replicaset {}", set.key()))?,
            }
        }
        for set in released {
            match self.patch_set(set, release(&deployment.meta().uid, set.meta())).await {
                Err(error) if error.is_not_found() || error.is_invalid() => {}
                patched => patched.attempting(format!("release replicaset {}", set.key()))?,
            }
        }
        // ReplicaSets that were already gone cause no event.
        Ok(Outcome::Requeue)
    }

    async fn sync(&self, deployment: &Cached<Deployment>, sync: Sync) -> Result<Outcome, ReconcileError> {
        let new = match &sync.members.new {
            None => NewSet::None,
            Some(new) if new.existing.is_some() => NewSet::Found(&new.name),
            Some(new) => match self.create(deployment, new).await {
                Ok(()) => NewSet::Created(&new.name),
                Err(not_created) => return self.not_created(deployment, new, not_created).await,
            },
        };
        for member in sync.members.new.iter().chain(&sync.members.old) {
            self.update(deployment, member).await?;
        }
        for set in &sync.delete {
            self.delete(set).await?;
        }
        if let Some(rollback) = sync.rollback {
            return self.roll_back(deployment, rollback).await;
        }

        let now = self.clock.now();
        let status = status::status(deployment, &sync.members, new, sync.rolls_out, now);
        let revision = sync.members.new.as_ref().and_then(|new| new.annotations.get(REVISION));
        let changed = self.write_status(deployment, &status, revision).await?;
        if changed || !sync.rolls_out {
            // The status update wakes the Deployment again.
            return Ok(Outcome::Settled);
        }
        Ok(match progress::next_check(deployment, &status, now) {
            NextCheck::Never => Outcome::Settled,
            NextCheck::Soon => Outcome::Requeue,
            NextCheck::After(time) => Outcome::CheckAfter(time),
        })
    }

    async fn create(&self, deployment: &Cached<Deployment>, new: &Member) -> Result<(), NotCreated> {
        let hash = template_hash(deployment);
        let body = NewReplicaSet::of(deployment, new, &hash, controller_ref(&self.kind, deployment.meta()));
        let namespace = deployment.key().namespace();
        match self.client.create(&self.sets, namespace, &body).await {
            Ok(_) => {
                self.record_scaling(deployment, &new.name, 0, new.replicas);
                Ok(())
            }
            Err(error) if error.is_already_exists() => Err(self.resolve_name_conflict(deployment, new).await),
            Err(error) if namespace_is_terminating(&error) => Err(NotCreated::NamespaceIsTerminating),
            Err(error) => Err(NotCreated::Failed(error)),
        }
    }

    /// Finds out whether the ReplicaSet with the new one's name is the new one or a hash collision.
    async fn resolve_name_conflict(&self, deployment: &Cached<Deployment>, new: &Member) -> NotCreated {
        let key = deployment.key().sibling(&*new.name);
        let found = match self.client.get(&self.sets, &key).await {
            Ok(found) => found,
            Err(error) => return NotCreated::Failed(error),
        };
        let same = Cached::<ReplicaSet>::new(found).is_ok_and(|set| {
            set.meta().is_controlled_by(&deployment.meta().uid)
                && set.spec.template.same_pods_as(&deployment.spec.template)
        });
        if same { NotCreated::AlreadyThere } else { NotCreated::Collision }
    }

    async fn not_created(
        &self,
        deployment: &Cached<Deployment>,
        new: &Member,
        why: NotCreated,
    ) -> Result<Outcome, ReconcileError> {
        match why {
            // The plan assumed a fresh ReplicaSet. Plan again once the cache shows the existing one.
            NotCreated::AlreadyThere => Ok(Outcome::Requeue),
            NotCreated::NamespaceIsTerminating => Ok(Outcome::Settled),
            NotCreated::Collision => {
                self.write_status(deployment, &status::collided(deployment), None).await?;
                Ok(Outcome::Requeue)
            }
            NotCreated::Failed(error) => {
                let message = format!("Failed to create new replica set {:?}: {error}", new.name);
                let status = status::failed_creation(deployment, &message, self.clock.now());
                self.record(deployment, EventType::Warning, CREATE_ERROR, message);
                // Report the failed creation, not a failure to update the status.
                let _ = self.write_status(deployment, &status, None).await;
                Err(error.into_reconcile_error(format!(
                    "create replicaset {} for {}",
                    new.name,
                    deployment.key()
                )))
            }
        }
    }

    /// Writes the changes to an existing ReplicaSet.
    async fn update(&self, deployment: &Cached<Deployment>, member: &Member) -> Result<(), ReconcileError> {
        let Some(set) = member.existing.as_ref().filter(|set| member.differs_from(set)) else {
            return Ok(());
        };
        let body = UpdateBody::of(set.object())
            .set(&["metadata", "annotations"], &member.annotations)
            .set(&["spec", "replicas"], &member.replicas)
            .set(&["spec", "minReadySeconds"], &member.min_ready_seconds);
        let updated = self.client.update(&self.sets, set.key(), Subresource::None, &body).await;
        updated.attempting(format!("update replicaset {}", set.key()))?;
        self.record_scaling(deployment, &member.name, set.spec.replicas, member.replicas);
        Ok(())
    }

    async fn delete(&self, set: &Cached<ReplicaSet>) -> Result<(), ReconcileError> {
        // Include the resource version: the ReplicaSet may have been scaled up meanwhile.
        let delete = DeleteOptions {
            uid: Some(set.meta().uid.to_string()),
            resource_version: Some(set.meta().resource_version.to_string()),
            ..DeleteOptions::default()
        };
        match self.client.delete(&self.sets, set.key(), &delete).await {
            Err(error) if error.is_not_found() => Ok(()),
            deleted => deleted.map(drop).attempting(format!("delete replicaset {}", set.key())),
        }
    }

    async fn roll_back(
        &self,
        deployment: &Cached<Deployment>,
        rollback: Rollback,
    ) -> Result<Outcome, ReconcileError> {
        let name = &deployment.meta().name;
        let edit = UpdateBody::of(deployment.object());
        let (edit, event_type, reason, message) = match rollback {
            Rollback::To { revision, template, annotations } => (
                edit.set(&["spec", "template"], &template).set(&["metadata", "annotations"], &annotations),
                EventType::Normal,
                "DeploymentRollback",
                format!("Rolled back deployment {name:?} to revision {revision}"),
            ),
            Rollback::Unchanged => (
                edit,
                EventType::Warning,
                "DeploymentRollbackTemplateUnchanged",
                format!("The rollback revision contains the same template as current deployment {name:?}"),
            ),
            Rollback::NotFound { asked_for_last } => {
                let sought = if asked_for_last { "last revision" } else { "the revision to rollback to" };
                let message = format!("Unable to find {sought}.");
                (edit, EventType::Warning, "DeploymentRollbackRevisionNotFound", message)
            }
        };
        let body = edit.remove(&["metadata", "annotations", ROLLBACK_TO]);
        let updated = self.client.update(&self.kind, deployment.key(), Subresource::None, &body).await;
        updated.attempting(format!("roll back deployment {}", deployment.key()))?;
        self.record(deployment, event_type, reason, message);
        Ok(Outcome::Settled)
    }

    /// Writes status and revision if either changed. Returns whether it did.
    async fn write_status(
        &self,
        deployment: &Cached<Deployment>,
        status: &DeploymentStatus,
        revision: Option<&String>,
    ) -> Result<bool, ReconcileError> {
        let revision =
            revision.filter(|revision| deployment.metadata.annotations.get(REVISION) != Some(revision));
        if *status == deployment.status && revision.is_none() {
            return Ok(false);
        }
        let mut body = UpdateBody::of(deployment.object()).set(&["status"], status);
        if let Some(revision) = revision {
            body = body.set(&["metadata", "annotations", REVISION], revision);
        }
        let written = self.client.update(&self.kind, deployment.key(), Subresource::Status, &body).await;
        written.attempting(format!("update the status of deployment {}", deployment.key()))?;
        Ok(true)
    }

    async fn patch_set(&self, set: &Cached<ReplicaSet>, patch: Patch) -> Result<(), ClientError> {
        self.client.patch_ignoring_response(&self.sets, set.key(), Subresource::None, patch).await
    }

    fn record_scaling(&self, deployment: &Cached<Deployment>, set: &str, from: i32, to: i32) {
        if from != to {
            let direction = if from < to { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
            self.record(deployment, EventType::Normal, "ScalingReplicaSet", message);
        }
    }

    fn record(&self, deployment: &Cached<Deployment>, event_type: EventType, reason: &str, message: String) {
        self.recorder.event(&self.kind, deployment.object(), event_type, reason, message);
    }
}

/// The body of a new ReplicaSet.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewReplicaSet<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: NewMetadata<'a>,
    spec: NewSpec,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewMetadata<'a> {
    name: &'a str,
    labels: Labels,
    annotations: &'a Annotations,
    owner_references: [OwnerRef; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewSpec {
    replicas: i32,
    min_ready_seconds: i32,
    selector: LabelSelector,
    template: PodTemplate,
}

impl<'a> NewReplicaSet<'a> {
    /// Builds a ReplicaSet with the pod template hash in its template, selector and labels, which separates its pods
    /// from those of other ReplicaSets.
    fn of(deployment: &Deployment, new: &'a Member, hash: &str, owner: OwnerRef) -> Self {
        let template = deployment.spec.template.with_hash(hash);
        let selector = &deployment.spec.selector;
        Self {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            metadata: NewMetadata {
                name: &new.name,
                labels: template.metadata.labels.clone(),
                annotations: &new.annotations,
                owner_references: [owner],
            },
            spec: NewSpec {
                replicas: new.replicas,
                min_ready_seconds: new.min_ready_seconds,
                selector: LabelSelector {
                    match_labels: with_label(&selector.match_labels, HASH_LABEL, hash),
                    match_expressions: selector.match_expressions.clone(),
                },
                template,
            },
        }
    }
}
