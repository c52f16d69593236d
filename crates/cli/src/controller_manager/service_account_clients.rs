//! Controllers that use their own service accounts.
//!
//! Each one has a token for its account in `kube-system`. It is requested at startup and renewed after four fifths of
//! its lifetime, as kube-controller-manager does with `--use-service-account-credentials`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::{HeaderValue, Request, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use super::multiplexed;

const NAMESPACE: &str = "kube-system";
/// The requested lifetime of a token.
const LIFETIME: Duration = Duration::from_secs(3600);
/// The delay before a failed renewal is retried.
const RETRY: Duration = Duration::from_secs(10);

/// The tokens of all accounts: one entry per account.
pub(crate) struct ServiceAccountClients {
    accounts: Api<ServiceAccount>,
    config: kube::Config,
    tokens: BTreeMap<&'static str, Arc<RwLock<HeaderValue>>>,
}

impl ServiceAccountClients {
    /// `root` may request tokens for every account. `config` is where clients connect to.
    pub(crate) fn new(root: kube::Client, config: &kube::Config) -> Self {
        let mut config = config.clone();
        config.auth_info = kube::config::AuthInfo::default();
        Self { accounts: Api::namespaced(root, NAMESPACE), config, tokens: BTreeMap::new() }
    }

    /// Creates a client that uses an account.
    pub(crate) async fn client(&mut self, account: &'static str) -> anyhow::Result<kube::Client> {
        let token = match self.tokens.get(account) {
            Some(token) => token.clone(),
            None => {
                let (header, _) = self.ask(account).await?;
                let token = Arc::new(RwLock::new(header));
                self.tokens.insert(account, token.clone());
                token
            }
        };
        Ok(multiplexed::client(&self.config, move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, token.read().clone());
            request
        })?)
    }

    /// Renews all tokens until `stop` is cancelled.
    pub(crate) async fn keep(self, stop: CancellationToken) {
        let mut wait = LIFETIME * 4 / 5;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = LIFETIME * 4 / 5;
            for (account, token) in &self.tokens {
                match self.ask(account).await {
                    Ok((header, lifetime)) => {
                        *token.write() = header;
                        wait = wait.min(lifetime * 4 / 5);
                    }
                    Err(error) => {
                        tracing::warn!(
                            account,
                            error = format!("{error:#}"),
                            "cannot renew a service account token"
                        );
                        wait = RETRY;
                    }
                }
            }
        }
    }

    /// Requests a token for an account, creating the account if necessary. Also returns the token's lifetime.
    async fn ask(&self, account: &str) -> anyhow::Result<(HeaderValue, Duration)> {
        let spec =
            TokenRequestSpec { expiration_seconds: Some(LIFETIME.as_secs() as i64), ..Default::default() };
        let body = TokenRequest { spec, ..TokenRequest::default() };
        let params = PostParams::default();
        let ask = || self.accounts.create_token_request(account, &params, &body);
        let answer = match ask().await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let mut missing = ServiceAccount::default();
                missing.metadata.name = Some(account.to_owned());
                match self.accounts.create(&params, &missing).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    created => drop(created.with_context(|| format!("create service account {account}"))?),
                }
                ask().await
            }
            answer => answer,
        };
        let answer = answer.with_context(|| format!("request a token for service account {account}"))?;
        let status = answer
            .status
            .with_context(|| format!("no token for service account {account} in the response"))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", status.token))?;
        header.set_sensitive(true);
        // The server may have shortened the lifetime, but it states the expiry by its own clock. So this is the
        // requested lifetime, of which only a share is used.
        Ok((header, LIFETIME))
    }
}
