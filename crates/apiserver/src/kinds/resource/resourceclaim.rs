//! ResourceClaims.

use serde_json::Value;

use super::RESOURCE;
use crate::json::JsonMut;
use crate::kind::{Kind, Subresource};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        subresources: vec![Subresource::Status],
        ..entry(&RESOURCE, "ResourceClaim", "resourceclaims", ResourceClaim)
    }
}

struct ResourceClaim;

impl Strategy for ResourceClaim {
    fn prepare_for_create(&self, object: &mut Value) {
        object.unset("status");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }
}
