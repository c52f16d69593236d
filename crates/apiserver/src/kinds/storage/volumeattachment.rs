//! VolumeAttachments.

use serde_json::Value;

use super::STORAGE;
use crate::json::JsonMut;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        ..entry(&STORAGE, "VolumeAttachment", "volumeattachments", VolumeAttachment)
    }
}

struct VolumeAttachment;

impl Strategy for VolumeAttachment {
    fn prepare_for_create(&self, object: &mut Value) {
        object.unset("status");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}
