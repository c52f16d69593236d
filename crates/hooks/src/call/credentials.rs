//! Credentials for calling hooks: CAs, client certificates and tokens, from Secrets and ConfigMaps.
//!
//! Invariant: a hook's own fields take precedence; if it has any, `endpointConfigs` is ignored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::Value;
use setpoint::{Client, Key, Kind};

use super::transport::HookTarget;
use crate::model::{Authorization, BasicAuth, CaBundle, ClientTls, EndpointConfig, KeyRef, Webhook};

/// Reads credentials from the API server.
pub(crate) struct Credentials<'a> {
    pub(crate) client: &'a Client,
}

/// Why a hook cannot be called.
#[derive(Debug)]
pub(crate) enum CredentialError {
    /// The configuration is invalid.
    Wrong(String),
    /// Temporary: something is missing or could not be read.
    Missing(String),
}

use CredentialError::{Missing, Wrong};

type Result<T> = std::result::Result<T, CredentialError>;

/// The four fields that a hook and an entry of `endpointConfigs` share.
struct Fields<'a> {
    authorities: Option<&'a CaBundle>,
    identity: Option<&'a ClientTls>,
    authorization: Option<&'a Authorization>,
    basic: Option<&'a BasicAuth>,
}

impl Credentials<'_> {
    /// Returns the address of a hook and its credentials.
    pub(crate) async fn target(&self, webhook: &Webhook, endpoints: &[EndpointConfig]) -> Result<HookTarget> {
        let url = webhook.address().map_err(Wrong)?;
        let own = Fields {
            authorities: webhook.ca_bundle.as_ref(),
            identity: webhook.client_tls.as_ref(),
            authorization: webhook.authorization.as_ref(),
            basic: webhook.basic_auth.as_ref(),
        };
        let fields = match own.is_empty() {
            false => Some(own),
            true => matching(&url, endpoints).map(|endpoint| Fields {
                authorities: endpoint.ca_bundle.as_ref(),
                identity: endpoint.client_tls.as_ref(),
                authorization: endpoint.authorization.as_ref(),
                basic: endpoint.basic_auth.as_ref(),
            }),
        };
        let target = HookTarget { url, ..HookTarget::default() };
        match fields {
            None => Ok(target),
            Some(fields) => self.resolve(fields, target).await,
        }
    }

    async fn resolve(&self, fields: Fields<'_>, mut target: HookTarget) -> Result<HookTarget> {
        if let Some(bundle) = fields.authorities {
            target.authorities = Some(self.authorities(bundle).await?);
        }
        if let Some(tls) = fields.identity {
            let certificate = self.secret(&tls.secret_ref, &tls.cert_key, "tls.crt", "clientTLS").await?;
            let key = self.secret(&tls.secret_ref, &tls.private_key_key, "tls.key", "clientTLS").await?;
            target.identity = Some((certificate, key));
        }
        target.authorization = match (fields.authorization, fields.basic) {
            (Some(authorization), _) => Some(self.authorization(authorization).await?),
            (None, Some(basic)) => Some(self.basic(basic).await?),
            (None, None) => None,
        };
        Ok(target)
    }

    async fn authorities(&self, bundle: &CaBundle) -> Result<Vec<u8>> {
        match (&bundle.inline, &bundle.secret_ref, &bundle.config_map_ref) {
            (Some(inline), None, None) => Ok(inline.clone().into_bytes()),
            (None, Some(reference), None) => {
                self.secret(reference, &reference.key, "ca.crt", "caBundle").await
            }
            (None, None, Some(reference)) => {
                let key = or_else(&reference.key, "ca.crt");
                let maps = Kind::new("", "v1", "ConfigMap", "configmaps", true);
                let map = self.read(&maps, reference, "caBundle").await?;
                let value = map["data"][key].as_str().filter(|text| !text.is_empty());
                value
                    .map(|text| text.as_bytes().to_vec())
                    .ok_or_else(|| missing("caBundle", "ConfigMap", reference, key))
            }
            _ => Err(Wrong("caBundle: expected exactly one of inline, secretRef and configMapRef".into())),
        }
    }

    async fn authorization(&self, authorization: &Authorization) -> Result<String> {
        let scheme = authorization.scheme.trim();
        if scheme.eq_ignore_ascii_case("basic") {
            return Err(Wrong(format!("authorization.type {scheme:?}: use basicAuth instead")));
        }
        let reference = &authorization.secret_ref;
        let token = self.text(reference, &reference.key, "token", "authorization").await?;
        Ok(format!("{} {}", or_else(scheme, "Bearer"), token))
    }

    async fn basic(&self, basic: &BasicAuth) -> Result<String> {
        let user = self.text(&basic.secret_ref, &basic.username_key, "username", "basicAuth").await?;
        let password = self.text(&basic.secret_ref, &basic.password_key, "password", "basicAuth").await?;
        match user.contains(':') {
            true => Err(Wrong("basicAuth: the user name must not contain ':'".into())),
            false => Ok(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))),
        }
    }

    async fn text(&self, reference: &KeyRef, key: &str, default: &str, field: &str) -> Result<String> {
        let value = self.secret(reference, key, default, field).await?;
        let text = String::from_utf8(value).map_err(|_| Wrong(format!("{field}: the Secret has no text")))?;
        Ok(text.trim().to_owned())
    }

    async fn secret(&self, reference: &KeyRef, key: &str, default: &str, field: &str) -> Result<Vec<u8>> {
        let key = or_else(key, default);
        let secret = self.read(&Kind::new("", "v1", "Secret", "secrets", true), reference, field).await?;
        let encoded = secret["data"][key].as_str();
        let value = encoded.and_then(|text| STANDARD.decode(text).ok());
        value.ok_or_else(|| missing(field, "Secret", reference, key))
    }

    async fn read(&self, kind: &Kind, reference: &KeyRef, field: &str) -> Result<Value> {
        let key = Key::namespaced(&reference.namespace, &reference.name);
        let failed = |why: &dyn std::fmt::Display| Missing(format!("{field}: {} {key}: {why}", kind.kind()));
        let object = self.client.get(kind, &key).await.map_err(|error| failed(&error))?;
        object.decode().map_err(|error| failed(&error))
    }
}

