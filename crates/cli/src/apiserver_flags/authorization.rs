//! Authorization flags.

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
    /// Authorizers, in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny [default: Node,RBAC].
    #[arg(long, value_delimiter = ',', value_name = "MODES")]
    authorization_mode: Vec<String>,
    /// AuthorizationConfiguration file. Reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// Not supported: there is no ABAC authorizer.
    #[arg(long, value_name = "FILE")]
    authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the authorization webhook.
    #[arg(long, value_name = "FILE")]
    authorization_webhook_config_file: Option<PathBuf>,
    /// SubjectAccessReview version sent to the webhook: v1 or v1beta1 [default: v1beta1].
    #[arg(long, value_name = "VERSION")]
    authorization_webhook_version: Option<String>,
    /// How long allowed responses are cached [default: 5m].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// How long denied responses are cached [default: 30s].
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
}

const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);

impl AuthorizationFlags {
    /// Builds the authorizers.
    pub(crate) fn authorizers(
        &self,
        store: Arc<dyn Store>,
        outbound: Outbound,
    ) -> anyhow::Result<Authorizers> {
        if self.authorization_policy_file.is_some() {
            bail!("--authorization-policy-file: ABAC is not supported; use RBAC or Webhook");
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

    /// Returns whether every request is allowed, in which case anonymous access must be disabled.
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
