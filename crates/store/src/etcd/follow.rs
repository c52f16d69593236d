//! Loads the cache, and follows etcd's watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use super::client::{EtcdClient, EtcdError, KeyValue, WatchEvent, WatchRequest, WatchResponse};
use super::keyspace::Keyspace;
use super::load::{Pages, Unknown};
use super::{Shared, check_not_restored};
use crate::core::State;
use crate::decide::removal;
use crate::watcher_group::PendingWakes;
use crate::{Event, EventKind, Key, Limits, Record, Revision};

/// How long to wait before the watch is started again: doubles with each failure in a row.
const RETRY: Duration = Duration::from_millis(50);
const MAX_RETRY: Duration = Duration::from_secs(5);
/// How many changes are published under one lock, unless one revision has more.
const PUBLISH: usize = 256;
/// How often to start over if etcd compacts a revision while it is loaded.
const LOADS: usize = 5;

/// Why following ended.
enum Ended {
    /// etcd has forgotten what comes next.
    Compacted(Revision),
    Failed(EtcdError),
}

impl From<EtcdError> for Ended {
    fn from(error: EtcdError) -> Self {
        Self::Failed(error)
    }
}

/// Reads all records at one revision.
pub(super) async fn load(
    client: &dyn EtcdClient,
    keyspace: &Keyspace,
    limits: Limits,
    unknown: &mut Unknown,
) -> Result<State, EtcdError> {
    let mut attempts = 1;
    loop {
        match load_once(client, keyspace, limits, unknown).await {
            Err(EtcdError::Compacted) if attempts < LOADS => attempts += 1,
            result => return result,
        }
    }
}

async fn load_once(
    client: &dyn EtcdClient,
    keyspace: &Keyspace,
    limits: Limits,
    unknown: &mut Unknown,
) -> Result<State, EtcdError> {
    let mut state = State::new(limits);
    let mut pages = Pages::new(client, keyspace.all(), None);
    *unknown = Unknown::default();
    while let Some(page) = pages.next().await? {
        for kv in &page.kvs {
            match keyspace.key_at(&kv.key) {
                Some(key) => state.load(Arc::new(keyspace.read(key, kv).await)),
                None => _ = unknown.add(keyspace, &kv.key),
            }
        }
    }
    state.start_at(pages.revision().unwrap_or_default());
    Ok(state)
}

/// Follows etcd for as long as the store is open.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut retry = RETRY;
    loop {
        let before = shared.core.revision();
        let error = match shared.follow().await {
            Ended::Failed(error) => Some(error),
            Ended::Compacted(oldest) => {
                tracing::warn!(
                    seen = before,
                    oldest,
                    "etcd has compacted changes that were not seen yet: loading all records again"
                );
                shared.reload().await.err()
            }
        };
        if shared.core.revision() > before {
            retry = RETRY;
        }
        if let Some(error) = error {
            shared.report(&error);
            shared.clock.sleep(retry).await;
            retry = (retry * 2).min(MAX_RETRY);
        }
    }
}

/// A change that the watch reported.
struct Change {
    place: Bytes,
    revision: Revision,
    /// `None`: not a record that the codec knows.
    key: Option<Key>,
    /// `None`: removed.
    record: Option<Arc<Record>>,
}

