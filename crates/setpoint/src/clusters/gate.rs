//! A gate between the events of a cluster and the queue of a controller. While it is closed, keys wait in it instead of
//! in the queue, where they would occupy workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ClusterKey;
use crate::queue::Priority;
use crate::{Key, Queue};

/// The gate of one cluster and one controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Shared>);

struct Shared {
    cluster: Arc<str>,
    queue: Queue<ClusterKey>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    has_synced: bool,
    is_unreachable: bool,
    /// The keys that wait. Bounded by the objects of the cluster, like the queue.
    waiting: BTreeSet<Key>,
}

impl State {
    fn is_open(&self) -> bool {
        self.has_synced && !self.is_unreachable
    }
}

impl Gate {
    /// A closed gate.
    pub(super) fn new(cluster: &Arc<str>, queue: &Queue<ClusterKey>) -> Self {
        let state = Mutex::default();
        Self(Arc::new(Shared { cluster: cluster.clone(), queue: queue.clone(), state }))
    }

    pub(crate) fn queue(&self) -> &Queue<ClusterKey> {
        &self.0.queue
    }

    /// Returns a key for the queue, or keeps it until the gate opens.
    pub(crate) fn admit(&self, key: Key) -> Option<ClusterKey> {
        let mut state = self.0.state.lock();
        if state.is_open() {
            return Some(ClusterKey { cluster: self.0.cluster.clone(), key });
        }
        state.waiting.insert(key);
        None
    }

    /// The caches have synced.
    pub(super) fn synced(&self) {
        self.change(|state| state.has_synced = true);
    }

    pub(super) fn has_synced(&self) -> bool {
        self.0.state.lock().has_synced
    }

    pub(super) fn set_reachable(&self, is_reachable: bool) {
        self.change(|state| state.is_unreachable = !is_reachable);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock();
        change(&mut state);
        if state.is_open() {
            for key in std::mem::take(&mut state.waiting) {
                let key = ClusterKey { cluster: self.0.cluster.clone(), key };
                self.0.queue.add_with_priority(key, Priority::Low);
            }
        }
    }
}
