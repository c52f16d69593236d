//! Authentication flags.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use setpoint_apiserver::auth::{
    Anonymous, FrontProxy, JwtConfig, OidcFlags, Outbound, ServiceAccounts, TokenWebhook,
};
use setpoint_apiserver::{Authenticator, PublicKey, TokenSigner};
use setpoint_controllers::flags::duration;

use super::read;

#[derive(Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub(crate) struct AuthenticationFlags {
    /// CSV file of static bearer tokens: token,user,uid,"group1,group2".
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Accept requests without credentials as system:anonymous [default: true].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, value_name = "BOOL")]
    anonymous_auth: Option<bool>,
    /// AuthenticationConfiguration file: JWT issuers and anonymous access. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Let bootstrap tokens authenticate: secrets of type bootstrap.kubernetes.io/token in kube-system.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    enable_bootstrap_token_auth: bool,
    /// Kubeconfig of the webhook that authenticates bearer tokens.
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// TokenReview version sent to the webhook: v1 or v1beta1.
    #[arg(long, default_value = "v1beta1", value_name = "VERSION")]
    authentication_token_webhook_version: String,
    /// How long the webhook's responses are cached.
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// Audiences the API server accepts tokens for [default: its service account issuers].
    #[arg(long, value_delimiter = ',', value_name = "AUDIENCES")]
    api_audiences: Vec<String>,
    #[command(flatten)]
    front_proxy: FrontProxyFlags,
    #[command(flatten)]
    oidc: Oidc,
    #[command(flatten)]
    service_accounts: ServiceAccountFlags,
}

#[derive(Debug, Args)]
struct FrontProxyFlags {
    /// CA bundle for front proxies, which pass the user in request headers.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names accepted in front proxy certificates [default: any].
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    requestheader_allowed_names: Vec<String>,
    /// Request headers with the user name, such as X-Remote-User.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_username_headers: Vec<String>,
    /// Request headers with the user's UID, such as X-Remote-Uid.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_uid_headers: Vec<String>,
    /// Request headers with groups, such as X-Remote-Group.
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of request headers with extra user info, such as X-Remote-Extra-.
    #[arg(long, value_delimiter = ',', value_name = "PREFIXES")]
    requestheader_extra_headers_prefix: Vec<String>,
}

#[derive(Debug, Args)]
struct Oidc {
    /// URL of the OpenID Connect issuer whose tokens are accepted.
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// Audience the tokens must be issued for.
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,
    /// CA bundle for the issuer [default: the host's root CAs].
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// Claim used as the user name [default: sub].
    #[arg(long, value_name = "CLAIM")]
    oidc_username_claim: Option<String>,
    /// Prefix for user names; '-' for none [default: the issuer URL and '#', unless the claim is email].
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// Claim used as the user's groups.
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// Prefix for groups.
    #[arg(long, value_name = "PREFIX")]
    oidc_groups_prefix: Option<String>,
    /// Accepted signing algorithms [default: RS256].
    #[arg(long, value_delimiter = ',', value_name = "ALGORITHMS")]
    oidc_signing_algs: Vec<String>,
    /// Claim that tokens must have, with its value. May be repeated.
    #[arg(long, value_name = "CLAIM=VALUE", value_parser = pair)]
    oidc_required_claim: Vec<(String, String)>,
}

#[derive(Debug, Args)]
struct ServiceAccountFlags {
    /// Keys that verify service account tokens: public or private, RSA or ECDSA. May be repeated.
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Private key that signs service account tokens [default: a generated key].
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Issuer of service account tokens. May be repeated: the first issues, all are accepted.
    #[arg(long, value_name = "ISSUER")]
    service_account_issuer: Vec<String>,
    /// JWKS URL published in the issuer discovery document.
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// Check that the Secrets of secret-based tokens still exist.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    service_account_lookup: bool,
    /// Maximum lifetime of a service account token.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    service_account_max_token_expiration: Option<Duration>,
    /// Extend the lifetime of tokens projected into pods to one year.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    service_account_extend_token_expiration: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (claim, value) = text.split_once('=').ok_or("expected CLAIM=VALUE")?;
    Ok((claim.trim().to_owned(), value.trim().to_owned()))
}

