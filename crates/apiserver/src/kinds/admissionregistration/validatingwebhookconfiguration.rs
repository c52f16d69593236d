//! ValidatingWebhookConfigurations.

use serde_json::Value;

use super::{ADMISSION_REGISTRATION, webhook as hooks};
use crate::field::Errors;
use crate::json::JsonMut;
use crate::kind::{Kind, Scope};
use crate::kinds::entry;
use crate::strategy::{Lifecycle, Validation};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        categories: vec!["api-extensions".into()],
        columns: hooks::columns(),
        semantics: hooks::semantics(),
        ..entry(
            &ADMISSION_REGISTRATION,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            ValidatingWebhookConfiguration,
        )
    }
}

struct ValidatingWebhookConfiguration;

impl Lifecycle for ValidatingWebhookConfiguration {
    fn default(&self, configuration: &mut Value) {
        for webhook in configuration.list_mut("webhooks") {
            hooks::default(webhook);
        }
    }
}

impl Validation for ValidatingWebhookConfiguration {
    fn validate(&self, configuration: &Value) -> Errors {
        hooks::check_new(configuration)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        hooks::check_change(new, old)
    }
}
