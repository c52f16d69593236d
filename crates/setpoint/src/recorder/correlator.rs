//! Event correlation: similar events are combined, equal events are counted, and excess events are dropped.
//!
//! - More than nine events about an object that differ only in their message, with at most ten minutes between them,
//!   are combined into one.
//! - An event equal to an earlier one increments its count.
//! - A source may record 25 events of a type about an object, plus one every five minutes.
//!
//! Each of the three remembers the last 4,096 objects (or messages): about 1 MiB.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use setpoint_clock::Instant;

use super::event::{EventMeta, EventObject};
use super::lru::Lru;
use crate::backoff::TokenBucket;

const CACHE_CAPACITY: usize = 4096;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const BURST: u32 = 25;
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;

pub(super) struct Correlator {
    similar: Lru<SimilarEvents>,
    seen: Lru<SeenEvent>,
    budgets: Lru<TokenBucket>,
}

/// Events that differ only in their message.
struct SimilarEvents {
    messages: BTreeSet<String>,
    last: Instant,
}

/// An event that may repeat.
#[derive(Clone, Default)]
struct SeenEvent {
    count: u32,
    first: Timestamp,
    name: String,
}

/// The time of an event.
#[derive(Clone, Copy)]
pub(super) struct EventTime {
    pub(super) time: Timestamp,
    pub(super) instant: Instant,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self {
            similar: Lru::new(CACHE_CAPACITY),
            seen: Lru::new(CACHE_CAPACITY),
            budgets: Lru::new(CACHE_CAPACITY),
        }
    }

    /// Returns the event to write, or `None` if there have been too many. A count above one means that an event with
    /// this name has been written before.
    ///
    /// `name` generates the name of a combined event.
    pub(super) fn correlate(
        &mut self,
        event: EventObject,
        now: EventTime,
        name: impl FnOnce() -> String,
    ) -> Option<EventObject> {
        let (event, key) = self.combine(event, now, name);
        let event = self.count(event, &key);
        let budget =
            self.budgets.get_or_insert(&budget_key(&event), || TokenBucket::new(REFILL_PER_SECOND, BURST));
        budget.try_take(now.instant).then_some(event)
    }

    /// Returns the event, or a combined event for all similar ones, and the key to count it by.
    fn combine(
        &mut self,
        event: EventObject,
        now: EventTime,
        name: impl FnOnce() -> String,
    ) -> (EventObject, String) {
        let key = similar_key(&event);
        let similar = self
            .similar
            .get_or_insert(&key, || SimilarEvents { messages: BTreeSet::new(), last: now.instant });
        if now.instant.saturating_duration_since(similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now.instant;
        similar.messages.insert(event.message.clone());
        if similar.messages.len() < SIMILAR {
            let key = full_key(&event);
            return (event, key);
        }
        similar.messages.pop_first();
        (combined(event, now.time, name()), key)
    }

    fn count(&mut self, mut event: EventObject, key: &str) -> EventObject {
        let seen = self.seen.get_or_insert(key, SeenEvent::default);
        if seen.count > 0 {
            event.metadata.name.clone_from(&seen.name);
            event.first_timestamp = seen.first;
            event.count = seen.count.saturating_add(1);
        }
        *seen =
            SeenEvent { count: event.count, first: event.first_timestamp, name: event.metadata.name.clone() };
        event
    }
}

/// Builds the combined event for all events similar to this one.
fn combined(event: EventObject, now: Timestamp, name: String) -> EventObject {
    EventObject {
        metadata: EventMeta { name, namespace: event.metadata.namespace, ..EventMeta::default() },
        message: format!("(combined from similar events): {}", event.message),
        first_timestamp: now,
        last_timestamp: now,
        count: 1,
        // A combined event has no reporting controller, only a source.
        reporting_component: "",
        reporting_instance: "".into(),
        ..event
    }
}

/// The source and the object.
fn budget_key(event: &EventObject) -> String {
    let EventObject { source, involved_object: object, event_type, .. } = event;
    [
        source.component,
        &source.host,
        &object.kind,
        &object.namespace,
        &object.name,
        &object.uid,
        &object.api_version,
    ]
    .concat()
        + event_type.as_str()
}

/// Everything but the message.
fn similar_key(event: &EventObject) -> String {
    budget_key(event) + &event.reason + event.reporting_component + &event.reporting_instance
}

/// Everything that makes two events equal.
fn full_key(event: &EventObject) -> String {
    budget_key(event) + &event.involved_object.field_path + &event.reason + &event.message
}
