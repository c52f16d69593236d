//! Moves all records between an etcd and another store, with their revisions.
//!
//! Resource versions are etcd's revisions, and etcd counts them itself. So records are written in the order of their
//! revisions, and in between a key of its own is written as often as it takes. That is one write per revision of the
//! other store, whether or not anything of it is left.
//!
//! Invariants:
//! - Nothing is overwritten: every key must be absent.
//! - A second run continues the first: keys with the expected revision are kept, all others are an error.
//! - Nothing else may write to etcd meanwhile. If something does, the revisions do not fit, and that is an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use setpoint_clock::Clock;
use setpoint_encryption::Transformers;

use super::client::{Compare, EtcdClient, EtcdError, Op, RangeRequest, Txn};
use super::keyspace::{Codec, Keyspace};
use super::load::Pages;
use super::normal_prefix;
use crate::durable::Contents;
use crate::sealing::Sealing;
use crate::{Error, Key, Record, Revision};

/// The key that is written for revisions that have no record. It is outside of every prefix, and stays: removing it would
/// be one more revision.
const FILLER: &[u8] = b"setpoint.dev/migration";
/// A key that never exists.
const ABSENT: &[u8] = b"setpoint.dev/absent";
/// How many fillers are written at a time: 100 bytes each.
const FILLERS: u64 = 64;
/// How many revisions are written between two compactions, which keep etcd's history small.
const COMPACT_EVERY: u64 = 100_000;
/// How often a write with an unknown outcome is looked at again.
const ATTEMPTS: usize = 5;
const WAIT: Duration = Duration::from_secs(2);
/// Records that expire within the same time share a lease.
const LEASE_STEP: i64 = 60;

/// Why records could not be moved.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(transparent)]
    Store(#[from] Error),
    #[error(
        "etcd is at revision {etcd}, but {key} has resource version {modified}: start with an empty etcd, which nothing \
         else uses"
    )]
    TooLate { etcd: Revision, key: String, modified: Revision },
    #[error("etcd already has {0}: start with an empty etcd, or another --etcd-prefix")]
    Foreign(String),
    #[error("{key} was written at revision {found}, expected {modified}: something else writes to etcd")]
    Overtaken { key: String, modified: Revision, found: Revision },
    #[error(
        "{first} and {second} have the same resource version {modified}, which etcd cannot give to two writes"
    )]
    Shared { first: String, second: String, modified: Revision },
    #[error(
        "etcd is at revision {found} after the last write, expected {expected}: something else writes to it"
    )]
    Changed { found: Revision, expected: Revision },
    #[error("{key} cannot be moved: {why}")]
    Unreadable { key: String, why: String },
    #[error("etcd has {count} keys that this version does not know, such as {example}: they would be lost")]
    Unknown { count: usize, example: String },
    #[error("{key} is not in the copy as it was: {what}")]
    Unfaithful { key: String, what: &'static str },
}

/// Records in an etcd.
pub struct EtcdRecords {
    client: Arc<dyn EtcdClient>,
    clock: Clock,
    keyspace: Keyspace,
}

/// A record as etcd stores it.
struct Stored {
    key: Key,
    place: Bytes,
    value: Bytes,
    created: Revision,
    modified: Revision,
}

impl EtcdRecords {
    pub fn new(
        client: Arc<dyn EtcdClient>,
        codec: Arc<dyn Codec>,
        transformers: Option<Arc<dyn Transformers>>,
        prefix: &str,
        clock: Clock,
    ) -> Self {
        let sealing = transformers.map(Sealing::with).unwrap_or_default();
        Self { client, clock, keyspace: Keyspace { prefix: normal_prefix(prefix), codec, sealing } }
    }

    /// Writes the missing records so that each gets its revision. `progress` is called with the revisions reached.
    pub async fn write(
        &self,
        contents: &Contents,
        progress: &(dyn Fn(Revision) + Sync),
    ) -> Result<(), MigrateError> {
        let records = in_order(contents)?;
        let (there, mut at) = self.stored().await?;
        self.check_there(&records, &there, at)?;
        let now = self.clock.now();
        let mut leases = BTreeMap::new();
        for record in records {
            if record.modified <= at || is_gone(record, now) {
                continue;
            }
            self.fill(at, record.modified - 1, progress).await?;
            self.put(record, now, &mut leases).await?;
            at = record.modified;
        }
        self.fill(at, contents.revision, progress).await?;
        // History is as unknown as after a start of the other store.
        self.client.compact(contents.revision).await?;
        progress(contents.revision);
        Ok(())
    }

