//! PersistentVolumes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::persistentvolumeclaim::CLASS_ANNOTATION;
use super::pod::default_volume_source;
use super::pod::warnings::old_node_label;
use super::{CORE, entry, metadata, persistentvolumeclaim, resources};
use crate::auth::User;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::metadata::seconds;
use crate::quantity::Quantity;
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::Column;

mod validation;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["pv".into()],
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        columns: columns(),
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_status(|| json!({"phase": "Pending"}))
        },
        ..entry(&CORE, "PersistentVolume", "persistentvolumes", PersistentVolume)
    }
}

const CAPACITY: &str = "capacity is the description of the persistent volume's resources and capacity. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#capacity";
const ACCESS_MODES: &str = "accessModes contains all ways the volume can be mounted. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes";
const RECLAIM_POLICY: &str = "persistentVolumeReclaimPolicy defines what happens to a persistent volume when released from its claim. Valid options are Retain (default for manually created PersistentVolumes), Delete (default for dynamically provisioned PersistentVolumes), and Recycle (deprecated). Recycle must be supported by the volume plugin underlying this PersistentVolume. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#reclaiming";
const STATUS: &str = "phase indicates if a volume is available, bound to a claim, or released by a claim. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#phase";
const CLAIM: &str = "claimRef is part of a bi-directional binding between PersistentVolume and PersistentVolumeClaim. Expected to be non-nil when bound. claim.VolumeName is the authoritative bind between PV and PVC. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#binding";
const REASON: &str = "reason is a brief CamelCase string that describes any failure and is meant for machine parsing and tidy display in the CLI.";
const VOLUME_MODE: &str = "volumeMode defines if a volume is intended to be used with a formatted filesystem or to remain in raw block state. Value of Filesystem is implied when not included in spec.";
/// The annotation for mount options, which predates the field.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

fn columns() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Capacity", CAPACITY, |volume, _| {
            let storage = resources::amount(volume.at("spec").at("capacity"), "storage");
            storage.unwrap_or(Quantity::ZERO).to_string().into()
        }),
        Column::text("Access Modes", ACCESS_MODES, |volume, _| {
            persistentvolumeclaim::short_access_modes(volume.at("spec").list("accessModes")).into()
        }),
        Column::text("Reclaim Policy", RECLAIM_POLICY, |volume, _| {
            volume.at("spec").text("persistentVolumeReclaimPolicy").into()
        }),
        Column::text("Status", STATUS, |volume, _| persistentvolumeclaim::phase(volume).into()),
        Column::text("Claim", CLAIM, |volume, _| claim(volume).into()),
        Column::text("StorageClass", "StorageClass of the pv", |volume, _| {
            persistentvolumeclaim::class(volume).into()
        }),
        Column::text("VolumeAttributesClass", "VolumeAttributesClass of the pv", |volume, _| {
            volume.at("spec").at("volumeAttributesClassName").as_str().unwrap_or("<unset>").into()
        }),
        Column::text("Reason", REASON, |volume, _| volume.at("status").text("reason").into()),
        Column::age(),
        Column::text("VolumeMode", VOLUME_MODE, |volume, _| {
            volume.at("spec").at("volumeMode").as_str().unwrap_or("<unset>").into()
        })
        .wide(),
    ]
}

/// Returns the volume's claim.
fn claim(volume: &Value) -> String {
    match volume.at("spec").at("claimRef") {
        Value::Null => String::new(),
        claim => format!("{}/{}", claim.text("namespace"), claim.text("name")),
    }
}

struct PersistentVolume;

impl Lifecycle for PersistentVolume {
    fn default(&self, volume: &mut Value) {
        volume.object_mut("status").or_text("phase", "Pending");
        let spec = volume.object_mut("spec");
        spec.or_text("persistentVolumeReclaimPolicy", "Retain");
        spec.or_insert("volumeMode", "Filesystem");
        if let Some(capacity) = spec.at_mut("capacity") {
            resources::default_list(capacity);
        }
        for source in ["hostPath", "rbd", "iscsi", "azureDisk", "scaleIO"] {
            if let Some(volume) = spec.at_mut(source) {
                default_volume_source(source, volume);
            }
        }
    }

    fn prepare_for_create(&self, volume: &mut Value) {
        let now = volume.at("metadata").at("creationTimestamp").clone();
        volume.object_mut("status").set("lastPhaseTransitionTime", now);
    }

    /// Sets the transition time when the phase changes.
    fn stamp(&self, new: &mut Value, old: Option<&Value>, _: &User, now: Timestamp) {
        const SINCE: &str = "lastPhaseTransitionTime";
        let Some(old) = old.map(|old| old.at("status")) else { return };
        let status = new.object_mut("status");
        let is_same_phase = status.text("phase") == old.text("phase");
        if is_same_phase && !status.has(SINCE) {
            status.restore(SINCE, old);
        } else if !is_same_phase && (!status.has(SINCE) || status.at(SINCE) == old.at(SINCE)) {
            status.set(SINCE, seconds(now));
        }
    }
}

