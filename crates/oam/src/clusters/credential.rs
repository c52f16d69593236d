//! Credentials of clusters in the format of KubeVela's cluster gateway: labelled Secrets in `vela-system`, with the
//! name of the cluster.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use setpoint::{Kind, View};

use crate::names;

/// The address and the credential of a cluster.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credential {
    /// The name of the cluster.
    pub cluster: String,
    /// The URL of its API server, such as `https://192.0.2.7:6443`.
    pub endpoint: String,
    /// How the server's certificate is verified.
    pub trust: Trust,
    /// The client.
    pub identity: Identity,
}

/// How the certificate of an API server is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By these CAs, as PEM.
    Authorities(Vec<u8>),
    /// By the system's CAs.
    System,
    /// Not at all: the Secret has no CA.
    Anyone,
}

/// The identity of a client.
#[derive(Clone, PartialEq, Eq)]
pub enum Identity {
    /// The holder of a bearer token.
    Token(String),
    /// The holder of a certificate and its key, as PEM.
    Certificate {
        /// The certificate chain.
        certificate: Vec<u8>,
        /// The private key.
        key: Vec<u8>,
    },
}

impl Credential {
    /// Reads a Secret with a credential. The error names the field that is wrong.
    ///
    /// ```
    /// let secret = serde_json::json!({
    ///     "metadata": {"name": "east", "labels": {"cluster.core.oam.dev/cluster-credential-type": "ServiceAccountToken"}},
    ///     "data": {"endpoint": "aHR0cHM6Ly9oOjY0NDM=", "token": "dA=="},
    /// });
    /// assert_eq!(setpoint_oam::Credential::of_secret(&secret).unwrap().endpoint, "https://h:6443");
    /// ```
    pub fn of_secret(secret: &Value) -> Result<Self, String> {
        ClusterSecret::deserialize(secret).map_err(|error| error.to_string())?.credential()
    }
}

/// Does not show secrets.
impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Credential({} at {})", self.cluster, self.endpoint)
    }
}

/// A decoded Secret with a credential.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ClusterSecret {
    pub(crate) metadata: Meta,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    data: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: String,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) creation_timestamp: Option<Timestamp>,
}

impl View for ClusterSecret {
    fn kind() -> Kind {
        Kind::new("", "v1", "Secret", "secrets", true)
    }
}

impl ClusterSecret {
    /// Returns the credential. The error names the field that is wrong.
    pub(crate) fn credential(&self) -> Result<Credential, String> {
        let endpoint_type = self.label(names::CLUSTER_ENDPOINT_TYPE);
        if !matches!(endpoint_type, "" | "Const") {
            return Err(format!(
                "label {}: {endpoint_type:?} is not supported, expected Const",
                names::CLUSTER_ENDPOINT_TYPE
            ));
        }
        if self.data.get("proxy-url").is_some_and(|url| !url.is_empty()) {
            return Err("data.proxy-url: proxies are not supported".to_owned());
        }
        let endpoint = self.text("endpoint")?.trim().trim_end_matches('/').to_owned();
        if !endpoint.starts_with("https://") {
            return Err("data.endpoint: expected the https:// URL of an API server".to_owned());
        }
        let (cluster, trust) = (self.metadata.name.clone(), self.trust()?);
        Ok(Credential { cluster, endpoint, trust, identity: self.identity()? })
    }

    /// Without a CA, the gateway does not verify certificates; with an empty one, it uses the system's CAs.
    fn trust(&self) -> Result<Trust, String> {
        let Some(field) = ["ca.crt", "ca"].into_iter().find(|field| self.data.contains_key(*field)) else {
            return Ok(Trust::Anyone);
        };
        let authorities = self.bytes(field)?;
        Ok(if authorities.is_empty() { Trust::System } else { Trust::Authorities(authorities) })
    }

    fn identity(&self) -> Result<Identity, String> {
        match self.label(names::CLUSTER_CREDENTIAL_TYPE) {
            "ServiceAccountToken" => Ok(Identity::Token(self.text("token")?.trim().to_owned())),
            "X509Certificate" => {
                Ok(Identity::Certificate { certificate: self.bytes("tls.crt")?, key: self.bytes("tls.key")? })
            }
            other => Err(format!(
                "label {}: expected X509Certificate or ServiceAccountToken, not {other:?}",
                names::CLUSTER_CREDENTIAL_TYPE
            )),
        }
    }

    fn label(&self, name: &str) -> &str {
        self.metadata.labels.get(name).map_or("", String::as_str)
    }

    fn bytes(&self, field: &str) -> Result<Vec<u8>, String> {
        let encoded = self.data.get(field).ok_or_else(|| format!("data.{field}: missing"))?;
        STANDARD.decode(encoded).map_err(|error| format!("data.{field}: {error}"))
    }

    fn text(&self, field: &str) -> Result<String, String> {
        String::from_utf8(self.bytes(field)?).map_err(|_| format!("data.{field}: expected text"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(kind: &str, data: &Value) -> Result<Credential, String> {
        let data: BTreeMap<String, String> = data
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), STANDARD.encode(value.as_str().unwrap())))
            .collect();
        let labels = json!({"cluster.core.oam.dev/cluster-credential-type": kind});
        let secret = json!({"metadata": {"name": "east", "labels": labels}, "data": data});
        serde_json::from_value::<ClusterSecret>(secret).unwrap().credential()
    }

    #[test]
    fn tokens_and_certificates_are_read() {
        let token = parsed(
            "ServiceAccountToken",
            &json!({"endpoint": "https://h:6443/\n", "ca.crt": "pem", "token": "t"}),
        );
        let token = token.unwrap();
        assert_eq!((token.cluster.as_str(), token.endpoint.as_str()), ("east", "https://h:6443"));
        assert_eq!(token.trust, Trust::Authorities(b"pem".to_vec()));
        assert!(token.identity == Identity::Token("t".into()));
        let certificate = json!({"endpoint": "https://h", "tls.crt": "c", "tls.key": "k"});
        let certificate = parsed("X509Certificate", &certificate).unwrap();
        assert_eq!(certificate.trust, Trust::Anyone);
        assert!(matches!(certificate.identity, Identity::Certificate { .. }));
        assert_eq!(format!("{certificate:?}"), "Credential(east at https://h)");
    }

    #[test]
    fn errors_name_the_field() {
        let check = |kind: &str, data: Value, expected: &str| {
            let error = parsed(kind, &data).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("X509Certificate", json!({}), "data.endpoint: missing");
        check("X509Certificate", json!({"endpoint": "http://h"}), "data.endpoint: expected the https://");
        check("X509Certificate", json!({"endpoint": "https://h", "tls.crt": ""}), "data.tls.key: missing");
        check("Dynamic", json!({"endpoint": "https://h"}), "not \"Dynamic\"");
        check("ServiceAccountToken", json!({"endpoint": "https://h", "proxy-url": "x"}), "data.proxy-url");
    }
}