    /// Fails unless etcd contains exactly what a migration up to this revision writes.
    fn check_there(
        &self,
        records: &[&Arc<Record>],
        there: &[Stored],
        at: Revision,
    ) -> Result<(), MigrateError> {
        let mut found: BTreeMap<&Key, Revision> = there.iter().map(|one| (&one.key, one.modified)).collect();
        for record in records.iter().filter(|record| record.modified <= at) {
            match found.remove(&record.key) {
                Some(modified) if modified == record.modified => {}
                None if record.expires.is_some() => {}
                _ => {
                    let key = self.keyspace.place_of(&record.key);
                    return Err(MigrateError::TooLate { etcd: at, key, modified: record.modified });
                }
            }
        }
        match found.into_keys().next() {
            Some(key) => Err(MigrateError::Foreign(self.keyspace.place_of(key))),
            None => Ok(()),
        }
    }

    /// Makes etcd count from one revision to another. Returns the second one, or the first if that is later.
    async fn fill(
        &self,
        from: Revision,
        to: Revision,
        progress: &(dyn Fn(Revision) + Sync),
    ) -> Result<Revision, MigrateError> {
        let (mut at, mut compacted) = (from, from);
        let mut failures = 0;
        while at < to {
            let count = FILLERS.min(to - at);
            let mut writes: FuturesUnordered<_> =
                (0..count).map(|_| self.client.txn(filler_write())).collect();
            let mut failure = None;
            while let Some(written) = writes.next().await {
                failure = written.err().or(failure);
            }
            match failure {
                None => at += count,
                // Some of them may have happened, or happen soon.
                Some(error) => {
                    failures += 1;
                    if failures >= ATTEMPTS {
                        return Err(error.into());
                    }
                    self.clock.sleep(WAIT).await;
                    at = self.revision().await?;
                }
            }
            if at - compacted >= COMPACT_EVERY {
                compacted = at;
                self.client.compact(at).await?;
                progress(at);
            }
        }
        if at > to { Err(MigrateError::Changed { found: at, expected: to }) } else { Ok(at) }
    }

