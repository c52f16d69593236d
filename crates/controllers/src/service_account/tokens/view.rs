//! What is read of secrets and service accounts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

pub(super) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

const TOKEN: &str = "kubernetes.io/service-account-token";

/// A secret, without what it keeps.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Secret {
    r#type: String,
    metadata: Annotated,
}

setpoint::view!(Secret of k8s_openapi::api::core::v1::Secret);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotated {
    annotations: Option<Annotations>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/service-account.name")]
    account: Option<String>,
    #[serde(rename = "kubernetes.io/service-account.uid")]
    account_uid: Option<String>,
}

impl Secret {
    /// The account whose token the secret is for, if it is for one.
    pub(super) fn account(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref().filter(|_| self.r#type == TOKEN)?;
        annotations.account.as_deref().filter(|account| !account.is_empty())
    }

    pub(super) fn account_uid(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.account_uid.as_deref().filter(|uid| !uid.is_empty())
    }
}

/// What a secret keeps, in base64; read when it is looked at, and not kept.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    pub(super) data: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceAccount {
    /// References to secrets, each with a `name`.
    pub(super) secrets: Option<Vec<Value>>,
}

setpoint::view!(ServiceAccount of k8s_openapi::api::core::v1::ServiceAccount);
