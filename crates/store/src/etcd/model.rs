//! An etcd in memory: the semantics of its operations, without servers.
//!
//! It is one linearizable history, as the clients of a healthy cluster see it. It has no clock of its own: leases end
//! when an operation or a watch notices that their time is over, so in virtual time the same calls give the same
//! history.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::stream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use tokio::sync::{mpsc, watch};

use super::client::*;
use crate::Revision;

/// The revision of an empty etcd.
const EMPTY: Revision = 1;

/// An etcd in memory. Clones share it.
#[derive(Clone)]
pub struct EtcdModel {
    state: Arc<Mutex<State>>,
    clock: Clock,
    /// The newest revision.
    changed: Arc<watch::Sender<Revision>>,
}

#[derive(Default)]
struct State {
    revision: Revision,
    compacted: Revision,
    keys: BTreeMap<Bytes, Stored>,
    /// What has happened since the compaction.
    history: Vec<Change>,
    leases: BTreeMap<i64, Instant>,
    last_lease: i64,
}

#[derive(Clone)]
struct Stored {
    kv: KeyValue,
    lease: i64,
}

struct Change {
    event: WatchEvent,
    previous: Option<Stored>,
}

impl EtcdModel {
    pub fn new(clock: Clock) -> Self {
        let state = State { revision: EMPTY, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), clock, changed: Arc::new(watch::channel(EMPTY).0) }
    }

    /// Runs an operation, after what is due by now.
    fn with<T>(&self, operation: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        state.end_leases(self.clock.instant());
        let result = operation(&mut state);
        let revision = state.revision;
        drop(state);
        self.changed.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
        result
    }

    /// Returns the changes of all complete revisions from one on, in a range.
    fn events(&self, request: &WatchRequest) -> Option<WatchResponse> {
        self.with(|state| {
            if request.from <= state.compacted {
                return Some(WatchResponse::Compacted(state.compacted + 1));
            }
            let contains =
                |key: &Bytes| *key >= request.key && (request.end == b"\0"[..] || *key < request.end);
            let later = state.history.iter().map(|change| &change.event);
            let later = later.filter(|event| event.revision() >= request.from && contains(event.key()));
            let events: Vec<_> = later.cloned().collect();
            (!events.is_empty()).then_some(WatchResponse::Events(events))
        })
    }

    fn next_lease_end(&self) -> Option<Instant> {
        self.state.lock().leases.values().min().copied()
    }
}

impl WatchEvent {
    fn key(&self) -> &Bytes {
        match self {
            Self::Put(kv) => &kv.key,
            Self::Delete { key, .. } => key,
        }
    }
}

impl State {
    fn end_leases(&mut self, now: Instant) {
        let due: Vec<i64> = self.leases.iter().filter(|(_, end)| **end <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.leases.remove(&id);
            let of_lease = self.keys.iter().filter(|(_, stored)| stored.lease == id);
            let keys: Vec<Bytes> = of_lease.map(|(key, _)| key.clone()).collect();
            if !keys.is_empty() {
                self.revision += 1;
                keys.into_iter().for_each(|key| self.delete(key));
            }
        }
    }

    /// Removes a key in the current revision.
    fn delete(&mut self, key: Bytes) {
        if let Some(previous) = self.keys.remove(&key) {
            let event = WatchEvent::Delete { key, revision: self.revision };
            self.history.push(Change { event, previous: Some(previous) });
        }
    }

    /// Writes a key in the current revision.
    fn put(&mut self, key: Bytes, value: Bytes, lease: i64) {
        let previous = self.keys.get(&key).cloned();
        let kv = KeyValue {
            key: key.clone(),
            value,
            created: previous.as_ref().map_or(self.revision, |stored| stored.kv.created),
            modified: self.revision,
            version: previous.as_ref().map_or(0, |stored| stored.kv.version) + 1,
        };
        self.keys.insert(key, Stored { kv: kv.clone(), lease });
        self.history.push(Change { event: WatchEvent::Put(kv), previous });
    }

    /// Returns the keys as they were at a revision.
    fn at(&self, revision: Revision) -> Result<BTreeMap<Bytes, Stored>, EtcdError> {
        if revision > self.revision {
            return Err(EtcdError::Future);
        }
        if revision < self.compacted {
            return Err(EtcdError::Compacted);
        }
        let mut keys = self.keys.clone();
        for change in self.history.iter().rev().take_while(|change| change.event.revision() > revision) {
            match &change.previous {
                Some(previous) => _ = keys.insert(previous.kv.key.clone(), previous.clone()),
                None => _ = keys.remove(change.event.key()),
            }
        }
        Ok(keys)
    }

