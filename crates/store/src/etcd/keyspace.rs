//! Where records are in etcd, and in which form: the prefix, the codec and encryption.

use std::sync::Arc;

use bytes::Bytes;
use setpoint_encryption::{GroupResource, KeyTag, Purpose};

use super::client::KeyValue;
use crate::record::Head;
use crate::sealing::Sealing;
use crate::{Error, Inset, Key, Payload, Record, Resource, Revision};

/// The layout of records in etcd. The store does not know any kinds, so its user provides this.
pub trait Codec: Send + Sync + 'static {
    /// Returns where below the prefix a record is: `pods/default/web`. It ends with the key's path.
    fn path(&self, key: &Key) -> String;

    /// Returns the record at a path below the prefix. `None`: none that this codec knows.
    fn key(&self, path: &str) -> Option<Key>;

    /// Returns the stored form of a value.
    fn encode(&self, key: &Key, payload: &Payload) -> Result<Bytes, String>;

    /// Reads a stored value, whoever wrote it.
    fn decode(&self, key: &Key, stored: &[u8]) -> Result<Decoded, String>;
}

/// Returns where v1.34 stores the object of a resource by default.
pub fn storage_path(group: &str, resource: &str, path: &str) -> String {
    setpoint_encryption::storage_path(&GroupResource::new(group, resource), path)
}

/// A value that was read.
pub struct Decoded {
    pub payload: Payload,
    /// Whether it would be stored in the same form now. If not, the record should be rewritten.
    pub is_current: bool,
}

/// A value as etcd stores it.
#[derive(Clone)]
pub(super) struct StoredValue {
    pub(super) bytes: Bytes,
    pub(super) tag: Option<KeyTag>,
}

pub(super) struct Keyspace {
    /// Starts and ends with a slash.
    pub(super) prefix: String,
    pub(super) codec: Arc<dyn Codec>,
    pub(super) sealing: Sealing,
}

impl Keyspace {
    pub(super) fn place_of(&self, key: &Key) -> String {
        format!("{}{}", self.prefix, self.codec.path(key))
    }

    /// Returns the range of keys that start with `prefix`.
    pub(super) fn under(prefix: &str) -> (Bytes, Bytes) {
        let mut end = prefix.as_bytes().to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                break;
            }
        }
        // All keys.
        if end.is_empty() {
            end.push(0);
        }
        (Bytes::copy_from_slice(prefix.as_bytes()), end.into())
    }

    pub(super) fn all(&self) -> (Bytes, Bytes) {
        Self::under(&self.prefix)
    }

    /// Returns the range of a resource's records whose path starts with `prefix`.
    pub(super) fn records_under(&self, resource: &Resource, prefix: &str) -> (Bytes, Bytes) {
        Self::under(&self.place_of(&resource.key(prefix)))
    }

    /// Returns the record that an etcd key holds. `None`: not one of ours, or unknown.
    pub(super) fn key_at(&self, place: &[u8]) -> Option<Key> {
        let path = std::str::from_utf8(place).ok()?.strip_prefix(&self.prefix)?;
        self.codec.key(path)
    }

    /// Returns the stored form of a new value.
    pub(super) fn seal(&self, key: &Key, payload: &Payload) -> Result<StoredValue, Error> {
        let plain = self.codec.encode(key, payload).map_err(Error::Transform)?;
        let place = self.place_of(key);
        match self.sealing.encrypt(key, &place, &plain, Purpose::Write) {
            Ok(None) => Ok(StoredValue { bytes: plain, tag: None }),
            Ok(Some(sealed)) => Ok(StoredValue { bytes: sealed.bytes.into(), tag: Some(sealed.key) }),
            Err(error) => {
                tracing::error!(key = place, %error, "failed to encrypt data");
                Err(Error::Transform(error.to_string()))
            }
        }
    }

    /// Reads a record. One that cannot be decrypted or decoded is sealed: it exists, but reading it is an error.
    pub(super) async fn read(&self, key: Key, kv: &KeyValue) -> Record {
        match self.open(&key, &kv.value, kv.created, kv.modified).await {
            Ok(record) => record,
            Err(reason) => {
                let (created, modified) = (kv.created, kv.modified);
                let (stamp_at, inset_at, inset) = (None, None, Inset::default());
                let head = Head { key, created, modified, expires: None, stamp_at, inset_at, inset };
                // A copy, because it would keep the whole response alive.
                Record::restore_sealed(head, Bytes::copy_from_slice(&kv.value), reason)
            }
        }
    }

    /// Decrypts and decodes a stored value.
    pub(super) async fn open(
        &self,
        key: &Key,
        stored: &[u8],
        created: Revision,
        modified: Revision,
    ) -> Result<Record, String> {
        let opened = self.sealing.decrypt(key, &self.place_of(key), stored).await?;
        let Decoded { payload, is_current } = self.codec.decode(key, &opened.data)?;
        let mut record = Record::new(key.clone(), payload, created, modified, None);
        record.set_key(opened.key);
        if !is_current || opened.stale {
            record.set_outdated();
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_selects_the_keys_that_start_with_it() {
        let ends: [(&str, &[u8]); 4] =
            [("/registry/", b"/registry0"), ("a", b"b"), ("a\u{7f}", b"a\x80"), ("", b"\0")];
        for (prefix, end) in ends {
            assert_eq!(Keyspace::under(prefix), (prefix.to_owned().into(), end.to_vec().into()));
        }
    }
}
