//! Applies plans. Claims and volumes have separate queues.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Key, Kind, Outcome, Queue, ReconcileError, Reconciler, Recorder, UpdateBody, View,
};
use setpoint_volume::{Claim, Latest, PROVISIONED_BY, PodVolumes, SELECTED_NODE, Volume, binding};

use super::Settings;
use super::claim::{self, PlannedEvent};
use super::metrics;
use super::observe::Caches;
use super::provision::{self, HOST_PATH, Provision};
use super::reclaim::{self, Reclaim, reclaim};
use super::recycle;
use super::volume;

pub(super) struct Binder {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) settings: Settings,
    pub(super) claim_queue: Queue<Key>,
    pub(super) caches: Caches,
    pub(super) metrics: Metrics,
}

pub(super) struct Claims(pub(super) Arc<Binder>);

pub(super) struct Volumes(pub(super) Arc<Binder>);

impl Reconciler for Claims {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(claim) = self.0.caches.claims.get(key)? else { return Ok(Outcome::Settled) };
        self.0.sync_claim(claim).await
    }
}

impl Reconciler for Volumes {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(volume) = self.0.caches.volumes.get(key)? else { return Ok(Outcome::Settled) };
        self.0.sync_volume(volume).await
    }
}

impl Binder {
    async fn sync_claim(&self, claim: Cached<Claim>) -> Result<Outcome, ReconcileError> {
        let claim = self
            .write_claim(
                &claim,
                provision::with_driver(&claim),
                Subresource::None,
                "set the migrated driver of a claim",
            )
            .await?;
        let mut observed = self.caches.observe(&claim)?;
        let mut plan = claim::plan(&claim, &observed, self.settings);
        let mut claim = claim;
        if matches!(plan, claim::Plan::GiveUp(_)) && &*claim.status.phase != "Lost" {
            let Some(fresh) = self.fresh::<Claim>(claim.key()).await? else { return Ok(Outcome::Settled) };
            claim = fresh;
            observed.named = match &*claim.spec.volume_name {
                "" => None,
                name => self.fresh(&Key::cluster(name)).await?,
            };
            plan = claim::plan(&claim, &observed, self.settings);
        }
        self.carry_out(&claim, plan).await
    }

    async fn carry_out(&self, claim: &Cached<Claim>, plan: claim::Plan) -> Result<Outcome, ReconcileError> {
        let again = Ok(Outcome::CheckAfter(self.settings.sync_period));
        match plan {
            claim::Plan::Bind(volume) => {
                self.bind(claim.clone(), volume).await?;
                Ok(Outcome::Settled)
            }
            claim::Plan::AssignClass(class) => {
                let edit = UpdateBody::of(claim.object()).set(&["spec", "storageClassName"], &class);
                let given =
                    self.write_claim(claim, Some(edit), Subresource::None, "set the class of a claim").await;
                metrics::count_class(&self.metrics, given.is_ok());
                given.map(|_| Outcome::Settled)
            }
            claim::Plan::Provision(how) => {
                self.provision(claim, how).await?;
                again
            }
            claim::Plan::Wait(event) => {
                self.claim_event(claim, event.as_ref());
                let edit = binding::status_without(claim, "Pending");
                self.write_claim(claim, edit, Subresource::Status, "set a claim to Pending").await?;
                again
            }
            claim::Plan::GiveUp(event) => {
                if &*claim.status.phase != "Lost" {
                    let edit = binding::status_without(claim, "Lost");
                    let claim =
                        self.write_claim(claim, edit, Subresource::Status, "set a claim to Lost").await?;
                    self.claim_event(&claim, Some(&event));
                }
                Ok(Outcome::Settled)
            }
            claim::Plan::Refuse(event) => {
                self.claim_event(claim, Some(&event));
                Err(ReconcileError::retry(format!("bind claim {}: {}", claim.key(), event.message)))
            }
        }
    }

    /// Completes a binding, volume first.
    async fn bind(&self, claim: Cached<Claim>, volume: Cached<Volume>) -> Result<(), ReconcileError> {
        let edit = binding::volume_bound_to(&volume, &claim);
        let volume = self.write_volume(&volume, edit, Subresource::None, "bind a volume").await?;
        let edit = binding::volume_in_phase(&volume, "Bound", "");
        let volume = self.write_volume(&volume, edit, Subresource::Status, "set a volume to Bound").await?;
        let edit = binding::claim_with(&claim, &volume);
        let claim = self.write_claim(&claim, edit, Subresource::None, "bind a claim").await?;
        let edit = binding::status_with(&claim, &volume);
        self.write_claim(&claim, edit, Subresource::Status, "set a claim to Bound").await.map(drop)
    }

