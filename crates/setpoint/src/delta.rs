//! Stage 3: the changes of each object, in order, between the watch and the cache.
//!
//! Invariants:
//! - The deltas of a key leave in the order they arrived.
//! - Several new states of an object in a row collapse into the newest. A delete never collapses: an object that was
//!   created and deleted is seen as both, and so is one that was replaced by another of the same name. A controller
//!   that counts its own creates depends on that.
//! - There are at most [`CAPACITY`] deltas. When it is full, the watch is not read.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::Object;

/// 1,024 typical pods of 2 KB are 2 MB per kind. With the largest possible objects, 1.5 MB, a watch delivers far slower
/// than this drains.
pub(crate) const CAPACITY: usize = 1024;

/// A new state of an object, or its deletion with the last state known to the server.
#[derive(Debug)]
pub(crate) enum Delta {
    Upserted(Object),
    Deleted(Object),
}

/// Deltas in the order in which their keys first changed.
#[derive(Default)]
pub(crate) struct Deltas {
    queue: VecDeque<Delta>,
    /// The number of deltas removed so far: the position of the front.
    popped: usize,
    /// The position of the newest delta of each key. Never iterated.
    newest: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

impl Delta {
    pub(crate) fn object(&self) -> &Object {
        let (Self::Upserted(object) | Self::Deleted(object)) = self;
        object
    }

    /// Returns whether `newer` can replace this delta without losing anything.
    fn yields_to(&self, newer: &Self) -> bool {
        let both_states = matches!((self, newer), (Self::Upserted(_), Self::Upserted(_)));
        both_states && self.object().meta().uid == newer.object().meta().uid
    }
}

impl Deltas {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= CAPACITY
    }

    pub(crate) fn push(&mut self, delta: Delta) {
        let Self { queue, popped, newest, hasher } = self;
        let next = *popped + queue.len();
        let key = |position: &usize| queue[*position - *popped].object().key();
        let hash = hasher.hash_one(delta.object().key());
        let same = |position: &usize| key(position) == delta.object().key();
        match newest.entry(hash, same, |position| hasher.hash_one(key(position))) {
            Entry::Vacant(vacant) => _ = vacant.insert(next),
            Entry::Occupied(mut newest) => match &mut queue[*newest.get() - *popped] {
                waiting if waiting.yields_to(&delta) => return *waiting = delta,
                _ => *newest.get_mut() = next,
            },
        }
        queue.push_back(delta);
    }

    pub(crate) fn pop(&mut self) -> Option<Delta> {
        let delta = self.queue.pop_front()?;
        let hash = self.hasher.hash_one(delta.object().key());
        if let Ok(newest) = self.newest.find_entry(hash, |position| *position == self.popped) {
            newest.remove();
        }
        self.popped += 1;
        Some(delta)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::{Key, Metadata};

    fn object(name: &str, uid: &str, version: usize) -> Object {
        let version = version.to_string().into();
        let meta =
            Metadata { name: name.into(), uid: uid.into(), resource_version: version, ..Metadata::default() };
        Object::with_metadata(meta, Bytes::new())
    }

    /// `+a` is a state of a, `-a` its deletion. The digit after the name is the uid.
    fn push(deltas: &mut Deltas, script: &str) {
        for (version, word) in script.split_whitespace().enumerate() {
            let object = object(&word[1..2], &word[2..], version);
            deltas.push(if word.starts_with('+') { Delta::Upserted(object) } else { Delta::Deleted(object) });
        }
    }

    fn drain(deltas: &mut Deltas) -> String {
        let mut words = Vec::new();
        while let Some(delta) = deltas.pop() {
            let sign = if matches!(delta, Delta::Upserted(_)) { '+' } else { '-' };
            let meta = delta.object().meta();
            words.push(format!("{sign}{}{}@{}", meta.name, meta.uid, meta.resource_version));
        }
        assert!(deltas.newest.is_empty(), "a drained queue is empty");
        words.join(" ")
    }

    #[test]
    fn updates_are_coalesced_and_deletions_are_not() {
        let check = |script: &str, expected: &str| {
            let mut deltas = Deltas::default();
            push(&mut deltas, script);
            assert_eq!(drain(&mut deltas), expected, "{script}");
        };
        check("+a1 +a1 +a1", "+a1@2");
        check("+a1 +b1 +a1 +b1", "+a1@2 +b1@3");
        check("+a1 -a1", "+a1@0 -a1@1");
        check("-a1 +a2", "-a1@0 +a2@1");
        check("+a1 -a1 +a2 +a2 -a2", "+a1@0 -a1@1 +a2@3 -a2@4");
        check("+a1 +a2", "+a1@0 +a2@1");
        check("-a1 -a1", "-a1@0 -a1@1");
    }

    #[test]
    fn a_removed_key_starts_over() {
        let mut deltas = Deltas::default();
        push(&mut deltas, "+a1 +b1");
        assert!(deltas.pop().is_some());
        push(&mut deltas, "+a1 +b1");
        assert_eq!(drain(&mut deltas), "+b1@1 +a1@0");
    }

    proptest! {
        /// Applying the compacted deltas gives the same final state as applying all of them.
        #[test]
        fn compaction_changes_no_end_state(
            steps in proptest::collection::vec((0..4u8, any::<bool>(), 0..3u8, any::<bool>()), 0..60)
        ) {
            let apply = |world: &mut BTreeMap<Key, String>, delta: &Delta| match delta {
                Delta::Upserted(object) => _ = world.insert(object.key().clone(), object.meta().resource_version.to_string()),
                Delta::Deleted(object) => _ = world.remove(object.key()),
            };
            let (mut plain, mut compacted, mut deltas) = (BTreeMap::new(), BTreeMap::new(), Deltas::default());
            for (version, (name, upsert, uid, pop)) in steps.into_iter().enumerate() {
                let object = object(&name.to_string(), &uid.to_string(), version);
                let delta = if upsert { Delta::Upserted(object) } else { Delta::Deleted(object) };
                apply(&mut plain, &delta);
                deltas.push(delta);
                if pop && let Some(delta) = deltas.pop() {
                    apply(&mut compacted, &delta);
                }
            }
            while let Some(delta) = deltas.pop() {
                apply(&mut compacted, &delta);
            }
            prop_assert_eq!(plain, compacted);
        }
    }
}
