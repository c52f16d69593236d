//! Responses with an ETag, by parent. A 304 or 412 refers to the cached one.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use setpoint::Instant;

/// Limits on the number of responses and on their size in bytes. Beyond either, the cache is cleared.
const MAX_ANSWERS: usize = 10_000;
const MAX_BYTES: usize = 64 << 20;

/// The parent of a call: kind, namespace and name.
pub(crate) type ParentName = (String, String, String);

pub(super) struct EtagCache {
    /// `None`: as long as there is room.
    lasts: Option<Duration>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    answers: BTreeMap<ParentName, Answer>,
    bytes: usize,
}

struct Answer {
    etag: String,
    body: Bytes,
    until: Option<Instant>,
}

impl EtagCache {
    pub(super) fn new(lasts: Option<Duration>) -> Self {
        Self { lasts, known: Mutex::default() }
    }

    /// Returns the ETag and the body of the cached response.
    pub(super) fn get(&self, parent: &ParentName, now: Instant) -> Option<(String, Bytes)> {
        let known = self.known.lock();
        let answer = known.answers.get(parent)?;
        let is_valid = answer.until.is_none_or(|until| now < until);
        is_valid.then(|| (answer.etag.clone(), answer.body.clone()))
    }

    pub(super) fn keep(&self, parent: &ParentName, etag: String, body: Bytes, now: Instant) {
        let mut known = self.known.lock();
        if known.answers.len() >= MAX_ANSWERS || known.bytes + body.len() > MAX_BYTES {
            *known = Known::default();
        }
        known.bytes += body.len();
        let answer = Answer { etag, body, until: self.lasts.map(|lasts| now + lasts) };
        if let Some(old) = known.answers.insert(parent.clone(), answer) {
            known.bytes -= old.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use setpoint::Clock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_kept_by_parent_and_for_a_time() {
        let now = Clock::system().instant();
        let parent = |name: &str| ("Pod".to_owned(), "shop".to_owned(), name.to_owned());
        let cache = EtagCache::new(Some(Duration::from_secs(5)));
        cache.keep(&parent("a"), "1".into(), Bytes::from_static(b"x"), now);
        assert_eq!(cache.get(&parent("a"), now).expect("known").0, "1");
        assert!(cache.get(&parent("b"), now).is_none());
        assert!(cache.get(&parent("a"), now + Duration::from_secs(5)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let now = Clock::system().instant();
        let cache = EtagCache::new(None);
        let body = Bytes::from(vec![0; MAX_BYTES / 4 + 1]);
        for nth in 0..8 {
            cache.keep(&("k".into(), "n".into(), nth.to_string()), "e".into(), body.clone(), now);
            assert!(cache.known.lock().bytes <= MAX_BYTES);
        }
    }
}
