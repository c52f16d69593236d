//! Look at a pod; tell both of those that conflict.

use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::object::DecodeError;
use setpoint::{Cached, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, Recorder};
use setpoint_volume::{Claim, PodVolume, PodVolumes, Volume};

use super::Driver;
use super::label::{Labelled, SeveralLabels};
use super::users::Users;

pub(super) struct Warner {
    pub(super) recorder: Recorder,
    pub(super) pods: Lister<PodVolumes>,
    pub(super) claims: Lister<Claim>,
    pub(super) volumes: Lister<Volume>,
    pub(super) drivers: Lister<Driver>,
    /// Whether volumes that several pods may use are mounted with labels too.
    pub(super) any_access_mode: bool,
    pub(super) users: Arc<Mutex<Users>>,
}

impl Reconciler for Warner {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        match self.pods.get(key)?.filter(|pod| !pod.has_ended()) {
            Some(pod) => self.look_at(&pod)?,
            None => self.users.lock().forget(key),
        }
        Ok(Outcome::Settled)
    }
}

impl Warner {
    fn look_at(&self, pod: &Cached<PodVolumes>) -> Result<(), DecodeError> {
        let labelled: Labelled = pod.object().decode()?;
        for volume in pod.volumes() {
            // What is not bound yet is looked at when it is.
            let Some(behind) = self.behind(pod, volume)? else { continue };
            let Some(csi) = &behind.spec.csi else { continue };
            let can_be_mounted = self.can_be_mounted(&behind, &csi.driver)?;
            match labelled.of_volume(&volume.name, can_be_mounted) {
                Ok(Some(used)) => {
                    let conflicts = self.users.lock().add(&csi.unique_name(), pod.key(), used);
                    for conflict in conflicts {
                        let told = self.pods.objects().get(&conflict.pod);
                        told.iter().for_each(|pod| self.tell(pod, conflict.reason, &conflict.message));
                    }
                }
                Ok(None) => {}
                Err(SeveralLabels) => self.tell_of_several(pod.object(), &volume.name),
            }
        }
        Ok(())
    }

    /// The volume that is bound to the claim of a pod's volume.
    fn behind(
        &self,
        pod: &Cached<PodVolumes>,
        volume: &PodVolume,
    ) -> Result<Option<Cached<Volume>>, DecodeError> {
        let Some(claim) = volume.claim_name(pod.key().name()) else { return Ok(None) };
        let Some(claim) = self.claims.get(&pod.key().sibling(claim))? else { return Ok(None) };
        match &*claim.spec.volume_name {
            "" => Ok(None),
            name => self.volumes.get(&Key::cluster(name)),
        }
    }

    /// Whether a volume can be mounted with a label: its driver says so, and one pod at a time uses it.
    fn can_be_mounted(&self, volume: &Volume, driver: &str) -> Result<bool, DecodeError> {
        let driver = self.drivers.get(&Key::cluster(driver))?;
        let one_pod = matches!(volume.access_modes(), [mode] if &**mode == "ReadWriteOncePod");
        let says = driver.is_some_and(|driver| driver.spec.mounts_with_label == Some(true));
        Ok(says && (one_pod || self.any_access_mode))
    }

    fn tell(&self, pod: &Object, reason: &str, message: &str) {
        self.recorder.event(&Kind::of::<PodVolumes>(), pod, EventType::Normal, reason, message);
    }

    fn tell_of_several(&self, pod: &Object, volume: &str) {
        let message =
            format!("Volume {volume:?} is mounted twice with different SELinux labels inside this pod");
        let (kind, reason) = (Kind::of::<PodVolumes>(), "MultipleSELinuxLabels");
        self.recorder.event(&kind, pod, EventType::Warning, reason, message);
    }
}
