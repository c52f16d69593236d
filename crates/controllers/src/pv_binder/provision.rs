//! Decides who provisions a volume for a claim, and how. Pure.
//!
//! Volumes are provisioned by external drivers: an annotation on the claim names the driver, and the claim waits. The
//! only exception are host paths, for testing on a single node.

use serde_json::{Value, json};
use setpoint::{Cached, UpdateBody};
use setpoint_volume::{
    BOUND_BY_CONTROLLER, Claim, Class, MIGRATED_TO, PROVISIONED_BY, SELECTED_NODE, STORAGE_PROVISIONER,
    binding, migrated,
};

use super::Settings;
use super::claim::PlannedEvent;
use super::observe::Observed;
use super::reclaim::FINALIZER;

pub(super) const HOST_PATH: &str = "kubernetes.io/host-path";
/// The other remaining in-tree plugin. It cannot provision volumes.
const NFS: &str = "kubernetes.io/nfs";

pub(super) enum Provision {
    /// Dynamic provisioning is disabled.
    Off,
    /// No provisioner can create the volume.
    Fails(PlannedEvent),
    /// Delegate to this driver, and report that to the user.
    Ask(String),
    /// Provision a host path here, or fail.
    HostPath(Result<Value, Failure>),
}

/// Why a host path could not be provisioned.
pub(super) struct Failure {
    pub(super) event: PlannedEvent,
    /// Whether provisioning got far enough to annotate the claim with the provisioner.
    pub(super) requested: bool,
    /// Whether the scheduler should choose another node.
    pub(super) reschedule: bool,
}

pub(super) fn provision(claim: &Cached<Claim>, observed: &Observed, settings: Settings) -> Provision {
    if !settings.dynamic_provisioning {
        return Provision::Off;
    }
    let fails = |message: String| Provision::Fails(failed(message));
    let Some(class) = &observed.class else {
        return fails(format!("storageclass.storage.k8s.io {:?} not found", claim.class()));
    };
    match &*class.provisioner {
        HOST_PATH => Provision::HostPath(host_path(claim, class, observed, settings)),
        NFS => fails("no provisionable volume plugin matched".into()),
        plugin => match migrated::driver_of(plugin) {
            Some(driver) => Provision::Ask(driver.to_owned()),
            None if plugin.starts_with("kubernetes.io/") => {
                fails(format!("no volume plugin matched name: {plugin}"))
            }
            None => Provision::Ask(plugin.to_owned()),
        },
    }
}

fn failed(message: impl Into<String>) -> PlannedEvent {
    PlannedEvent::warning("ProvisioningFailed", message)
}

/// Returns the name of the volume provisioned for a claim.
pub(super) fn volume_name(claim: &Cached<Claim>) -> String {
    format!("pvc-{}", claim.meta().uid)
}

/// Builds a host path volume. The kubelet creates the directory when a pod needs it, so it is on the pod's node.
fn host_path(
    claim: &Cached<Claim>,
    class: &Cached<Class>,
    observed: &Observed,
    settings: Settings,
) -> Result<Value, Failure> {
    let fail = |message: String| Failure { event: failed(message), requested: true, reschedule: false };
    if claim.spec.data_source.is_some() {
        let message = format!(
            "plugin {HOST_PATH:?} is not a CSI plugin. Only CSI plugin can provision a claim with a datasource"
        );
        return Err(Failure { requested: false, ..fail(message) });
    }
    let name = class.key().name();
    let options = class.mount_options.as_deref().unwrap_or_default();
    if !options.is_empty() {
        return Err(fail(format!(
            "Mount options are not supported by the provisioner but StorageClass {name:?} has mount options [{}]",
            options.join(" ")
        )));
    }
    if !settings.host_path_provisioner {
        let why = format!("provisioning in volume plugin {HOST_PATH:?} is disabled");
        return Err(fail(format!("Failed to create provisioner: {why}")));
    }
    if let Some(node) = claim.metadata.get(SELECTED_NODE)
        && !observed.has_node
    {
        return Err(fail(format!("Failed to get target node: node {node:?} not found")));
    }
    if claim.spec.volume_mode.as_deref() == Some("Block") {
        let why = format!("{HOST_PATH} does not support block volume provisioning");
        let message = format!("Failed to provision volume with StorageClass {name:?}: {why}");
        return Err(Failure { reschedule: true, ..fail(message) });
    }
    Ok(host_path_volume(claim, class))
}

fn host_path_volume(claim: &Cached<Claim>, class: &Cached<Class>) -> Value {
    let policy = class.reclaim_policy.as_deref().unwrap_or("Delete");
    let modes =
        if claim.access_modes().is_empty() { json!(["ReadWriteOnce"]) } else { json!(claim.access_modes()) };
    let size = claim.spec.resources.requests.as_ref().and_then(|requests| requests.get("storage"));
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": volume_name(claim),
            "annotations": {
                "kubernetes.io/createdby": "hostpath-dynamic-provisioner",
                BOUND_BY_CONTROLLER: "yes",
                PROVISIONED_BY: HOST_PATH,
            },
            "finalizers": if policy == "Delete" { json!([FINALIZER]) } else { Value::Null },
        },
        "spec": {
            "persistentVolumeReclaimPolicy": policy,
            "accessModes": modes,
            "capacity": {"storage": size},
            "hostPath": {"path": format!("/tmp/hostpath_pv/{}", claim.meta().uid), "type": "DirectoryOrCreate"},
            "storageClassName": claim.class(),
            "claimRef": binding::reference_to(claim),
        },
    })
}

/// Returns the claim with annotations for this provisioner, or `None` if it has them.
pub(super) fn addressed_to<'a>(claim: &'a Cached<Claim>, provisioner: &str) -> Option<UpdateBody<'a>> {
    if claim.metadata.get(STORAGE_PROVISIONER[0]) == Some(provisioner) {
        return None;
    }
    let annotate =
        |edit: UpdateBody<'a>, name: &str, value: &str| edit.set(&["metadata", "annotations", name], &value);
    let edit = STORAGE_PROVISIONER
        .iter()
        .fold(UpdateBody::of(claim.object()), |edit, name| annotate(edit, name, provisioner));
    Some(match migrated::driver_of(provisioner) {
        Some(driver) => annotate(edit, MIGRATED_TO, driver),
        None => edit.remove(&["metadata", "annotations", MIGRATED_TO]),
    })
}

/// Returns the claim with an annotation for the CSI driver its provisioner is migrated to, or `None` if it is correct.
pub(super) fn with_driver(claim: &Cached<Claim>) -> Option<UpdateBody<'_>> {
    let provisioner = STORAGE_PROVISIONER.iter().find_map(|name| claim.metadata.get(name))?;
    let (shall, says) = (migrated::driver_of(provisioner), claim.metadata.get(MIGRATED_TO));
    (shall.unwrap_or_default() != says.unwrap_or_default())
        .then(|| marked(UpdateBody::of(claim.object()), shall))
}

/// Sets or removes the migrated-to annotation.
pub(super) fn marked<'a>(edit: UpdateBody<'a>, driver: Option<&str>) -> UpdateBody<'a> {
    let path = ["metadata", "annotations", MIGRATED_TO];
    match driver {
        Some(driver) => edit.set(&path, &driver),
        None => edit.remove(&path),
    }
}
