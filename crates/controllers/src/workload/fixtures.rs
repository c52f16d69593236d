//! Cached objects for tests.

use jiff::Timestamp;
use serde_json::Value;
use setpoint::{Cached, Object, View};

pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Creates a cached object from JSON.
pub(crate) fn cached<V: View>(json: Value) -> Cached<V> {
    let object = Object::from_json(json.to_string().into()).expect("a fixture has metadata");
    Cached::new(object).expect("a fixture decodes")
}

/// Returns a time in seconds after an arbitrary start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time of a test")
}
