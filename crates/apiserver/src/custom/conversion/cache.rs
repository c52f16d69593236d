//! Converted records, by the revision that they were converted from.
//!
//! A changed object has a new revision, and a changed definition a new kind, so an entry is never found for other
//! inputs. The webhook itself may change unnoticed behind the same address, so entries are used for at most [`AGE`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Instant;
use setpoint_store::{Record, Revision};

use crate::registry::Served;

/// The oldest entries are evicted beyond this many bytes. Objects of 4 KiB take about 5 KiB each with [`OVERHEAD`], so
/// this holds 13,000 of them. The newest entry always stays: at most 16 MiB, the maximum size of a response.
pub(super) const BYTES: usize = 64 << 20;
/// The size of an entry without the object: the record, its facts and key, the cache's index entries, and its share of
/// a removed kind ([`Entry`]).
const OVERHEAD: usize = 1 << 10;
/// How long an entry is used. v1.34 calls the webhook for every get, and serves lists and watches from the response at
/// the time of the write. A minute lets all readers of a change share one call, and 10,000 objects take at most 30
/// calls per minute, however often they are listed.
const AGE: Duration = Duration::from_secs(60);

/// The address of the kind, which distinguishes versions and definitions over time; the revision; and the path.
pub(super) type Place = (usize, Revision, Arc<str>);

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
    made: Instant,
    /// Held so that no other kind can get its address. Does not keep the kind's contents, such as its schema.
    _served: Weak<Served>,
}

pub(super) fn place(served: &Arc<Served>, record: &Record) -> Place {
    (Arc::as_ptr(served) as usize, record.modified, record.key.path.clone())
}

fn cost(record: &Record) -> usize {
    record.whole_length() + OVERHEAD
}

impl Cache {
    /// Returns a record in the version of a kind.
    pub(super) fn find(&self, served: &Arc<Served>, stored: &Record, now: Instant) -> Option<Arc<Record>> {
        let entries = self.0.lock();
        let entry = entries.by_place.get(&place(served, stored))?;
        (now.saturating_duration_since(entry.made) < AGE).then(|| entry.record.clone())
    }

    pub(super) fn insert(&self, served: &Arc<Served>, converted: &Arc<Record>, now: Instant) {
        self.0.lock().insert(served, converted, now);
    }
}

impl Entries {
    fn insert(&mut self, served: &Arc<Served>, converted: &Arc<Record>, now: Instant) {
        let place = place(served, converted);
        let entry = Entry { record: converted.clone(), made: now, _served: Arc::downgrade(served) };
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
    use setpoint_store::{InlineBytes, Inset, Part, Payload, Text};

    fn record(served: &Served, revision: Revision, length: usize) -> Arc<Record> {
        let key = served.key(Some("ns"), "a");
        Arc::new(Record::new(key, Payload::plain(vec![b' '; length]), 1, revision, None))
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_is_found_in_its_version_until_newer_ones_need_the_room() {
        let registry = Registry::new(crate::kinds::all()).unwrap();
        let served = |resource: &str| registry.get(&Gvr::new("", "v1", resource)).unwrap().clone();
        let (one, other) = (served("pods"), served("secrets"));
        let (cache, now) = (Cache::default(), setpoint_clock::Clock::system().instant());
        cache.insert(&one, &record(&one, 1, 10), now);
        assert!(cache.find(&one, &record(&one, 1, 99), now).is_some());
        assert!(cache.find(&one, &record(&one, 2, 10), now).is_none(), "another revision");
        assert!(cache.find(&other, &record(&one, 1, 10), now).is_none(), "another version");
        assert!(cache.find(&one, &record(&one, 1, 10), now + AGE).is_none(), "too long ago");
        cache.insert(&one, &record(&one, 1, 20), now + AGE);
        assert!(cache.find(&one, &record(&one, 1, 10), now + AGE).is_some(), "made again");
        assert_eq!(cache.0.lock().bytes, 20 + OVERHEAD);
        for revision in 2..10 {
            cache.insert(&one, &record(&one, revision, BYTES / 4), now);
        }
        let entries = cache.0.lock();
        assert_eq!((entries.by_place.len(), entries.oldest_first.len()), (3, 3));
        assert!(entries.bytes <= BYTES);
    }

    #[test]
    fn managed_fields_count() {
        let registry = Registry::new(crate::kinds::all()).unwrap();
        let pods = registry.get(&Gvr::new("", "v1", "pods")).unwrap();
        let text = Text::shared(&[b'x'; 100], 0).unwrap();
        let inset = Inset::new([Part { text, own: InlineBytes::default() }]);
        let payload = Payload { inset, stamp_at: Some(1), ..Payload::plain(br#"{"a":"b"}"#.to_vec()) };
        let record = Record::new(pods.key(Some("ns"), "a"), payload, 1, 1, None);
        assert!(cost(&record) >= 109 + OVERHEAD, "{}", cost(&record));
    }
}
