//! Manager configuration: from a file, then the environment, then flags. Later sources override earlier ones.
//!
//! ```yaml
//! controller:
//!   workers: 5
//!   queueSize: 1000
//!   clientQPS: 50
//!   clientBurst: 100
//!   maxRetries: 5
//!   retryBackoff: "1s-5m"
//! ```
//!
//! Invariants: every setting is in one table, so every key in the file has a flag and a help text. An invalid value is
//! rejected with its key, what was expected and what was given.

mod duration;
#[cfg(feature = "config")]
mod settings;
#[cfg(all(test, feature = "config"))]
mod tests;

#[cfg(feature = "config")]
use std::fmt::Write;
use std::net::SocketAddr;
#[cfg(feature = "config")]
use std::path::Path;
use std::time::Duration;

#[cfg(feature = "config")]
use serde_json::Value;

use crate::leader::{ElectionConfig, InvalidElectionConfig};
#[cfg(feature = "config")]
use settings::{SETTINGS, Setting};

/// The configuration of a manager and its controllers.
///
/// ```
/// use std::time::Duration;
/// use setpoint::config::ControllerConfig;
/// let config = ControllerConfig::from_yaml("
/// controller:
///   workers: 5
///   clientQPS: 50
///   queueConfig: {maxRetries: 5, baseDelay: 1s, maxDelay: 5m}
///   reconcileConfig: {timeout: 30s}
/// ").unwrap();
/// assert_eq!(config.reconcile_config.timeout, Some(Duration::from_secs(30)));
/// let error = ControllerConfig::from_yaml("controller: {workers: many}").unwrap_err();
/// assert_eq!(error.to_string(), "controller.workers: expected a whole number of at least 1, not \"many\"");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// The number of keys that each controller reconciles concurrently.
    pub workers: usize,
    /// The queue length at which the informers that feed the queue stop reading.
    pub queue_size: Option<usize>,
    /// The sustained request rate to the API server, per second.
    pub client_qps: f64,
    /// The number of requests that may exceed the rate in a burst.
    pub client_burst: u32,
    /// The maximum number of concurrent requests.
    pub client_connections: Option<usize>,
    /// The retry settings for failed keys.
    pub queue_config: QueueConfig,
    /// The reconcile settings.
    pub reconcile_config: ReconcileConfig,
    /// The informer settings.
    pub informer_config: InformerConfig,
    /// Whether the number of workers and the request rate adapt to the load.
    pub adaptive: bool,
    /// The leader election settings. With leader election, one of several replicas is active.
    pub leader_election: LeaderElectionConfig,
    /// The sharding settings. With sharding, each of several replicas handles some of the keys.
    pub sharding: ShardingConfig,
    /// The time limit for a graceful shutdown.
    pub shutdown_timeout: Duration,
    /// The address for health checks, metrics and profiles.
    pub bind_address: Option<SocketAddr>,
    /// The trace export settings.
    pub tracing: TracingConfig,
}

/// Retry settings for failed keys.
///
/// ```
/// assert_eq!(setpoint::config::QueueConfig::default().max_delay.as_secs(), 300);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct QueueConfig {
    /// After this many failures in a row, a key is not retried until it changes.
    pub max_retries: Option<u32>,
    /// The delay after the second failure. The first is retried immediately. The delay doubles with each further
    /// failure.
    pub base_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// The maximum number of retries per second, over all keys of a queue.
    pub rate_limiter_qps: Option<f64>,
}

/// Reconcile settings.
///
/// ```
/// assert_eq!(setpoint::config::ReconcileConfig::default().timeout, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconcileConfig {
    /// A reconcile that takes longer is dropped and retried.
    pub timeout: Option<Duration>,
    /// How often every object is reconciled even if nothing changed.
    pub resync_period: Option<Duration>,
    /// The number of workers that a backlog may scale a controller up to.
    pub max_concurrent: usize,
}

/// Informer settings.
///
/// ```
/// assert!(setpoint::config::InformerConfig::default().incremental_sync);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerConfig {
    /// The expected number of objects in a cache. A cache with more is reported.
    pub cache_size: Option<usize>,
    /// The timeout for a list.
    pub list_timeout: Duration,
    /// Whether to use streaming lists if the API server supports them.
    pub incremental_sync: bool,
    /// How often each cache is compared with the API server. `None` disables it.
    pub consistency_check_period: Option<Duration>,
}

/// Trace export settings.
///
/// ```
/// assert_eq!(setpoint::config::TracingConfig::default().endpoint, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracingConfig {
    /// The OTLP/HTTP address of an OpenTelemetry collector. `None` disables trace export.
    pub endpoint: Option<String>,
}

