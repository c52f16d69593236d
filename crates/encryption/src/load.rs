//! Loads the configuration, reloads it when its file changes, and tracks the health of its KMS plugins.
//!
//! A new configuration takes effect only if it is valid and its plugins are healthy. Otherwise the old one stays
//! active.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use setpoint_clock::{Clock, Rng};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::aes_cbc::Block;
use crate::aes_gcm::Gcm;
use crate::cipher::{Cipher, Keyed};
use crate::config::{self, EncryptionConfiguration, Key, KmsConfiguration, ProviderConfiguration};
use crate::kms::envelope::EnvelopeTransformer;
use crate::kms::grpc::Plugin;
use crate::kms::hash;
use crate::kms::probe::Probe;
use crate::metrics::Metrics;
use crate::prefix::{PrefixTransformers, Prefixed};
use crate::secretbox::Secretbox;
use crate::{GroupResource, Identity, KeyTag, TransformError, Transformer, Transformers};

/// How often the file is checked.
const POLL: Duration = Duration::from_secs(60);
/// The delay after the first failed reload. It doubles with each further one.
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// The minimum time the plugins of a new configuration have to become healthy, and how often they are polled.
const MIN_GRACE: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// v1.34's error for KMS v1, whose feature gate is off by default.
const KMS_V1: &str = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set \
                      --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.";
const NO_PROVIDER: &str =
    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity";

/// Where and how to load the configuration.
pub struct Options {
    pub file: PathBuf,
    /// Whether to apply changes of the file.
    pub reload: bool,
    /// The server's identity in metrics.
    pub server: String,
    pub clock: Clock,
    pub rng: Rng,
}

/// An error while loading a configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("error while parsing file: {0}")]
    Parse(String),
    #[error("error while building transformers: {0}")]
    Build(String),
    #[error("health check for new transformers failed: {0}")]
    Unhealthy(String),
}

/// Encryption at rest, as configured. Dropping it stops its background tasks.
pub struct Encryption {
    options: Options,
    metrics: Arc<Metrics>,
    current: RwLock<Arc<Loaded>>,
}

/// A loaded configuration.
struct Loaded {
    hash: String,
    transformers: BTreeMap<GroupResource, Arc<dyn Transformer>>,
    probes: Vec<Arc<Probe>>,
    /// Twice the timeouts of all plugins.
    grace: Duration,
    /// Stops the probes.
    _stop: DropGuard,
}

/// A transformer, and the prefix of its values.
type NamedTransformer = (String, Arc<dyn Transformer>);

impl Encryption {
    /// Loads the file. Probes each KMS plugin once. Plugins that do not respond are retried in the background.
    pub async fn load(options: Options) -> Result<Self, LoadError> {
        let metrics = Arc::new(Metrics::new(&options.server));
        let (text, hash) = read(&options).await?;
        let loaded = Loader { options: &options, metrics: &metrics }.load(&text, hash).await?;
        metrics.configured(&loaded.hash);
        Ok(Self { options, metrics, current: RwLock::new(Arc::new(loaded)) })
    }

    /// Returns whether there is a `kms-providers` health check: if there are KMS plugins, and always if the file is
    /// reloaded.
    pub fn has_health_check(&self) -> bool {
        self.options.reload || !self.current().probes.is_empty()
    }

    /// Checks the health of all plugins.
    pub async fn check(&self) -> Result<(), String> {
        check(&self.current().probes).await
    }

    /// Applies changes of the file until `stop` is cancelled, if enabled in the options.
    pub async fn follow_file(&self, stop: CancellationToken) {
        if !self.options.reload {
            return;
        }
        let mut wait = POLL;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.options.clock.sleep(wait) => {}
            }
            let reloaded = tokio::select! {
                () = stop.cancelled() => return,
                reloaded = self.reload() => reloaded,
            };
            wait = match reloaded {
                Ok(()) => POLL,
                Err(error) => {
                    tracing::error!(file = %self.options.file.display(), %error, "error processing encryption config file");
                    self.metrics.reloaded(false, self.options.clock.now());
                    if wait == POLL { FIRST_RETRY } else { (wait * 2).min(POLL / 2) }
                }
            };
        }
    }

    /// Applies the file's configuration if it has changed.
    pub(crate) async fn reload(&self) -> Result<(), LoadError> {
        let (text, hash) = read(&self.options).await?;
        if hash == self.current().hash {
            return Ok(());
        }
        let loaded = Loader { options: &self.options, metrics: &self.metrics }.load(&text, hash).await?;
        self.wait_until_healthy(&loaded).await?;
        self.metrics.configured(&loaded.hash);
        let old = std::mem::replace(&mut *self.current.write(), Arc::new(loaded));
        // Reads in progress keep the old configuration's transformers. Only its probes end here.
        drop(old);
        self.metrics.reloaded(true, self.options.clock.now());
        tracing::info!(file = %self.options.file.display(), "loaded new encryption config content");
        Ok(())
    }

    async fn wait_until_healthy(&self, loaded: &Loaded) -> Result<(), LoadError> {
        let mut last = String::new();
        let poll = async {
            while let Err(error) = check(&loaded.probes).await {
                last = error;
                self.options.clock.sleep(ASK_AGAIN_AFTER).await;
            }
        };
        match tokio::time::timeout(loaded.grace.max(MIN_GRACE), poll).await {
            Ok(()) => Ok(()),
            Err(_) => Err(LoadError::Unhealthy(last)),
        }
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }

    fn current(&self) -> Arc<Loaded> {
        self.current.read().clone()
    }
}

