//! FlowSchemas.

use serde_json::Value;

use super::FLOW_CONTROL;
use crate::json::JsonMut;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        subresources: vec![Subresource::Status],
        ..entry(&FLOW_CONTROL, "FlowSchema", "flowschemas", FlowSchema)
    }
}

struct FlowSchema;

impl Strategy for FlowSchema {
    fn prepare_for_create(&self, object: &mut Value) {
        object.unset("status");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }
}
