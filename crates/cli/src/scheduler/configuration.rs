//! KubeSchedulerConfiguration (`kubescheduler.config.k8s.io/v1`): what is supported of it.
//!
//! There is one profile, v1.34's default one. A file may say so explicitly. Everything else it asks for is an error that
//! names the field: a scheduler that ignores a plugin or an extender would place pods where they must not be.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_controllers::flags::duration;

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";
const SCHEDULER: &str = "default-scheduler";

/// The configuration, with v1.34's defaults.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Configuration {
    pub(super) leader_election: LeaderElection,
    pub(super) client_connection: ClientConnection,
    pub(super) enable_profiling: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeaderElection {
    pub(super) leader_elect: bool,
    pub(super) lease_duration: Duration,
    pub(super) renew_deadline: Duration,
    pub(super) retry_period: Duration,
    pub(super) resource_name: String,
    pub(super) resource_namespace: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClientConnection {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) qps: f64,
    pub(super) burst: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection { kubeconfig: None, qps: 50.0, burst: 100 },
            enable_profiling: true,
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: "kube-scheduler".into(),
            resource_namespace: "kube-system".into(),
        }
    }
}

/// The file. A field that is missing has its default.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    api_version: String,
    kind: String,
    parallelism: Option<i64>,
    leader_election: Option<WrittenElection>,
    client_connection: Option<WrittenConnection>,
    enable_profiling: Option<bool>,
    /// Blocked profiles are not served, whatever it says.
    #[serde(rename = "enableContentionProfiling")]
    _contention: Option<bool>,
    percentage_of_nodes_to_score: Option<i64>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    profiles: Option<Vec<WrittenProfile>>,
    extenders: Option<Vec<Value>>,
    delay_cache_until_active: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WrittenElection {
    leader_elect: Option<bool>,
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WrittenConnection {
    kubeconfig: Option<PathBuf>,
    /// Requests are always JSON.
    #[serde(rename = "acceptContentTypes")]
    _accept: Option<String>,
    #[serde(rename = "contentType")]
    _content: Option<String>,
    qps: Option<f64>,
    burst: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WrittenProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    plugins: Option<Value>,
    plugin_config: Option<Vec<Value>>,
}

impl Configuration {
    /// Parses a file. Rejects what is not supported.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let written: Written = serde_saphyr::from_str(text).context("it is not a valid configuration")?;
        let found = (&*written.api_version, &*written.kind);
        ensure!(
            found == (API_VERSION, KIND),
            "it is {} of {:?}, expected {KIND} of {API_VERSION:?}",
            if found.1.is_empty() { "no kind" } else { found.1 },
            found.0,
        );
        written.check()?;
        let usual = Self::default();
        Ok(Self {
            leader_election: written.leader_election.unwrap_or_default().read(usual.leader_election)?,
            client_connection: written.client_connection.unwrap_or_default().read(usual.client_connection)?,
            enable_profiling: written.enable_profiling.unwrap_or(usual.enable_profiling),
        })
    }

    /// Returns the configuration as `/configz` shows it.
    pub(super) fn shown(&self) -> Value {
        let (election, connection) = (&self.leader_election, &self.client_connection);
        let seconds = |duration: Duration| format!("{}s", duration.as_secs_f64());
        json!({
            "LeaderElection": {
                "LeaderElect": election.leader_elect,
                "LeaseDuration": seconds(election.lease_duration),
                "RenewDeadline": seconds(election.renew_deadline),
                "RetryPeriod": seconds(election.retry_period),
                "ResourceLock": "leases",
                "ResourceName": election.resource_name,
                "ResourceNamespace": election.resource_namespace,
            },
            "ClientConnection": {"QPS": connection.qps, "Burst": connection.burst},
            "EnableProfiling": self.enable_profiling,
            "Profiles": [{"SchedulerName": SCHEDULER}],
        })
    }
}

impl Written {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.parallelism.is_none_or(|n| n > 0), "parallelism: expected a number greater than zero");
        all_nodes("percentageOfNodesToScore", self.percentage_of_nodes_to_score)?;
        usual("podInitialBackoffSeconds", self.pod_initial_backoff_seconds, 1)?;
        usual("podMaxBackoffSeconds", self.pod_max_backoff_seconds, 10)?;
        ensure!(
            self.extenders.as_ref().is_none_or(Vec::is_empty),
            "extenders: not supported, expected none: pods would be placed without asking them"
        );
        ensure!(
            !self.delay_cache_until_active,
            "delayCacheUntilActive: only false is supported: standbys keep their caches up to date"
        );
        let profiles = self.profiles.as_deref().unwrap_or_default();
        ensure!(profiles.len() <= 1, "profiles: {} are not supported, expected one", profiles.len());
        profiles.first().map_or(Ok(()), WrittenProfile::check)
    }
}

impl WrittenProfile {
    fn check(&self) -> anyhow::Result<()> {
        let name = self.scheduler_name.as_deref().unwrap_or(SCHEDULER);
        ensure!(
            name == SCHEDULER,
            "profiles[0].schedulerName: {name:?} is not supported, expected {SCHEDULER:?}"
        );
        all_nodes("profiles[0].percentageOfNodesToScore", self.percentage_of_nodes_to_score)?;
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        ensure!(
            self.plugins.as_ref().is_none_or(is_empty),
            "profiles[0].plugins: not supported, expected none: the plugins are those of the default profile"
        );
        let configured = self.plugin_config.iter().flatten().next();
        let plugin = configured.and_then(|config| config.get("name")).and_then(Value::as_str);
        ensure!(
            configured.is_none(),
            "profiles[0].pluginConfig: arguments of {} are not supported, expected none: plugins have their default \
             arguments",
            plugin.unwrap_or("a plugin")
        );
        Ok(())
    }
}

