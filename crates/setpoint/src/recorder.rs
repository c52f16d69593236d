//! Events about objects: what `kubectl describe` shows at its end.
//!
//! Similar events are aggregated and a chatty source is cut short, as client-go does it, so that a
//! hot loop cannot flood the API server.

use crate::{Kind, Object};

/// Records events in the background; never fails and never blocks its caller. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

impl Recorder {
    /// Records an event about `object`.
    pub fn event(
        &self,
        kind: &Kind,
        object: &Object,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let _ = (kind, object, event_type, reason, message.into());
        todo!()
    }
}
