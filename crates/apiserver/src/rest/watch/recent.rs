//! A cache of recent encoded events, so that an event is encoded once per representation and its watchers share the
//! bytes.
//!
//! Invariants:
//! - an entry is exactly what its key says: revision and change identify one event of the store, the rest identifies
//!   its representation;
//! - the cache is bounded, whatever clients watch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_store::Revision;

use super::form::Framing;
use super::records::ChangeKind;
use crate::negotiate::Output;
use crate::registry::Served;

/// The cache evicts its oldest events beyond this many bytes. The newest one always stays (at most about 3 MiB, as
/// bodies are bounded): all watchers are about to need it.
const BYTES: usize = 4 << 20;
/// Or beyond this many events: at about 200 bytes per entry, 200 KB.
const EVENTS: usize = 1024;

/// An event and its representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) revision: Revision,
    pub(super) change: ChangeKind,
    pub(super) output: Output,
    pub(super) framing: Framing,
}

/// A server's recent events.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// The kind's address distinguishes its versions, and its schemas over time.
    by_key: BTreeMap<(Key, usize), Entry>,
    oldest_first: VecDeque<(Key, usize)>,
    bytes: usize,
}

struct Entry {
    encoded: Bytes,
    /// Held so that no other kind can get its address.
    _served: Arc<Served>,
}

impl Recent {
    /// Returns the event, encoding it if it is not cached.
    pub(super) fn get<E>(
        &self,
        served: &Arc<Served>,
        key: Key,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let place = (key, Arc::as_ptr(served) as usize);
        if let Some(entry) = self.0.lock().by_key.get(&place) {
            return Ok(entry.encoded.clone());
        }
        // Encodes without the lock, so that others need not wait. If two race, they share the first result.
        let encoded = encode()?;
        Ok(self.0.lock().remember(place, encoded, served))
    }
}

impl Entries {
    fn remember(&mut self, place: (Key, usize), encoded: Bytes, served: &Arc<Served>) -> Bytes {
        if let Some(entry) = self.by_key.get(&place) {
            return entry.encoded.clone();
        }
        self.bytes += encoded.len();
        self.by_key.insert(place, Entry { encoded: encoded.clone(), _served: served.clone() });
        self.oldest_first.push_back(place);
        while self.oldest_first.len() > 1 && (self.bytes > BYTES || self.oldest_first.len() > EVENTS) {
            self.forget_oldest();
        }
        encoded
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.oldest_first.pop_front() else { return };
        if let Some(entry) = self.by_key.remove(&oldest) {
            self.bytes -= entry.encoded.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Gvr, Registry};

    fn key(revision: Revision) -> Key {
        Key { revision, change: ChangeKind::Added, output: Output::JSON, framing: Framing::Lines }
    }

    fn encoded(recent: &Recent, served: &Arc<Served>, key: Key, length: usize) -> Bytes {
        recent.get::<()>(served, key, || Ok(vec![0; length].into())).unwrap()
    }

    #[test]
    fn watchers_of_one_representation_share_the_bytes_of_an_event() {
        let registry = Registry::new(crate::kinds::all()).unwrap();
        let served = |resource: &str| registry.get(&Gvr::new("", "v1", resource)).unwrap().clone();
        let (pods, secrets) = (served("pods"), served("secrets"));
        let recent = Recent::default();
        let first = encoded(&recent, &pods, key(1), 10);
        assert_eq!(encoded(&recent, &pods, key(1), 10).as_ptr(), first.as_ptr());
        let others = [
            Key { revision: 2, ..key(1) },
            Key { change: ChangeKind::Deleted, ..key(1) },
            Key { framing: Framing::Messages, ..key(1) },
        ];
        for other in others {
            assert_ne!(encoded(&recent, &pods, other, 10).as_ptr(), first.as_ptr());
        }
        assert_ne!(encoded(&recent, &secrets, key(1), 10).as_ptr(), first.as_ptr());
    }

    #[test]
    fn old_events_are_forgotten_and_the_newest_never_is() {
        let registry = Registry::new(crate::kinds::all()).unwrap();
        let pods = registry.get(&Gvr::new("", "v1", "pods")).unwrap().clone();
        let recent = Recent::default();
        for revision in 0..10 {
            encoded(&recent, &pods, key(revision), BYTES / 4);
        }
        let held = |recent: &Recent| {
            let entries = recent.0.lock();
            assert_eq!(entries.by_key.len(), entries.oldest_first.len());
            (entries.by_key.len(), entries.bytes)
        };
        assert_eq!(held(&recent), (4, BYTES));
        encoded(&recent, &pods, key(10), BYTES + 1);
        assert_eq!(held(&recent), (1, BYTES + 1));
        for revision in 0..2 * EVENTS as u64 {
            encoded(&recent, &pods, key(20 + revision), 1);
        }
        assert_eq!(held(&recent), (EVENTS, EVENTS));
    }
}
