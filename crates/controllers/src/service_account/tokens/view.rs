//! Typed views of Secrets and service accounts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

pub(in crate::service_account) const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
pub(in crate::service_account) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

const TOKEN: &str = "kubernetes.io/service-account-token";

/// A Secret, without its data.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::service_account) struct Secret {
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
    /// The account that a token Secret is for.
    pub(in crate::service_account) fn account(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref().filter(|_| self.r#type == TOKEN)?;
        annotations.account.as_deref().filter(|account| !account.is_empty())
    }

    pub(in crate::service_account) fn account_uid(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.account_uid.as_deref().filter(|uid| !uid.is_empty())
    }
}

/// The data of a Secret in base64. Decoded on use, and not cached.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::service_account) struct Content {
    pub(in crate::service_account) data: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::service_account) struct ServiceAccount {
    /// References to Secrets, each with a `name`.
    pub(in crate::service_account) secrets: Option<Vec<Value>>,
}

setpoint::view!(ServiceAccount of k8s_openapi::api::core::v1::ServiceAccount);
