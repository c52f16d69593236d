//! Encryption at rest: converts values on their way to and from disk.
//!
//! In memory, a record holds plain text, which readers and watchers share. What is made durable is the output of the
//! resource's [`Transformer`](setpoint_encryption::Transformer). A stored value that cannot be decrypted, because a key
//! or the KMS plugin is missing, stays *sealed*: its record exists, holds the stored bytes, and is written to
//! checkpoints unchanged. Reading it is an error until a later attempt succeeds.

use std::sync::Arc;

use bytes::Bytes;
use setpoint_encryption::{
    Context, ENCRYPTED_PREFIX, GroupResource, Identity, KeyTag, Opened, Purpose, TransformError, Transformer,
    Transformers, storage_path,
};

use crate::durable::format::{pack, unpack};
use crate::record::{AtRest, Head};
use crate::{Error, Key, Payload, Record};

/// The transformers. Without a configuration there are none, and ciphertext is not accepted as plain text.
#[derive(Clone, Default)]
pub(crate) struct Sealing(Option<Arc<dyn Transformers>>);

/// A value in its stored form.
pub(crate) struct Stored {
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: KeyTag,
}

/// Why a value that has not been decrypted yet cannot be read.
const NOT_TRIED: &str = "the value has not been decrypted yet";

impl Sealing {
    pub(crate) fn with(transformers: Arc<dyn Transformers>) -> Self {
        Self(Some(transformers))
    }

    /// Returns the transformer of a resource, if it has one.
    fn transformer(&self, resource: &GroupResource) -> Option<Arc<dyn Transformer>> {
        self.0.as_ref().map(|all| all.transformer(resource)).filter(|one| !one.is_identity())
    }

    /// Returns the stored form of a new value. `None`: the value itself.
    pub(crate) fn seal(&self, key: &Key, payload: &Payload) -> Result<Option<Stored>, Error> {
        let sealed = self.transform(key, payload, Purpose::Write);
        sealed.map_err(|error| {
            tracing::error!(key = path_of(key), %error, "failed to encrypt data");
            Error::Transform(error.to_string())
        })
    }

    fn transform(
        &self,
        key: &Key,
        payload: &Payload,
        purpose: Purpose,
    ) -> Result<Option<Stored>, TransformError> {
        if !self.transforms(key) {
            return Ok(None);
        }
        // If the identity provider writes, the value is stored as without a configuration, with its inset separately.
        // Combined, they would be mistaken for the value.
        self.encrypt(key, &path_of(key), &pack(&payload.bytes, &payload.inset), purpose)
    }

    /// Returns whether values of a resource are transformed.
    fn transforms(&self, key: &Key) -> bool {
        self.0.is_some() && self.transformer(&resource_of(key)).is_some()
    }

    /// Encrypts a value that is stored at `path`. `None`: it is stored as it is.
    pub(crate) fn encrypt(
        &self,
        key: &Key,
        path: &str,
        value: &[u8],
        purpose: Purpose,
    ) -> Result<Option<Stored>, TransformError> {
        let resource = resource_of(key);
        let Some(transformer) = self.transformer(&resource) else { return Ok(None) };
        let mut bytes = Vec::new();
        let key = transformer.encrypt(value, &Context { resource: &resource, path }, purpose, &mut bytes)?;
        // The identity provider returns no key; the others then only read.
        Ok(key.map(|key| Stored { bytes, key }))
    }

    /// Decrypts a value that is stored at `path`. May call a KMS plugin.
    pub(crate) async fn decrypt(&self, key: &Key, path: &str, stored: &[u8]) -> Result<Opened, String> {
        let resource = resource_of(key);
        let transformer = self.transformer(&resource).unwrap_or_else(|| Arc::new(Identity));
        let opened = transformer.decrypt(stored, &Context { resource: &resource, path }).await;
        opened.map_err(|error| error.to_string())
    }

    /// Returns the stored form of an existing record, encrypted with the current key if it can be read. `None`: the
    /// value itself.
    pub(crate) fn copy(&self, record: &Record) -> Result<Option<Bytes>, TransformError> {
        if let Some((stored, _)) = record.sealed() {
            return Ok(Some(stored.clone()));
        }
        let stored = self.transform(&record.key, &record.payload(), Purpose::Copy)?;
        Ok(stored.map(|stored| stored.bytes.into()))
    }

    /// Restores a record from disk. A record that needs a transformer is sealed for now.
    pub(crate) fn restore(&self, head: Head, stored: &[u8]) -> Option<Record> {
        let reason = match self.transforms(&head.key) {
            true => Some(NOT_TRIED.to_owned()),
            false => Identity::check(stored).err().map(|error| error.to_string()),
        };
        match reason {
            Some(reason) => Some(Record::restore_sealed(head, Bytes::copy_from_slice(stored), reason)),
            None => Record::restore(head, stored, None),
        }
    }

    /// Returns whether a record on disk is plain text that would be encrypted now.
    pub(crate) fn is_plain(&self, record: &Record) -> bool {
        let is_plain = |(stored, _): (&Bytes, &str)| !stored.starts_with(ENCRYPTED_PREFIX);
        record.sealed().is_some_and(is_plain) && self.is_stale(record)
    }

    /// Decrypts a sealed record. May call a KMS plugin.
    pub(crate) async fn open(&self, record: &Record) -> Result<Record, String> {
        let Some((stored, _)) = record.sealed() else { return Err(NOT_TRIED.into()) };
        let opened = self.decrypt(&record.key, &path_of(&record.key), stored).await?;
        let at_rest = opened.key.map(|key| Box::new(AtRest::Encrypted(key)));
        let malformed = || "the decrypted value is malformed".to_owned();
        let (value, inset) = match stored.starts_with(ENCRYPTED_PREFIX) {
            true => unpack(&opened.data).ok_or_else(malformed)?,
            // Stored as plain text before there was a key: its inset is stored separately.
            false => (&*opened.data, record.inset.clone()),
        };
        let head = Head { inset, ..record.head() };
        Record::restore(head, value, at_rest).ok_or_else(malformed)
    }

    /// Returns whether a record is stored differently than it would be now.
    pub(crate) fn is_stale(&self, record: &Record) -> bool {
        self.0
            .as_ref()
            .is_some_and(|all| all.transformer(&resource_of(&record.key)).is_stale(record.key_tag()))
    }
}

/// Returns where v1.34 would store a record. Used in logs and messages.
pub(crate) fn path_of(key: &Key) -> String {
    storage_path(&resource_of(key), &key.path)
}

/// Converts the store's `apps/replicasets` to the API's `replicasets.apps`.
fn resource_of(key: &Key) -> GroupResource {
    match key.resource.as_str().split_once('/') {
        Some((group, resource)) => GroupResource::new(group, resource),
        // As in v1.34, the node ports in use are encrypted like services.
        None if key.resource.as_str() == "ranges" => GroupResource::new("", "services"),
        None => GroupResource::new("", key.resource.as_str()),
    }
}
