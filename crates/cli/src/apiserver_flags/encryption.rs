//! Encryption-at-rest flags.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::ArgAction;
use futures::FutureExt;
use setpoint::Runtime;
use setpoint_apiserver::HealthCheck;
use setpoint_encryption::{Encryption, Options};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Encryption at rest")]
pub(crate) struct EncryptionFlags {
    /// EncryptionConfiguration file: which resources are encrypted at rest, and with which keys.
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Reload that file when it changes; it is checked once a minute.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    encryption_provider_config_automatic_reload: bool,
}

impl EncryptionFlags {
    /// Loads the configuration. `None` if the flags name none.
    pub(crate) async fn load(&self, runtime: &Runtime) -> anyhow::Result<Option<Arc<Encryption>>> {
        let reload = self.encryption_provider_config_automatic_reload;
        let Some(file) = &self.encryption_provider_config else {
            anyhow::ensure!(
                !reload,
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            );
            return Ok(None);
        };
        let options = Options {
            file: file.clone(),
            reload,
            // There is one server per store, so a fixed name is sufficient.
            server: "setpoint".to_owned(),
            clock: runtime.clock.clone(),
            rng: runtime.rng.fork(),
        };
        let loaded = Encryption::load(options).await;
        let loaded = loaded.with_context(|| format!("--encryption-provider-config {}", file.display()))?;
        Ok(Some(Arc::new(loaded)))
    }
}

/// Returns the health checks of the KMS plugins.
pub(crate) fn health_checks(encryption: Option<&Arc<Encryption>>) -> Vec<HealthCheck> {
    let checked = encryption.filter(|encryption| encryption.has_health_check()).cloned();
    let check = |encryption: Arc<Encryption>| HealthCheck {
        name: "kms-providers".to_owned(),
        check: Box::new(move || {
            let encryption = encryption.clone();
            async move { encryption.check().await }.boxed()
        }),
    };
    checked.map(check).into_iter().collect()
}
