//! ValidatingAdmissionPolicyBindings.

use super::ADMISSION_REGISTRATION;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        ..entry(
            &ADMISSION_REGISTRATION,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            ValidatingAdmissionPolicyBinding,
        )
    }
}

struct ValidatingAdmissionPolicyBinding;

impl Strategy for ValidatingAdmissionPolicyBinding {
    fn unconditional_update(&self) -> bool {
        false
    }
}