    async fn provision(&self, claim: &Cached<Claim>, how: Provision) -> Result<(), ReconcileError> {
        match how {
            Provision::Off => Ok(()),
            Provision::Fails(event) => {
                self.claim_event(claim, Some(&event));
                Ok(())
            }
            Provision::Ask(driver) => {
                let requested = self.request_provisioning(claim, &driver).await;
                let event = match &requested {
                    Ok(_) => PlannedEvent::normal("ExternalProvisioning", waits_for_driver(&driver)),
                    Err(error) => PlannedEvent::warning(
                        "ProvisioningFailed",
                        format!("Error saving claim: {}", error.report()),
                    ),
                };
                self.claim_event(claim, Some(&event));
                requested.map(drop)
            }
            Provision::HostPath(made) => self.provision_host_path(claim, made).await,
        }
    }

    async fn request_provisioning(
        &self,
        claim: &Cached<Claim>,
        driver: &str,
    ) -> Result<Cached<Claim>, ReconcileError> {
        let edit = provision::addressed_to(claim, driver);
        self.write_claim(claim, edit, Subresource::None, "set the provisioner of a claim").await
    }

    async fn provision_host_path(
        &self,
        claim: &Cached<Claim>,
        made: Result<Value, provision::Failure>,
    ) -> Result<(), ReconcileError> {
        let requested = made.as_ref().map_or_else(|failure| failure.requested, |_| true);
        let claim =
            if requested { self.request_provisioning(claim, HOST_PATH).await? } else { claim.clone() };
        let body = match made {
            Ok(body) => body,
            Err(failure) => {
                if failure.reschedule && claim.has_selected_node() {
                    let edit =
                        UpdateBody::of(claim.object()).remove(&["metadata", "annotations", SELECTED_NODE]);
                    self.write_claim(
                        &claim,
                        Some(edit),
                        Subresource::None,
                        "clear the selected node of a claim",
                    )
                    .await?;
                }
                self.claim_event(&claim, Some(&failure.event));
                metrics::count_failure(&self.metrics, HOST_PATH, "provision");
                return Ok(());
            }
        };
        let name = provision::volume_name(&claim);
        match self.client.create(&Kind::of::<Volume>(), None, &body).await {
            Err(error) if error.is_already_exists() => return Ok(()),
            created => created.attempting(format!("create volume {name}"))?,
        };
        let message = format!("Successfully provisioned volume {name} using {HOST_PATH}");
        self.claim_event(&claim, Some(&PlannedEvent::normal("ProvisioningSucceeded", message)));
        Ok(())
    }

    async fn sync_volume(&self, volume: Cached<Volume>) -> Result<Outcome, ReconcileError> {
        let edit = reclaim::kept(&volume);
        let volume =
            self.write_volume(&volume, edit, Subresource::None, "update the finalizers of a volume").await?;
        let claim = self.claim_of(&volume).await?;
        match volume::plan(&volume, claim.as_ref()) {
            volume::Plan::Be(phase) => {
                let edit = binding::volume_in_phase(&volume, phase, "");
                self.write_volume(&volume, edit, Subresource::Status, "update the phase of a volume").await?;
                Ok(Outcome::Settled)
            }
            volume::Plan::WakeClaim => {
                claim.into_iter().for_each(|claim| self.claim_queue.add(claim.key().clone()));
                Ok(Outcome::Settled)
            }
            volume::Plan::Mismatch => {
                if let Some(claim) = claim {
                    self.mismatch_events(&volume, &claim);
                }
                Ok(Outcome::CheckAfter(self.settings.sync_period))
            }
            volume::Plan::Release => self.release(volume).await,
            volume::Plan::Unbind => {
                self.unbind(&volume).await?;
                Ok(Outcome::Settled)
            }
        }
    }

    /// Returns the claim that a volume references. If the cache does not have it, it is read past the cache, unless the
    /// volume is already released.
    async fn claim_of(&self, volume: &Cached<Volume>) -> Result<Option<Cached<Claim>>, ReconcileError> {
        let Some(reference) = volume.spec.claim_ref.as_ref().filter(|_| volume::is_bound(volume)) else {
            return Ok(None);
        };
        let same = |claim: &Cached<Claim>| claim.meta().uid == reference.uid;
        match self.caches.claims.get(&reference.key())? {
            Some(claim) if same(&claim) => Ok(Some(claim)),
            None if volume::is_released(volume) => Ok(None),
            _ => Ok(self.fresh::<Claim>(&reference.key()).await?.filter(same)),
        }
    }