/// How often caches are compared with the API server in debug builds.
const CONSISTENCY_CHECK_PERIOD: Duration = Duration::from_secs(600);

/// Leader election settings. With leader election, one of several replicas is active.
///
/// ```
/// assert!(!setpoint::config::LeaderElectionConfig::default().leader_elect);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionConfig {
    /// Enables leader election.
    pub leader_elect: bool,
    /// How long standbys wait before they take over a lease that is not renewed.
    pub lease_duration: Duration,
    /// How long a leader keeps working after its last successful renewal.
    pub renew_deadline: Duration,
    /// The delay between two attempts.
    pub retry_period: Duration,
    /// The name of the Lease. Defaults to the manager's name.
    pub resource_name: Option<String>,
    /// The namespace of the Lease.
    pub resource_namespace: String,
    /// Whether to release the lease on exit.
    pub release_on_exit: bool,
}

/// Sharding settings. With sharding, each of several replicas handles some of the keys.
///
/// ```
/// assert_eq!(setpoint::config::ShardingConfig::default().shards, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardingConfig {
    /// The number of shards. `None` disables sharding.
    pub shards: Option<u32>,
    /// How keys are assigned to shards.
    pub by: ShardBy,
}

/// How keys are assigned to shards.
///
/// ```
/// use setpoint::config::ShardBy;
/// assert_ne!(ShardBy::Namespace, ShardBy::Hash);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardBy {
    /// By namespace: one replica handles all objects of a namespace.
    Namespace,
    /// By the whole key: the objects of a namespace are spread over replicas too.
    Hash,
}

/// A configuration error.
///
/// ```
/// use setpoint::config::ControllerConfig;
/// let error = ControllerConfig::from_yaml("controller: {worker: 5}").unwrap_err();
/// assert_eq!(error.to_string(), "controller.worker: unknown key; did you mean workers?");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is invalid.
    #[error("{key}: expected {expected}, not {given:?}")]
    Invalid {
        /// The key, flag or environment variable.
        key: String,
        /// The expected value.
        expected: String,
        /// The given value.
        given: String,
    },
    /// There is no such setting.
    #[error("{key}: unknown key{}", suggestion.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    Unknown {
        /// The key or flag.
        key: String,
        /// The setting with the most similar name.
        suggestion: Option<String>,
    },
    /// The file is not valid YAML.
    #[error("the configuration is not YAML: {0}")]
    Syntax(String),
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    File {
        /// The path.
        path: String,
        /// The underlying I/O error.
        #[source]
        source: std::io::Error,
    },
    /// There are arguments that are not settings.
    #[error("unknown arguments {arguments:?}; the settings are\n{help}")]
    Arguments {
        /// The arguments.
        arguments: Vec<String>,
        /// The help text with all settings.
        help: String,
    },
    /// The leader election settings are invalid.
    #[error("controller.{0}")]
    Election(#[from] InvalidElectionConfig),
}

impl Default for ControllerConfig {
    /// Returns defaults for a medium-sized operator.
    fn default() -> Self {
        Self {
            workers: 5,
            queue_size: Some(1000),
            client_qps: 50.0,
            client_burst: 100,
            client_connections: None,
            queue_config: QueueConfig::default(),
            reconcile_config: ReconcileConfig::default(),
            informer_config: InformerConfig::default(),
            adaptive: false,
            leader_election: LeaderElectionConfig::default(),
            sharding: ShardingConfig::default(),
            shutdown_timeout: Duration::from_secs(45),
            bind_address: None,
            tracing: TracingConfig::default(),
        }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        let (base_delay, max_delay) = (Duration::from_secs(1), Duration::from_secs(300));
        Self { max_retries: None, base_delay, max_delay, rate_limiter_qps: None }
    }
}

impl Default for ReconcileConfig {
    fn default() -> Self {
        Self { timeout: None, resync_period: None, max_concurrent: 20 }
    }
}

impl Default for InformerConfig {
    fn default() -> Self {
        Self {
            cache_size: None,
            list_timeout: Duration::from_secs(60),
            incremental_sync: true,
            // An occasional full list costs a test nothing, but a cluster a lot.
            consistency_check_period: cfg!(debug_assertions).then_some(CONSISTENCY_CHECK_PERIOD),
        }
    }
}

impl Default for LeaderElectionConfig {
    /// Disabled, with the durations of Kubernetes' own components.
    fn default() -> Self {
        Self {
            leader_elect: false,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            resource_name: None,
            resource_namespace: "default".into(),
            release_on_exit: true,
        }
    }
}

impl Default for ShardingConfig {
    fn default() -> Self {
        Self { shards: None, by: ShardBy::Hash }
    }
}

