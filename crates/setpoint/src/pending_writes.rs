//! Records the writes of each reconcile, so that the next reconcile of the same key can wait for caches that show them.
//!
//! The client appends its writes to a list that belongs to the current reconcile, through a task-local variable, so
//! that authors need no extra code. Writes from separately spawned tasks are not recorded, and neither are writes that
//! got no response, because it is unknown whether they happened.
//!
//! Invariant: a key whose last reconcile wrote to a kind is not reconciled before the cache of that kind has reached
//! the version of the write. After a delete, the cache must show the object as being deleted, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::controller::Caches;
use crate::reconcile::WorkKey;
use crate::{Informer, Key, Kind, Object};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PendingWrite {
    At { kind: Kind, revision: u64 },
    Deleted { kind: Kind, key: Key, uid: Option<Box<str>> },
}

/// The writes of one reconcile.
#[derive(Clone, Debug, Default)]
struct Writes(Arc<Mutex<Vec<PendingWrite>>>);

tokio::task_local! {
    static CURRENT_WRITES: Writes;
}

/// Returns whether the current reconcile records its writes.
pub(crate) fn is_recording() -> bool {
    CURRENT_WRITES.try_with(|_| ()).is_ok()
}

/// Records a create or an update.
pub(crate) fn wrote(kind: &Kind, reply: &Object) {
    push(|| PendingWrite::At { kind: kind.clone(), revision: reply.meta().revision() });
}

/// Records a delete, which may still be pending.
pub(crate) fn deleted(kind: &Kind, key: &Key, uid: Option<&str>) {
    push(|| PendingWrite::Deleted { kind: kind.clone(), key: key.clone(), uid: uid.map(Into::into) });
}

fn push(written: impl FnOnce() -> PendingWrite) {
    // Outside of a recorded reconcile, the common case, this does nothing.
    let _ = CURRENT_WRITES.try_with(|writes| writes.0.lock().push(written()));
}

/// How long a worker waits for a cache before it moves on to other keys.
const CACHE_TIMEOUT: Duration = Duration::from_secs(1);

/// The writes of each key's last reconcile that the caches may not show yet.
pub(crate) struct PendingWrites<K> {
    caches: Caches,
    /// At most one entry per active key, with one write per kind and per deleted object.
    pending: Mutex<BTreeMap<K, Vec<PendingWrite>>>,
}

impl<K: WorkKey> PendingWrites<K> {
    /// Creates a tracker for a controller that reads these caches.
    pub(crate) fn new(caches: Caches) -> Self {
        Self { caches, pending: Mutex::new(BTreeMap::new()) }
    }

    /// Runs the reconcile of a key and keeps its writes, however it ends.
    pub(crate) async fn record<T>(&self, key: &K, reconcile: impl Future<Output = T>) -> T {
        let kept = StoreOnDrop { owner: self, key, writes: Writes::default() };
        CURRENT_WRITES.scope(kept.writes.clone(), reconcile).await
    }

    /// Returns whether the caches show the writes of the key's last reconcile. Waits for a while if they do not.
    pub(crate) async fn wait_until_shown(&self, key: &K) -> bool {
        let Some(writes) = self.pending.lock().get(key).cloned() else { return true };
        let informers = self.caches.all();
        let shown = async {
            for written in &writes {
                for informer in informers.iter().filter(|informer| informer.kind() == written.kind()) {
                    informer.shows(|informer| written.is_shown_by(informer)).await;
                }
            }
        };
        let shown = tokio::time::timeout(CACHE_TIMEOUT, shown).await.is_ok();
        if shown {
            self.pending.lock().remove(key);
        }
        shown
    }
}

impl PendingWrite {
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

/// A guard that stores the writes of a reconcile when it ends, by return, panic or timeout.
struct StoreOnDrop<'a, K: WorkKey> {
    owner: &'a PendingWrites<K>,
    key: &'a K,
    writes: Writes,
}

impl<K: WorkKey> Drop for StoreOnDrop<'_, K> {
    fn drop(&mut self) {
        let writes = newest(std::mem::take(&mut *self.writes.0.lock()));
        if !writes.is_empty() {
            self.owner.pending.lock().insert(self.key.clone(), writes);
        }
    }
}

/// Keeps only the newest write to each kind: a cache that shows it shows the others.
fn newest(writes: Vec<PendingWrite>) -> Vec<PendingWrite> {
    let mut kept: Vec<PendingWrite> = Vec::new();
    for written in writes {
        let known = kept.iter_mut().find_map(|known| match (known, &written) {
            (PendingWrite::At { kind, revision }, PendingWrite::At { kind: other, .. }) if kind == other => {
                Some(revision)
            }
            _ => None,
        });
        match (known, &written) {
            (Some(known), PendingWrite::At { revision, .. }) => *known = (*known).max(*revision),
            _ => kept.push(written),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;

    /// Returns how many writes are recorded for a reconcile that creates an object.
    async fn remembered(untracked: bool) -> usize {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let body = br#"{"metadata":{"name":"a","uid":"1","resourceVersion":"9"}}"#;
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(body.to_vec())))
        });
        let client = Client::new(kube::Client::new(service, "default"));
        let client = if untracked { client.untracked() } else { client };
        let (writes, key) = (PendingWrites::new(Caches::default()), Key::cluster("a"));
        let kind = Kind::new("", "v1", "Namespace", "namespaces", false);
        let body = serde_json::json!({"metadata": {"name": "a"}});
        let create = client.create(&kind, None, &body);
        writes.record(&key, create).await.expect("it is answered");
        writes.pending.lock().len()
    }

    #[tokio::test]
    async fn writes_to_another_server_are_not_awaited() {
        assert_eq!((remembered(false).await, remembered(true).await), (1, 0));
    }
}
