//! ValidatingAdmissionPolicies.

use serde_json::Value;

use super::ADMISSION_REGISTRATION;
use crate::json::JsonMut;
use crate::kind::{Kind, Scope, Subresource};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        subresources: vec![Subresource::Status],
        ..entry(
            &ADMISSION_REGISTRATION,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            ValidatingAdmissionPolicy,
        )
    }
}

struct ValidatingAdmissionPolicy;

impl Strategy for ValidatingAdmissionPolicy {
    fn prepare_for_create(&self, object: &mut Value) {
        object.unset("status");
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
    }

    fn unconditional_update(&self) -> bool {
        false
    }
}
