//! Metrics of APIServices.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use setpoint_exposition::Text;

/// Whether APIServices are available, and how often they became unavailable.
#[derive(Default)]
pub(crate) struct AggregationMetrics {
    /// By name: as many as there are APIServices.
    unavailable: Mutex<BTreeMap<Box<str>, bool>>,
    /// By name and reason. The names include those of deleted APIServices, so there is a limit.
    ceased: Mutex<BTreeMap<(Box<str>, &'static str), u64>>,
}

/// The maximum number of counters: with six reasons, enough for at least 1,000 APIServices.
const COUNTERS: usize = 6_000;

impl AggregationMetrics {
    pub(super) fn set(&self, name: &str, is_available: bool) {
        self.unavailable.lock().insert(name.into(), !is_available);
    }

    pub(super) fn forget(&self, name: &str) {
        self.unavailable.lock().remove(name);
    }

    /// Counts an APIService that is no longer available, or never was.
    pub(super) fn ceased(&self, name: &str, reason: &'static str) {
        let mut ceased = self.ceased.lock();
        let key = (Box::from(name), reason);
        if ceased.len() < COUNTERS || ceased.contains_key(&key) {
            *ceased.entry(key).or_default() += 1;
        }
    }

    pub(crate) fn write(&self, text: &mut Text) {
        const UNAVAILABLE: &str = "aggregator_unavailable_apiservice";
        let help = "1 for each unavailable APIService.";
        text.head(UNAVAILABLE, "gauge", help);
        for (name, is_unavailable) in &*self.unavailable.lock() {
            text.sample(UNAVAILABLE, &[("name", name)], u8::from(*is_unavailable));
        }
        const CEASED: &str = "aggregator_unavailable_apiservice_total";
        let help = "Times that an APIService became unavailable, by reason.";
        text.head(CEASED, "counter", help);
        for ((name, reason), count) in &*self.ceased.lock() {
            text.sample(CEASED, &[("name", name), ("reason", reason)], count);
        }
    }
}
