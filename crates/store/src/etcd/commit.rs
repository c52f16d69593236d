//! Commits: one transaction each, which compares the revision of the record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::client::{Compare, EtcdError, KeyValue, Op, Txn, TxnResponse};
use super::keyspace::StoredValue;
use super::pending::Registered;
use super::{PROGRESS_EVERY, Shared, check_not_restored};
use crate::decide::removal;
use crate::{Change, Error, Expect, Key, Payload, Record, Revision, Write};

/// How long a confirmed write may take to reach the cache. Usually it is there first.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// What a write does, ready to be sent.
enum Prepared {
    Put { payload: Payload, stored: StoredValue, ttl: Option<Duration> },
    Delete,
}

impl Shared {
    pub(super) async fn commit(&self, write: Write) -> Result<Arc<Record>, Error> {
        let _permit = self.commits.acquire().await.map_err(|_| Error::Closed)?;
        if self.is_closed.load(std::sync::atomic::Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let Write { key, expect, change } = write;
        let current = self.expected(&key, expect).await?;
        let prepared = match change {
            Change::Put { payload, ttl } => {
                let stored = self.keyspace.seal(&key, &payload)?;
                Prepared::Put { payload, stored, ttl }
            }
            Change::Delete if current.is_none() => {
                let latest = self.core.get(&key, None)?;
                return Err(Error::Conflict { current: latest });
            }
            Change::Delete => Prepared::Delete,
        };
        let place = Bytes::from(self.keyspace.place_of(&key));
        let value = match &prepared {
            Prepared::Put { payload, stored, .. } => Some((payload.clone(), stored.clone())),
            Prepared::Delete => None,
        };
        // Before the transaction is sent, because the watch may report it before the transaction's response arrives.
        let pending = self.pending.add(place.clone(), value);
        let seen = self.core.revision();
        let response = self.transact(&place, current.as_ref(), &prepared).await?;
        check_not_restored(seen, response.revision)?;
        match response.succeeded {
            true => self.confirmed(&key, current.as_ref(), prepared, &pending, response.revision).await,
            false => Err(Error::Conflict { current: self.found(key, response.found).await }),
        }
    }

    /// Returns the record that a write expects. `None`: it expects nothing.
    ///
    /// Revisions only grow. So if the cache is at the expected revision or later and holds another one, etcd will never
    /// hold the expected one again. But whether a record is absent, only etcd can tell.
    async fn expected(&self, key: &Key, expect: Expect) -> Result<Option<Arc<Record>>, Error> {
        let Expect::Revision(revision) = expect else { return Ok(None) };
        if !self.wait_until_seen(revision).await {
            return Err(Error::Unavailable(format!(
                "the cache of etcd has not reached revision {revision} in time"
            )));
        }
        let current = self.core.get(key, None)?;
        match current {
            Some(record) if record.modified == revision => match record.unreadable() {
                // A record that cannot be read must not be replaced blindly.
                Some(reason) => Err(Error::Transform(reason.to_owned())),
                None => Ok(Some(record)),
            },
            current => Err(Error::Conflict { current }),
        }
    }

    async fn transact(
        &self,
        place: &Bytes,
        current: Option<&Arc<Record>>,
        prepared: &Prepared,
    ) -> Result<TxnResponse, Error> {
        let revision = current.map_or(0, |record| record.modified);
        let attempt = async || {
            let (then, lease) = match prepared {
                Prepared::Delete => (Op::Delete { key: place.clone() }, 0),
                Prepared::Put { stored, ttl, .. } => {
                    let lease = match ttl {
                        Some(ttl) => self.leases.get(&*self.client, &self.clock, *ttl).await,
                        None => Ok(0),
                    };
                    let lease = lease.map_err(|error| (error, 0))?;
                    (Op::Put { key: place.clone(), value: stored.bytes.clone(), lease }, lease)
                }
            };
            let compare = Compare::Modified { key: place.clone(), revision };
            let txn = Txn { compare, then, otherwise: Some(place.clone()) };
            self.client.txn(txn).await.map_err(|error| (error, lease))
        };
        match attempt().await {
            Ok(response) => Ok(response),
            // The lease ended in the meantime, because this process or etcd was suspended. Nothing was written.
            Err((EtcdError::LeaseNotFound, lease)) if lease != 0 => {
                self.leases.forget(lease).await;
                Ok(attempt().await.map_err(|(error, _)| error)?)
            }
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Returns the record of a confirmed write, once the cache has seen it.
    async fn confirmed(
        &self,
        key: &Key,
        current: Option<&Arc<Record>>,
        prepared: Prepared,
        pending: &Registered<'_>,
        revision: Revision,
    ) -> Result<Arc<Record>, Error> {
        let deadline = self.clock.instant() + SEEN_WITHIN;
        loop {
            let mut changed = std::pin::pin!(pending.changed().notified());
            changed.as_mut().enable();
            if self.core.revision() >= revision {
                break;
            }
            tokio::select! {
                biased;
                () = changed => continue,
                () = self.clock.sleep(PROGRESS_EVERY) => {}
            }
            if self.clock.instant() >= deadline {
                return Err(Error::Unavailable(format!(
                    "etcd has stored the write at revision {revision}, but its watch has not reported it"
                )));
            }
            // A watch that does not answer is started again.
            self.request_progress();
        }
        Ok(match (prepared, current) {
            (Prepared::Delete, Some(current)) => removal(current, revision).record,
            (Prepared::Delete, None) => return Err(Error::Conflict { current: None }),
            (Prepared::Put { payload, stored, .. }, current) => pending.made(revision).unwrap_or_else(|| {
                // The cache was loaded anew, and has decoded it.
                let created = current.map_or(revision, |record| record.created);
                let mut record = Record::new(key.clone(), payload, created, revision, None);
                record.set_key(stored.tag);
                Arc::new(record)
            }),
        })
    }

    /// Returns the record that did not match the expectation.
    async fn found(&self, key: Key, found: Option<KeyValue>) -> Option<Arc<Record>> {
        let found = found?;
        let cached = self.core.get(&key, None).ok().flatten();
        match cached.filter(|record| record.modified == found.modified) {
            Some(record) => Some(record),
            None => Some(Arc::new(self.keyspace.read(key, &found).await)),
        }
    }
}
