//! The claims of a Secret-based service account token.

use serde::Serialize;

pub use setpoint_token::{BadKey, TokenSigner};

/// The issuer of Secret-based tokens.
const ISSUER: &str = "kubernetes/serviceaccount";

/// The claims of a Secret-based token.
#[derive(Debug, Serialize)]
pub(super) struct Claims<'a> {
    iss: &'static str,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub(super) namespace: &'a str,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(super) secret: &'a str,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(super) account: &'a str,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(super) account_uid: &'a str,
    sub: String,
}

impl<'a> Claims<'a> {
    pub(super) fn new(namespace: &'a str, secret: &'a str, account: &'a str, account_uid: &'a str) -> Self {
        let sub = format!("system:serviceaccount:{namespace}:{account}");
        Self { iss: ISSUER, namespace, secret, account, account_uid, sub }
    }
}
