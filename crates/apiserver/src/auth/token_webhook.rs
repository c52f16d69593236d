//! Authentication by a token webhook.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_clock::Clock;
use setpoint_webhook::{Client, Endpoint, Settings};
use std::collections::BTreeMap;

use super::User;
use super::access_review;
use super::config_file::ConfigError;
use super::expiring::Expiring;
use super::service_account::VerifiedToken;
use super::token_cache::TokenDigest;
use super::union::Outbound;

/// Cache capacity, the same as the token cache's, at about 600 bytes each.
const ANSWERS: usize = 32 * 1024;

/// A client of a TokenReview webhook.
pub struct TokenWebhook {
    client: Client,
    api_version: &'static str,
    ttl: Duration,
    clock: Clock,
    digests: TokenDigest,
    answers: Expiring<Option<VerifiedToken>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: Option<bool>,
    user: Option<RawUser>,
    audiences: Option<Vec<String>>,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawUser {
    username: Option<String>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl TokenWebhook {
    /// Creates a client from a kubeconfig file; the version is `v1` or `v1beta1`.
    pub fn new(
        kubeconfig: &Path,
        version: &str,
        ttl: Duration,
        outbound: &Outbound,
    ) -> Result<Self, ConfigError> {
        let api_version = match version {
            "v1" => "authentication.k8s.io/v1",
            "v1beta1" => "authentication.k8s.io/v1beta1",
            other => {
                return Err(ConfigError(format!(
                    "unsupported authentication webhook version {other:?}, supported versions are \"v1\", \"v1beta1\""
                )));
            }
        };
        let endpoint = Endpoint::from_kubeconfig(kubeconfig).map_err(|why| ConfigError(why.to_string()))?;
        let settings = Settings { sends_timeout: true, ..Settings::default() };
        Ok(Self {
            client: outbound.client(endpoint, settings)?,
            api_version,
            ttl,
            clock: outbound.clock.clone(),
            digests: TokenDigest::default(),
            answers: Expiring::new(ANSWERS),
        })
    }

    /// Authenticates a token: `None` if the webhook rejects it without an error.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        implicit: &[String],
    ) -> Result<Option<VerifiedToken>, String> {
        let key = self.digests.of(token, wanted);
        if let Some(answer) = self.answers.get(&key, self.clock.instant()) {
            return Ok(answer);
        }
        let answer = self.ask(token, wanted, implicit).await?;
        self.answers.set(key, answer.clone(), self.clock.instant(), self.ttl);
        Ok(answer)
    }

    async fn ask(
        &self,
        token: &str,
        wanted: &[String],
        implicit: &[String],
    ) -> Result<Option<VerifiedToken>, String> {
        let review = self.review(token, wanted);
        let answer = self.client.post_with_backoff(&review, |_| {}).await;
        let answer = answer.map_err(|why| {
            tracing::error!(%why, "the authentication webhook failed");
            why.to_string()
        })?;
        self.read(answer.content()?, wanted, implicit)
    }

    fn review(&self, token: &str, wanted: &[String]) -> Value {
        let mut spec = json!({ "token": token });
        if !wanted.is_empty() {
            spec["audiences"] = json!(wanted);
        }
        json!({
            "kind": "TokenReview",
            "apiVersion": self.api_version,
            "metadata": {},
            "spec": spec,
            "status": {"user": {}},
        })
    }

    fn read(
        &self,
        body: &[u8],
        wanted: &[String],
        implicit: &[String],
    ) -> Result<Option<VerifiedToken>, String> {
        let status: Status = access_review::answered(body, "TokenReview", self.api_version)?;
        let named = status.audiences.filter(|audiences| !audiences.is_empty());
        let meant = named.as_deref().unwrap_or(implicit);
        let audiences: Vec<String> = wanted.iter().filter(|one| meant.contains(one)).cloned().collect();
        if audiences.is_empty() {
            return Ok(None);
        }
        if status.authenticated != Some(true) {
            return match status.error.filter(|error| !error.is_empty()) {
                Some(error) => Err(error),
                None => Ok(None),
            };
        }
        let user = status.user.unwrap_or_default().build();
        Ok(Some(VerifiedToken { user: user.known(), audiences, warning: None, annotations: Vec::new() }))
    }
}

impl RawUser {
    fn build(self) -> User {
        let extra = self.extra.unwrap_or_default();
        User {
            name: self.username.unwrap_or_default(),
            uid: self.uid.unwrap_or_default(),
            groups: self.groups.unwrap_or_default(),
            extra: extra.into_iter().map(|(key, values)| (key, values.unwrap_or_default())).collect(),
        }
    }
}