impl AuthenticationFlags {
    /// Builds the authenticator. Disables anonymous access if everything is allowed.
    pub(crate) fn authenticator(
        &self,
        accounts: &ServiceAccounts,
        outbound: &Outbound,
        allows_everything: bool,
        front_proxy: Option<FrontProxy>,
    ) -> anyhow::Result<Authenticator> {
        let mut authenticator = Authenticator::new();
        if let Some(path) = &self.token_auth_file {
            let csv = read("token-auth-file", path)?;
            authenticator = authenticator
                .with_token_file(&csv)
                .with_context(|| format!("--token-auth-file {}", path.display()))?;
        }
        if self.anonymous_auth == Some(false) || allows_everything {
            authenticator = authenticator.with_anonymous(Anonymous::Nowhere);
        }
        if self.enable_bootstrap_token_auth {
            authenticator = authenticator.with_bootstrap_tokens();
        }
        if let Some(front_proxy) = front_proxy {
            authenticator = authenticator.with_front_proxy(front_proxy);
        }
        if let Some(path) = &self.authentication_token_webhook_config_file {
            let (version, ttl) =
                (&self.authentication_token_webhook_version, self.authentication_token_webhook_cache_ttl);
            let webhook = TokenWebhook::new(path, version, ttl, outbound)
                .context("--authentication-token-webhook-config-file")?;
            authenticator = authenticator.with_webhook(webhook);
        }
        self.with_issuers(authenticator, accounts, outbound)
    }

    fn with_issuers(
        &self,
        authenticator: Authenticator,
        accounts: &ServiceAccounts,
        outbound: &Outbound,
    ) -> anyhow::Result<Authenticator> {
        let own = &accounts.issuers;
        let Some(path) = &self.authentication_config else {
            return match self.oidc.flags()? {
                Some(flags) => {
                    let config = JwtConfig::from_flags(&flags, own)?;
                    Ok(authenticator.with_jwt(&config, None, own, outbound.clone())?)
                }
                None => Ok(authenticator),
            };
        };
        if self.oidc.is_set() {
            bail!("authentication-config file and oidc-* flags are mutually exclusive");
        }
        let text = read("authentication-config", path)?;
        let named = || format!("--authentication-config {}", path.display());
        let config = JwtConfig::parse(&text, own).with_context(named)?;
        if config.anonymous.is_some() && self.anonymous_auth.is_some() {
            bail!(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
            );
        }
        authenticator
            .with_jwt(&config, Some((path.as_path(), text.as_str())), own, outbound.clone())
            .with_context(named)
    }

    /// Builds the settings for issuing and verifying service account tokens.
    pub(crate) fn service_accounts(&self) -> anyhow::Result<ServiceAccounts> {
        self.service_accounts.build(&self.api_audiences)
    }

    /// Loads the key that signs service account tokens, if the flags name one.
    pub(crate) fn token_signer(&self) -> anyhow::Result<Option<TokenSigner>> {
        let Some(path) = &self.service_accounts.service_account_signing_key_file else { return Ok(None) };
        let flag = "service-account-signing-key-file";
        let signer = TokenSigner::from_pem(&read(flag, path)?);
        signer.map(Some).with_context(|| format!("--{flag} {}", path.display()))
    }

    /// Returns the CAs of front proxies, as PEM, and the headers that front proxies set, if the flags name any.
    pub(crate) fn front_proxies(&self) -> anyhow::Result<Option<(String, FrontProxy)>> {
        let front_proxy = self.front_proxy.build()?;
        let path = self.front_proxy.requestheader_client_ca_file.as_ref();
        let authorities = path.map(|path| read("requestheader-client-ca-file", path)).transpose()?;
        Ok(authorities.zip(front_proxy))
    }
}

