//! Which parts this replica works on, and what it is working on right now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ring::shard_of;
use crate::Key;
use crate::config::ShardBy;
use crate::leader::Fence;

/// The parts of a replica. Cheap to clone.
///
/// ```
/// use setpoint::{Clock, Key, shard::Shards};
/// let all = Shards::whole(&Clock::system());
/// assert!(all.owns(&Key::namespaced("default", "web")));
/// ```
#[derive(Clone)]
pub struct Shards {
    shared: Arc<Shared>,
}

struct Shared {
    /// How keys are split; without it this replica works on all of them.
    split: Option<(u32, ShardBy)>,
    fence: Fence,
    state: Mutex<State>,
    /// Told when the work on a part that is to be handed on has ended.
    drained: Notify,
}

/// Is called with what tells whether a key is in a part that has just begun.
type Begin = Arc<dyn Fn(&dyn Fn(&Key) -> bool) + Send + Sync>;

#[derive(Default)]
struct State {
    owned: BTreeSet<u32>,
    /// Those of the owned ones on which no more work is begun.
    draining: BTreeSet<u32>,
    /// How many keys of a part are worked on: as many entries as workers at most.
    working: BTreeMap<u32, usize>,
    /// What is told of parts that this replica begins to own: one entry per controller.
    begins: Vec<Begin>,
}

/// Work on a key of an owned part; the part is not handed on before this is dropped.
pub(super) struct Working {
    shards: Shards,
    shard: u32,
}

impl Shards {
    /// No parts: this replica works on everything.
    pub fn whole(clock: &crate::Clock) -> Self {
        Self::new(None, Fence::open(clock))
    }

    pub(super) fn new(split: Option<(u32, ShardBy)>, fence: Fence) -> Self {
        let (state, drained) = (Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { split, fence, state, drained }) }
    }

    /// The part that a key belongs to.
    pub fn shard_of(&self, key: &Key) -> u32 {
        self.shared.split.map_or(0, |(shards, by)| shard_of(key, by, shards))
    }

    /// Whether this replica, and no other, may work on a key now.
    pub fn owns(&self, key: &Key) -> bool {
        let shard = self.shard_of(key);
        self.shared.split.is_none()
            || (self.shared.fence.holds() && self.shared.state.lock().owned.contains(&shard))
    }

    /// The parts that this replica owns, if its membership holds.
    pub fn owned(&self) -> Vec<u32> {
        match self.shared.fence.holds() {
            true => self.shared.state.lock().owned.iter().copied().collect(),
            false => Vec::new(),
        }
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.shared.fence
    }

    /// Begins work on a key, if its part is this replica's to work on.
    pub(super) fn begin(&self, key: &Key) -> Option<Working> {
        let shard = self.shard_of(key);
        let mut state = self.shared.state.lock();
        let allowed = state.owned.contains(&shard) && !state.draining.contains(&shard);
        if self.shared.split.is_some() && !(allowed && self.shared.fence.holds()) {
            return None;
        }
        *state.working.entry(shard).or_default() += 1;
        Some(Working { shards: self.clone(), shard })
    }

    /// Calls `told` whenever this replica begins to own parts, with what tells whose keys are in them.
    pub(super) fn on_begin(&self, told: impl Fn(&dyn Fn(&Key) -> bool) + Send + Sync + 'static) {
        self.shared.state.lock().begins.push(Arc::new(told));
    }

    /// Begins no more work on these parts.
    pub(super) fn drain(&self, shards: &[u32]) {
        self.shared.state.lock().draining.extend(shards);
    }

    /// Whether a part is drained: no work on it, and none will begin.
    pub(super) fn is_drained(&self, shard: u32) -> bool {
        let state = self.shared.state.lock();
        state.draining.contains(&shard) && !state.working.contains_key(&shard)
    }

    /// Waits until the work on a part that is to be handed on has ended.
    pub(super) async fn drained(&self) {
        self.shared.drained.notified().await;
    }

    /// Owns exactly these parts from now on. Those that are new, or all of them `anew` after a lapse, have
    /// their keys looked at: what happened while nobody here looked is not known.
    pub(super) fn own(&self, shards: BTreeSet<u32>, anew: bool) {
        let mut state = self.shared.state.lock();
        let begun: BTreeSet<u32> = match anew {
            true => shards.clone(),
            false => shards.difference(&state.owned).copied().collect(),
        };
        state.draining.retain(|shard| shards.contains(shard) && !begun.contains(shard));
        state.owned = shards;
        let begins = if begun.is_empty() { Vec::new() } else { state.begins.clone() };
        drop(state);
        for told in begins {
            told(&|key| begun.contains(&self.shard_of(key)));
        }
    }
}

impl Drop for Working {
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
