//! Flags of authorization.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use setpoint_apiserver::auth::{AuthorizationConfig, Authorizers, KubeconfigSource, Outbound};
use setpoint_controllers::flags::duration;
use setpoint_store::Store;

#[derive(Debug, Args)]
#[command(next_help_heading = "Authorization")]
pub(crate) struct AuthorizationFlags {
    /// The authorizers to ask, in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny. Node,RBAC without it.
    #[arg(long, value_delimiter = ',', value_name = "MODES")]
    authorization_mode: Vec<String>,
    /// A file of AuthorizationConfiguration: which authorizers there are. It is read again when it changes.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// The policy of the mode ABAC, which is not supported.
    #[arg(long, value_name = "FILE")]
    authorization_policy_file: Option<PathBuf>,
    /// A kubeconfig that says where the webhook of the mode Webhook is.
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// The version of SubjectAccessReview that the webhook speaks: v1 or v1beta1. v1beta1 without it.
    #[arg(long, value_name = "VERSION")]
    authorization_webhook_version: Option<String>,
    /// How long what the webhook allowed stays allowed. 5m without it.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long what the webhook did not allow stays so. 30s without it.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
}

const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

impl AuthorizationFlags {
    /// The authorizers that the flags ask for.
    pub(crate) fn authorizers(
        &self,
        store: Arc<dyn Store>,
        outbound: Outbound,
    ) -> anyhow::Result<Authorizers> {
        if self.authorization_policy_file.is_some() {
            bail!("--authorization-policy-file: the mode ABAC is not supported, use RBAC or Webhook");
        }
        let Some(file) = &self.authorization_config else {
            let config = AuthorizationConfig::from_modes(&self.modes(), self.webhook().as_ref())?;
            return Ok(Authorizers::new(store, &config, outbound)?);
        };
        if self.has_older_flags() {
            bail!(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"
            );
        }
        let named = || format!("--authorization-config {}", file.display());
        let text = std::fs::read_to_string(file).with_context(named)?;
        let config = AuthorizationConfig::parse(&text).with_context(named)?;
        Ok(Authorizers::new(store, &config, outbound).with_context(named)?.following(file, &text))
    }

    /// Whether every request is allowed, so that no anonymous one may be.
    pub(crate) fn allows_everything(&self) -> bool {
        self.authorization_mode.iter().any(|mode| mode == "AlwaysAllow")
    }

    fn modes(&self) -> Vec<String> {
        match self.authorization_mode.is_empty() {
            true => vec!["Node".into(), "RBAC".into()],
            false => self.authorization_mode.clone(),
        }
    }

    fn webhook(&self) -> Option<KubeconfigSource> {
        Some(KubeconfigSource {
            kubeconfig: self.authorization_webhook_config_file.clone()?,
            version: self.authorization_webhook_version.clone().unwrap_or_else(|| "v1beta1".into()),
            authorized_ttl: self.authorization_webhook_cache_authorized_ttl.unwrap_or(AUTHORIZED_TTL),
            unauthorized_ttl: self.authorization_webhook_cache_unauthorized_ttl.unwrap_or(UNAUTHORIZED_TTL),
        })
    }

    fn has_older_flags(&self) -> bool {
        !self.authorization_mode.is_empty()
            || self.authorization_webhook_config_file.is_some()
            || self.authorization_webhook_version.is_some()
            || self.authorization_webhook_cache_authorized_ttl.is_some()
            || self.authorization_webhook_cache_unauthorized_ttl.is_some()
    }
}
