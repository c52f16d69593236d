//! ServiceAccounts.

use serde_json::{Value, json};

use super::{CORE, entry, metadata};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope, Subresource};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["sa".into()],
        subresources: vec![Subresource::Token],
        columns: vec![
            Column::name(),
            Column::text("Secrets", SECRETS, |account, _| account.list("secrets").len().into()),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&CORE, "ServiceAccount", "serviceaccounts", ServiceAccount)
    }
}

const SECRETS: &str = "Secrets is a list of the secrets in the same namespace that pods running using this ServiceAccount are allowed to use. Pods are only limited to this list if this service account has a \"kubernetes.io/enforce-mountable-secrets\" annotation set to \"true\". The \"kubernetes.io/enforce-mountable-secrets\" annotation is deprecated since v1.32. Prefer separate namespaces to isolate access to mounted secrets. This field should not be used to find auto-generated service account token secrets for use outside of pods. Instead, tokens can be requested directly using the TokenRequest API, or service account token secrets can be manually created. More info: https://kubernetes.io/docs/concepts/configuration/secret";
const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

struct ServiceAccount;

impl Lifecycle for ServiceAccount {
    fn prepare_for_create(&self, account: &mut Value) {
        keep_only_names(account);
    }

    fn prepare_for_update(&self, account: &mut Value, _: &Value) {
        keep_only_names(account);
    }
}

impl Validation for ServiceAccount {
    fn validate(&self, account: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(account, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let enforces =
            |account: &Value| account.at("metadata").at("annotations").has(ENFORCE_MOUNTABLE_SECRETS);
        if enforces(new) && !old.is_some_and(enforces) {
            return vec![format!(
                "metadata.annotations[{ENFORCE_MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )];
        }
        Vec::new()
    }
}

/// Keeps only the names in an account's secret references.
fn keep_only_names(account: &mut Value) {
    for secret in account.list_mut("secrets") {
        *secret = match secret.text("name") {
            "" => json!({}),
            name => json!({"name": name}),
        };
    }
}
