//! `AdmissionConfiguration`: the file of `--admission-control-config-file`.
//!
//! Webhooks are configured with a kubeconfig file, whose users are the server's credentials by host; PodSecurity and
//! ResourceQuota with a configuration of their own. Each is inline or in a file beside this one.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use setpoint_webhook::{HostUsers, KubeconfigError};

use super::{PodSecurityConfiguration, ResourceQuotaConfiguration};
use crate::json::Json;

/// The contents of the file.
#[derive(Clone, Debug, Default)]
pub struct AdmissionConfiguration {
    /// The server's credentials for mutating webhooks.
    pub mutating_users: HostUsers,
    /// The server's credentials for validating webhooks.
    pub validating_users: HostUsers,
    pub pod_security: PodSecurityConfiguration,
    pub resource_quota: ResourceQuotaConfiguration,
}

/// An error in the file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {problem}", path.display())]
    Invalid { path: PathBuf, problem: String },
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawConfig {
    api_version: String,
    kind: String,
    #[serde(default)]
    plugins: Vec<RawPlugin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlugin {
    name: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    configuration: Value,
}

const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
/// v1.34's other plugins that have a configuration. This server does not have them.
const OTHERS: [&str; 4] =
    ["EventRateLimit", "ImagePolicyWebhook", "PodNodeSelector", "PodTolerationRestriction"];
/// The configuration of webhooks, by version and kind.
const WEBHOOKS: [(&str, &str); 2] = [
    ("apiserver.config.k8s.io/v1", "WebhookAdmissionConfiguration"),
    ("apiserver.config.k8s.io/v1alpha1", "WebhookAdmission"),
];

impl AdmissionConfiguration {
    pub fn load(path: &Path) -> Result<Self, ConfigurationError> {
        let invalid = |problem: String| ConfigurationError::Invalid { path: path.to_owned(), problem };
        let written: RawConfig =
            serde_saphyr::from_str(&read(path)?).map_err(|why| invalid(why.to_string()))?;
        if written.kind != "AdmissionConfiguration" || !VERSIONS.contains(&written.api_version.as_str()) {
            return Err(invalid(format!(
                "expected kind AdmissionConfiguration of apiVersion {}, found {} of {}",
                VERSIONS[0], written.kind, written.api_version
            )));
        }
        let mut configuration = Self::default();
        for plugin in &written.plugins {
            configuration.add(plugin, path)?;
        }
        Ok(configuration)
    }

    fn add(&mut self, plugin: &RawPlugin, file: &Path) -> Result<(), ConfigurationError> {
        let invalid = |problem: String| {
            let problem = format!("plugins[{}]: {problem}", plugin.name);
            ConfigurationError::Invalid { path: file.to_owned(), problem }
        };
        match plugin.name.as_str() {
            "MutatingAdmissionWebhook" => self.mutating_users = plugin.users(file)?,
            "ValidatingAdmissionWebhook" => self.validating_users = plugin.users(file)?,
            "PodSecurity" => {
                if let Some(written) = plugin.configuration(file)? {
                    self.pod_security = PodSecurityConfiguration::parse(&written).map_err(invalid)?;
                }
            }
            "ResourceQuota" => {
                if let Some(written) = plugin.configuration(file)? {
                    self.resource_quota = ResourceQuotaConfiguration::parse(&written).map_err(invalid)?;
                }
            }
            name if OTHERS.contains(&name) => {
                return Err(invalid("this server does not have the plugin".into()));
            }
            _ => {
                let expected =
                    "MutatingAdmissionWebhook, PodSecurity, ResourceQuota or ValidatingAdmissionWebhook";
                return Err(invalid(format!("the plugin cannot be configured, expected {expected}")));
            }
        }
        Ok(())
    }
}

impl RawPlugin {
    /// Returns the configuration, inline or from a file beside this one; nothing if it is empty.
    fn configuration(&self, file: &Path) -> Result<Option<Value>, ConfigurationError> {
        let configuration: Value = match self.path.as_str() {
            "" => self.configuration.clone(),
            path => {
                let path = file.parent().unwrap_or(Path::new("")).join(path);
                serde_saphyr::from_str(&read(&path)?)
                    .map_err(|why| ConfigurationError::Invalid { path, problem: why.to_string() })?
            }
        };
        Ok(Some(configuration).filter(|configuration| !configuration.is_null()))
    }

    /// The users of the kubeconfig file that a plugin is configured with.
    fn users(&self, file: &Path) -> Result<HostUsers, ConfigurationError> {
        let invalid = |problem: String| {
            let problem = format!("plugins[{}]: {problem}", self.name);
            ConfigurationError::Invalid { path: file.to_owned(), problem }
        };
        let Some(configuration) = self.configuration(file)? else { return Ok(HostUsers::default()) };
        let found = (configuration.text("apiVersion"), configuration.text("kind"));
        if !WEBHOOKS.contains(&found) {
            let (version, kind) = WEBHOOKS[0];
            return Err(invalid(format!("expected kind {kind} of apiVersion {version}")));
        }
        match configuration.text("kubeConfigFile") {
            kubeconfig if Path::new(kubeconfig).is_absolute() => {
                Ok(HostUsers::from_kubeconfig(Path::new(kubeconfig))?)
            }
            other => Err(invalid(format!(
                "kubeConfigFile: Invalid value: {other:?}: must be an absolute file path"
            ))),
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigurationError> {
    fs::read_to_string(path)
        .map_err(|source| ConfigurationError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEBHOOK: &str =
        "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: FILE}";

    fn load(plugins: &str) -> Result<AdmissionConfiguration, String> {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        fs::write(&kubeconfig, "users: [{name: '*', user: {token: t}}]").unwrap();
        let plugins = plugins.replace("FILE", kubeconfig.to_str().unwrap());
        let file = directory.path().join("admission.yaml");
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: {plugins}\n"
        );
        fs::write(&file, text).unwrap();
        fs::write(
            directory.path().join("beside.yaml"),
            WEBHOOK.replace("FILE", kubeconfig.to_str().unwrap()),
        )
        .unwrap();
        AdmissionConfiguration::load(&file).map_err(|why| why.to_string())
    }

    #[test]
    fn webhooks_are_configured_inline_or_in_a_file() {
        load(&format!("[{{name: MutatingAdmissionWebhook, configuration: {WEBHOOK}}}]")).unwrap();
        load("[{name: ValidatingAdmissionWebhook, path: beside.yaml}]").unwrap();
        load("[]").unwrap();
    }

    #[test]
    fn unusable_input_is_rejected() {
        let relative = WEBHOOK.replace("FILE", "relative");
        let missing = WEBHOOK.replace("FILE", "/does/not/exist");
        for (plugins, expected) in [
            ("[{name: Priority}]".to_owned(), "plugins[Priority]: the plugin cannot be configured, expected"),
            (
                "[{name: EventRateLimit}]".into(),
                "plugins[EventRateLimit]: this server does not have the plugin",
            ),
            (
                "[{name: PodSecurity, configuration: {apiVersion: v1, kind: X}}]".into(),
                "plugins[PodSecurity]: expected kind PodSecurityConfiguration",
            ),
            ("[{name: ResourceQuota, configuration: {}}]".into(), "plugins[ResourceQuota]: missing field"),
            ("[{name: ValidatingAdmissionWebhook, path: none.yaml}]".into(), "cannot read"),
            (
                "[{name: ValidatingAdmissionWebhook, configuration: {kind: X}}]".into(),
                "expected kind Webhook",
            ),
            (
                format!("[{{name: MutatingAdmissionWebhook, configuration: {relative}}}]"),
                "must be an absolute file path",
            ),
            (format!("[{{name: MutatingAdmissionWebhook, configuration: {missing}}}]"), "/does/not/exist"),
        ] {
            let problem = load(&plugins).unwrap_err();
            assert!(problem.contains(expected), "{plugins}: {problem}");
        }
    }
}
