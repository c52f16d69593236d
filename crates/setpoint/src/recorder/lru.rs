//! A map that evicts the least recently used entry.

use std::collections::BTreeMap;

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

/// At most `capacity` values, by text.
pub(super) struct Lru<V> {
    capacity: usize,
    uses: u64,
    values: IndexMap<String, (u64, V), DefaultHashBuilder>,
    /// The keys by when they were last used.
    order: BTreeMap<u64, String>,
}

impl<V> Lru<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, values: IndexMap::default(), order: BTreeMap::new() }
    }

    /// Returns the value of a key, inserting it if necessary, and marks it as used.
    pub(super) fn get_or_insert(&mut self, key: &str, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let uses = self.uses;
        match self.values.get_full(key) {
            Some((index, ..)) => self.touch(index, uses),
            None => self.insert(key, uses, make()),
        }
    }

    fn touch(&mut self, index: usize, uses: u64) -> &mut V {
        let (last, value) = &mut self.values[index];
        if let Some(key) = self.order.remove(last) {
            self.order.insert(uses, key);
        }
        *last = uses;
        value
    }

    fn insert(&mut self, key: &str, uses: u64, value: V) -> &mut V {
        if self.values.len() >= self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.values.swap_remove(&oldest);
        }
        self.order.insert(uses, key.to_owned());
        &mut self.values.entry(key.to_owned()).or_insert((uses, value)).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert("a", || 0) = 1;
        *lru.get_or_insert("b", || 0) = 2;
        assert_eq!(*lru.get_or_insert("a", || 0), 1);
        lru.get_or_insert("c", || 3); // forgets b
        assert_eq!(*lru.get_or_insert("a", || 0), 1);
        assert_eq!(*lru.get_or_insert("b", || 0), 0);
    }
}