impl FrontProxyFlags {
    fn build(&self) -> anyhow::Result<Option<FrontProxy>> {
        for (flag, values) in [
            ("requestheader-username-headers", &self.requestheader_username_headers),
            ("requestheader-uid-headers", &self.requestheader_uid_headers),
            ("requestheader-group-headers", &self.requestheader_group_headers),
            ("requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix),
            ("requestheader-allowed-names", &self.requestheader_allowed_names),
        ] {
            if values.iter().any(|value| value.trim().is_empty()) {
                bail!("empty value in \"{flag}\"");
            }
        }
        if self.requestheader_client_ca_file.is_none() {
            return Ok(None);
        }
        Ok(Some(FrontProxy {
            allowed_names: self.requestheader_allowed_names.clone(),
            username_headers: self.requestheader_username_headers.clone(),
            uid_headers: self.requestheader_uid_headers.clone(),
            group_headers: self.requestheader_group_headers.clone(),
            extra_prefixes: self.requestheader_extra_headers_prefix.clone(),
        }))
    }
}

impl Oidc {
    fn is_set(&self) -> bool {
        self.oidc_issuer_url.is_some()
            || self.oidc_client_id.is_some()
            || self.oidc_ca_file.is_some()
            || self.oidc_username_claim.is_some()
            || self.oidc_username_prefix.is_some()
            || self.oidc_groups_claim.is_some()
            || self.oidc_groups_prefix.is_some()
            || !self.oidc_signing_algs.is_empty()
            || !self.oidc_required_claim.is_empty()
    }

    fn flags(&self) -> anyhow::Result<Option<OidcFlags>> {
        if !self.is_set() {
            return Ok(None);
        }
        let authorities = self.oidc_ca_file.as_ref().map(|path| read("oidc-ca-file", path)).transpose()?;
        let text = |flag: &Option<String>| flag.clone().unwrap_or_default();
        let algorithms = match self.oidc_signing_algs.is_empty() {
            true => vec!["RS256".into()],
            false => self.oidc_signing_algs.clone(),
        };
        Ok(Some(OidcFlags {
            issuer_url: text(&self.oidc_issuer_url),
            client_id: text(&self.oidc_client_id),
            authorities: authorities.unwrap_or_default(),
            username_claim: self.oidc_username_claim.clone().unwrap_or_else(|| "sub".into()),
            username_prefix: text(&self.oidc_username_prefix),
            groups_claim: text(&self.oidc_groups_claim),
            groups_prefix: text(&self.oidc_groups_prefix),
            signing_algorithms: algorithms,
            required_claims: self.oidc_required_claim.clone(),
        }))
    }
}

/// The allowed maximum lifetimes of tokens: one hour to 2^32 seconds.
const MAX_EXPIRATION: std::ops::RangeInclusive<u64> = 3600..=1 << 32;

impl ServiceAccountFlags {
    fn build(&self, audiences: &[String]) -> anyhow::Result<ServiceAccounts> {
        let mut accounts = ServiceAccounts {
            audiences: audiences.to_vec(),
            lookup: self.service_account_lookup,
            jwks_uri: self.service_account_jwks_uri.clone(),
            extend_expiration: self.service_account_extend_token_expiration,
            ..ServiceAccounts::default()
        };
        if !self.service_account_issuer.is_empty() {
            accounts.issuers = self.issuers()?;
        }
        if accounts.jwks_uri.as_ref().is_some_and(|uri| !uri.starts_with("https://")) {
            bail!("service-account-jwks-uri requires https scheme");
        }
        if let Some(most) = self.service_account_max_token_expiration {
            if !MAX_EXPIRATION.contains(&most.as_secs()) {
                bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
            }
            accounts.max_expiration = i64::try_from(most.as_secs()).ok();
        }
        for path in &self.service_account_key_file {
            let flag = "service-account-key-file";
            let keys = PublicKey::all_from_pem(&read(flag, path)?);
            accounts.keys.extend(keys.with_context(|| format!("--{flag} {}", path.display()))?);
        }
        if self.service_account_signing_key_file.is_some() && accounts.keys.is_empty() {
            bail!(
                "--service-account-key-file must be specified when --service-account-signing-key-file is provided"
            );
        }
        Ok(accounts)
    }

    fn issuers(&self) -> anyhow::Result<Vec<String>> {
        let mut issuers: Vec<String> = Vec::new();
        for issuer in &self.service_account_issuer {
            if issuer.is_empty() {
                bail!("service-account-issuer should not be an empty string");
            }
            if issuers.contains(issuer) {
                bail!("service-account-issuer {issuer:?} is already specified");
            }
            issuers.push(issuer.clone());
        }
        Ok(issuers)
    }
}
