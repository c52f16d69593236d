//! Whose turn it is: the more important pods first.
//!
//! The work queue hands pods out in the order they came. A pod that is handed out while a more important one
//! waits steps aside and queues again behind it; since that one is in the queue too, its turn comes.

use std::collections::BTreeMap;

use setpoint::Key;

/// The pods that are in the work queue now, by priority. Bounded by the pending pods.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    priorities: BTreeMap<Key, i32>,
    counts: BTreeMap<i32, usize>,
}

impl Waiting {
    pub(crate) fn insert(&mut self, key: Key, priority: i32) {
        if let Some(before) = self.priorities.insert(key, priority) {
            self.decrement(before);
        }
        *self.counts.entry(priority).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(priority) = self.priorities.remove(key) {
            self.decrement(priority);
        }
    }

    /// Whether a pod waits that is more important than one of this priority.
    pub(crate) fn anyone_above(&self, priority: i32) -> bool {
        self.counts.last_key_value().is_some_and(|(highest, _)| *highest > priority)
    }

    fn decrement(&mut self, priority: i32) {
        if let Some(count) = self.counts.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&priority);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_waits_only_for_more_important_ones() {
        let mut waiting = Waiting::default();
        let key = |name: &str| Key::namespaced("default", name);
        waiting.insert(key("a"), 0);
        waiting.insert(key("b"), 10);
        assert!(waiting.anyone_above(0) && !waiting.anyone_above(10));
        waiting.insert(key("b"), 5);
        assert!(waiting.anyone_above(4) && !waiting.anyone_above(5));
        waiting.remove(&key("b"));
        assert!(!waiting.anyone_above(0));
        waiting.remove(&key("a"));
        assert!(!waiting.anyone_above(-1));
    }
}
