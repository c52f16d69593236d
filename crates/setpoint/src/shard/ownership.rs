//! The shards of this replica, and the keys it is working on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ring::shard_of;
use crate::Key;
use crate::config::ShardBy;
use crate::leader::Fence;

/// The shards of a replica. Cheap to clone.
///
/// ```
/// use setpoint::{Clock, Key, shard::Shards};
/// let all = Shards::whole(&Clock::system());
/// assert!(all.owns(&Key::namespaced("default", "web")));
/// ```
#[derive(Clone)]
pub struct Shards {
    shared: Arc<Inner>,
}

struct Inner {
    /// How keys are split. `None`: this replica handles all of them.
    split: Option<(u32, ShardBy)>,
    fence: Fence,
    state: Mutex<State>,
    /// Notified when the work on a shard that is being handed over has ended.
    drained: Notify,
}

/// Called with a function that returns whether a key is in a newly owned shard.
type Begin = Arc<dyn Fn(&dyn Fn(&Key) -> bool) + Send + Sync>;

#[derive(Default)]
struct State {
    owned: BTreeSet<u32>,
    /// The owned shards on which no new work is started.
    draining: BTreeSet<u32>,
    /// The number of keys in progress per shard. At most as many entries as there are workers.
    working: BTreeMap<u32, usize>,
    /// Callbacks for newly owned shards: one per controller, until it ends.
    begins: BTreeMap<u64, Begin>,
    /// The number of callbacks so far.
    registered: u64,
}

/// The registration of a callback. Dropping it removes the callback.
pub(super) struct Registered {
    shards: Shards,
    nth: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let removed = self.shards.shared.state.lock().begins.remove(&self.nth);
        // It may own more of this: it is dropped without the lock.
        drop(removed);
    }
}

/// Work on a key of an owned shard. The shard is not handed over before this is dropped.
pub(super) struct InFlight {
    shards: Shards,
    shard: u32,
}

impl Shards {
    /// Creates an unsharded set: this replica handles everything.
    pub fn whole(clock: &crate::Clock) -> Self {
        Self::new(None, Fence::open(clock))
    }

    pub(super) fn new(split: Option<(u32, ShardBy)>, fence: Fence) -> Self {
        let (state, drained) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Inner { split, fence, state, drained }) }
    }

    /// Returns the shard of a key.
    pub fn shard_of(&self, key: &Key) -> u32 {
        self.shared.split.map_or(0, |(shards, by)| shard_of(key, by, shards))
    }

    /// Returns whether this replica, and no other, may work on a key now.
    pub fn owns(&self, key: &Key) -> bool {
        let shard = self.shard_of(key);
        self.shared.split.is_none()
            || (self.shared.fence.holds() && self.shared.state.lock().owned.contains(&shard))
    }

    /// Returns the shards that this replica owns, if its membership is valid.
    pub fn owned(&self) -> Vec<u32> {
        match self.shared.fence.holds() {
            true => self.shared.state.lock().owned.iter().copied().collect(),
            false => Vec::new(),
        }
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.shared.fence
    }

    /// Starts work on a key, if this replica may work on its shard.
    pub(super) fn begin(&self, key: &Key) -> Option<InFlight> {
        let shard = self.shard_of(key);
        let mut state = self.shared.state.lock();
        let allowed = state.owned.contains(&shard) && !state.draining.contains(&shard);
        if self.shared.split.is_some() && !(allowed && self.shared.fence.holds()) {
            return None;
        }
        *state.working.entry(shard).or_default() += 1;
        Some(InFlight { shards: self.clone(), shard })
    }

    /// Calls `callback` whenever this replica gains shards, with a function that returns whether a key is in them.
    pub(super) fn on_begin(
        &self,
        callback: impl Fn(&dyn Fn(&Key) -> bool) + Send + Sync + 'static,
    ) -> Registered {
        let mut state = self.shared.state.lock();
        let nth = state.registered;
        state.registered += 1;
        state.begins.insert(nth, Arc::new(callback));
        Registered { shards: self.clone(), nth }
    }

    /// Starts no more work on these shards.
    pub(super) fn drain(&self, shards: &[u32]) {
        self.shared.state.lock().draining.extend(shards);
    }

    /// Returns whether a shard is drained: no work is in progress, and none will start.
    pub(super) fn is_drained(&self, shard: u32) -> bool {
        let state = self.shared.state.lock();
        state.draining.contains(&shard) && !state.working.contains_key(&shard)
    }

    /// Waits until the work on a shard that is being handed over has ended.
    pub(super) async fn drained(&self) {
        self.shared.drained.notified().await;
    }

    /// Owns exactly these shards from now on. The keys of new shards are enqueued, because changes may have been
    /// missed; with `rejoined`, after a lapse, those of all shards are.
    pub(super) fn own(&self, shards: BTreeSet<u32>, rejoined: bool) {
        let mut state = self.shared.state.lock();
        let begun: BTreeSet<u32> = match rejoined {
            true => shards.clone(),
            false => shards.difference(&state.owned).copied().collect(),
        };
        state.draining.retain(|shard| shards.contains(shard) && !begun.contains(shard));
        state.owned = shards;
        let begins = if begun.is_empty() { Vec::new() } else { state.begins.values().cloned().collect() };
        drop(state);
        for callback in begins {
            callback(&|key| begun.contains(&self.shard_of(key)));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.shards.shared.state.lock();
        if let Some(count) = state.working.get_mut(&self.shard) {
            *count -= 1;
            if *count == 0 {
                state.working.remove(&self.shard);
                if state.draining.contains(&self.shard) {
                    self.shards.shared.drained.notify_one();
                }
            }
        }
    }
}
