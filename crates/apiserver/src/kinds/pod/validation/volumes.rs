//! Validates a pod's volumes: each has a name and exactly one source.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Rules, projected, sources};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::persistentvolumeclaim::validation::{self as claims, Leniency};
use crate::names;
use crate::validation::dns_label;
use crate::validation::labels;

/// A volume source: its field, the field names in errors if they differ, and its validation.
struct Source {
    field: &'static str,
    /// The field for errors about a second source.
    surplus: &'static str,
    /// The field for errors about the source itself.
    own: &'static str,
    check: fn(&Value, &Path<'_>, &Rules, &mut Errors),
}

const fn source(field: &'static str, check: fn(&Value, &Path<'_>, &Rules, &mut Errors)) -> Source {
    Source { field, surplus: field, own: field, check }
}

/// In validation order.
const SOURCES: [Source; 29] = [
    source("emptyDir", |volume, path, _, errors| sources::empty_dir(volume, path, errors)),
    source("hostPath", |volume, path, _, errors| sources::host_path(volume, path, errors)),
    source("gitRepo", |volume, path, _, errors| sources::git_repo(volume, path, errors)),
    Source {
        own: "persistentDisk",
        ..source("gcePersistentDisk", |volume, path, _, errors| sources::disk(volume, "pdName", path, errors))
    },
    source("awsElasticBlockStore", |volume, path, _, errors| sources::disk(volume, "volumeID", path, errors)),
    source("secret", |volume, path, _, errors| sources::keys(volume, "secretName", path, errors)),
    source("nfs", |volume, path, _, errors| sources::nfs(volume, path, errors)),
    source("iscsi", |volume, path, _, errors| sources::iscsi(volume, path, errors)),
    source("glusterfs", |volume, path, _, errors| {
        sources::needs(volume, &["endpoints", "path"], path, errors)
    }),
    source("flocker", |volume, path, _, errors| sources::flocker(volume, path, errors)),
    source("persistentVolumeClaim", |volume, path, _, errors| {
        sources::needs(volume, &["claimName"], path, errors)
    }),
    source("rbd", |volume, path, _, errors| sources::rbd(volume, path, errors)),
    source("cinder", |volume, path, _, errors| sources::cinder(volume, path, errors)),
    Source {
        surplus: "cephFS",
        ..source("cephfs", |volume, path, _, errors| sources::monitors(volume, path, errors))
    },
    source("quobyte", |volume, path, _, errors| sources::quobyte(volume, path, errors)),
    Source {
        surplus: "downwarAPI",
        ..source("downwardAPI", |volume, path, _, errors| projected::downward_api(volume, path, errors))
    },
    source("fc", |volume, path, _, errors| sources::fibre_channel(volume, path, errors)),
    source("flexVolume", |volume, path, _, errors| sources::flex(volume, path, errors)),
    source("configMap", |volume, path, _, errors| sources::keys(volume, "name", path, errors)),
    source("azureFile", |volume, path, _, errors| {
        sources::needs(volume, &["secretName", "shareName"], path, errors);
    }),
    source("vsphereVolume", |volume, path, _, errors| sources::needs(volume, &["volumePath"], path, errors)),
    source("photonPersistentDisk", |volume, path, _, errors| sources::needs(volume, &["pdID"], path, errors)),
    source("portworxVolume", |volume, path, _, errors| sources::needs(volume, &["volumeID"], path, errors)),
    source("azureDisk", |volume, path, _, errors| sources::azure_disk(volume, path, errors)),
    source("storageos", |volume, path, _, errors| sources::storage_os(volume, path, errors)),
    source("projected", projected::check),
    source("scaleIO", |volume, path, _, errors| {
        sources::needs(volume, &["gateway", "system", "volumeName"], path, errors);
    }),
    source("csi", |volume, path, _, errors| sources::csi(volume, path, errors)),
    source("ephemeral", |volume, path, _, errors| check_claim_template(volume, path, errors)),
];

/// Validates all volumes; returns those without errors, by name.
pub(super) fn check<'a>(
    spec: &'a Value,
    metadata: &Value,
    rules: &Rules,
    path: &Path<'_>,
    errors: &mut Errors,
) -> BTreeMap<&'a str, &'a Value> {
    let volumes = spec.list("volumes");
    let pod = metadata.text("name");
    let created: BTreeSet<String> = volumes
        .iter()
        .filter(|volume| !pod.is_empty() && volume.has("ephemeral"))
        .map(|volume| format!("{pod}-{}", volume.text("name")))
        .collect();
    let mut fine = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let name = volume.text("name");
        let before = errors.0.len();
        check_source(volume, pod, rules, &path, errors);
        match name {
            "" => errors.required(&path.child("name"), ""),
            name => dns_label(name, &path.child("name"), errors),
        }
        if fine.contains_key(name) {
            errors.duplicate(&path.child("name"), name);
        }
        if errors.0.len() == before {
            fine.insert(name, volume);
        }
        let claim = volume.at("persistentVolumeClaim").text("claimName");
        if created.contains(claim) {
            let path = path.child("persistentVolumeClaim");
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            errors.invalid(&path.child("claimName"), claim, detail);
        }
    }
    fine
}

fn check_source(volume: &Value, pod: &str, rules: &Rules, path: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for source in SOURCES.iter().filter(|source| volume.has(source.field)) {
        let value = volume.at(source.field);
        if found {
            errors.forbidden(&path.child(source.surplus), "may not specify more than 1 volume type");
        } else {
            (source.check)(value, &path.child(source.own), rules, errors);
            if source.field == "ephemeral" {
                check_claim_name(volume.text("name"), pod, path, errors);
            }
        }
        if source.field == "iscsi" {
            sources::check_iscsi_length(volume.text("name"), value, path, errors);
        }
        found = true;
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

/// Validates the name of a generated claim: it is named after pod and volume.
fn check_claim_name(volume: &str, pod: &str, path: &Path<'_>, errors: &mut Errors) {
    if volume.is_empty() || pod.is_empty() {
        return;
    }
    let claim = format!("{pod}-{volume}");
    for complaint in names::dns_subdomain(&claim) {
        errors.invalid(&path.child("name"), volume, format!("PVC name {claim:?}: {complaint}"));
    }
}

fn check_claim_template(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let template = volume.at("volumeClaimTemplate");
    let path = path.child("volumeClaimTemplate");
    if template.is_null() {
        return errors.required(&path, "");
    }
    labels::template_metadata(template.at("metadata"), &path.child("metadata"), errors);
    claims::check_spec(template.at("spec"), Leniency::NONE, &path.child("spec"), errors);
}
