//! Adds protection finalizers, so that a volume, a claim or a volume attributes class is not removed while in use.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::status::Status;

pub struct StorageObjectInUseProtection;

const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

fn finalizer(review: &Review<'_>) -> Option<&'static str> {
    let of = PROTECTED.iter().find(|(group, plural, _)| review.is_for(group, plural));
    of.map(|(_, _, finalizer)| *finalizer)
}

impl Plugin for StorageObjectInUseProtection {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation == Operation::Create && finalizer(review).is_some()
    }

    async fn mutate(&self, review: &Review<'_>, object: &mut Value, _: Option<&Value>) -> Result<(), Status> {
        let finalizer = finalizer(review).unwrap_or_default();
        if !metadata::finalizers(object).any(|existing| existing == finalizer) {
            let mut finalizers = metadata::of(object).list("finalizers").to_vec();
            finalizers.push(finalizer.into());
            object.object_mut("metadata").set("finalizers", finalizers);
        }
        Ok(())
    }
}
