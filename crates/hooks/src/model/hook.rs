//! Hooks: their address, and how they are called.

use std::time::Duration;

use serde::Deserialize;

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Hook {
    #[serde(default)]
    pub(crate) version: HookVersion,
    pub(crate) webhook: Option<Webhook>,
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HookVersion {
    #[default]
    #[serde(alias = "")]
    V1,
    V2,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Webhook {
    pub(crate) url: Option<String>,
    pub(crate) service: Option<ServiceReference>,
    pub(crate) path: Option<String>,
    pub(crate) timeout: Option<String>,
    pub(crate) etag: EtagConfig,
    #[serde(rename = "responseUnMarshallMode")]
    pub(crate) response_mode: Option<ResponseMode>,
    pub(crate) ca_bundle: Option<CaBundle>,
    #[serde(rename = "clientTLS")]
    pub(crate) client_tls: Option<ClientTls>,
    pub(crate) authorization: Option<Authorization>,
    pub(crate) basic_auth: Option<BasicAuth>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ServiceReference {
    name: String,
    namespace: String,
    port: Option<i32>,
    protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EtagConfig {
    pub(crate) enabled: bool,
    pub(crate) cache_timeout_seconds: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ResponseMode {
    Loose,
    Strict,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CaBundle {
    pub(crate) inline: Option<String>,
    pub(crate) secret_ref: Option<KeyRef>,
    pub(crate) config_map_ref: Option<KeyRef>,
}

/// A Secret or a ConfigMap, and a key in it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KeyRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClientTls {
    pub(crate) secret_ref: KeyRef,
    #[serde(default)]
    pub(crate) cert_key: String,
    #[serde(default)]
    pub(crate) private_key_key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Authorization {
    #[serde(rename = "type", default)]
    pub(crate) scheme: String,
    pub(crate) secret_ref: KeyRef,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BasicAuth {
    pub(crate) secret_ref: KeyRef,
    #[serde(default)]
    pub(crate) username_key: String,
    #[serde(default)]
    pub(crate) password_key: String,
}

/// The credentials for a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndpointConfig {
    pub(crate) host: String,
    pub(crate) ca_bundle: Option<CaBundle>,
    #[serde(rename = "clientTLS")]
    pub(crate) client_tls: Option<ClientTls>,
    pub(crate) authorization: Option<Authorization>,
    pub(crate) basic_auth: Option<BasicAuth>,
}

/// The default timeout of a hook.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Hook {
    /// Whether a response with unknown or duplicate fields is an error.
    pub(crate) fn is_strict(&self) -> bool {
        let mode = self.webhook.as_ref().and_then(|webhook| webhook.response_mode);
        match mode {
            Some(mode) => mode == ResponseMode::Strict,
            None => self.version == HookVersion::V2,
        }
    }
}

impl Webhook {
    /// Returns the URL. The error names the field that is missing.
    pub(crate) fn address(&self) -> Result<String, String> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        let (Some(service), Some(path)) = (&self.service, &self.path) else {
            return Err("expected url, or both service and path".into());
        };
        if service.name.is_empty() || service.namespace.is_empty() {
            return Err("service: expected a name and a namespace".into());
        }
        let ServiceReference { name, namespace, .. } = service;
        let (port, protocol) = (service.port.unwrap_or(80), service.protocol.as_deref().unwrap_or("http"));
        Ok(format!("{protocol}://{name}.{namespace}:{port}{path}"))
    }

    /// Returns the timeout. A negative value counts as unset, as in Metacontroller.
    pub(crate) fn time_limit(&self) -> Result<Duration, String> {
        let Some(text) = &self.timeout else { return Ok(TIMEOUT) };
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.as_str()),
        };
        let given = go_duration(text)
            .ok_or_else(|| format!("timeout {text:?}: expected a duration such as 10s or 1m30s"))?;
        Ok(if is_negative || given.is_zero() { TIMEOUT } else { given })
    }
}

/// Parses a duration as Go writes it: `1h2m3.5s`, `500ms`, `0`.
pub(crate) fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let amount: f64 = number.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(amount * seconds).ok()?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn webhook(value: Value) -> Webhook {
        serde_json::from_value(value).expect("a webhook")
    }

    #[test]
    fn a_url_wins_over_a_service() {
        let check = |value: Value, expected: Result<&str, &str>| {
            let address = webhook(value.clone()).address();
            assert_eq!(address.as_deref().map_err(String::as_str), expected, "{value}");
        };
        let service = json!({"name": "hook", "namespace": "shop"});
        check(json!({"url": "http://a/b", "service": service, "path": "/c"}), Ok("http://a/b"));
        check(json!({"service": service, "path": "/c"}), Ok("http://hook.shop:80/c"));
        let secure = json!({"name": "hook", "namespace": "shop", "port": 8443, "protocol": "https"});
        check(json!({"service": secure, "path": "/c"}), Ok("https://hook.shop:8443/c"));
        check(json!({"service": service}), Err("expected url, or both service and path"));
        let unnamed = json!({"name": "", "namespace": "shop"});
        check(json!({"service": unnamed, "path": "/"}), Err("service: expected a name and a namespace"));
    }

    #[test]
    fn a_timeout_is_ten_seconds_unless_it_is_positive() {
        let check = |text: Option<&str>, expected: Option<u64>| {
            let limit = webhook(json!({"timeout": text})).time_limit();
            assert_eq!(limit.ok().map(|limit| limit.as_millis()), expected.map(u128::from), "{text:?}");
        };
        check(None, Some(10_000));
        check(Some("1m30s"), Some(90_000));
        check(Some("1.5s"), Some(1_500));
        check(Some("250ms"), Some(250));
        check(Some("0"), Some(10_000));
        check(Some("0s"), Some(10_000));
        check(Some("-3s"), Some(10_000));
        check(Some("3"), None);
        check(Some("soon"), None);
        check(Some(""), None);
    }

    #[test]
    fn answers_are_read_strictly_by_default_in_v2_only() {
        let check = |value: Value, expected: bool| {
            let hook: Hook = serde_json::from_value(value.clone()).expect("a hook");
            assert_eq!(hook.is_strict(), expected, "{value}");
        };
        check(json!({"webhook": {}}), false);
        check(json!({"version": "v1", "webhook": {}}), false);
        check(json!({"version": "v2", "webhook": {}}), true);
        check(json!({"version": "v2", "webhook": {"responseUnMarshallMode": "loose"}}), false);
        check(json!({"webhook": {"responseUnMarshallMode": "strict"}}), true);
    }
}
