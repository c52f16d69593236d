//! A disk to attach: a persistent volume, or an inline disk of a pod.
//!
//! Invariant: a volume is identified by its name, an inline disk by the unique name its driver gives it. No volume can
//! have such a name.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint::{Cached, Key};
use setpoint_volume::inline::Translated;
use setpoint_volume::migrated::csi_source;
use setpoint_volume::{ClaimRef, Csi, Volume};

pub(super) struct Disk {
    pub(super) key: Key,
    /// The name used in events.
    pub(super) name: String,
    pub(super) csi: Csi,
    /// Whether several nodes may attach it at once.
    pub(super) can_be_shared: bool,
    /// The `source` of its VolumeAttachments.
    pub(super) source: Value,
    /// The claim through which pods use it. `None` for inline disks.
    pub(super) claim: Option<ClaimRef>,
    /// Whether pods specify it inline.
    pub(super) is_inline: bool,
    /// Whether it is migrated from an in-tree plugin to CSI.
    pub(super) is_migrated: bool,
}

impl Disk {
    /// Returns the disk of a CSI volume.
    pub(super) fn of_volume(volume: &Cached<Volume>) -> Option<Self> {
        Some(Self {
            key: volume.key().clone(),
            name: volume.key().name().to_owned(),
            csi: csi_source(volume).map(Cow::into_owned)?,
            can_be_shared: volume.can_be_shared(),
            source: json!({"persistentVolumeName": volume.key().name()}),
            claim: volume.spec.claim_ref.clone(),
            is_inline: false,
            is_migrated: volume.spec.csi.is_none(),
        })
    }

    pub(super) fn of_pods(disk: Translated) -> Self {
        Self {
            key: Key::cluster(disk.csi.unique_name()),
            can_be_shared: disk.can_be_shared(),
            source: json!({"inlineVolumeSpec": disk.spec}),
            name: disk.name,
            csi: disk.csi,
            claim: None,
            is_inline: true,
            is_migrated: true,
        }
    }

    /// Returns an inline disk that no pod uses any more but that is still attached.
    pub(super) fn unused(csi: &Csi) -> Self {
        Self {
            key: Key::cluster(csi.unique_name()),
            name: format!("{}-{}", csi.driver, csi.volume_handle),
            csi: csi.clone(),
            can_be_shared: false,
            source: Value::Null,
            claim: None,
            is_inline: true,
            is_migrated: true,
        }
    }
}