impl Transformers for Encryption {
    fn transformer(&self, resource: &GroupResource) -> Arc<dyn Transformer> {
        self.current().transformer(resource)
    }
}

impl Loaded {
    /// Returns the transformer for the resource, its group or everything, in that order. Defaults to identity.
    fn transformer(&self, resource: &GroupResource) -> Arc<dyn Transformer> {
        let own = self.transformers.get(resource);
        let group = || self.transformers.get(&GroupResource::new(resource.group.as_str(), "*"));
        let everything = || self.transformers.get(&GroupResource::new("*", "*"));
        own.or_else(group).or_else(everything).cloned().unwrap_or_else(|| Arc::new(Identity))
    }
}

async fn check(probes: &[Arc<Probe>]) -> Result<(), String> {
    let mut errors = Vec::new();
    for (at, probe) in probes.iter().enumerate() {
        if let Err(error) = probe.check().await {
            errors.push(format!("kms-provider-{at}: {error}"));
        }
    }
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.swap_remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

/// Reads the file and computes its hash.
async fn read(options: &Options) -> Result<(String, String), LoadError> {
    let file = options.file.display().to_string();
    let failed = |why: String| LoadError::Parse(format!("error while loading file: {why}"));
    let data = tokio::fs::read(&options.file).await.map_err(|error| {
        failed(format!("error reading encryption provider configuration file {file:?}: {error}"))
    })?;
    if data.is_empty() {
        return Err(failed(format!("encryption provider configuration file {file:?} is empty")));
    }
    let hash = hash(&data);
    let text = String::from_utf8(data)
        .map_err(|_| failed(format!("encryption provider configuration file {file:?} is not UTF-8")))?;
    Ok((text, hash))
}

/// Builds what a configuration describes.
struct Loader<'a> {
    options: &'a Options,
    metrics: &'a Arc<Metrics>,
}

/// The parts built so far.
#[derive(Default)]
struct Built {
    probes: Vec<Arc<Probe>>,
    timeouts: Duration,
    stop: CancellationToken,
}

