//! What each reconcile wrote, so that the next one of its key waits for caches that show it.
//!
//! The client notes what it writes in a list that belongs to the reconcile under way, found through the task
//! that runs it: authors do nothing. What a reconcile has spawned as a task of its own is not noted, nor what
//! was sent and never answered: whether that was carried out nobody knows.
//!
//! What always holds: a key whose last reconcile wrote to a kind is not worked on before the cache of that
//! kind has come to the version of the write, or, after a delete, shows the object no more or as one that is
//! being deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::reconcile::WorkKey;
use crate::{Informer, Key, Kind, Object};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    At { kind: Kind, revision: u64 },
    Deleted { kind: Kind, key: Key, uid: Option<Box<str>> },
}

/// The writes of one reconcile.
#[derive(Clone, Debug, Default)]
struct Writes(Arc<Mutex<Vec<Written>>>);

tokio::task_local! {
    static UNDER_WAY: Writes;
}

/// Whether a reconcile is under way that wants to know what it wrote.
pub(crate) fn is_kept() -> bool {
    UNDER_WAY.try_with(|_| ()).is_ok()
}

/// Notes what an object of this kind was made into.
pub(crate) fn wrote(kind: &Kind, reply: &Object) {
    note(|| Written::At { kind: kind.clone(), revision: reply.meta().revision() });
}

/// Notes that an object has been deleted, or is to be.
pub(crate) fn deleted(kind: &Kind, key: &Key, uid: Option<&str>) {
    note(|| Written::Deleted { kind: kind.clone(), key: key.clone(), uid: uid.map(Into::into) });
}

fn note(written: impl FnOnce() -> Written) {
    // Nobody keeps a journal: the common case.
    let _ = UNDER_WAY.try_with(|writes| writes.0.lock().push(written()));
}

/// How long a worker waits for a cache before it turns to other keys.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the last reconcile of each key wrote and the caches may not show yet.
pub(crate) struct Journal<K> {
    informers: Vec<Informer>,
    /// At most one entry per key under way, and one write per kind and deleted object in it.
    pending: Mutex<BTreeMap<K, Vec<Written>>>,
}

impl<K: WorkKey> Journal<K> {
    /// A journal for a controller that reads these caches.
    pub(crate) fn new(informers: Vec<Informer>) -> Self {
        Self { informers, pending: Mutex::new(BTreeMap::new()) }
    }

    /// Runs the reconcile of a key and keeps what it wrote, however it ends.
    pub(crate) async fn keeping<T>(&self, key: &K, reconcile: impl Future<Output = T>) -> T {
        let kept = Kept { journal: self, key, writes: Writes::default() };
        UNDER_WAY.scope(kept.writes.clone(), reconcile).await
    }

    /// Whether the caches show what the key's last reconcile wrote; waits for them a while.
    pub(crate) async fn shown(&self, key: &K) -> bool {
        let Some(writes) = self.pending.lock().get(key).cloned() else { return true };
        let shown = async {
            for written in &writes {
                for informer in self.informers.iter().filter(|informer| informer.kind() == written.kind()) {
                    informer.shows(|informer| written.is_shown_by(informer)).await;
                }
            }
        };
        let shown = tokio::time::timeout(PATIENCE, shown).await.is_ok();
        if shown {
            self.pending.lock().remove(key);
        }
        shown
    }
}

impl Written {
    fn kind(&self) -> &Kind {
        let (Self::At { kind, .. } | Self::Deleted { kind, .. }) = self;
        kind
    }

    fn is_shown_by(&self, informer: &Informer) -> bool {
        match self {
            Self::At { revision, .. } => informer.revision() >= *revision,
            Self::Deleted { key, uid, .. } => informer.objects().get(key).is_none_or(|known| {
                let meta = known.meta();
                meta.is_being_deleted() || uid.as_ref().is_some_and(|uid| *uid != meta.uid)
            }),
        }
    }
}

/// Enters the writes of a reconcile when it ends, by return, panic or timeout.
struct Kept<'a, K: WorkKey> {
    journal: &'a Journal<K>,
    key: &'a K,
    writes: Writes,
}

impl<K: WorkKey> Drop for Kept<'_, K> {
    fn drop(&mut self) {
        let writes = newest(std::mem::take(&mut *self.writes.0.lock()));
        if !writes.is_empty() {
            self.journal.pending.lock().insert(self.key.clone(), writes);
        }
    }
}

/// Of the writes to a kind the newest: a cache that shows it shows the others.
fn newest(writes: Vec<Written>) -> Vec<Written> {
    let mut kept: Vec<Written> = Vec::new();
    for written in writes {
        let known = kept.iter_mut().find_map(|known| match (known, &written) {
            (Written::At { kind, revision }, Written::At { kind: other, .. }) if kind == other => {
                Some(revision)
            }
            _ => None,
        });
        match (known, &written) {
            (Some(known), Written::At { revision, .. }) => *known = (*known).max(*revision),
            _ => kept.push(written),
        }
    }
    kept
}
