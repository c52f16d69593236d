//! PersistentVolumes.

use serde_json::{Value, json};

use super::{CORE, entry, metadata, resources};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource};
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["pv".into()],
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        field_selectors: vec![FieldSelector {
            path: "name",
            value: |volume| volume.at("metadata").text("name").to_owned(),
        }],
        ..entry(&CORE, "PersistentVolume", "persistentvolumes", PersistentVolume)
    }
}

struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn default(&self, volume: &mut Value) {
        volume.object_mut("status").or_text("phase", "Pending");
        let spec = volume.object_mut("spec");
        spec.or_text("persistentVolumeReclaimPolicy", "Retain");
        spec.or_insert("volumeMode", "Filesystem");
        if let Some(capacity) = spec.at_mut("capacity") {
            resources::default_list(capacity);
        }
    }

    fn prepare_for_create(&self, volume: &mut Value) {
        let now = volume.at("metadata").at("creationTimestamp").clone();
        volume.set("status", json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
    }

    fn validate(&self, volume: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(volume, &mut errors);
        errors
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}