impl Loader<'_> {
    async fn load(&self, text: &str, hash: String) -> Result<Loaded, LoadError> {
        let configuration = self.parse(text).map_err(LoadError::Parse)?;
        let mut built = Built::default();
        // Stops what has been started if the rest fails.
        let stop = built.stop.clone().drop_guard();
        let transformers = self.build(&configuration, &mut built).await.map_err(LoadError::Build)?;
        let grace = built.timeouts.saturating_mul(2);
        Ok(Loaded { hash, transformers, probes: built.probes, grace, _stop: stop })
    }

    fn parse(&self, text: &str) -> Result<EncryptionConfiguration, String> {
        let configuration = config::parse(text).map_err(|why| {
            format!(
                "error decoding encryption provider configuration file {:?}: {why}",
                self.options.file.display().to_string()
            )
        })?;
        let mut errors = config::validate(&configuration, self.options.reload);
        match errors.len() {
            0 => Ok(configuration),
            1 => Err(errors.swap_remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }

    async fn build(
        &self,
        configuration: &EncryptionConfiguration,
        built: &mut Built,
    ) -> Result<BTreeMap<GroupResource, Arc<dyn Transformer>>, String> {
        let mut by_resource: BTreeMap<GroupResource, Vec<NamedTransformer>> = BTreeMap::new();
        for of in &configuration.resources {
            let mut transformers = Vec::new();
            for provider in &of.providers {
                transformers.push(self.provider(provider, built).await?);
            }
            for resource in of.resources.iter().map(|name| GroupResource::parse(name)) {
                check_masked(&resource, &by_resource)?;
                by_resource.entry(resource).or_default().extend(transformers.iter().cloned());
            }
        }
        let joined = by_resource.into_iter().filter_map(|(resource, transformers)| {
            let transformers = transformers
                .into_iter()
                .map(|(prefix, transformer)| Prefixed { prefix, transformer })
                .collect();
            Some((resource, self.choice(transformers, "no matching prefix found")?))
        });
        Ok(joined.collect())
    }

    fn choice(&self, among: Vec<Prefixed>, unmatched: &'static str) -> Option<Arc<dyn Transformer>> {
        let choice = PrefixTransformers::new(among, unmatched, &self.options.clock, self.metrics)?;
        Some(Arc::new(choice))
    }

    /// Builds a provider's transformer, and returns it with the prefix of its values.
    async fn provider(
        &self,
        provider: &ProviderConfiguration,
        built: &mut Built,
    ) -> Result<NamedTransformer, String> {
        const NO_AES_KEY: &str = "no matching key was found for the provided AES transformer";
        const NO_SECRETBOX_KEY: &str = "no matching key was found for the provided Secretbox transformer";
        if let Some(keys) = &provider.aesgcm {
            self.keys("k8s:enc:aesgcm:v1:", keys, NO_AES_KEY, Gcm::new)
        } else if let Some(keys) = &provider.aescbc {
            self.keys("k8s:enc:aescbc:v1:", keys, NO_AES_KEY, Block::new)
        } else if let Some(keys) = &provider.secretbox {
            self.keys("k8s:enc:secretbox:v1:", keys, NO_SECRETBOX_KEY, Secretbox::new)
        } else if let Some(kms) = &provider.kms {
            self.kms(kms, built).await
        } else if provider.identity {
            Ok((String::new(), Arc::new(Identity)))
        } else {
            Err(NO_PROVIDER.into())
        }
    }

    fn keys<C: Cipher>(
        &self,
        prefix: &str,
        keys: &[Key],
        unmatched: &'static str,
        make: impl Fn(&[u8]) -> Result<C, TransformError>,
    ) -> Result<NamedTransformer, String> {
        let mut among = Vec::new();
        for key in keys {
            let name = &key.name;
            let secret =
                key.bytes().ok_or_else(|| format!("could not obtain secret for named key {name}"))?;
            let tag = KeyTag::of_secret(&format!("{prefix}{name}:"), &secret);
            let cipher = make(&secret)
                .map_err(|error| format!("error while creating transformer for named key {name}: {error}"))?;
            let transformer = Arc::new(Keyed { cipher, tag });
            among.push(Prefixed { prefix: format!("{name}:"), transformer });
        }
        let choice = self.choice(among, unmatched).ok_or("the provider has no valid keys")?;
        Ok((prefix.to_owned(), choice))
    }

    /// Probes the plugin once, then starts polling it.
    async fn kms(&self, kms: &KmsConfiguration, built: &mut Built) -> Result<NamedTransformer, String> {
        if kms.api_version == "v1" {
            return Err(KMS_V1.into());
        }
        let timeout = kms.timeout.duration.ok_or("timeout should be a positive value")?;
        let Options { clock, rng, .. } = self.options;
        let plugin = Arc::new(Plugin::new(&kms.name, &kms.endpoint, timeout, clock, self.metrics));
        let probe = Arc::new(Probe::new(plugin.clone(), clock, rng, self.metrics));
        let primed = probe.check().await;
        if let Err(error) = &primed {
            tracing::error!(name = kms.name, error, "kms plugin failed health check probe");
        }
        let (running, stop) = (probe.clone(), built.stop.clone());
        tokio::spawn(async move { running.run(stop, primed.is_ok()).await });
        built.probes.push(probe.clone());
        built.timeouts = built.timeouts.saturating_add(timeout);
        let prefix = format!("k8s:enc:kms:v2:{}:", kms.name);
        let transformer = EnvelopeTransformer::new(plugin, probe, &prefix, clock, rng, self.metrics);
        Ok((prefix, Arc::new(transformer)))
    }
}

/// Rejects a rule that an earlier one for the whole group, or for everything, would mask.
fn check_masked<T>(resource: &GroupResource, earlier: &BTreeMap<GroupResource, T>) -> Result<(), String> {
    for rule in [GroupResource::new(resource.group.as_str(), "*"), GroupResource::new("*", "*")] {
        if earlier.contains_key(&rule) {
            return Err(format!(
                "resource {:?} is masked by earlier rule {:?}",
                resource.in_yaml(),
                rule.in_yaml()
            ));
        }
    }
    Ok(())
}