#[cfg(feature = "config")]
impl ControllerConfig {
    /// Parses a YAML file, on top of the defaults, and validates the result.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        config.set_yaml(text)?;
        config.validate()?;
        Ok(config)
    }

    /// Applies the file given by `--config`, the environment and the flags of this process on top of this
    /// configuration. Rejects arguments that are not settings, with a help text.
    ///
    /// ```no_run
    /// let config = setpoint::ControllerConfig::leader_elected().with_env().unwrap();
    /// assert!(config.leader_election.leader_elect);
    /// ```
    pub fn with_env(self) -> Result<Self, ConfigError> {
        let (config, rest) = self.load(std::env::args().skip(1), |name| std::env::var(name).ok())?;
        match rest.is_empty() {
            true => Ok(config),
            false => Err(ConfigError::Arguments { arguments: rest, help: Self::help() }),
        }
    }

    /// Applies the file given by `--config`, the environment and the other flags on top of this configuration, and
    /// validates the result. Also returns the arguments that are not settings, unchanged.
    ///
    /// ```
    /// use setpoint::config::ControllerConfig;
    /// let arguments = ["--workers=8", "--crd", "--queue-config-max-retries", "3"].map(String::from);
    /// let environment = |name: &str| (name == "LIST_TIMEOUT").then(|| "5s".into());
    /// let (config, rest) = ControllerConfig::default().load(arguments, environment).unwrap();
    /// assert_eq!((config.workers, config.queue_config.max_retries), (8, Some(3)));
    /// assert_eq!((config.informer_config.list_timeout.as_secs(), rest), (5, vec!["--crd".to_owned()]));
    /// ```
    pub fn load(
        mut self,
        arguments: impl IntoIterator<Item = String>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<String>), ConfigError> {
        let Flags { file, settings, rest } = Flags::of(arguments)?;
        if let Some(path) = file {
            let read = std::fs::read_to_string(Path::new(&path));
            self.set_yaml(&read.map_err(|source| ConfigError::File { path, source })?)?;
        }
        for setting in SETTINGS {
            if let Some((name, value)) = setting.env.and_then(|name| Some((name, environment(name)?))) {
                self.set(setting, name.into(), &value)?;
            }
        }
        for (setting, value) in settings {
            self.set(setting, setting.flag(), &value)?;
        }
        self.validate()?;
        Ok((self, rest))
    }
}

impl ControllerConfig {
    /// Returns the defaults with leader election, so that one of several replicas is active.
    pub fn leader_elected() -> Self {
        let leader_election = LeaderElectionConfig { leader_elect: true, ..LeaderElectionConfig::default() };
        Self { leader_election, ..Self::default() }
    }

    /// Rejects contradictory values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let QueueConfig { base_delay, max_delay, .. } = self.queue_config;
        if base_delay > max_delay {
            let expected = format!("at least queueConfig.baseDelay ({})", duration::show(base_delay));
            return Err(invalid("controller.queueConfig.maxDelay", expected, duration::show(max_delay)));
        }
        let most = self.reconcile_config.max_concurrent;
        if self.adaptive && most < self.workers {
            let expected = format!("at least workers ({})", self.workers);
            return Err(invalid("controller.reconcileConfig.maxConcurrent", expected, most.to_string()));
        }
        if self.leader_election.leader_elect && self.sharding.shards.is_some() {
            let expected = "0 with leaderElection.leaderElect: either one replica works, or each on a part";
            return Err(invalid("controller.sharding.shards", expected.into(), "both".into()));
        }
        Ok(self.election("manager", "identity").validate()?)
    }

    /// Returns the leader election settings for a manager of this name, with this identity.
    pub fn election(&self, manager: &str, identity: &str) -> ElectionConfig {
        let of = &self.leader_election;
        ElectionConfig {
            lease_duration: of.lease_duration,
            renew_deadline: of.renew_deadline,
            retry_period: of.retry_period,
            release_on_exit: of.release_on_exit,
            ..ElectionConfig::new(
                &*of.resource_namespace,
                of.resource_name.as_deref().unwrap_or(manager),
                identity,
            )
        }
    }
}

#[cfg(feature = "config")]
impl ControllerConfig {
    /// Returns a help text with every flag and its default.
    ///
    /// ```
    /// assert!(setpoint::config::ControllerConfig::help().contains("--client-qps"));
    /// ```
    pub fn help() -> String {
        let mut text = String::from("  --config FILE\n        A YAML file with any of the keys below\n");
        let defaults = Self::default();
        for setting in SETTINGS {
            let (flag, value) = (setting.flag(), (setting.show)(&defaults));
            let _ = writeln!(text, "  {flag} ({})", setting.key);
            let variable = setting.env.map(|name| format!(", or {name}")).unwrap_or_default();
            let _ = writeln!(
                text,
                "        {}: {} (default {value:?}{variable})",
                setting.help, setting.expected
            );
        }
        text
    }

