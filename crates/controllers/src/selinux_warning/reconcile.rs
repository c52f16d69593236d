//! Checks a pod, and reports conflicts on both pods.

use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::object::DecodeError;
use setpoint::{Cached, EventType, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler, Recorder};
use setpoint_volume::inline::{InlineDisk, inline_disks};
use setpoint_volume::migrated::csi_source;
use setpoint_volume::{Claim, Csi, PodVolumes, Volume, bound_volume};

use super::Driver;
use super::label::{Labelled, SeveralLabels};
use super::users::Users;

pub(super) struct Warner {
    pub(super) recorder: Recorder,
    pub(super) pods: Lister<PodVolumes>,
    pub(super) claims: Lister<Claim>,
    pub(super) volumes: Lister<Volume>,
    pub(super) drivers: Lister<Driver>,
    /// Whether mounting with labels is enabled at all.
    pub(super) mounts_with_labels: bool,
    pub(super) users: Arc<Mutex<Users>>,
}

impl Reconciler for Warner {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        match self.pods.get(key)?.filter(|pod| !pod.has_ended()) {
            Some(pod) => self.check_pod(&pod)?,
            None => self.users.lock().forget(key),
        }
        Ok(Outcome::Settled)
    }
}

/// The storage behind a pod's volume.
struct BackingStorage {
    /// The unique volume name, the same for all pods.
    name: String,
    /// The CSI driver that mounts it. `None` if the kubelet does.
    driver: Option<Box<str>>,
}

impl BackingStorage {
    fn driver(csi: &Csi) -> Self {
        Self { name: csi.unique_name(), driver: Some(csi.driver.clone()) }
    }

    fn network(name: String) -> Self {
        Self { name, driver: None }
    }

    fn volume(volume: &Cached<Volume>) -> Option<Self> {
        match csi_source(volume) {
            Some(csi) => Some(Self::driver(&csi)),
            None => volume.network_name().map(Self::network),
        }
    }
}

impl Warner {
    fn check_pod(&self, pod: &Cached<PodVolumes>) -> Result<(), DecodeError> {
        let labelled: Labelled = pod.object().decode()?;
        for (volume, storage) in self.volumes_of(pod)? {
            let can_be_mounted = self.can_be_mounted(&storage)?;
            match labelled.of_volume(&volume, can_be_mounted) {
                Ok(Some(used)) => {
                    let conflicts = self.users.lock().add(&storage.name, pod.key(), used);
                    for conflict in conflicts {
                        let warned = self.pods.objects().get(&conflict.pod);
                        warned.iter().for_each(|pod| self.event(pod, conflict.reason, &conflict.message));
                    }
                }
                Err(SeveralLabels) if self.mounts_with_labels => {
                    self.several_labels_event(pod.object(), &volume)
                }
                Ok(None) | Err(SeveralLabels) => {}
            }
        }
        Ok(())
    }

    /// Lists a pod's relevant volumes by name. Unbound claims are checked once they are bound.
    fn volumes_of(&self, pod: &Cached<PodVolumes>) -> Result<Vec<(Box<str>, BackingStorage)>, DecodeError> {
        let mut found = Vec::new();
        for volume in pod.volumes() {
            let bound = bound_volume(pod, volume, &self.claims, &self.volumes)?;
            let storage = bound.as_ref().and_then(BackingStorage::volume);
            found.extend(storage.map(|storage| (volume.name.clone(), storage)));
        }
        found.extend(inline_disks(pod.object()).into_iter().map(|inline| {
            let storage = match inline.disk {
                InlineDisk::OfDriver(disk) => BackingStorage::driver(&disk.csi),
                InlineDisk::OnNetwork(name) => BackingStorage::network(name),
            };
            (inline.name, storage)
        }));
        Ok(found)
    }

    /// Whether a volume can be mounted with a label: its driver supports it, or the kubelet mounts it.
    fn can_be_mounted(&self, storage: &BackingStorage) -> Result<bool, DecodeError> {
        let Some(driver) = &storage.driver else { return Ok(self.mounts_with_labels) };
        let driver = self.drivers.get(&Key::cluster(&**driver))?;
        let supports_label = driver.is_some_and(|driver| driver.spec.mounts_with_label == Some(true));
        Ok(supports_label && self.mounts_with_labels)
    }

    fn event(&self, pod: &Object, reason: &str, message: &str) {
        self.recorder.event(&Kind::of::<PodVolumes>(), pod, EventType::Normal, reason, message);
    }

    fn several_labels_event(&self, pod: &Object, volume: &str) {
        let message =
            format!("Volume {volume:?} is mounted twice with different SELinux labels inside this pod");
        let (kind, reason) = (Kind::of::<PodVolumes>(), "MultipleSELinuxLabels");
        self.recorder.event(&kind, pod, EventType::Warning, reason, message);
    }
}