    async fn put(
        &self,
        record: &Arc<Record>,
        now: Timestamp,
        leases: &mut BTreeMap<i64, i64>,
    ) -> Result<(), MigrateError> {
        let key = self.keyspace.place_of(&record.key);
        let place = Bytes::from(key.clone());
        let stored = self.keyspace.seal(&record.key, &record.payload())?;
        let lease = match record.expires {
            None => 0,
            Some(expires) => {
                let left = expires.duration_since(now).as_secs().max(1);
                let seconds = (left + LEASE_STEP - 1) / LEASE_STEP * LEASE_STEP;
                match leases.get(&seconds) {
                    Some(lease) => *lease,
                    None => {
                        let lease = self.client.grant_lease(seconds).await?;
                        leases.insert(seconds, lease);
                        lease
                    }
                }
            }
        };
        let modified = record.modified;
        let mut attempt = 1;
        loop {
            let write = Txn {
                compare: Compare::Modified { key: place.clone(), revision: 0 },
                then: Op::Put { key: place.clone(), value: stored.bytes.clone(), lease },
                otherwise: Some(place.clone()),
            };
            let found = match self.client.txn(write).await {
                Ok(done) if done.succeeded => done.revision,
                // An attempt whose answer was lost.
                Ok(done) => done.found.map_or(0, |found| found.modified),
                Err(EtcdError::Unavailable(_)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    self.clock.sleep(WAIT).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            return match found == modified {
                true => Ok(()),
                false => Err(MigrateError::Overtaken { key, modified, found }),
            };
        }
    }

    /// Checks that etcd has exactly these records, as they are.
    pub async fn verify(&self, contents: &Contents) -> Result<(), MigrateError> {
        let (there, at) = self.stored().await?;
        if at != contents.revision {
            return Err(MigrateError::Changed { found: at, expected: contents.revision });
        }
        let mut found: BTreeMap<&Key, &Stored> = there.iter().map(|one| (&one.key, one)).collect();
        for record in &contents.records {
            let key = || self.keyspace.place_of(&record.key);
            let Some(one) = found.remove(&record.key) else {
                match record.expires {
                    Some(_) => continue,
                    None => return Err(MigrateError::Unfaithful { key: key(), what: "it is missing" }),
                }
            };
            if one.modified != record.modified {
                return Err(MigrateError::Unfaithful { key: key(), what: "its revision differs" });
            }
            let expected = self.keyspace.codec.encode(&record.key, &record.payload());
            let expected = expected.map_err(|why| MigrateError::Unreadable { key: key(), why })?;
            let opened = self.keyspace.sealing.decrypt(&record.key, &key(), &one.value).await;
            let opened = opened.map_err(|why| MigrateError::Unreadable { key: key(), why })?;
            if opened.data[..] != expected[..] {
                return Err(MigrateError::Unfaithful { key: key(), what: "its value differs" });
            }
        }
        match found.into_keys().next() {
            Some(key) => Err(MigrateError::Foreign(self.keyspace.place_of(key))),
            None => Ok(()),
        }
    }

    /// Reads all records at one revision, decrypted, but those to skip. `expires` returns how long records of a kind are
    /// kept that expire: how much of it is left is not known.
    pub async fn read(
        &self,
        skip: impl Fn(&Key) -> bool,
        expires: impl Fn(&Key) -> Option<Duration>,
    ) -> Result<Contents, MigrateError> {
        let (stored, revision) = self.stored().await?;
        let now = self.clock.now();
        let mut records = Vec::with_capacity(stored.len());
        for one in stored.into_iter().filter(|one| !skip(&one.key)) {
            let Stored { key, value, created, modified, .. } = one;
            let opened = self.keyspace.open(&key, &value, created, modified).await;
            let record = opened.map_err(|why| {
                let key = self.keyspace.place_of(&key);
                MigrateError::Unreadable { key, why }
            })?;
            let deadline = expires(&key).and_then(|after| now.checked_add(after).ok());
            let payload = record.payload();
            records.push(Arc::new(Record::new(key, payload, created, modified, deadline)));
        }
        Ok(Contents { revision, records })
    }

    /// Fails if etcd has changed since a revision.
    pub async fn check_unchanged(&self, since: Revision) -> Result<(), MigrateError> {
        match self.revision().await? {
            found if found == since => Ok(()),
            found => Err(MigrateError::Changed { found, expected: since }),
        }
    }

    async fn revision(&self) -> Result<Revision, EtcdError> {
        let key = Bytes::from_static(FILLER);
        let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
        Ok(self.client.range(request).await?.revision)
    }

    /// Returns all records under the prefix at one revision, as they are stored.
    async fn stored(&self) -> Result<(Vec<Stored>, Revision), MigrateError> {
        let mut pages = Pages::new(&*self.client, self.keyspace.all(), None);
        let (mut stored, mut unknown, mut example) = (Vec::new(), 0, String::new());
        while let Some(page) = pages.next().await? {
            for kv in page.kvs {
                match self.keyspace.key_at(&kv.key) {
                    Some(key) => stored.push(Stored {
                        key,
                        // Copies, because they would keep whole responses alive.
                        place: Bytes::copy_from_slice(&kv.key),
                        value: Bytes::copy_from_slice(&kv.value),
                        created: kv.created,
                        modified: kv.modified,
                    }),
                    None => {
                        unknown += 1;
                        if example.is_empty() {
                            example = String::from_utf8_lossy(&kv.key).into_owned();
                        }
                    }
                }
            }
        }
        if unknown > 0 {
            return Err(MigrateError::Unknown { count: unknown, example });
        }
        stored.sort_by(|one, other| one.place.cmp(&other.place));
        Ok((stored, pages.revision().unwrap_or_default()))
    }
}

/// A write that changes nothing but the revision.
fn filler_write() -> Txn {
    let absent = Bytes::from_static(ABSENT);
    Txn {
        compare: Compare::Version { key: absent, version: 0 },
        then: Op::Put { key: Bytes::from_static(FILLER), value: Bytes::new(), lease: 0 },
        otherwise: None,
    }
}

/// Returns the records in the order of their revisions, each of which has one.
fn in_order(contents: &Contents) -> Result<Vec<&Arc<Record>>, MigrateError> {
    let mut records: Vec<&Arc<Record>> = contents.records.iter().collect();
    records.sort_by_key(|record| record.modified);
    for pair in records.windows(2) {
        if let [first, second] = pair
            && first.modified == second.modified
        {
            let (first, second) = (first.key.to_string(), second.key.to_string());
            return Err(MigrateError::Shared { first, second, modified: pair[0].modified });
        }
    }
    Ok(records)
}

fn is_gone(record: &Record, now: Timestamp) -> bool {
    record.expires.is_some_and(|expires| expires <= now)
}
