//! Stage 6: what happened to an object, and which keys that is work for.

use crate::Object;

/// What an informer tells its handlers.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object is new to the cache; `initial`: it was there when the cache was first filled.
    Added { object: Object, initial: bool },
    /// The object changed, or, when both are the same version, a resync is due.
    Updated { old: Object, new: Object },
    /// The object is gone. `last` is its last known state; `missed`: the removal itself was not seen,
    /// so the state may be older than the object's last one.
    Deleted { last: Object, missed: bool },
}

impl Event {
    /// The newest known state.
    pub fn object(&self) -> &Object {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }
}

/// Receives the events of an informer, in the order of each object's changes, on the informer's own
/// task: a handler never blocks, it turns an event into keys of a work queue.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Handler for F {
    fn handle(&self, event: &Event) {
        self(event);
    }
}
