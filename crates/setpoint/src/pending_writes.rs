//! Records the writes of each reconcile, so that the next reconcile of the same key can wait for caches that show them.
//!
//! The client appends its writes to a list that belongs to the current reconcile, through a task-local variable, so
//! that authors need no extra code. Writes from separately spawned tasks are not recorded, and neither are writes that
//! got no response, because it is unknown whether they happened.
//!
//! Invariant: a key whose last reconcile wrote an object is not reconciled before the caches that select the object have
//! reached the version of the write. After a delete, the cache must show the object as being deleted, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::controller::Caches;
use crate::reconcile::WorkKey;
use crate::{Informer, Key, Kind, LabelSelector, Labels, Object};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PendingWrite {
    At { kind: Kind, revision: u64, key: Key, labels: Labels },
    Deleted { kind: Kind, key: Key, uid: Option<Box<str>> },
}

/// What the next reconcile of a key waits for.
#[derive(Clone)]
enum Awaited {
    /// A cache reaches a version.
    Revision { informer: Informer, revision: u64 },
    /// The caches of a kind show an object as being deleted, or not at all.
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
    push(|| {
        let (key, labels) = (reply.key().clone(), reply.meta().labels.clone());
        PendingWrite::At { kind: kind.clone(), revision: reply.meta().revision(), key, labels }
    });
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
    /// At most one entry per active key, with one item per cache and per deleted object.
    pending: Mutex<BTreeMap<K, Vec<Awaited>>>,
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
        let Some(awaited) = self.pending.lock().get(key).cloned() else { return true };
        let informers = self.caches.all();
        let shown = async {
            for one in &awaited {
                one.is_shown(&informers).await;
            }
        };
        let shown = tokio::time::timeout(CACHE_TIMEOUT, shown).await.is_ok();
        if shown {
            self.pending.lock().remove(key);
        }
        shown
    }
}

impl Awaited {
    /// Waits until the caches show it.
    async fn is_shown(&self, informers: &[Informer]) {
        match self {
            Self::Revision { informer, revision } => {
                informer.shows(|informer| informer.revision() >= *revision).await;
            }
            Self::Deleted { kind, key, uid } => {
                for informer in informers.iter().filter(|informer| informer.kind() == kind) {
                    informer.shows(|informer| is_deleted(informer, key, uid.as_deref())).await;
                }
            }
        }
    }
}

fn is_deleted(informer: &Informer, key: &Key, uid: Option<&str>) -> bool {
    informer.objects().get(key).is_none_or(|known| {
        let meta = known.meta();
        meta.is_being_deleted() || uid.is_some_and(|uid| *uid != *meta.uid)
    })
}

/// Returns whether a cache shows the write of an object. A cache of other objects of the kind would only reach the
/// version of the write with its next bookmark, which may take a minute.
fn shows(informer: &Informer, key: &Key, labels: &Labels) -> bool {
    let selection = informer.selection();
    let is_in_namespace = selection.namespace.as_deref().is_none_or(|wanted| key.namespace() == Some(wanted));
    let selects =
        |text: &str| text.parse::<LabelSelector>().map_or(true, |selector| selector.matches(labels));
    // An object that is no longer selected disappears from the cache. Field selectors are not evaluated here.
    is_in_namespace && selection.labels.as_deref().is_none_or(selects)
        || informer.objects().get(key).is_some()
}

/// A guard that stores the writes of a reconcile when it ends, by return, panic or timeout.
struct StoreOnDrop<'a, K: WorkKey> {
    owner: &'a PendingWrites<K>,
    key: &'a K,
    writes: Writes,
}

impl<K: WorkKey> Drop for StoreOnDrop<'_, K> {
    fn drop(&mut self) {
        let writes = std::mem::take(&mut *self.writes.0.lock());
        if writes.is_empty() {
            return;
        }
        let awaited = awaited(writes, &self.owner.caches.all());
        let mut pending = self.owner.pending.lock();
        match awaited.is_empty() {
            true => drop(pending.remove(self.key)),
            false => drop(pending.insert(self.key.clone(), awaited)),
        }
    }
}

/// Returns what to wait for after these writes. Only the newest write in each cache counts: a cache that shows it shows
/// the others.
fn awaited(writes: Vec<PendingWrite>, informers: &[Informer]) -> Vec<Awaited> {
    let newest = |informer: &Informer| {
        let revisions = writes.iter().filter_map(|written| match written {
            PendingWrite::At { kind, revision, key, labels } if informer.kind() == kind => {
                shows(informer, key, labels).then_some(*revision)
            }
            _ => None,
        });
        Some(Awaited::Revision { informer: informer.clone(), revision: revisions.max()? })
    };
    let mut awaited: Vec<Awaited> = informers.iter().filter_map(newest).collect();
    awaited.extend(writes.into_iter().filter_map(|written| match written {
        PendingWrite::Deleted { kind, key, uid } => Some(Awaited::Deleted { kind, key, uid }),
        PendingWrite::At { .. } => None,
    }));
    awaited
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
        let writes = Writes::default();
        let kind = Kind::new("", "v1", "Namespace", "namespaces", false);
        let body = serde_json::json!({"metadata": {"name": "a"}});
        let create = client.create(&kind, None, &body);
        CURRENT_WRITES.scope(writes.clone(), create).await.expect("it is answered");
        writes.0.lock().len()
    }

    #[tokio::test]
    async fn writes_to_another_server_are_not_awaited() {
        assert_eq!((remembered(false).await, remembered(true).await), (1, 0));
    }
}
