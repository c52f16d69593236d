//! Keeps the seed for writes in sync with the plugin's key, and tracks the plugin's health.
//!
//! Reads may use the last seed forever. Writes may use it while the plugin is healthy, and for [`WRITE_TTL`] after
//! that. So shortly after a key rotation, every write uses the new key or fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::RwLock;
use setpoint_clock::{Clock, Instant, Rng};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::grpc::Plugin;
use super::hash;
use super::messages::{
    DekSourceType, EncryptRequest, EncryptResponse, EncryptedObject, StatusRequest, StatusResponse,
};
use super::object::validate_key_id;
use crate::extended_nonce::{SEED, Seed};
use crate::metrics::Metrics;
use crate::{TransformError, random};

/// How often the plugin is polled, while healthy and while unhealthy.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(60);
const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(10);
/// How long writes continue after the plugin was last healthy.
const WRITE_TTL: Duration = Duration::from_secs(3 * 60);
/// How long the result of a health check is reused.
const HEALTHY_TTL: Duration = Duration::from_secs(20);
const UNHEALTHY_TTL: Duration = Duration::from_secs(3);

/// The seed for writes, and what is stored with the values.
pub(crate) struct State {
    pub(crate) seed: Arc<Seed>,
    pub(crate) key_id: String,
    pub(crate) encrypted_source: Vec<u8>,
    pub(crate) annotations: BTreeMap<String, Vec<u8>>,
    pub(crate) cache_key: [u8; 32],
    /// The time after which writes fail.
    pub(crate) expires: Timestamp,
}

impl State {
    pub(crate) fn check_writable(&self, now: Timestamp) -> Result<(), TransformError> {
        if now <= self.expires {
            return Ok(());
        }
        Err(TransformError::new(format!(
            "encryptedDEKSource with keyID hash {:?} expired at {} (current time is {})",
            hash(self.key_id.as_bytes()),
            seconds(self.expires),
            seconds(now),
        )))
    }
}

fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The result and time of a health check.
struct ProbeResult {
    at: Instant,
    result: Result<(), String>,
}

pub(crate) struct Probe {
    plugin: Arc<Plugin>,
    state: RwLock<Option<Arc<State>>>,
    last: Mutex<Option<ProbeResult>>,
    /// The API version of the first response. It must not change.
    version: RwLock<Option<String>>,
    clock: Clock,
    rng: Rng,
    metrics: Arc<Metrics>,
}

impl Probe {
    pub(crate) fn new(plugin: Arc<Plugin>, clock: &Clock, rng: &Rng, metrics: &Arc<Metrics>) -> Self {
        Self {
            plugin,
            state: RwLock::default(),
            last: Mutex::default(),
            version: RwLock::default(),
            clock: clock.clone(),
            rng: rng.clone(),
            metrics: metrics.clone(),
        }
    }

    /// Returns the last good state.
    pub(crate) fn state(&self) -> Result<Arc<State>, TransformError> {
        self.state.read().clone().ok_or_else(|| TransformError::new("got unexpected nil transformer"))
    }

