//! PersistentVolumeClaims.

use serde_json::{Value, json};

use super::{CORE, entry, metadata, resources};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;

pub(super) mod validation;

use validation::Leniency;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["pvc".into()],
        subresources: vec![Subresource::Status],
        columns: columns(),
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::with_status(|| json!({"phase": "Pending"}))
        },
        ..entry(&CORE, "PersistentVolumeClaim", "persistentvolumeclaims", PersistentVolumeClaim)
    }
}

const STATUS: &str = "phase represents the current phase of PersistentVolumeClaim.";
const VOLUME: &str = "volumeName is the binding reference to the PersistentVolume backing this claim.";
const CAPACITY: &str = "capacity represents the actual resources of the underlying volume.";
const ACCESS_MODES: &str = "accessModes contains the actual access modes the volume backing the PVC has. More info: https://kubernetes.io/docs/concepts/storage/persistent-volumes#access-modes-1";
const VOLUME_MODE: &str = "volumeMode defines what type of volume is required by the claim. Value of Filesystem is implied when not included in claim spec.";
/// The annotation for a claim's class, which predates the field.
pub(super) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn columns() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Status", STATUS, |claim, _| phase(claim).into()),
        Column::text("Volume", VOLUME, |claim, _| claim.at("spec").text("volumeName").into()),
        Column::text("Capacity", CAPACITY, |claim, _| capacity(claim).into()),
        Column::text("Access Modes", ACCESS_MODES, |claim, _| access_modes(claim).into()),
        Column::text("StorageClass", "StorageClass of the pvc", |claim, _| class(claim).into()),
        Column::text("VolumeAttributesClass", "VolumeAttributesClass of the pvc", |claim, _| {
            claim.at("spec").at("volumeAttributesClassName").as_str().unwrap_or("<unset>").into()
        }),
        Column::age(),
        Column::text("VolumeMode", VOLUME_MODE, |claim, _| {
            claim.at("spec").at("volumeMode").as_str().unwrap_or("<unset>").into()
        })
        .wide(),
    ]
}

/// Returns the phase of a claim or volume, or that it is terminating.
pub(super) fn phase(claim: &Value) -> &str {
    if claim.at("metadata").has("deletionTimestamp") {
        "Terminating"
    } else {
        claim.at("status").text("phase")
    }
}

fn is_bound(claim: &Value) -> bool {
    !claim.at("spec").text("volumeName").is_empty()
}

fn capacity(claim: &Value) -> &str {
    match claim.at("status").at("capacity").text("storage") {
        _ if !is_bound(claim) => "",
        "" => "0",
        capacity => capacity,
    }
}

fn access_modes(claim: &Value) -> String {
    if is_bound(claim) { short_access_modes(claim.at("status").list("accessModes")) } else { String::new() }
}

/// Formats access modes: `RWO,ROX`.
pub(super) fn short_access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = short.iter().filter(|(mode, _)| modes.iter().any(|has| has == mode));
    shown.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// Returns the class of a claim or volume.
pub(super) fn class(claim: &Value) -> &str {
    let annotation = claim.at("metadata").at("annotations").at(CLASS_ANNOTATION).as_str();
    annotation.unwrap_or_else(|| claim.at("spec").text("storageClassName"))
}

/// Sets the defaults of a claim's spec, including one embedded in a pod.
pub(super) fn default_spec(spec: &mut Value) {
    spec.or_insert("volumeMode", "Filesystem");
    resources::default_requirements(spec.object_mut("resources"));
}

/// Sets the defaults of a claim, including one that is a StatefulSet's template.
pub(super) fn default(claim: &mut Value) {
    default_spec(claim.object_mut("spec"));
    let status = claim.object_mut("status");
    status.or_text("phase", "Pending");
    for list in ["capacity", "allocatedResources"] {
        if let Some(list) = status.at_mut(list) {
            resources::default_list(list);
        }
    }
}

struct PersistentVolumeClaim;

impl Lifecycle for PersistentVolumeClaim {
    fn default(&self, claim: &mut Value) {
        default(claim);
    }

