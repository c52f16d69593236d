//! Objects that are corrected, and changed again by someone else.                                             (pure)
//!
//! Each correction causes an event, and so does each change. Without a pause, two writers that want different things
//! would write as fast as they can.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::backoff::Backoff;
use setpoint::{Instant, Key, Kind};

/// After this many corrections without a rest, there are pauses: 1, 2, 4 seconds and so on.
const FREE: u32 = 3;
const PAUSES: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(300));
/// An object that was left alone for so long is corrected at once again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// An entry takes about 150 bytes, so all of them take at most 1.5 MB.
const MAX_ENTRIES: usize = 10_000;

/// The objects that were corrected lately.
#[derive(Default)]
pub(super) struct Quarrels(Mutex<BTreeMap<(Kind, Key), Quarrel>>);

#[derive(Clone, Copy)]
struct Quarrel {
    corrections: u32,
    last: Instant,
}

impl Quarrel {
    fn pause(&self) -> Duration {
        match self.corrections.checked_sub(FREE) {
            Some(beyond) => PAUSES.delay(beyond),
            None => Duration::ZERO,
        }
    }
}

impl Quarrels {
    /// Returns how long to wait before an object may be corrected.
    pub(super) fn pause(&self, kind: &Kind, key: &Key, now: Instant) -> Option<Duration> {
        let quarrels = self.0.lock();
        let quarrel = quarrels.get(&(kind.clone(), key.clone()))?;
        let left = (quarrel.last + quarrel.pause()).saturating_duration_since(now);
        Some(left).filter(|left| !left.is_zero())
    }

    /// Records a correction. Returns whether it is the one after which there are pauses.
    pub(super) fn note(&self, kind: &Kind, key: &Key, now: Instant) -> bool {
        let mut quarrels = self.0.lock();
        let lasts = |quarrel: &Quarrel| now.saturating_duration_since(quarrel.last) < FORGOTTEN_AFTER;
        if quarrels.len() >= MAX_ENTRIES {
            quarrels.retain(|_, quarrel| lasts(quarrel));
        }
        if quarrels.len() >= MAX_ENTRIES {
            quarrels.clear();
        }
        let name = (kind.clone(), key.clone());
        let before = quarrels.get(&name).filter(|quarrel| lasts(quarrel)).map_or(0, |one| one.corrections);
        let corrections = before.saturating_add(1);
        quarrels.insert(name, Quarrel { corrections, last: now });
        corrections == FREE
    }
}

#[cfg(test)]
mod tests {
    use setpoint::Clock;

    use super::*;

    #[test]
    fn pauses_grow_until_an_object_is_left_alone() {
        let kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);
        let (key, quarrels) = (Key::namespaced("n", "a"), Quarrels::default());
        let start = Clock::system().instant();
        let mut now = start;
        let mut pauses = Vec::new();
        for nth in 1..=14 {
            assert_eq!(quarrels.note(&kind, &key, now), nth == FREE);
            let pause = quarrels.pause(&kind, &key, now).unwrap_or_default();
            pauses.push(pause.as_secs());
            now += pause;
            assert_eq!(quarrels.pause(&kind, &key, now), None);
        }
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        now += FORGOTTEN_AFTER;
        assert!(!quarrels.note(&kind, &key, now));
        assert_eq!(quarrels.pause(&kind, &key, now), None);
        assert_eq!(quarrels.pause(&kind, &Key::namespaced("n", "b"), now), None);
    }

    #[test]
    fn they_are_bounded() {
        let (quarrels, now) = (Quarrels::default(), Clock::system().instant());
        let kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);
        for nth in 0..=MAX_ENTRIES {
            quarrels.note(&kind, &Key::namespaced("n", nth.to_string()), now);
        }
        assert!(quarrels.0.lock().len() <= MAX_ENTRIES);
    }
}
