//! An issuer's keys: located by discovery, cached, and fetched again if a token names an unknown key.

use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use serde::Deserialize;
use setpoint_clock::{Clock, Instant};
use setpoint_token::{Algorithm, Parts, SetKey, key_set};
use setpoint_webhook::{Client, WebhookResponse};

/// If no cached key signed the token, keys this close to expiry are fetched again.
const EXPIRY_LEEWAY: Duration = Duration::from_secs(30);
/// Upper bound on the caching time, in seconds: one day.
const MAX_AGE: u64 = 24 * 3600;

pub(super) struct Keys {
    uri: Uri,
    client: Client,
    clock: Clock,
    kept: Mutex<CachedKeys>,
    /// Allows one fetch at a time; waiters share its result.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct CachedKeys {
    keys: Vec<SetKey>,
    expires: Instant,
    fetches: u64,
}

#[derive(Deserialize)]
struct Discovered {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

const WELL_KNOWN: &str = "/.well-known/openid-configuration";

impl Keys {
    /// Runs discovery to find an issuer's keys.
    pub(super) async fn discover(
        issuer: &str,
        discovery_url: Option<&str>,
        client: &Client,
        clock: &Clock,
    ) -> Result<Self, String> {
        let well_known = format!("{}{WELL_KNOWN}", issuer.trim_end_matches('/'));
        let uri = parse(discovery_url.unwrap_or(&well_known))?;
        let answer = client.get(&uri, None).await.map_err(|why| why.to_string())?;
        let found: Discovered = serde_json::from_slice(&answer.body)
            .map_err(|why| format!("oidc: failed to decode provider discovery object: {why}"))?;
        if found.issuer != issuer {
            let other = found.issuer;
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {issuer:?} got {other:?}"
            ));
        }
        let uri = parse(&found.jwks_uri)?;
        let kept = CachedKeys { keys: Vec::new(), expires: clock.instant(), fetches: 0 };
        let (client, clock) = (client.clone(), clock.clone());
        Ok(Self { uri, client, clock, kept: Mutex::new(kept), fetching: tokio::sync::Mutex::default() })
    }

    /// Verifies that one of the issuer's keys signed the token.
    pub(super) async fn verify(&self, parts: &Parts<'_>, algorithm: Algorithm) -> Result<(), String> {
        let kept = self.kept.lock().clone();
        if is_signed(&kept.keys, parts, algorithm) {
            return Ok(());
        }
        let unknown = || Err("failed to verify id token signature".to_owned());
        if self.clock.instant() + EXPIRY_LEEWAY <= kept.expires {
            return unknown();
        }
        let keys = self.fetch(kept.fetches).await.map_err(|why| format!("fetching keys {why}"))?;
        if is_signed(&keys, parts, algorithm) { Ok(()) } else { unknown() }
    }

    /// Returns keys newer than fetch number `seen`: a caller that waited for another fetch uses that result.
    async fn fetch(&self, seen: u64) -> Result<Vec<SetKey>, String> {
        let _turn = self.fetching.lock().await;
        let kept = self.kept.lock().clone();
        if kept.fetches > seen {
            return Ok(kept.keys);
        }
        let answer =
            self.client.get(&self.uri, None).await.map_err(|why| format!("oidc: get keys failed {why}"))?;
        let keys = key_set(&answer.body).map_err(|why| format!("oidc: failed to decode keys: {why}"))?;
        let expires = self.clock.instant() + age(&answer);
        *self.kept.lock() = CachedKeys { keys: keys.clone(), expires, fetches: kept.fetches + 1 };
        Ok(keys)
    }
}

fn parse(uri: &str) -> Result<Uri, String> {
    let parsed: Uri = uri.parse().map_err(|why| format!("oidc: the URL {uri:?} cannot be used: {why}"))?;
    match parsed.scheme_str() {
        // Keys fetched without TLS could come from anyone.
        Some("https") => Ok(parsed),
        _ => Err(format!("oidc: the URL {uri:?} must be an https URL")),
    }
}

fn is_signed(keys: &[SetKey], parts: &Parts<'_>, algorithm: Algorithm) -> bool {
    let named = keys.iter().filter(|key| parts.key_id.is_empty() || key.id == parts.key_id);
    named.into_iter().any(|key| key.key.verify(algorithm, parts.signed, &parts.signature))
}

/// Returns how long a response may be cached, according to its headers.
fn age(answer: &WebhookResponse) -> Duration {
    let header = answer.headers.get(http::header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let mut seconds = 0;
    for directive in header.unwrap_or_default().split(',').map(str::trim) {
        match directive.split_once('=') {
            Some(("max-age", value)) => seconds = value.parse().unwrap_or(0),
            None if matches!(directive, "no-store" | "no-cache" | "private") => return Duration::ZERO,
            _ => {}
        }
    }
    Duration::from_secs(seconds.min(MAX_AGE))
}
