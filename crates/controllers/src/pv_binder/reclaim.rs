//! Decides what happens to a released volume. Pure.

use setpoint::{Cached, UpdateBody};
use setpoint_volume::{MIGRATED_TO, PROVISIONED_BY, Volume, migrated};

use super::claim::PlannedEvent;
use super::provision::{HOST_PATH, marked};

/// The finalizer that keeps an in-tree provisioned volume until its storage is deleted.
pub(super) const FINALIZER: &str = "kubernetes.io/pv-controller";
/// The same for volumes of external provisioners.
const DRIVERS_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Host paths are only deleted below this directory.
const TEMPORARY: &str = "/tmp/";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reclaim {
    /// Nothing: it is retained, or an external driver deletes it.
    Nothing,
    /// Scrub it and make it available again.
    Recycle,
    Delete,
    /// No plugin can do it: the phase becomes `Failed`, reported once.
    Fails(PlannedEvent),
}

pub(super) fn reclaim(volume: &Cached<Volume>) -> Reclaim {
    if volume.metadata.get(MIGRATED_TO).is_some_and(|driver| !driver.is_empty()) {
        return Reclaim::Nothing;
    }
    match &*volume.spec.persistent_volume_reclaim_policy {
        "Retain" => Reclaim::Nothing,
        "Recycle" if volume.spec.host_path.is_some() || volume.spec.nfs.is_some() => Reclaim::Recycle,
        "Recycle" => fails("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        "Delete" => delete(volume),
        _ => fails("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"),
    }
}

fn fails(reason: &'static str, message: impl Into<String>) -> Reclaim {
    Reclaim::Fails(PlannedEvent::warning(reason, message))
}

fn delete(volume: &Cached<Volume>) -> Reclaim {
    let failed = |message: String| fails("VolumeFailedDelete", message);
    let unmatched = |why: &str| {
        let name = volume.key().name();
        failed(format!("error getting deleter volume plugin for volume {name:?}: {why}"))
    };
    match volume.metadata.get(PROVISIONED_BY).filter(|plugin| !plugin.is_empty()) {
        Some(HOST_PATH) => delete_host_path(volume),
        Some("kubernetes.io/nfs" | "kubernetes.io/iscsi" | "kubernetes.io/fc") => {
            failed("no deletable volume plugin matched".into())
        }
        Some(plugin) if plugin.starts_with("kubernetes.io/") => {
            failed(format!("no volume plugin matched name: {plugin}"))
        }
        Some(_) => Reclaim::Nothing,
        None if volume.spec.csi.is_some() => Reclaim::Nothing,
        None if volume.spec.host_path.is_some() => delete_host_path(volume),
        None if volume.spec.nfs.is_some() || volume.network_name().is_some() => {
            unmatched("no deletable volume plugin matched")
        }
        None => unmatched("no volume plugin matched"),
    }
}

fn delete_host_path(volume: &Volume) -> Reclaim {
    let path = volume.spec.host_path.as_ref().map_or("", |source| &source.path);
    if path.split_once(TEMPORARY).is_some_and(|(_, below)| !below.is_empty()) {
        return Reclaim::Delete;
    }
    let message = format!("host_path deleter only supports /tmp/.+ but received provided {path}");
    fails("VolumeFailedDelete", message)
}

/// Returns the volume with corrected finalizers and migration annotation, or `None` if they are correct.
pub(super) fn kept(volume: &Cached<Volume>) -> Option<UpdateBody<'_>> {
    let provisioner = volume.metadata.get(PROVISIONED_BY)?;
    let driver = migrated::driver_of(provisioner);
    let mark = driver.unwrap_or_default() != volume.metadata.get(MIGRATED_TO).unwrap_or_default();
    let finalizers = finalizers(volume, provisioner);
    if !mark && finalizers.is_none() {
        return None;
    }
    let mut edit = UpdateBody::of(volume.object());
    if mark {
        edit = marked(edit, driver);
    }
    Some(match finalizers {
        Some(finalizers) => edit.set(&["metadata", "finalizers"], &finalizers),
        None => edit,
    })
}

/// Returns the volume without the finalizer, or `None` if it has none.
pub(super) fn released(volume: &Cached<Volume>) -> Option<UpdateBody<'_>> {
    let has = volume.meta().has_finalizer(FINALIZER);
    let remaining = || finalizers_without(volume, &[FINALIZER]);
    has.then(|| UpdateBody::of(volume.object()).set(&["metadata", "finalizers"], &remaining()))
}

fn finalizers_without(volume: &Cached<Volume>, gone: &[&str]) -> Vec<String> {
    let all = volume.meta().finalizers.iter().map(|finalizer| finalizer.to_string());
    all.filter(|finalizer| !gone.contains(&finalizer.as_str())).collect()
}

/// Returns the corrected finalizers of a volume provisioned by an in-tree plugin, or `None` if they are correct. The
/// finalizer is set if its storage is to be deleted, and removed if it is retained.
fn finalizers(volume: &Cached<Volume>, provisioner: &str) -> Option<Vec<String>> {
    let has = |finalizer: &str| volume.meta().has_finalizer(finalizer);
    let without = |gone: &[&str]| finalizers_without(volume, gone);
    if migrated::driver_of(provisioner).is_some() {
        return has(FINALIZER).then(|| without(&[FINALIZER]));
    }
    if !provisioner.starts_with("kubernetes.io/") {
        return None;
    }
    let deletes = &*volume.spec.persistent_volume_reclaim_policy == "Delete";
    let retains = matches!(&*volume.spec.persistent_volume_reclaim_policy, "Retain" | "Recycle");
    // Finalizers cannot be added to an object that is being deleted.
    let add = deletes && !has(FINALIZER) && !volume.meta().is_being_deleted();
    let remove = retains && has(FINALIZER);
    if !add && !remove && !has(DRIVERS_FINALIZER) {
        return None;
    }
    let mut finalizers =
        if remove { without(&[FINALIZER, DRIVERS_FINALIZER]) } else { without(&[DRIVERS_FINALIZER]) };
    if add {
        finalizers.push(FINALIZER.to_owned());
    }
    Some(finalizers)
}