    /// Formats the configuration as a YAML file.
    ///
    /// ```
    /// use setpoint::config::ControllerConfig;
    /// let config = ControllerConfig::from_yaml("controller: {workers: 7}").unwrap();
    /// assert_eq!(ControllerConfig::from_yaml(&config.to_yaml()).unwrap(), config);
    /// ```
    pub fn to_yaml(&self) -> String {
        let mut text = String::from("controller:\n");
        let mut section = "";
        for setting in SETTINGS {
            let (level, key) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
            if level != section && !level.is_empty() {
                let _ = writeln!(text, "  {level}:");
            }
            section = level;
            let value = (setting.show)(self);
            if !value.is_empty() {
                let _ = writeln!(text, "{}{key}: {value:?}", if level.is_empty() { "  " } else { "    " });
            }
        }
        text
    }

    fn set_yaml(&mut self, text: &str) -> Result<(), ConfigError> {
        let document: Value =
            serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        // The file may hold the settings under `controller:`, next to the operator's own.
        let settings = document.get("controller").unwrap_or(&document);
        self.set_level("", settings)
    }

    fn set_level(&mut self, prefix: &str, level: &Value) -> Result<(), ConfigError> {
        let entries = match level {
            Value::Null => return Ok(()),
            Value::Object(entries) => entries,
            other => return Err(invalid(&named(prefix), "keys with values".into(), other.to_string())),
        };
        for (name, value) in entries {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            let setting = SETTINGS.iter().find(|setting| setting.key == key);
            let is_level = SETTINGS.iter().any(|setting| setting.key.starts_with(&format!("{key}.")));
            match (setting, value) {
                (Some(_), Value::Null) => {}
                (Some(setting), value) => self.set(setting, named(&key), &scalar(value))?,
                (None, value) if is_level => self.set_level(&key, value)?,
                (None, _) => return Err(unknown(named(&key), &key, |setting| setting.key.into())),
            }
        }
        Ok(())
    }

    fn set(&mut self, setting: &Setting, key: String, value: &str) -> Result<(), ConfigError> {
        let expected = || setting.expected.to_owned();
        (setting.set)(self, value.trim()).ok_or_else(|| invalid(&key, expected(), value.into()))
    }
}

/// Parsed arguments.
#[cfg(feature = "config")]
struct Flags {
    file: Option<String>,
    settings: Vec<(&'static Setting, String)>,
    rest: Vec<String>,
}

#[cfg(feature = "config")]
impl Flags {
    fn of(arguments: impl IntoIterator<Item = String>) -> Result<Self, ConfigError> {
        let mut flags = Self { file: None, settings: Vec::new(), rest: Vec::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (argument.clone(), None),
            };
            let setting = SETTINGS.iter().find(|setting| setting.flag() == name);
            if setting.is_none() && name != "--config" {
                flags.rest.push(argument);
                continue;
            }
            let expected = setting.map_or("a file", |setting| setting.expected);
            let given = value.or_else(|| arguments.next());
            let value = given.ok_or_else(|| invalid(&name, expected.into(), String::new()))?;
            match setting {
                Some(setting) => flags.settings.push((setting, value)),
                None => flags.file = Some(value),
            }
        }
        Ok(flags)
    }
}

#[cfg(feature = "config")]
fn named(key: &str) -> String {
    if key.is_empty() { "controller".into() } else { format!("controller.{key}") }
}

#[cfg(feature = "config")]
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn invalid(key: &str, expected: String, given: String) -> ConfigError {
    ConfigError::Invalid { key: key.into(), expected, given }
}

/// Builds the error for an unknown key, with the most similar setting as a suggestion.
#[cfg(feature = "config")]
fn unknown(key: String, wanted: &str, name: impl Fn(&Setting) -> String) -> ConfigError {
    let names = SETTINGS.iter().map(name);
    let closest = names.map(|name| (distance(wanted, &name), name)).min();
    // If more than a third of the letters differ, the name is too different to suggest.
    let near = closest.filter(|(apart, name)| *apart <= name.len() / 3);
    ConfigError::Unknown { key, suggestion: near.map(|(_, name)| name) }
}

/// Returns the edit distance of two names, ignoring case.
#[cfg(feature = "config")]
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let kept = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = row[j + 1];
            row[j + 1] = kept.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}
