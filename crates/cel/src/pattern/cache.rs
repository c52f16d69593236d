//! An LRU cache of compiled patterns.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

/// The size limit of all cached patterns. The smallest programs count as 192 KiB (four times 16 KiB and two automata of
/// 64 KiB), so there is room for some 340 of them, or 3 of the largest.
const BYTES: usize = 64 << 20;

pub(super) struct Cache {
    by_pattern: BTreeMap<Arc<str>, Entry>,
    by_age: BTreeMap<u64, Arc<str>>,
    bytes: usize,
    /// The number of uses so far.
    uses: u64,
}

struct Entry {
    compiled: Arc<Regex>,
    bytes: usize,
    last_use: u64,
}

impl Cache {
    pub(super) const fn new() -> Self {
        Self { by_pattern: BTreeMap::new(), by_age: BTreeMap::new(), bytes: 0, uses: 0 }
    }

    pub(super) fn get(&mut self, pattern: &str) -> Option<Arc<Regex>> {
        let entry = self.by_pattern.get_mut(pattern)?;
        if let Some(pattern) = self.by_age.remove(&entry.last_use) {
            self.uses += 1;
            entry.last_use = self.uses;
            self.by_age.insert(self.uses, pattern);
        }
        Some(entry.compiled.clone())
    }

    /// Adds a pattern whose program takes at most `bytes`.
    pub(super) fn insert(&mut self, pattern: &str, compiled: Arc<Regex>, bytes: usize) {
        let bytes = bytes + pattern.len();
        self.remove(pattern);
        while self.bytes + bytes > BYTES {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.remove(&oldest);
        }
        let pattern: Arc<str> = pattern.into();
        self.uses += 1;
        self.bytes += bytes;
        self.by_age.insert(self.uses, pattern.clone());
        self.by_pattern.insert(pattern, Entry { compiled, bytes, last_use: self.uses });
    }

    fn remove(&mut self, pattern: &str) {
        if let Some(entry) = self.by_pattern.remove(pattern) {
            self.by_age.remove(&entry.last_use);
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_patterns_make_room() {
        let compiled = Arc::new(Regex::new("a").unwrap());
        let mut cache = Cache::new();
        let size = BYTES / 4 - 1;
        for pattern in ["a", "b", "c", "d"] {
            cache.insert(pattern, compiled.clone(), size);
        }
        assert!(cache.get("a").is_some());
        cache.insert("e", compiled.clone(), size);
        assert!(cache.get("b").is_none() && cache.get("a").is_some());
        cache.insert("too large to be kept", compiled.clone(), BYTES);
        assert_eq!((cache.bytes, cache.by_pattern.len(), cache.by_age.len()), (0, 0, 0));
        for _ in 0..3 {
            cache.insert("again", compiled.clone(), size);
        }
        assert_eq!((cache.bytes, cache.by_age.len()), (size + 5, 1));
    }
}
