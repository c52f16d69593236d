//! When the change happened that triggered a write, so that propagation latency can be measured.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::{Cached, Key};

use super::backend::Backend;
use super::service::Service;

/// The annotation with the trigger time.
pub(crate) const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The last observed state of each Service: at most one entry per Service and one per pod behind it.
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
    /// Returns the time of the earliest change since the last call. The first call for a Service is triggered by its
    /// creation.
    pub(crate) fn take_trigger_time(
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
