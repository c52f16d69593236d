//! Envelope encryption: values are encrypted with data keys that a KMS plugin protects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prost::Message;
use setpoint_clock::{Clock, Rng};

use super::grpc::Plugin;
use super::messages::{DecryptRequest, DecryptResponse, DekSourceType, EncryptedObject};
use super::probe::{Probe, State};
use crate::aes_gcm::Gcm;
use crate::cipher::Cipher;
use crate::extended_nonce::Seed;
use crate::metrics::{Direction, Metrics};
use crate::{Context, KeyTag, Opened, Purpose, TransformError, Transformer};

/// The number of cached DEK sources. There is one per key and per server start since all values were last rewritten, so
/// thousands are plenty. An entry takes some 100 bytes, or 1 KiB as an AES key.
const CACHED: usize = 4096;

/// A decrypted DEK source.
type Dek = Arc<dyn Cipher>;

/// Decrypted DEK sources by [`EncryptedObject::cache_key`]. The oldest is evicted first.
#[derive(Default)]
struct Cache {
    deks: BTreeMap<[u8; 32], Dek>,
    order: VecDeque<[u8; 32]>,
}

impl Cache {
    fn insert(&mut self, key: [u8; 32], dek: Dek) {
        if self.deks.insert(key, dek).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > CACHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.deks.remove(&oldest);
        }
    }
}

/// Envelope encryption with one plugin.
pub(crate) struct EnvelopeTransformer {
    plugin: Arc<Plugin>,
    probe: Arc<Probe>,
    prefix: String,
    cache: Mutex<Cache>,
    clock: Clock,
    rng: Rng,
    metrics: Arc<Metrics>,
}

impl EnvelopeTransformer {
    /// `prefix` is the prefix of the stored values.
    pub(crate) fn new(
        plugin: Arc<Plugin>,
        probe: Arc<Probe>,
        prefix: &str,
        clock: &Clock,
        rng: &Rng,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            plugin,
            probe,
            prefix: prefix.to_owned(),
            cache: Mutex::default(),
            clock: clock.clone(),
            rng: rng.clone(),
            metrics: metrics.clone(),
        }
    }

    async fn read(&self, data: &[u8], context: &Context<'_>) -> Result<Opened, TransformError> {
        let object = EncryptedObject::decode(data).map_err(|error| TransformError::new(error.to_string()))?;
        object.validate()?;
        let source_type = object.source_type()?;
        // Do not call a plugin that was never healthy: every value would wait for its timeout.
        let state = self.probe.state()?;
        let dek = self.dek(&object, source_type, context).await?;
        self.note_key(Direction::FromStorage, &object.key_id);
        let data = dek.open(&object.encrypted_data, context.path.as_bytes())?;
        let is_current =
            object.key_id == state.key_id && source_type == DekSourceType::HkdfSha256XnonceAesGcmSeed;
        let key = Some(self.tag(source_type, &object.key_id));
        Ok(Opened { data, stale: !is_current, key })
    }

    /// Returns the decrypted DEK source, from the cache or from the plugin.
    async fn dek(
        &self,
        object: &EncryptedObject,
        source_type: DekSourceType,
        context: &Context<'_>,
    ) -> Result<Dek, TransformError> {
        let cache_key = object.cache_key();
        let cached = self.cache.lock().deks.get(&cache_key).cloned();
        if let Some(dek) = cached {
            return Ok(dek);
        }
        self.metrics.cache_missed();
        let uid = self.rng.uid().to_string();
        tracing::debug!(uid, key = context.path, "decrypting content using envelope service");
        let request = DecryptRequest {
            ciphertext: object.encrypted_dek_source.clone(),
            uid,
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone(),
        };
        let response = self.plugin.call::<DecryptResponse>("Decrypt", &request).await;
        let plaintext = response.map_err(|error| error.during("failed to decrypt DEK"))?.plaintext;
        let dek: Dek = match source_type {
            DekSourceType::AesGcmKey => Arc::new(Gcm::new(&plaintext)?),
            DekSourceType::HkdfSha256XnonceAesGcmSeed => Arc::new(Seed::new(plaintext)?),
        };
        self.remember(cache_key, &dek);
        Ok(dek)
    }

    fn remember(&self, cache_key: [u8; 32], dek: &Dek) {
        let size = {
            let mut cache = self.cache.lock();
            cache.insert(cache_key, dek.clone());
            cache.deks.len()
        };
        self.metrics.cache_size(self.plugin.name(), size);
    }

    fn note_key(&self, direction: Direction, key_id: &str) {
        self.metrics.key_id_used(direction, self.plugin.name(), key_id, self.clock.now());
    }

    fn tag(&self, source_type: DekSourceType, key_id: &str) -> KeyTag {
        KeyTag::new(format!("{}{}:{key_id}", self.prefix, i32::from(source_type)))
    }

    fn write(
        &self,
        state: &State,
        data: &[u8],
        context: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), TransformError> {
        // Make sure that what is written can be read without calling the plugin.
        let is_cached = self.cache.lock().deks.contains_key(&state.cache_key);
        if !is_cached {
            self.remember(state.cache_key, &(state.seed.clone() as Dek));
        }
        let mut encrypted_data = Vec::new();
        state.seed.seal(data, context.path.as_bytes(), &mut encrypted_data)?;
        self.note_key(Direction::ToStorage, &state.key_id);
        let object = EncryptedObject {
            encrypted_data,
            key_id: state.key_id.clone(),
            encrypted_dek_source: state.encrypted_source.clone(),
            annotations: state.annotations.clone(),
            encrypted_dek_source_type: DekSourceType::HkdfSha256XnonceAesGcmSeed.into(),
        };
        object.encode(out).map_err(|error| TransformError::new(error.to_string()))
    }
}

impl Transformer for EnvelopeTransformer {
    fn decrypt<'a>(
        &'a self,
        data: &'a [u8],
        context: &'a Context<'a>,
    ) -> BoxFuture<'a, Result<Opened, TransformError>> {
        self.read(data, context).boxed()
    }

    fn encrypt(
        &self,
        data: &[u8],
        context: &Context<'_>,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> Result<Option<KeyTag>, TransformError> {
        let state = self.probe.state()?;
        if purpose == Purpose::Write {
            state.check_writable(self.clock.now())?;
        }
        self.write(&state, data, context, out)?;
        Ok(Some(self.tag(DekSourceType::HkdfSha256XnonceAesGcmSeed, &state.key_id)))
    }

    fn is_stale(&self, key: Option<&KeyTag>) -> bool {
        // Until the plugin's key is known, no other key is considered stale.
        let Ok(state) = self.probe.state() else { return false };
        key != Some(&self.tag(DekSourceType::HkdfSha256XnonceAesGcmSeed, &state.key_id))
    }
}
