//! Tokens that are kept in secrets: whose they are, and the record of their use.
//!
//! What always holds:
//! - a secret whose token was shown bears the day of that, so that what is not in use can be found;
//! - a token that was put out of use counts for nobody, and whoever shows it leaves that trace all the same;
//! - a config map says since when this has been so. It comes back when it is removed, but not at once: two
//!   servers that disagree about it do not fight.

use std::time::Duration;

use http::Method;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::service_account::user;
use super::{User, service_account_name};
use crate::facts::Facts;
use crate::json::Json;
use crate::measure::LegacyTokens;
use crate::server::Server;
use crate::status::Status;

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// What those are told whose token was made for their account rather than by somebody for a purpose.
const DISCOURAGED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens.";

const SYSTEM: &str = "kube-system";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const RECORDS: &str = "/api/v1/namespaces/kube-system/configmaps";
/// The record is made at most this often, as in v1.34.
const RECORD_EVERY: Duration = Duration::from_secs(30 * 60);

/// What a token that is kept in a secret says.
#[derive(Deserialize)]
pub(super) struct LegacyClaims {
    sub: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    account_uid: String,
}

/// When this server last wrote down that it notes the use of tokens.
#[derive(Default)]
pub(crate) struct Tracking(Mutex<Option<Timestamp>>);

impl Server {
    /// Whose token it is, and what they are told.
    pub(super) async fn legacy_user(
        &self,
        token: &str,
        claims: &LegacyClaims,
    ) -> Result<(User, Option<&'static str>), String> {
        let LegacyClaims { namespace, account, account_uid, .. } = claims;
        if claims.sub != service_account_name(namespace, account) {
            return Err("sub claim is invalid".into());
        }
        if !self.service_accounts.lookup {
            return Ok((user(namespace, account, account_uid), None));
        }
        let secret = self.secret_of(token, claims).await?;
        let of = ("serviceaccounts", Some(namespace.as_str()));
        let (served, record) = self.check(of, account, account_uid, 0).await?;
        if !secret.at("metadata").at("labels").text(INVALID_SINCE).is_empty() {
            self.measured.legacy_tokens.count(LegacyTokens::Invalid);
            self.note_use(&secret).await;
            return Err(format!(
                "the token in secret {namespace}/{} for service account {namespace}/{account} has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '{INVALID_SINCE}' label from the secret to temporarily allow use of this token",
                claims.secret
            ));
        }
        let account_object = served.decode(&record).map_err(|status| status.message)?;
        let is_listed =
            account_object.list("secrets").iter().any(|listed| listed.text("name") == claims.secret);
        self.measured.legacy_tokens.count(if is_listed {
            LegacyTokens::Generated
        } else {
            LegacyTokens::Manual
        });
        self.note_use(&secret).await;
        Ok((user(namespace, account, account_uid), is_listed.then_some(DISCOURAGED)))
    }

    /// The secret that keeps this very token.
    async fn secret_of(&self, token: &str, claims: &LegacyClaims) -> Result<Value, String> {
        let invalidated = || "Token has been invalidated".to_owned();
        let found = self.look_up("secrets", Some(&claims.namespace), &claims.secret).await;
        let (served, record) = found.ok_or_else(invalidated)?;
        if Facts::of(&record, &served).is_being_deleted() {
            return Err(invalidated());
        }
        let secret = served.decode(&record).map_err(|status| status.message)?;
        match is_same(secret.at("data").text("token"), token) {
            true => Ok(secret),
            false => Err("Token does not match server's copy".into()),
        }
    }

    /// Writes down that a token was shown today, unless that is known. Clocks of several servers may be a
    /// little apart, so tomorrow is fine too.
    async fn note_use(&self, secret: &Value) {
        let today = day(self.now());
        let tomorrow = today.checked_add(1.day()).unwrap_or(today);
        let metadata = secret.at("metadata");
        let known = metadata.at("labels").text(LAST_USED);
        if known == today.to_string() || known == tomorrow.to_string() {
            return;
        }
        let (namespace, name) = (metadata.text("namespace"), metadata.text("name"));
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let labels = json!({LAST_USED: today.to_string()});
        let patch = json!({"metadata": {"uid": metadata.text("uid"), "labels": labels}});
        if let Err(status) = self.own_request(Method::PATCH, &path, &patch, &[]).await {
            tracing::warn!(namespace, name, why = status.message, "cannot note the use of a token");
        }
    }

    /// Says since when the use of tokens has been noted, where that is not said.
    pub(crate) async fn keep_token_tracking(&self) {
        let has_tokens = self.token_signer.is_some();
        if !has_tokens || self.registry.snapshot().resource("", "v1", "configmaps").is_none() {
            return;
        }
        if let Err(status) = self.record_tracking().await {
            tracing::warn!(why = status.message, "cannot say since when the use of tokens is noted");
        }
    }

    async fn record_tracking(&self) -> Result<(), Status> {
        let now = self.now();
        let data = json!({"since": day(now).to_string()});
        let Some((served, record)) = self.look_up("configmaps", Some(SYSTEM), TRACKING).await else {
            let last = *self.token_tracking.0.lock();
            if last.is_some_and(|last| now.duration_since(last).unsigned_abs() < RECORD_EVERY) {
                return Ok(());
            }
            let map = json!({"metadata": {"name": TRACKING}, "data": data});
            if self.own_request(Method::POST, RECORDS, &map, &[409]).await? {
                *self.token_tracking.0.lock() = Some(now);
            }
            return Ok(());
        };
        let map = served.decode(&record)?;
        if is_day(map.at("data").text("since")) {
            return Ok(());
        }
        let version = map.at("metadata").text("resourceVersion");
        let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
        self.own_request(Method::PATCH, &format!("{RECORDS}/{TRACKING}"), &patch, &[404, 409]).await.map(drop)
    }
}

fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

fn is_day(text: &str) -> bool {
    text.len() == 10 && Date::strptime("%Y-%m-%d", text).is_ok()
}

/// Whether a secret holds this token, in a time that does not tell how much of it is right.
fn is_same(encoded: &str, token: &str) -> bool {
    use base64::Engine;
    let kept = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    kept.len() == token.len()
        && kept.iter().zip(token.as_bytes()).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_in_one_way_only() {
        let days = ["2025-01-02", "2025-1-2", "2025-13-01", "20250102", "yesterday", "", "2025-01-02T00:00"];
        assert_eq!(days.map(is_day), [true, false, false, false, false, false, false]);
    }
}