impl Fields<'_> {
    fn is_empty(&self) -> bool {
        self.authorities.is_none()
            && self.identity.is_none()
            && self.authorization.is_none()
            && self.basic.is_none()
    }
}

fn missing(field: &str, kind: &str, reference: &KeyRef, key: &str) -> CredentialError {
    let KeyRef { namespace, name, .. } = reference;
    Missing(format!("{field}: {kind} {namespace}/{name} has no key {key:?}"))
}

fn or_else<'a>(text: &'a str, default: &'a str) -> &'a str {
    if text.is_empty() { default } else { text }
}

/// Returns the first entry for the host of a URL. Case is ignored, and the default port may be omitted on either side.
fn matching<'a>(url: &str, endpoints: &'a [EndpointConfig]) -> Option<&'a EndpointConfig> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?;
    let default = match url.scheme_str() {
        Some("https") => 443,
        Some("http") => 80,
        _ => 0,
    };
    let port = url.port_u16().unwrap_or(default);
    let with_port = format!("{host}:{port}");
    endpoints.iter().find(|endpoint| {
        let is_host = endpoint.host.eq_ignore_ascii_case(host) && port == default;
        is_host || endpoint.host.eq_ignore_ascii_case(&with_port)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_endpoint_is_found_by_host_and_port() {
        let check = |url: &str, host: &str, expected: bool| {
            let endpoint: EndpointConfig =
                serde_json::from_value(json!({"host": host})).expect("an endpoint");
            assert_eq!(matching(url, &[endpoint]).is_some(), expected, "{url} {host}");
        };
        check("https://example.com/x", "example.com", true);
        check("https://example.com:443/x", "example.com", true);
        check("https://example.com/x", "EXAMPLE.com:443", true);
        check("http://hook.shop:80/x", "hook.shop", true);
        check("https://example.com:8443/x", "example.com", false);
        check("https://example.com:8443/x", "example.com:8443", true);
        check("https://example.com/x", "other.com", false);
        check("nonsense url", "nonsense", false);
    }
}
