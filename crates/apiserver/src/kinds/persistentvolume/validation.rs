//! Validates volumes and their updates.

use serde_json::Value;

use super::MOUNT_OPTIONS;
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::Scope;
use crate::kinds::metadata;
use crate::kinds::persistentvolumeclaim::validation::{check_access_modes, check_class_name};
use crate::kinds::pod::validation::sources;
use crate::kinds::resources::amounts;
use crate::strategy::NameRule;
use crate::validation::labels::{self, Values};
use crate::validation::{
    IMMUTABLE, difference, dns_label, dns_subdomain, immutable, optional_choice, paths, required, resources,
};

/// A volume source: its field, the field names in errors if they differ, and its validation.
struct Source {
    field: &'static str,
    /// The field for errors about a second source.
    surplus: &'static str,
    /// The field for errors about the source itself.
    own: &'static str,
    check: fn(&Value, &Path<'_>, &mut Errors),
}

const fn source(field: &'static str, check: fn(&Value, &Path<'_>, &mut Errors)) -> Source {
    Source { field, surplus: field, own: field, check }
}

/// In validation order.
const SOURCES: [Source; 22] = [
    source("hostPath", sources::host_path),
    Source {
        own: "persistentDisk",
        ..source("gcePersistentDisk", |volume, path, errors| sources::disk(volume, "pdName", path, errors))
    },
    source("awsElasticBlockStore", |volume, path, errors| sources::disk(volume, "volumeID", path, errors)),
    source("glusterfs", glusterfs),
    source("flocker", sources::flocker),
    source("nfs", sources::nfs),
    source("rbd", sources::rbd),
    source("quobyte", sources::quobyte),
    Source { surplus: "cephFS", ..source("cephfs", sources::monitors) },
    source("iscsi", sources::persistent_iscsi),
    source("cinder", |volume, path, errors| {
        required(volume, "volumeID", path, errors);
        secret_of_namespace(volume, path, errors);
    }),
    source("fc", sources::fibre_channel),
    source("flexVolume", sources::flex),
    source("azureFile", |volume, path, errors| {
        sources::needs(volume, &["secretName", "shareName"], path, errors);
        if volume.at("secretNamespace").as_str() == Some("") {
            errors.required(&path.child("secretNamespace"), "");
        }
    }),
    source("vsphereVolume", |volume, path, errors| sources::needs(volume, &["volumePath"], path, errors)),
    source("photonPersistentDisk", |volume, path, errors| sources::needs(volume, &["pdID"], path, errors)),
    source("portworxVolume", |volume, path, errors| sources::needs(volume, &["volumeID"], path, errors)),
    source("azureDisk", sources::azure_disk),
    source("scaleIO", |volume, path, errors| {
        sources::needs(volume, &["gateway", "system", "volumeName"], path, errors);
    }),
    source("local", |volume, path, errors| match volume.text("path") {
        "" => errors.required(&path.child("path"), ""),
        target => paths::no_backsteps(target, &path.child("path"), errors),
    }),
    source("storageos", |volume, path, errors| {
        sources::storage_os_names(volume, path, errors);
        secret_of_namespace(volume, path, errors);
    }),
    source("csi", csi),
];

/// Volume sources that support mount options in the annotation.
const MOUNTABLE: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Node labels, by their old and new names.
const RENAMED: [(&str, &str); 5] = [
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

fn glusterfs(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    sources::needs(volume, &["endpoints", "path"], path, errors);
    let path = path.child("endpointsNamespace");
    match volume.at("endpointsNamespace").as_str() {
        None => {}
        Some("") => {
            errors.invalid(&path, "", "if the endpointnamespace is set, it must be a valid namespace name");
        }
        Some(namespace) => dns_label(namespace, &path, errors),
    }
}

fn secret_of_namespace(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    if volume.has("secretRef") {
        sources::needs(volume.at("secretRef"), &["name", "namespace"], &path.child("secretRef"), errors);
    }
}

fn csi(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    sources::csi_driver(volume, path, errors);
    required(volume, "volumeHandle", path, errors);
    let secrets = [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ];
    for field in secrets.into_iter().filter(|field| volume.has(field)) {
        let (secret, path) = (volume.at(field), path.child(field));
        match secret.text("name") {
            "" => errors.required(&path.child("name"), ""),
            name => dns_subdomain(name, &path.child("name"), errors),
        }
        match secret.text("namespace") {
            "" => errors.required(&path.child("namespace"), ""),
            namespace => dns_label(namespace, &path.child("namespace"), errors),
        }
    }
}

/// Validates a volume; `old` is null for a new one.
pub(super) fn check(volume: &Value, old: &Value, errors: &mut Errors) {
    let spec = volume.at("spec");
    let path = Path::root("spec");
    if spec.list("accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    check_access_modes(spec, &path.child("accessModes"), errors);
    check_capacity(spec.at("capacity"), &path.child("capacity"), errors);
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        let path = path.child("persistentVolumeReclaimPolicy");
        errors.not_supported(&path, policy, &["Delete", "Recycle", "Retain"]);
    }
    check_affinity(spec, old.at("spec"), &path.child("nodeAffinity"), errors);
    check_sources(volume, &path, errors);
    if is_root(spec.at("hostPath").text("path")) && policy == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(&path.child("persistentVolumeReclaimPolicy"), detail);
    }
    check_class_name(spec, "storageClassName", &path, errors);
    optional_choice(spec, "volumeMode", &["Block", "Filesystem"], &path, errors);
    if let Some(class) = spec.at("volumeAttributesClassName").as_str() {
        if class.is_empty() {
            errors.required(&path.child("volumeAttributesClassName"), "an empty string is disallowed");
        }
        check_class_name(spec, "volumeAttributesClassName", &path, errors);
        if !spec.has("csi") {
            errors.required(&path.child("csi"), "has to be specified when using volumeAttributesClassName");
        }
    }
}