impl Validation for PersistentVolume {
    fn validate(&self, volume: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(volume, &mut errors);
        validation::check(volume, &Value::Null, &mut errors);
        validation::check_mount_options(volume, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // Twice, as v1.34 does.
        validation::check_again(new, old, &mut errors);
        validation::check_mount_options(new, &mut errors);
        validation::check_again(new, old, &mut errors);
        validation::check_change(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        let annotations = new.at("metadata").at("annotations");
        for (annotation, message) in [
            (CLASS_ANNOTATION, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
            (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
        ] {
            if annotations.has(annotation) {
                found.push(format!("metadata.annotations[{annotation}]: {message}"));
            }
        }
        warn_of_spec(new.at("spec"), &mut found);
        found
    }
}

fn warn_of_spec(spec: &Value, found: &mut Vec<String>) {
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        found.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".into());
    }
    let root = Path::root("spec");
    let affinity = root.child("nodeAffinity");
    let required = affinity.child("required");
    let path = required.child("nodeSelectorTerms");
    let terms = spec.at("nodeAffinity").at("required").list("nodeSelectorTerms");
    for (at, term) in terms.iter().enumerate() {
        let term_path = path.index(at);
        let path = term_path.child("matchExpressions");
        for (index, expression) in term.list("matchExpressions").iter().enumerate() {
            let key = expression.text("key");
            if let Some(message) = old_node_label(key) {
                found.push(format!("{}: {key} is {message}", path.index(index).child("key")));
            }
        }
    }
    for (source, shown, since, gone) in [
        ("cephfs", "cephfs", "v1.28", "v1.31"),
        ("photonPersistentDisk", "photonPersistentDisk", "v1.11", "v1.16"),
        ("scaleIO", "scaleIO", "v1.16", "v1.22"),
        ("storageos", "storageOS", "v1.22", "v1.25"),
        ("glusterfs", "glusterfs", "v1.25", "v1.26"),
        ("rbd", "rbd", "v1.28", "v1.31"),
    ] {
        if spec.has(source) {
            found.push(format!("spec.{shown}: deprecated in {since}, non-functional in {gone}+"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn volume(change: impl FnOnce(&mut Value)) -> Value {
        let mut volume = json!({"metadata": {}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}});
        change(volume.object_mut("spec"));
        volume
    }

    #[test]
    fn a_volume_has_a_size_a_use_and_one_source() {
        check::create(&PersistentVolume, volume(|_| ()), &[]);
        check::create(
            &PersistentVolume,
            json!({"spec": {}}),
            &[
                "Required spec.accessModes",
                "Required spec.capacity",
                "NotSupported spec.capacity",
                "Required spec",
            ],
        );
        check::create(
            &PersistentVolume,
            volume(|spec| {
                spec.set("nfs", json!({"server": "s", "path": "/p"}));
                spec.set("persistentVolumeReclaimPolicy", "X");
                spec.set("volumeMode", "X");
                spec.set("capacity", json!({"storage": "-1"}));
            }),
            &[
                "Invalid spec.capacity[storage]",
                "Invalid spec.capacity[storage]",
                "NotSupported spec.persistentVolumeReclaimPolicy",
                "Forbidden spec.nfs",
                "NotSupported spec.volumeMode",
            ],
        );
    }

    #[test]
    fn a_local_volume_has_node_affinity() {
        let local = |affinity: Value| {
            volume(|spec| {
                spec.unset("hostPath");
                spec.set("local", json!({"path": "/a"}));
                spec.set("nodeAffinity", affinity);
            })
        };
        check::create(&PersistentVolume, local(Value::Null), &["Required spec.nodeAffinity"]);
        check::create(&PersistentVolume, local(json!({})), &["Required spec.nodeAffinity.required"]);
    }

    #[test]
    fn the_source_of_a_volume_is_immutable() {
        let old = volume(|_| ());
        check::update(
            &PersistentVolume,
            volume(|spec| spec.set("hostPath", json!({"path": "/b"}))),
            &old,
            &["Forbidden spec.persistentvolumesource"],
        );
        check::update(&PersistentVolume, volume(|spec| spec.set("storageClassName", "s")), &old, &[]);
    }

    #[test]
    fn a_new_phase_updates_its_transition_time() {
        let now = "2020-01-01T00:00:00Z".parse().unwrap();
        let old = json!({"status": {"phase": "Pending", "lastPhaseTransitionTime": "2019-01-01T00:00:00Z"}});
        let mut new = json!({"status": {"phase": "Pending"}});
        PersistentVolume.stamp(&mut new, Some(&old), &User::default(), now);
        assert_eq!(new, old);
        new["status"]["phase"] = "Available".into();
        PersistentVolume.stamp(&mut new, Some(&old), &User::default(), now);
        assert_eq!(new["status"]["lastPhaseTransitionTime"], "2020-01-01T00:00:00Z");
    }
}
