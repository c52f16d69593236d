//! MutatingWebhookConfigurations.

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
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            MutatingWebhookConfiguration,
        )
    }
}

struct MutatingWebhookConfiguration;

impl Strategy for MutatingWebhookConfiguration {
    fn unconditional_update(&self) -> bool {
        false
    }
}