/// Validates a changed volume, including its metadata once more.
pub(super) fn check_again(volume: &Value, old: &Value, errors: &mut Errors) {
    metadata::whole(volume, Scope::Cluster, NameRule::Subdomain, errors);
    check(volume, old, errors);
}

/// Whether a path is the host's root, however it is written.
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn check_capacity(capacity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let amounts: Vec<_> = amounts(capacity).collect();
    if amounts.is_empty() {
        errors.required(path, "");
    }
    if !matches!(amounts[..], [("storage", _)]) {
        errors.not_supported(path, capacity.clone(), &["storage"]);
    }
    for (resource, amount) in amounts {
        resources::basic_quantity(&amount, &path.key(resource), errors);
        resources::positive_quantity(&amount, &path.key(resource), errors);
    }
}

fn check_affinity(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let affinity = spec.at("nodeAffinity");
    if affinity.is_null() {
        return;
    }
    if !affinity.has("required") {
        return errors.required(&path.child("required"), "must specify required node constraints");
    }
    let lenient = labels::node_selector_has_bad_values(old.at("nodeAffinity").at("required"));
    let values = if lenient { Values::Unchecked } else { Values::Checked };
    labels::node_selector(affinity.at("required"), values, &path.child("required"), errors);
}

fn check_sources(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let spec = volume.at("spec");
    let mut found = 0;
    for source in SOURCES.iter().filter(|source| spec.has(source.field)) {
        // A flex volume is allowed besides another source.
        if found > 0 && source.field != "flexVolume" {
            errors.forbidden(&path.child(source.surplus), "may not specify more than 1 volume type");
            continue;
        }
        found += 1;
        let of = spec.at(source.field);
        (source.check)(of, &path.child(source.own), errors);
        match source.field {
            "local" if !spec.has("nodeAffinity") => {
                errors.required(&path.child("nodeAffinity"), "Local volume requires node affinity");
            }
            "iscsi" => check_iscsi(volume, of, &path.child("iscsi"), errors),
            _ => {}
        }
    }
    if found == 0 {
        errors.required(path, "must specify a volume type");
    }
}

fn check_iscsi(volume: &Value, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if source.has("secretRef") {
        required(source.at("secretRef"), "name", &path.child("secretRef"), errors);
    }
    let portal = source.text("targetPortal");
    let length = volume.at("metadata").text("name").len() + 1 + portal.len();
    if source.has("initiatorName") && length > sources::ISCSI_BYTES {
        errors.invalid(&path.child("targetportal"), portal, sources::ISCSI_TOO_LONG);
    }
}

pub(super) fn check_mount_options(volume: &Value, errors: &mut Errors) {
    let takes_options = MOUNTABLE.iter().any(|source| volume.at("spec").has(source));
    if !takes_options && volume.at("metadata").at("annotations").has(MOUNT_OPTIONS) {
        let path = Path::root("metadata");
        let path = path.child("annotations");
        errors.forbidden(&path.child(MOUNT_OPTIONS), "may not specify mount options for this volume type");
    }
}

/// Checks that a volume's source and location do not change.
pub(super) fn check_change(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    let (mut source, old_source) = (sources_of(spec), sources_of(old_spec));
    if let Some(csi) = source.at_mut("csi")
        && old_source.has("csi")
        && !old_source.at("csi").has("controllerExpandSecretRef")
    {
        csi.unset("controllerExpandSecretRef");
    }
    if source != old_source {
        let difference = difference("PersistentVolumeSource", &old_source, &source);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.forbidden(&Path::root("spec").child("persistentvolumesource"), detail);
    }
    immutable(spec.at("volumeMode"), old_spec.at("volumeMode"), &Path::root("volumeMode"), errors);
    let (affinity, old_affinity) = (spec.at("nodeAffinity"), old_spec.at("nodeAffinity"));
    if !old_affinity.is_null() && !is_same_place(affinity, old_affinity) {
        let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
        let shown = match affinity {
            Value::Null => Value::Null,
            affinity => declared::of(affinity, &declared::VOLUME_AFFINITY),
        };
        errors.invalid(&Path::root("nodeAffinity"), shown, detail);
    }
    if old_spec.has("volumeAttributesClassName") && !spec.has("volumeAttributesClassName") {
        let path = Path::root("spec");
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(&path.child("volumeAttributesClassName"), detail);
    }
}

fn sources_of(spec: &Value) -> Value {
    let present = SOURCES.iter().filter(|source| spec.has(source.field));
    present.map(|source| (source.field.to_owned(), spec.at(source.field).clone())).collect()
}

/// Whether two affinities are equivalent, apart from renamed labels.
fn is_same_place(new: &Value, old: &Value) -> bool {
    let mut old = old.clone();
    let new_terms = new.at("required").list("nodeSelectorTerms");
    let old_terms = old.object_mut("required").list_mut("nodeSelectorTerms");
    for (old, new) in old_terms.iter_mut().zip(new_terms) {
        for list in ["matchExpressions", "matchFields"] {
            for (old, new) in old.list_mut(list).iter_mut().zip(new.list(list)) {
                if RENAMED.contains(&(old.text("key"), new.text("key"))) {
                    old.restore("key", new);
                }
            }
        }
    }
    *new == old
}