    fn mismatch_events(&self, volume: &Cached<Volume>, claim: &Cached<Claim>) {
        let because = "due to incompatible volumeMode.";
        let message = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} {because}",
            claim.key().name()
        );
        self.volume_event(volume, &PlannedEvent::warning("VolumeMismatch", message));
        let name = volume.key().name();
        let message =
            format!("Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim {because}");
        self.claim_event(claim, Some(&PlannedEvent::warning("VolumeMismatch", message)));
    }

    async fn release(&self, volume: Cached<Volume>) -> Result<Outcome, ReconcileError> {
        let mut volume = volume;
        if !volume::is_released(&volume) {
            let edit = binding::volume_in_phase(&volume, "Released", "");
            volume =
                self.write_volume(&volume, edit, Subresource::Status, "set a volume to Released").await?;
        }
        let again = Outcome::CheckAfter(self.settings.sync_period);
        match reclaim(&volume) {
            Reclaim::Nothing => return Ok(Outcome::Settled),
            Reclaim::Fails(event) => {
                let maker = volume.metadata.get(PROVISIONED_BY).unwrap_or("N/A");
                metrics::count_failure(&self.metrics, maker, "delete");
                self.fail(&volume, &event).await?;
            }
            Reclaim::Recycle => return self.recycle(&volume).await.map(|outcome| outcome.and(again)),
            Reclaim::Delete => self.delete(&volume).await?,
        }
        Ok(again)
    }

    /// Sets the phase `Failed` and reports it once. Reclaiming is still retried.
    async fn fail(&self, volume: &Cached<Volume>, event: &PlannedEvent) -> Result<(), ReconcileError> {
        let Some(edit) = binding::volume_in_phase(volume, "Failed", &event.message) else { return Ok(()) };
        let volume =
            self.write_volume(volume, Some(edit), Subresource::Status, "set a volume to Failed").await?;
        self.volume_event(&volume, event);
        Ok(())
    }

    /// Reads a volume past the cache, and returns it if it is still released.
    async fn still_released(
        &self,
        volume: &Cached<Volume>,
    ) -> Result<Option<Cached<Volume>>, ReconcileError> {
        let fresh = self.fresh::<Volume>(volume.key()).await?;
        let Some(fresh) = fresh.filter(|fresh| fresh.meta().uid == volume.meta().uid) else {
            return Ok(None);
        };
        if !volume::is_bound(&fresh) {
            return Ok(None);
        }
        let claim = self.claim_of(&fresh).await?;
        Ok(Some(fresh).filter(|fresh| volume::plan(fresh, claim.as_ref()) == volume::Plan::Release))
    }

    async fn delete(&self, volume: &Cached<Volume>) -> Result<(), ReconcileError> {
        let Some(mut fresh) = self.still_released(volume).await? else { return Ok(()) };
        if let Some(edit) = reclaim::released(&fresh) {
            // An update: the controller's role has no right to patch volumes.
            let kind = Kind::of::<Volume>();
            let written = self.client.update(&kind, fresh.key(), Subresource::None, &edit).await.optional();
            let attempted = format!("remove the finalizer of volume {}", fresh.key());
            let Some(written) = written.attempting(attempted)? else { return Ok(()) };
            fresh = Cached::new(written)?;
        }
        if fresh.meta().is_being_deleted() {
            return Ok(());
        }
        let delete = DeleteOptions::of_uid(fresh.meta().uid.to_string());
        let deleted = self.client.delete(&Kind::of::<Volume>(), fresh.key(), &delete).await.optional();
        deleted.map(drop).attempting(format!("delete volume {}", fresh.key()))
    }

    /// Scrubs the volume with a pod. The pod is deleted before the volume becomes available, so that it is not mistaken
    /// for a later recycler.
    async fn recycle(&self, volume: &Cached<Volume>) -> Result<Outcome, ReconcileError> {
        let Some(volume) = self.still_released(volume).await? else { return Ok(Outcome::Settled) };
        let Some(reference) = &volume.spec.claim_ref else { return Ok(Outcome::Settled) };
        let users = self.caches.pods_using(&reference.key())?;
        if !users.is_empty() && self.caches.claims.get(&reference.key())?.is_none() {
            let message = format!("Volume is used by pods: {}", users.join(","));
            self.volume_event(&volume, &PlannedEvent::normal("VolumeFailedRecycle", message));
            return Ok(Outcome::Settled);
        }
        let (kind, key) = (Kind::of::<PodVolumes>(), recycle::key(volume.key()));
        let Some(pod) = self.fresh::<PodVolumes>(&key).await? else {
            let created = self
                .client
                .create(&kind, key.namespace(), &recycle::body(&volume, self.settings.recycling))
                .await;
            return created.map(|_| Outcome::Settled).attempting(format!("create pod {key}"));
        };
        if !pod.has_ended() {
            return Ok(Outcome::Settled);
        }
        let delete = DeleteOptions::of_uid(pod.meta().uid.to_string());
        self.client.delete(&kind, &key, &delete).await.attempting(format!("delete pod {key}"))?;
        match failure(&pod) {
            Some(why) => {
                let message = format!("Recycle failed: failed to recycle volume: {why}");
                self.fail(&volume, &PlannedEvent::warning("VolumeFailedRecycle", message)).await?;
            }
            None => {
                self.volume_event(&volume, &PlannedEvent::normal("VolumeRecycled", "Volume recycled"));
                self.unbind(&volume).await?;
            }
        }
        Ok(Outcome::Settled)
    }

    async fn unbind(&self, volume: &Cached<Volume>) -> Result<(), ReconcileError> {
        let edit = Some(binding::unbound_volume(volume));
        let volume = self.write_volume(volume, edit, Subresource::None, "unbind a volume").await?;
        let edit = binding::volume_in_phase(&volume, "Available", "");
        self.write_volume(&volume, edit, Subresource::Status, "set a volume to Available").await.map(drop)
    }

    /// Reads an object past the cache.
    async fn fresh<V: View>(&self, key: &Key) -> Result<Option<Cached<V>>, ReconcileError> {
        let kind = Kind::of::<V>();
        let got = self.client.get(&kind, key).await.optional();
        let got = got.attempting(format!("get {} {key} uncached", kind.kind()))?;
        Ok(got.map(Cached::new).transpose()?)
    }

    async fn write_claim(
        &self,
        claim: &Cached<Claim>,
        edit: Option<UpdateBody<'_>>,
        part: Subresource,
        attempted: &str,
    ) -> Result<Cached<Claim>, ReconcileError> {
        self.write(&self.caches.claims, claim, edit, part, attempted).await
    }

    async fn write_volume(
        &self,
        volume: &Cached<Volume>,
        edit: Option<UpdateBody<'_>>,
        part: Subresource,
        attempted: &str,
    ) -> Result<Cached<Volume>, ReconcileError> {
        self.write(&self.caches.volumes, volume, edit, part, attempted).await
    }

    /// Writes an object if it changes, and returns the result.
    async fn write<V: View>(
        &self,
        cache: &Latest<V>,
        object: &Cached<V>,
        edit: Option<UpdateBody<'_>>,
        part: Subresource,
        attempted: &str,
    ) -> Result<Cached<V>, ReconcileError> {
        let Some(edit) = edit else { return Ok(object.clone()) };
        let key = object.key();
        let written = self.client.update(&Kind::of::<V>(), key, part, &edit).await;
        let written = written.attempting(format!("{attempted}: {key}"))?;
        cache.wrote(&written);
        Ok(Cached::new(written)?)
    }

    fn claim_event(&self, claim: &Cached<Claim>, event: Option<&PlannedEvent>) {
        if let Some(event) = event {
            self.recorder.event(
                &Kind::of::<Claim>(),
                claim.object(),
                event.event_type,
                event.reason,
                &*event.message,
            );
        }
    }

    fn volume_event(&self, volume: &Cached<Volume>, event: &PlannedEvent) {
        self.recorder.event(
            &Kind::of::<Volume>(),
            volume.object(),
            event.event_type,
            event.reason,
            &*event.message,
        );
    }
}

fn waits_for_driver(driver: &str) -> String {
    format!(
        "Waiting for a volume to be created either by the external provisioner '{driver}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    )
}

/// Returns why a finished pod failed, if it did.
fn failure(pod: &Cached<PodVolumes>) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Pod {
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        phase: String,
        message: String,
    }
    let status = pod.object().decode::<Pod>().unwrap_or_default().status;
    let unknown = || "pod failed, pod.Status.Message unknown".to_owned();
    (status.phase == "Failed")
        .then(|| Some(status.message).filter(|text| !text.is_empty()).unwrap_or_else(unknown))
}
