//! Objects for tests, as the caches would hold them.

use jiff::Timestamp;
use serde_json::Value;
use setpoint::{Cached, Object, View};

pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// An object of a kind from its JSON.
pub(crate) fn cached<V: View>(json: Value) -> Cached<V> {
    let object = Object::from_json(json.to_string().into()).expect("a fixture has metadata");
    Cached::new(object).expect("a fixture decodes")
}

/// A time, in seconds after an arbitrary beginning.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time of a test")
}