impl Shared {
    fn report(&self, error: &EtcdError) {
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            tracing::warn!(%error, "the watch of etcd was interrupted");
        }
        *trouble = Some(error.to_string());
    }

    /// Follows one watch to its end.
    async fn follow(&self) -> Ended {
        match self.follow_watch().await {
            Ok(ended) | Err(ended) => ended,
        }
    }

    async fn follow_watch(&self) -> Result<Ended, Ended> {
        let reliable_progress = self.client.features().reliable_progress;
        // Without progress notifications, only an event tells that the watch has arrived at a revision. So the watch
        // is of all keys, and each revision has one.
        let (key, end) = match reliable_progress {
            true => self.keyspace.all(),
            false => (Bytes::from_static(b"\0"), Bytes::from_static(b"\0")),
        };
        // etcd would accept a watch from a future revision, and send nothing until it is reached.
        self.newest().await?;
        let from = self.core.revision() + 1;
        let mut watch = self.client.watch(WatchRequest { key, end, from }).await?;
        if self.client.features().reliable_progress != reliable_progress {
            let why = "a member of etcd has an older version, so the watch is started again";
            return Err(EtcdError::Unavailable(why.into()).into());
        }
        if self.trouble.lock().take().is_some() {
            tracing::info!(from, "the watch of etcd continues");
        }
        *self.progress.lock() = Some(watch.progress).filter(|_| reliable_progress);
        while let Some(response) = watch.responses.next().await {
            match response? {
                WatchResponse::Events(events) => self.apply(events).await,
                WatchResponse::Progress(revision) => self.progressed(revision),
                WatchResponse::Compacted(oldest) => return Ok(Ended::Compacted(oldest)),
            }
        }
        Err(EtcdError::Unavailable("the watch of etcd ended".into()).into())
    }

    fn progressed(&self, revision: Revision) {
        self.core.change(|state, _| state.advance(revision));
        self.pending.wake_all();
        self.has_seen(self.core.revision());
    }

    /// Publishes changes, a number of complete revisions at a time.
    async fn apply(&self, events: Vec<WatchEvent>) {
        let seen = self.core.revision();
        let mut changes = Vec::with_capacity(events.len());
        for event in events.into_iter().filter(|event| event.revision() > seen) {
            changes.push(self.change(event).await);
        }
        let mut rest = &changes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(whole_revisions(rest));
            self.core.change(|state, wakes| now.iter().for_each(|change| change.publish(state, wakes)));
            self.pending.wake(now.iter().map(|change| &change.place));
            self.has_seen(self.core.revision());
            rest = later;
        }
    }

    async fn change(&self, event: WatchEvent) -> Change {
        let revision = event.revision();
        let (WatchEvent::Put(KeyValue { key: place, .. }) | WatchEvent::Delete { key: place, .. }) = &event;
        let place = place.clone();
        let Some(key) = self.keyspace.key_at(&place) else {
            self.note_unknown(&place);
            return Change { place, revision, key: None, record: None };
        };
        let record = match &event {
            WatchEvent::Put(kv) => Some(self.written(&key, kv).await),
            WatchEvent::Delete { .. } => None,
        };
        Change { place, revision, key: Some(key), record }
    }

    async fn written(&self, key: &Key, kv: &KeyValue) -> Arc<Record> {
        // An update reuses the existing key, so that all of history shares one copy.
        let key = self.core.read().record(key).map_or_else(|| key.clone(), |current| current.key.clone());
        match self.pending.record(&key, kv) {
            Some(record) => record,
            None => {
                let record = self.keyspace.read(key, kv).await;
                if let Some(reason) = record.unreadable() {
                    let key = self.keyspace.place_of(&record.key);
                    tracing::error!(key, reason, "cannot read a stored object");
                }
                Arc::new(record)
            }
        }
    }

    fn note_unknown(&self, place: &Bytes) {
        if place.starts_with(self.keyspace.prefix.as_bytes())
            && self.unknown.lock().add(&self.keyspace, place)
        {
            let key = String::from_utf8_lossy(place).into_owned();
            tracing::warn!(key, "etcd has a key that this server does not know; it is left alone");
        }
    }

    /// Loads the cache anew.
    async fn reload(&self) -> Result<(), EtcdError> {
        let mut unknown = Unknown::default();
        let state = load(&*self.client, &self.keyspace, self.limits, &mut unknown).await?;
        let (seen, newest) = (self.core.revision(), state.revision);
        check_not_restored(seen, newest)?;
        *self.unknown.lock() = unknown;
        let _forgotten = self.core.change(|current, wakes| current.replace(state, wakes));
        self.pending.wake_all();
        self.has_seen(newest);
        Ok(())
    }
}

/// Returns how many changes to publish together: at least [`PUBLISH`], if there are that many, up to the end of a
/// revision.
fn whole_revisions(changes: &[Change]) -> usize {
    let least = PUBLISH.min(changes.len());
    let last = changes[least - 1].revision;
    least + changes[least..].iter().take_while(|change| change.revision == last).count()
}

impl Change {
    fn publish(&self, state: &mut State, wakes: &mut PendingWakes) {
        let current = self.key.as_ref().and_then(|key| state.record(key)).cloned();
        match (&self.record, current) {
            (Some(record), previous) => {
                let kind = if previous.is_some() { EventKind::Updated } else { EventKind::Created };
                state.publish(Event { kind, record: record.clone(), previous }, wakes);
            }
            (None, Some(current)) => state.publish(removal(&current, self.revision), wakes),
            (None, None) => state.advance(self.revision),
        }
    }
}
