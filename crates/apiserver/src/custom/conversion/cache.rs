//! Converted records, by the revision that they were converted from.
//!
//! An entry never becomes wrong: a change to an object has another revision, and a change to its definition another kind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint_store::{Record, Revision};

use crate::registry::Served;

/// The oldest entries are evicted beyond this many bytes. Objects of 4 KiB take about 5 KiB each with [`OVERHEAD`], so
/// this holds 13,000 of them. The newest entry always stays: at most 16 MiB, the maximum size of a response.
const BYTES: usize = 64 << 20;
/// What an entry takes besides the object: the record, its facts and key, and the places in the cache.
const OVERHEAD: usize = 1 << 10;

/// The address of the kind, which distinguishes versions and definitions over time; the revision; and the path.
type Place = (usize, Revision, Arc<str>);

/// The cache of a server.
#[derive(Default)]
pub(super) struct Cache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_place: BTreeMap<Place, Entry>,
    oldest_first: VecDeque<Place>,
    bytes: usize,
}

struct Entry {
    record: Arc<Record>,
    /// Held so that no other kind can get its address.
    _served: Arc<Served>,
}

fn place(served: &Arc<Served>, record: &Record) -> Place {
    (Arc::as_ptr(served) as usize, record.modified, record.key.path.clone())
}

fn cost(record: &Record) -> usize {
    record.value.len() + OVERHEAD
}

impl Cache {
    /// Returns a record in the version of a kind.
    pub(super) fn find(&self, served: &Arc<Served>, stored: &Record) -> Option<Arc<Record>> {
        self.0.lock().by_place.get(&place(served, stored)).map(|entry| entry.record.clone())
    }

    pub(super) fn insert(&self, served: &Arc<Served>, converted: &Arc<Record>) {
        self.0.lock().insert(served, converted);
    }
}

impl Entries {
    fn insert(&mut self, served: &Arc<Served>, converted: &Arc<Record>) {
        let place = place(served, converted);
        let entry = Entry { record: converted.clone(), _served: served.clone() };
        match self.by_place.insert(place.clone(), entry) {
            Some(before) => self.bytes -= cost(&before.record),
            None => self.oldest_first.push_back(place),
        }
        self.bytes += cost(converted);
        while self.oldest_first.len() > 1 && self.bytes > BYTES {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.oldest_first.pop_front() else { return };
        if let Some(entry) = self.by_place.remove(&oldest) {
            self.bytes -= cost(&entry.record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Gvr, Registry};
    use setpoint_store::Payload;

    fn record(served: &Served, revision: Revision, length: usize) -> Arc<Record> {
        let key = served.key(Some("ns"), "a");
        Arc::new(Record::new(key, Payload::plain(vec![b' '; length]), 1, revision, None))
    }

    #[test]
    fn a_revision_is_found_in_its_version_until_newer_ones_need_the_room() {
        let registry = Registry::new(crate::kinds::all()).unwrap();
        let served = |resource: &str| registry.get(&Gvr::new("", "v1", resource)).unwrap().clone();
        let (one, other) = (served("pods"), served("secrets"));
        let cache = Cache::default();
        cache.insert(&one, &record(&one, 1, 10));
        assert!(cache.find(&one, &record(&one, 1, 99)).is_some());
        assert!(cache.find(&one, &record(&one, 2, 10)).is_none(), "another revision");
        assert!(cache.find(&other, &record(&one, 1, 10)).is_none(), "another version");
        cache.insert(&one, &record(&one, 1, 20));
        assert_eq!(cache.0.lock().bytes, 20 + OVERHEAD);
        for revision in 2..10 {
            cache.insert(&one, &record(&one, revision, BYTES / 4));
        }
        let entries = cache.0.lock();
        assert_eq!((entries.by_place.len(), entries.oldest_first.len()), (3, 3));
        assert!(entries.bytes <= BYTES);
    }
}
