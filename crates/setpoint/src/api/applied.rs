//! Remembers what was applied last, to detect fields that are no longer applied.
//!
//! A cache shows the fields that an object has, not those that a manager has applied before. So the first apply of a
//! process is always sent, and after that every apply that differs from the last one. The API server writes nothing if
//! an apply changes nothing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;

use crate::{Key, Kind};

/// Objects of a generation. Two generations of 65,536 with 16 bytes each, and half as much again for the map: 3 MiB.
/// Beyond that, evicted objects are applied again.
const GENERATION: usize = 1 << 16;

/// Digests of the last applied fields, by digests of kinds and keys.
#[derive(Default)]
pub(super) struct Applied(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: BTreeMap<u64, u64>,
    old: BTreeMap<u64, u64>,
}

impl Applied {
    /// Whether this was applied last.
    pub(super) fn is_last(&self, kind: &Kind, key: &Key, body: &[u8]) -> bool {
        let (object, body) = (digest((kind, key)), digest(body));
        let mut generations = self.0.lock();
        let known = generations.young.get(&object).or_else(|| generations.old.get(&object));
        let is_last = known == Some(&body);
        if is_last {
            generations.add(object, body);
        }
        is_last
    }

    pub(super) fn add(&self, kind: &Kind, key: &Key, body: &[u8]) {
        self.0.lock().add(digest((kind, key)), digest(body));
    }
}

impl Generations {
    fn add(&mut self, object: u64, body: u64) {
        if self.young.len() == GENERATION && !self.young.contains_key(&object) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(object, body);
    }
}

fn digest(value: impl Hash) -> u64 {
    // Without a random key: the same in every run.
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bodies_of_many_objects_are_known_in_bounded_memory() {
        let (applied, kind) = (Applied::default(), Kind::new("", "v1", "ConfigMap", "configmaps", true));
        let key = |number: usize| Key::namespaced("shop", number.to_string());
        for number in 0..3 * GENERATION {
            applied.add(&kind, &key(number), b"a");
            assert!(applied.is_last(&kind, &key(0), b"a"), "what is asked for is kept: {number}");
        }
        let held = |applied: &Applied| {
            let generations = applied.0.lock();
            generations.young.len() + generations.old.len()
        };
        assert!(held(&applied) <= 2 * GENERATION);
        let newest = key(3 * GENERATION - 1);
        assert!(applied.is_last(&kind, &newest, b"a") && !applied.is_last(&kind, &newest, b"b"));
        assert!(!applied.is_last(&kind, &key(1), b"a"), "the oldest are forgotten");
    }
}