    fn range(&self, request: &RangeRequest) -> Result<RangeResponse, EtcdError> {
        let past = request.revision.map(|revision| self.at(revision)).transpose()?;
        let keys = past.as_ref().unwrap_or(&self.keys);
        let end = match &request.end {
            None => Bound::Included(request.key.clone()),
            Some(end) if end == &b"\0"[..] => Bound::Unbounded,
            Some(end) => Bound::Excluded(end.clone()),
        };
        let found = keys.range::<Bytes, _>((Bound::Included(request.key.clone()), end));
        let found: Vec<KeyValue> = found.map(|(_, stored)| stored.kv.clone()).collect();
        let limit = if request.limit == 0 { usize::MAX } else { request.limit };
        let (count, more) = (found.len(), found.len() > limit && !request.count_only);
        let wanted = if request.count_only { 0 } else { limit };
        let kvs = found.into_iter().take(wanted).collect();
        Ok(RangeResponse { revision: self.revision, kvs, more, count })
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Modified { key, revision } => {
                self.keys.get(key).map_or(0, |stored| stored.kv.modified) == *revision
            }
            Compare::Version { key, version } => {
                self.keys.get(key).map_or(0, |stored| stored.kv.version) == *version
            }
        }
    }

    fn txn(&mut self, txn: Txn) -> Result<TxnResponse, EtcdError> {
        if !self.holds(&txn.compare) {
            let found = txn.otherwise.and_then(|key| self.keys.get(&key)).map(|stored| stored.kv.clone());
            return Ok(TxnResponse { revision: self.revision, succeeded: false, found });
        }
        match txn.then {
            Op::Put { lease, .. } if lease != 0 && !self.leases.contains_key(&lease) => {
                return Err(EtcdError::LeaseNotFound);
            }
            Op::Put { key, value, lease } => {
                self.revision += 1;
                self.put(key, value, lease);
            }
            // A removal of nothing is not a change.
            Op::Delete { key } if !self.keys.contains_key(&key) => {}
            Op::Delete { key } => {
                self.revision += 1;
                self.delete(key);
            }
        }
        Ok(TxnResponse { revision: self.revision, succeeded: true, found: None })
    }

    fn compact(&mut self, revision: Revision) -> Result<(), EtcdError> {
        if revision > self.revision {
            return Err(EtcdError::Future);
        }
        self.compacted = self.compacted.max(revision);
        self.history.retain(|change| change.event.revision() > self.compacted);
        Ok(())
    }
}

/// A running watch: what it reports next.
struct Watching {
    etcd: EtcdModel,
    /// `from` is the first revision that has not been reported.
    request: WatchRequest,
    changed: watch::Receiver<Revision>,
    progress: mpsc::Receiver<()>,
}

impl Watching {
    async fn next(&mut self) -> Option<WatchResponse> {
        loop {
            let newest = *self.changed.borrow_and_update();
            if let Some(response) = self.etcd.events(&self.request) {
                if let WatchResponse::Events(events) = &response {
                    self.request.from = events.last().map_or(self.request.from, |last| last.revision() + 1);
                }
                return Some(response);
            }
            let lease_end = async {
                match self.etcd.next_lease_end() {
                    Some(end) => self.etcd.clock.sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = self.changed.changed() => changed.ok()?,
                // Everything up to here has been reported.
                Some(()) = self.progress.recv() => return Some(WatchResponse::Progress(newest)),
                () = lease_end => {}
            }
        }
    }
}

impl EtcdClient for EtcdModel {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>> {
        ready(self.with(|state| state.range(&request))).boxed()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>> {
        ready(self.with(|state| state.txn(txn))).boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>> {
        // One waiting request for progress is enough.
        let (sender, progress) = mpsc::channel(1);
        let watching = Watching { etcd: self.clone(), request, changed: self.changed.subscribe(), progress };
        let responses =
            stream::unfold(watching, |mut watching| async { Some((Ok(watching.next().await?), watching)) });
        ready(Ok(EtcdWatch { responses: responses.boxed(), progress: sender })).boxed()
    }

    fn grant_lease(&self, seconds: i64) -> BoxFuture<'_, Result<i64, EtcdError>> {
        let end = self.clock.instant() + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let id = self.with(|state| {
            state.last_lease += 1;
            state.leases.insert(state.last_lease, end);
            state.last_lease
        });
        ready(Ok(id)).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), EtcdError>> {
        ready(self.with(|state| state.compact(revision))).boxed()
    }

    fn features(&self) -> Features {
        Features { reliable_progress: true }
    }
}
