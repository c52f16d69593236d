//! The writes of this process that etcd has not confirmed yet.
//!
//! When the watch reports such a write, its record is made from what the writer has: the encoded object, its facts. It
//! need not be decoded. A write is recognized by its key and its stored bytes. If another process writes the same bytes,
//! the result is the same record.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::client::KeyValue;
use super::keyspace::StoredValue;
use crate::{Key, Payload, Record, Revision};

/// How many records are remembered for a write: a write and those that follow it with the same bytes, until its
/// response has arrived.
const REMEMBERED: usize = 8;

#[derive(Default)]
pub(super) struct PendingWrites(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    by_key: BTreeMap<Bytes, Vec<Arc<PendingWrite>>>,
}

pub(super) struct PendingWrite {
    place: Bytes,
    /// `None`: a removal.
    value: Option<(Payload, StoredValue)>,
    made: Mutex<Vec<Arc<Record>>>,
    /// The cache has changed.
    changed: Notify,
}

/// Removes a write when its response has arrived, or nobody waits for it.
pub(super) struct Registered<'a> {
    all: &'a PendingWrites,
    write: Arc<PendingWrite>,
}

impl PendingWrites {
    pub(super) fn add(&self, place: Bytes, value: Option<(Payload, StoredValue)>) -> Registered<'_> {
        let write = Arc::new(PendingWrite { place, value, made: Mutex::default(), changed: Notify::new() });
        self.0.lock().by_key.entry(write.place.clone()).or_default().push(write.clone());
        Registered { all: self, write }
    }

    /// Returns the record of a reported write, if this process made it.
    pub(super) fn record(&self, key: &Key, kv: &KeyValue) -> Option<Arc<Record>> {
        let pending = self.0.lock();
        let same = |write: &&Arc<PendingWrite>| write.stored() == Some(&*kv.value);
        let write = pending.by_key.get(&kv.key)?.iter().find(same)?;
        let (payload, stored) = write.value.as_ref()?;
        let mut record = Record::new(key.clone(), payload.clone(), kv.created, kv.modified, None);
        record.set_key(stored.tag.clone());
        let record = Arc::new(record);
        for write in pending.by_key.get(&kv.key)?.iter().filter(same) {
            write.remember(&record);
        }
        Some(record)
    }

    /// Wakes the writers of some keys, once the cache has seen them.
    pub(super) fn wake<'a>(&self, places: impl Iterator<Item = &'a Bytes>) {
        let pending = self.0.lock();
        for write in places.filter_map(|place| pending.by_key.get(place)).flatten() {
            write.changed.notify_waiters();
        }
    }

    pub(super) fn wake_all(&self) {
        for write in self.0.lock().by_key.values().flatten() {
            write.changed.notify_waiters();
        }
    }
}

impl PendingWrite {
    fn stored(&self) -> Option<&[u8]> {
        self.value.as_ref().map(|(_, stored)| &*stored.bytes)
    }

    fn remember(&self, record: &Arc<Record>) {
        let mut made = self.made.lock();
        if made.len() < REMEMBERED {
            made.push(record.clone());
        }
    }

    /// Returns the record that the watch reported at a revision.
    pub(super) fn made(&self, revision: Revision) -> Option<Arc<Record>> {
        self.made.lock().iter().find(|record| record.modified == revision).cloned()
    }

    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }
}

impl std::ops::Deref for Registered<'_> {
    type Target = PendingWrite;

    fn deref(&self) -> &PendingWrite {
        &self.write
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut pending = self.all.0.lock();
        if let Some(writes) = pending.by_key.get_mut(&self.write.place) {
            writes.retain(|write| !Arc::ptr_eq(write, &self.write));
            if writes.is_empty() {
                pending.by_key.remove(&self.write.place);
            }
        }
    }
}
