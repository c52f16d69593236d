//! Flags of admission plugins and webhooks.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use setpoint_apiserver::admission::AdmissionConfiguration;
use setpoint_apiserver::egress::{Cidr, EgressConfig, GuardedTcp};

#[derive(Debug, Args)]
#[command(next_help_heading = "Admission")]
pub(crate) struct AdmissionFlags {
    /// AdmissionConfiguration file: credentials for admission webhooks, and the configuration of PodSecurity and ResourceQuota.
    #[arg(long, value_name = "FILE")]
    admission_control_config_file: Option<PathBuf>,
    /// CIDRs in which the API server does not call webhooks and aggregated API servers, even if a name resolves to them.
    /// Empty allows every address.
    #[arg(long, value_delimiter = ',', value_name = "CIDRS",
        default_values_t = Cidr::link_local().iter().map(Cidr::to_string))]
    webhook_denied_cidrs: Vec<String>,
}

impl AdmissionFlags {
    /// Reads the configuration file, if there is one.
    pub(crate) fn configuration(&self) -> anyhow::Result<AdmissionConfiguration> {
        match &self.admission_control_config_file {
            Some(path) => AdmissionConfiguration::load(path).context("--admission-control-config-file"),
            None => Ok(AdmissionConfiguration::default()),
        }
    }

    pub(crate) fn egress(
        &self,
        configuration: &AdmissionConfiguration,
        endpoint_routing: bool,
    ) -> anyhow::Result<EgressConfig> {
        let denied = self.webhook_denied_cidrs.iter().filter(|cidr| !cidr.is_empty());
        let denied: Vec<Cidr> =
            denied.map(|cidr| cidr.parse()).collect::<Result<_, _>>().context("--webhook-denied-cidrs")?;
        Ok(EgressConfig {
            dial: Arc::new(GuardedTcp::new(denied)),
            mutating_users: configuration.mutating_users.clone(),
            validating_users: configuration.validating_users.clone(),
            endpoint_routing,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: AdmissionFlags,
    }

    fn flags(arguments: &[&str]) -> AdmissionFlags {
        Command::try_parse_from([&["test"], arguments].concat()).expect("known flags").flags
    }

    #[test]
    fn denied_ranges_are_link_local_unless_they_are_named() {
        assert_eq!(flags(&[]).webhook_denied_cidrs, ["169.254.0.0/16", "fe80::/10"]);
        let named = flags(&["--webhook-denied-cidrs=10.0.0.0/8,::1/128"]);
        assert_eq!(named.webhook_denied_cidrs, ["10.0.0.0/8", "::1/128"]);
        let none = AdmissionConfiguration::default();
        named.egress(&none, false).unwrap();
        flags(&["--webhook-denied-cidrs="]).egress(&none, false).unwrap();
        let problem = flags(&["--webhook-denied-cidrs=10.0.0.0"]).egress(&none, false).err().unwrap();
        let expected = "--webhook-denied-cidrs: \"10.0.0.0\" is not a CIDR: expected ADDRESS/PREFIX, such as 169.254.0.0/16";
        assert_eq!(format!("{problem:#}"), expected);
    }
}
