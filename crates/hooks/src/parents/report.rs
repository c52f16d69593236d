//! Reports of reconciles, for hook developers.

use std::time::Duration;

use serde_json::Value;
use setpoint::{Key, Kind};

/// Receives reports of reconciles.
pub trait Observer: Send + Sync + 'static {
    /// A parent has been reconciled.
    fn reconciled(&self, report: &Report);
}

/// One reconcile.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name of the CompositeController or DecoratorController.
    pub controller: String,
    /// The kind of the parent.
    pub kind: Kind,
    /// The parent.
    pub key: Key,
    /// The hook that was called: `sync` or `finalize`. `None` if no call was needed.
    pub hook: Option<&'static str>,
    /// How long it took.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<String>,
    /// The writes, in order.
    pub writes: Vec<Write>,
}

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// `created`, `updated`, `deleted`, …
    pub verb: &'static str,
    /// The kind of the object.
    pub kind: Kind,
    /// The object.
    pub key: Key,
    /// The object before.
    pub before: Option<Value>,
    /// The object after.
    pub after: Option<Value>,
}
