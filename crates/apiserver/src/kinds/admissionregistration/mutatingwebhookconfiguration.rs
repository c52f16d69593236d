//! MutatingWebhookConfigurations.

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
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            MutatingWebhookConfiguration,
        )
    }
}

struct MutatingWebhookConfiguration;

impl Lifecycle for MutatingWebhookConfiguration {
    fn default(&self, configuration: &mut Value) {
        for webhook in configuration.list_mut("webhooks") {
            hooks::default(webhook);
            webhook.or_insert("reinvocationPolicy", "Never");
        }
    }
}

impl Validation for MutatingWebhookConfiguration {
    fn validate(&self, configuration: &Value) -> Errors {
        hooks::check_new(configuration)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        hooks::check_change(new, old)
    }
}
