//! When the change happened that a write is the answer to, so that others can tell how long it took.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::{Cached, Key};

use super::backend::Backend;
use super::service::Service;

/// The annotation that says so.
pub(crate) const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What was last seen of each service: at most one entry per service and one per pod behind it.
#[derive(Default)]
pub(crate) struct TriggerTimes {
    seen: Mutex<BTreeMap<Key, Seen>>,
}

#[derive(Clone, Default)]
struct Seen {
    service: Option<Timestamp>,
    pods: BTreeMap<Box<str>, Timestamp>,
}

impl TriggerTimes {
    /// When the earliest of the changes since the last look happened. The first look at a service is
    /// the answer to its creation.
    pub(crate) fn since_last_look(
        &self,
        service: &Cached<Service>,
        pods: &[Cached<Backend>],
    ) -> Option<Timestamp> {
        let now = Seen::of(service, pods);
        let before = self.seen.lock().insert(service.key().clone(), now.clone());
        match before {
            None => now.service,
            Some(before) => now.earliest_change(&before),
        }
    }

    pub(crate) fn forget(&self, service: &Key) {
        self.seen.lock().remove(service);
    }
}

impl Seen {
    fn of(service: &Cached<Service>, pods: &[Cached<Backend>]) -> Self {
        let changed = |pod: &Cached<Backend>| Some(((*pod.meta().name).into(), pod.readiness_changed?));
        Self { service: service.meta().creation_timestamp, pods: pods.iter().filter_map(changed).collect() }
    }

    fn earliest_change(&self, before: &Self) -> Option<Timestamp> {
        let later = |pod: &str, time: &Timestamp| before.pods.get(pod).is_none_or(|known| time > known);
        let pods = self.pods.iter().filter(|(pod, time)| later(pod, time)).map(|(_, time)| *time);
        pods.chain(self.service.filter(|_| self.service > before.service)).min()
    }
}