impl WrittenElection {
    fn read(self, usual: LeaderElection) -> anyhow::Result<LeaderElection> {
        let lock = self.resource_lock.unwrap_or_else(|| "leases".into());
        ensure!(
            lock == "leases",
            "leaderElection.resourceLock: {lock:?} is not supported, expected \"leases\""
        );
        let parsed = |field: &str, written: Option<String>, usual: Duration| match written {
            None => Ok(usual),
            Some(text) => {
                duration(&text).map_err(|why| anyhow::anyhow!("leaderElection.{field}: {text:?}: {why}"))
            }
        };
        Ok(LeaderElection {
            leader_elect: self.leader_elect.unwrap_or(usual.leader_elect),
            lease_duration: parsed("leaseDuration", self.lease_duration, usual.lease_duration)?,
            renew_deadline: parsed("renewDeadline", self.renew_deadline, usual.renew_deadline)?,
            retry_period: parsed("retryPeriod", self.retry_period, usual.retry_period)?,
            resource_name: self.resource_name.unwrap_or(usual.resource_name),
            resource_namespace: self.resource_namespace.unwrap_or(usual.resource_namespace),
        })
    }
}

impl WrittenConnection {
    fn read(self, usual: ClientConnection) -> anyhow::Result<ClientConnection> {
        Ok(ClientConnection {
            // client-go reads an empty one like a missing one.
            kubeconfig: self.kubeconfig.filter(|path| !path.as_os_str().is_empty()),
            // Zero means the default, and a negative one no limit.
            qps: self.qps.filter(|qps| *qps != 0.0).unwrap_or(usual.qps),
            burst: self.burst.filter(|burst| *burst != 0).unwrap_or(usual.burst),
        })
    }
}

/// Every node is scored, which is what 100 asks for. 0 leaves the choice to the scheduler.
fn all_nodes(field: &str, percentage: Option<i64>) -> anyhow::Result<()> {
    let percentage = percentage.unwrap_or(0);
    ensure!(
        matches!(percentage, 0 | 100),
        "{field}: {percentage} is not supported, expected 0 or 100: every node is scored"
    );
    Ok(())
}

fn usual(field: &str, seconds: Option<i64>, usual: i64) -> anyhow::Result<()> {
    let seconds = seconds.unwrap_or(usual);
    ensure!(seconds == usual, "{field}: {seconds} is not supported, expected {usual}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(fields: &str) -> Result<Configuration, String> {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
        Configuration::parse(&text).map_err(|why| format!("{why:#}"))
    }

    #[test]
    fn a_file_that_says_the_defaults_is_the_default() {
        let usual = Configuration::default();
        assert_eq!(parse(""), Ok(usual.clone()));
        let explicit = "
parallelism: 16
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
  resourceLock: leases
  resourceName: kube-scheduler
  resourceNamespace: kube-system
clientConnection:
  acceptContentTypes: ''
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: ''
  qps: 50
  burst: 100
enableProfiling: true
enableContentionProfiling: true
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles: [{schedulerName: default-scheduler, plugins: {}, pluginConfig: []}]
extenders: []
delayCacheUntilActive: false
";
        assert_eq!(parse(explicit), Ok(usual));
    }

    #[test]
    fn what_a_file_says_is_used() {
        let file = "
leaderElection: {leaderElect: false, leaseDuration: 1m, resourceName: mine}
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 5, burst: 7}
enableProfiling: false
";
        let expected = Configuration {
            leader_election: LeaderElection {
                leader_elect: false,
                lease_duration: Duration::from_secs(60),
                resource_name: "mine".into(),
                ..LeaderElection::default()
            },
            client_connection: ClientConnection {
                kubeconfig: Some("/etc/kubernetes/scheduler.conf".into()),
                qps: 5.0,
                burst: 7,
            },
            enable_profiling: false,
        };
        assert_eq!(parse(file), Ok(expected));
    }

    #[test]
    fn what_is_not_supported_is_rejected_by_its_field() {
        for (file, expected) in [
            ("parallelism: 0", "parallelism: expected a number greater than zero"),
            ("percentageOfNodesToScore: 30", "percentageOfNodesToScore: 30 is not supported"),
            ("podMaxBackoffSeconds: 60", "podMaxBackoffSeconds: 60 is not supported, expected 10"),
            ("extenders: [{urlPrefix: http://a}]", "extenders: not supported"),
            ("delayCacheUntilActive: true", "delayCacheUntilActive: only false"),
            ("profiles: [{}, {schedulerName: b}]", "profiles: 2 are not supported"),
            ("profiles: [{schedulerName: mine}]", "profiles[0].schedulerName: \"mine\""),
            (
                "profiles: [{plugins: {score: {disabled: [{name: '*'}]}}}]",
                "profiles[0].plugins: not supported",
            ),
            (
                "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {}}]}]",
                "profiles[0].pluginConfig: arguments of NodeResourcesFit",
            ),
            ("leaderElection: {resourceLock: endpoints}", "leaderElection.resourceLock: \"endpoints\""),
            ("leaderElection: {retryPeriod: soon}", "leaderElection.retryPeriod: \"soon\""),
            ("profile: []", "profile"),
            ("clientConnection: {speed: 3}", "speed"),
        ] {
            let why = parse(file).unwrap_err();
            assert!(why.contains(expected), "{file}: {why}");
        }
        let other = Configuration::parse(
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration",
        );
        let why = other.unwrap_err().to_string();
        assert!(
            why.contains("expected KubeSchedulerConfiguration of \"kubescheduler.config.k8s.io/v1\""),
            "{why}"
        );
    }
}
