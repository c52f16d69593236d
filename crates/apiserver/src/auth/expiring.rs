//! A bounded cache with expiring entries.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Instant;

/// A key: a digest, so that the size of an entry does not depend on client input.
pub(super) type Digest = [u8; 32];

/// When full, evicts the least recently used entry.
pub(super) struct Expiring<V> {
    capacity: usize,
    state: Mutex<State<V>>,
}

struct State<V> {
    entries: BTreeMap<Digest, Entry<V>>,
    /// Keys in order of last use.
    order: BTreeMap<u64, Digest>,
    turn: u64,
}

struct Entry<V> {
    value: V,
    expires: Instant,
    used: u64,
}

impl<V: Clone> Expiring<V> {
    pub(super) fn new(capacity: usize) -> Self {
        let state = State { entries: BTreeMap::new(), order: BTreeMap::new(), turn: 0 };
        Self { capacity, state: Mutex::new(state) }
    }

    pub(super) fn get(&self, key: &Digest, now: Instant) -> Option<V> {
        let mut state = self.state.lock();
        if state.entries.get(key)?.expires <= now {
            state.remove(key);
            return None;
        }
        state.turn += 1;
        let State { entries, order, turn } = &mut *state;
        let entry = entries.get_mut(key)?;
        order.remove(&entry.used);
        entry.used = *turn;
        order.insert(*turn, *key);
        Some(entry.value.clone())
    }

    /// Caches a value for `ttl`; does nothing if `ttl` is zero.
    pub(super) fn set(&self, key: Digest, value: V, now: Instant, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let Some(expires) = now.checked_add(ttl) else { return };
        let mut state = self.state.lock();
        state.remove(&key);
        while state.entries.len() >= self.capacity {
            let Some((_, oldest)) = state.order.pop_first() else { break };
            state.entries.remove(&oldest);
        }
        state.turn += 1;
        let used = state.turn;
        state.order.insert(used, key);
        state.entries.insert(key, Entry { value, expires, used });
    }
}

impl<V> State<V> {
    fn remove(&mut self, key: &Digest) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_expire_and_the_least_used_makes_room() {
        let clock = setpoint_clock::Clock::simulated(jiff::Timestamp::UNIX_EPOCH);
        let cache = Expiring::new(2);
        let second = Duration::from_secs(1);
        for key in [1, 2] {
            cache.set([key; 32], key, clock.instant(), second);
        }
        assert_eq!(cache.get(&[1; 32], clock.instant()), Some(1));
        cache.set([3; 32], 3, clock.instant(), second * 2);
        assert_eq!(cache.get(&[2; 32], clock.instant()), None);
        assert_eq!(cache.get(&[1; 32], clock.instant()), Some(1));
        clock.sleep(second).await;
        assert_eq!(cache.get(&[1; 32], clock.instant()), None);
        assert_eq!(cache.get(&[3; 32], clock.instant()), Some(3));
        cache.set([4; 32], 4, clock.instant(), Duration::ZERO);
        assert_eq!(cache.get(&[4; 32], clock.instant()), None);
    }
}