    /// Checks whether the plugin is healthy. Reuses a recent result.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some(found) = &*last {
            let ttl = if found.result.is_ok() { HEALTHY_TTL } else { UNHEALTHY_TTL };
            if found.at.elapsed() < ttl {
                return found.result.clone();
            }
        }
        let result = self.ask().await;
        *last = Some(ProbeResult { at: self.clock.instant(), result: result.clone() });
        result
    }

    /// Polls the plugin until stopped.
    pub(crate) async fn run(&self, stop: CancellationToken, mut is_healthy: bool) {
        loop {
            let interval = if is_healthy { HEALTHY_INTERVAL } else { UNHEALTHY_INTERVAL };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(interval) => {}
            }
            let checked = self.check().await;
            is_healthy = checked.is_ok();
            if let Err(error) = checked {
                tracing::error!(name = self.plugin.name(), error, "kms plugin failed health check probe");
            }
        }
    }

    async fn ask(&self) -> Result<(), String> {
        let name = self.plugin.name();
        let status = self.plugin.call::<StatusResponse>("Status", &StatusRequest {}).await.map_err(|error| {
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")
        })?;
        let problems = self.consider(&status).await;
        match &problems[..] {
            [] => Ok(()),
            [problem] => Err(format!("kmsv2 Provider {name} is not healthy, error: {problem}")),
            _ => Err(format!("kmsv2 Provider {name} is not healthy, error: [{}]", problems.join(", "))),
        }
    }

    /// Returns the problems with a status response. Renews the seed if the key has changed.
    async fn consider(&self, status: &StatusResponse) -> Vec<String> {
        let mut problems = Vec::new();
        if status.healthz != "ok" {
            problems.push(format!("got unexpected healthz status: {}", status.healthz));
        }
        problems.extend(self.problem_of_version(&status.version));
        let name = self.plugin.name();
        match validate_key_id(&status.key_id) {
            Err((code, why)) => {
                self.metrics.invalid_key_id(name, code);
                problems.push(format!(
                    "got invalid KMSv2 KeyID hash {:?}: {why}",
                    hash(status.key_id.as_bytes())
                ));
            }
            Ok(()) => {
                self.metrics.key_id_from_status(name, &status.key_id, self.clock.now());
                problems.extend(self.follow_key(&status.key_id).await.err());
            }
        }
        problems
    }

    fn problem_of_version(&self, version: &str) -> Option<String> {
        if version != "v2" && version != "v2beta1" {
            return Some(format!("expected KMSv2 API version v2, got {version}"));
        }
        let mut first = self.version.write();
        let first = first.get_or_insert_with(|| version.to_owned());
        (first != version).then(|| {
            format!(
                "KMSv2 API version should not change after the initial status response version {first}, got {version}"
            )
        })
    }

    /// Switches to the plugin's key: extends the current state if it has that key, otherwise generates a new seed.
    async fn follow_key(&self, key_id: &str) -> Result<(), String> {
        // Computed before the call, so that it is an upper bound.
        let expires = self.clock.now().saturating_add(WRITE_TTL).unwrap_or(Timestamp::MAX);
        let current = self.state().ok();
        if let Some(state) = current.as_ref().filter(|state| state.key_id == key_id) {
            self.extend(state, expires);
            return Ok(());
        }
        let uid = self.rng.uid().to_string();
        let failed = |why: &str, encrypt_key_id: &str| {
            format!(
                "failed to rotate DEK uid={uid:?}, errGen={why}, statusKeyIDHash={:?}, encryptKeyIDHash={:?}, \
                 stateKeyIDHash={:?}",
                hash(key_id.as_bytes()),
                hash(encrypt_key_id.as_bytes()),
                hash(current.as_ref().map_or("", |state| &state.key_id).as_bytes()),
            )
        };
        let state = self.generate(&uid, expires).await.map_err(|error| failed(&error.to_string(), ""))?;
        if state.key_id != key_id {
            return Err(failed("<nil>", &state.key_id));
        }
        tracing::info!(
            name = self.plugin.name(),
            uid,
            new_key_id_hash = hash(key_id.as_bytes()),
            "successfully rotated DEK"
        );
        *self.state.write() = Some(Arc::new(state));
        Ok(())
    }

    fn extend(&self, state: &State, expires: Timestamp) {
        let (seed, key_id) = (state.seed.clone(), state.key_id.clone());
        let (encrypted_source, annotations) = (state.encrypted_source.clone(), state.annotations.clone());
        let cache_key = state.cache_key;
        let state = State { seed, key_id, encrypted_source, annotations, cache_key, expires };
        *self.state.write() = Some(Arc::new(state));
    }

    /// Generates a new seed and has the plugin encrypt it.
    async fn generate(&self, uid: &str, expires: Timestamp) -> Result<State, TransformError> {
        let start = self.clock.instant();
        let mut seed = vec![0; SEED];
        let filled = random::fill(&mut seed);
        self.metrics.data_key_generated(start.elapsed(), filled.is_ok());
        filled?;
        let request = EncryptRequest { plaintext: seed.clone(), uid: uid.to_owned() };
        let response = self.plugin.call::<EncryptResponse>("Encrypt", &request).await;
        let response = response.map_err(|error| error.during("failed to encrypt DEK"))?;
        let object = EncryptedObject {
            encrypted_data: Vec::new(),
            key_id: response.key_id,
            encrypted_dek_source: response.ciphertext,
            annotations: response.annotations,
            encrypted_dek_source_type: DekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
        };
        object.validate_source()?;
        let cache_key = object.cache_key();
        let EncryptedObject { key_id, encrypted_dek_source: encrypted_source, annotations, .. } = object;
        Ok(State {
            seed: Arc::new(Seed::new(seed)?),
            key_id,
            encrypted_source,
            annotations,
            cache_key,
            expires,
        })
    }
}
