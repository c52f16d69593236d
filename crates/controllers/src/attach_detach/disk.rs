//! What is attached: a volume, or a disk that pods name themselves.
//!
//! What always holds: a volume goes by its name, and a disk of pods by the unique name that its driver gives it, which
//! no volume can have as its name.

use std::borrow::Cow;

use serde_json::{Value, json};
use setpoint::{Cached, Key};
use setpoint_volume::inline::Translated;
use setpoint_volume::migrated::behind_driver;
use setpoint_volume::{ClaimRef, Csi, Volume};

pub(super) struct Disk {
    pub(super) key: Key,
    /// What events call it.
    pub(super) name: String,
    pub(super) csi: Csi,
    /// Whether several nodes may have it at once.
    pub(super) can_be_shared: bool,
    /// What an attachment says that it attaches.
    pub(super) source: Value,
    /// The claim through which pods use it; none, if they name it themselves.
    pub(super) claim: Option<ClaimRef>,
    /// Whether pods name it themselves.
    pub(super) is_inline: bool,
    /// Whether its driver has taken over from a plugin of old.
    pub(super) is_migrated: bool,
}

impl Disk {
    /// A volume that a driver attaches.
    pub(super) fn of_volume(volume: &Cached<Volume>) -> Option<Self> {
        Some(Self {
            key: volume.key().clone(),
            name: volume.key().name().to_owned(),
            csi: behind_driver(volume).map(Cow::into_owned)?,
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

    /// A disk that no pod names any more, and that is still attached.
    pub(super) fn left(csi: &Csi) -> Self {
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