    fn prepare_for_create(&self, claim: &mut Value) {
        prepare_data_sources(claim.object_mut("spec"), &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        prepare_data_sources(new.object_mut("spec"), old.at("spec"));
    }
}

impl Validation for PersistentVolumeClaim {
    fn validate(&self, claim: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(claim, &mut errors);
        validation::check_spec(claim.at("spec"), Leniency::NONE, &Path::root("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        let leniency = Leniency::towards(old);
        // Twice, as v1.34 does.
        check_again(new, leniency, &mut errors);
        metadata::change(new, &mut errors);
        check_again(new, leniency, &mut errors);
        validation::check_change(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        validation::check_status(new, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, _: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if new.at("metadata").at("annotations").has(CLASS_ANNOTATION) {
            warnings.push(format!(
                "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        warn_of_fractions(&Path::root("spec"), new.at("spec"), &mut warnings);
        warnings
    }
}

fn check_again(claim: &Value, leniency: Leniency, errors: &mut Errors) {
    metadata::whole(claim, Scope::Namespaced, NameRule::Subdomain, errors);
    validation::check_spec(claim.at("spec"), leniency, &Path::root("spec"), errors);
}

/// Warns about fractional bytes of storage.
pub(super) fn warn_of_fractions(path: &Path<'_>, spec: &Value, warnings: &mut Vec<String>) {
    for field in ["requests", "limits"] {
        let list = spec.at("resources").at(field);
        if resources::amount(list, "storage").is_some_and(|amount| amount.milli_value() % 1000 != 0) {
            let path = path.child("resources");
            let path = path.child(field);
            let path = path.key("storage");
            let value = list.text("storage");
            warnings.push(format!("{path}: fractional byte value {value:?} is invalid, must be an integer"));
        }
    }
}

/// Synchronizes `dataSource` and `dataSourceRef`. The old field only supports claims and snapshots; sources in other
/// namespaces are disabled in v1.34.
fn prepare_data_sources(spec: &mut Value, old: &Value) {
    if !spec.at("dataSourceRef").text("namespace").is_empty() && !old.has("dataSourceRef") {
        spec.unset("dataSourceRef");
    }
    let had_source = old.has("dataSource") || old.has("dataSourceRef");
    if !had_source && !spec.has("dataSourceRef") && !is_claim_or_snapshot(spec.at("dataSource")) {
        spec.unset("dataSource");
    }
    copy_source(spec, "dataSource", "dataSourceRef");
    if spec.at("dataSourceRef").text("namespace").is_empty() {
        copy_source(spec, "dataSourceRef", "dataSource");
    }
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (source.text("kind"), source.text("apiGroup")),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
    )
}

fn copy_source(spec: &mut Value, from: &str, to: &str) {
    if spec.has(from) && !spec.has(to) {
        let source = spec.at(from);
        let copy =
            json!({"apiGroup": source.at("apiGroup"), "kind": source.at("kind"), "name": source.at("name")});
        spec.set(to, copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, old: Value, expected: Value) {
        let mut spec = spec;
        prepare_data_sources(&mut spec, &old);
        assert_eq!(spec, expected);
    }

    #[test]
    fn both_data_sources_agree() {
        let claim = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "a"});
        check(
            json!({"dataSource": claim}),
            Value::Null,
            json!({"dataSource": claim, "dataSourceRef": claim}),
        );
        check(
            json!({"dataSourceRef": claim}),
            Value::Null,
            json!({"dataSource": claim, "dataSourceRef": claim}),
        );
        check(json!({"dataSource": {"kind": "X", "name": "a"}}), Value::Null, json!({}));
        check(json!({"dataSourceRef": {"kind": "X", "name": "a", "namespace": "n"}}), Value::Null, json!({}));
    }

    #[test]
    fn a_bound_claim_shows_its_volume_and_capacity() {
        let claim = json!({"metadata": {"name": "a"}, "spec": {"volumeName": "v", "storageClassName": "s"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}});
        assert_eq!((capacity(&claim), access_modes(&claim).as_str(), class(&claim)), ("1Gi", "RWO,RWX", "s"));
    }

    fn claim(change: impl FnOnce(&mut Value)) -> Value {
        let mut claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        change(claim.object_mut("spec"));
        claim
    }

    #[test]
    fn a_claim_has_a_size_and_access_modes() {
        use crate::kinds::check;
        check::create(&PersistentVolumeClaim, claim(|_| ()), &[]);
        check::create(
            &PersistentVolumeClaim,
            json!({"spec": {}}),
            &["Required spec.accessModes", "Required spec.resources[storage]"],
        );
        check::create(
            &PersistentVolumeClaim,
            claim(|spec| {
                spec.set("accessModes", json!(["ReadWriteOncePod", "ReadWriteOnce", "X"]));
                spec.set("resources", json!({"requests": {"storage": "0"}}));
                spec.set("storageClassName", "A");
                spec.set("volumeMode", "X");
                spec.set("dataSourceRef", json!({"kind": "X"}));
            }),
            &[
                "NotSupported spec.accessModes",
                "Forbidden spec.accessModes",
                "Invalid spec.resources[storage]",
                "Invalid spec.storageClassName",
                "NotSupported spec.volumeMode",
                "Required spec.dataSource.name",
                "Invalid spec.dataSource",
                "Required spec.dataSourceRef.name",
                "Invalid spec.dataSourceRef",
            ],
        );
    }

    #[test]
    fn only_the_size_of_a_bound_claim_changes() {
        use crate::kinds::check;
        let grown = claim(|spec| spec.set("resources", json!({"requests": {"storage": "2Gi"}})));
        let mut bound = claim(|_| ());
        check::update(&PersistentVolumeClaim, grown.clone(), &bound, &["Forbidden spec"]);
        bound.set("status", json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
        check::update(&PersistentVolumeClaim, grown, &bound, &[]);
        let shrunk = claim(|spec| spec.set("resources", json!({"requests": {"storage": "1Mi"}})));
        check::update(&PersistentVolumeClaim, shrunk, &bound, &["Forbidden spec.resources.requests.storage"]);
        let named = claim(|spec| spec.set("volumeName", "v"));
        check::update(&PersistentVolumeClaim, named, &claim(|_| ()), &[]);
        let classed = claim(|spec| spec.set("storageClassName", "fast"));
        check::update(&PersistentVolumeClaim, classed.clone(), &claim(|_| ()), &[]);
        check::update(&PersistentVolumeClaim, claim(|_| ()), &classed, &["Forbidden spec"]);
    }
}
