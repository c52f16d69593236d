//! Flags for the served APIs.

use clap::{ArgAction, Args};
use setpoint_apiserver::Config;
use setpoint_apiserver::admission::NoPrivilegedContainers;
use setpoint_apiserver::runtime_config::RuntimeConfig;

#[derive(Debug, Args)]
#[command(next_help_heading = "APIs")]
pub(crate) struct ApiFlags {
    /// API versions to enable or disable: api/all, api/ga, api/beta, api/alpha or group/version, =true or =false.
    #[arg(long, value_delimiter = ',', value_name = "SETTINGS")]
    runtime_config: Vec<String>,
    /// Allow privileged containers.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    allow_privileged: bool,
}

impl ApiFlags {
    pub(crate) fn apply(&self, config: &mut Config) -> anyhow::Result<()> {
        let runtime = RuntimeConfig::parse(&self.runtime_config)?;
        config.kinds = runtime.apply(std::mem::take(&mut config.kinds));
        if !self.allow_privileged {
            config.admission.push(Box::new(NoPrivilegedContainers));
        }
        Ok(())
    }
}
