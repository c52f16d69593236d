//! Stage 6: handlers, which map events to keys.
//!
//! A handler is usually [`enqueue_self`], [`enqueue_controller`] or [`enqueue_mapped`], restricted with
//! [`when`](Handler::when) and a [`predicate`]. None of them tells a reconciler what happened: it gets a key and reads
//! the current state itself.

mod enqueue;
pub mod predicate;

use futures::future::BoxFuture;

use crate::{Kind, Object};

pub(crate) use self::enqueue::{Mapping, enqueue_with};
pub use self::enqueue::{enqueue_controller, enqueue_mapped, enqueue_self};
pub use self::predicate::Predicate;

/// An informer event.
///
/// ```
/// use setpoint::{Event, Object};
/// let raw = br#"{"metadata": {"name": "node-1"}}"#;
/// let object = Object::from_json(bytes::Bytes::from_static(raw)).unwrap();
/// let event = Event::Added { object, initial: true };
/// assert_eq!(event.object().key().name(), "node-1");
/// assert!(event.old().is_none());
/// ```
#[derive(Clone, Debug)]
pub enum Event {
    /// The object is new to the cache.
    Added {
        /// The object.
        object: Object,
        /// Whether it is from the initial list.
        initial: bool,
    },
    /// The object changed. If both are the same version, this is a resync.
    Updated {
        /// The previous state.
        old: Object,
        /// The new state.
        new: Object,
    },
    /// The object was deleted. If the delete event was missed, the state may be older than the object's last one.
    Deleted {
        /// The last known state.
        last: Object,
        /// Whether the delete event was missed.
        missed: bool,
    },
}

impl Event {
    /// Returns the newest known state.
    pub fn object(&self) -> &Object {
        match self {
            Self::Added { object, .. } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns the previous state, if the object was updated.
    pub fn old(&self) -> Option<&Object> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added { .. } | Self::Deleted { .. } => None,
        }
    }

    /// Returns the states in the event: the old one, if there is one, then the newest.
    pub fn states(&self) -> impl Iterator<Item = &Object> {
        self.old().into_iter().chain([self.object()])
    }
}

/// Receives the events of an informer, in order for each object. Handlers run on the informer's task and must not
/// block: they only add keys to a work queue. Any `Fn(&Event)` is a handler.
///
/// ```
/// use setpoint::Event;
/// use setpoint::handler::{Handler, predicate};
/// let handler = (|event: &Event| println!("{} has a new spec", event.object().key()))
///     .when(predicate::generation_changed());
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Handles an event.
    fn handle(&self, event: &Event);

    /// Receives the kind of the informer, once, before the first event.
    fn informs_of(&mut self, kind: &Kind) {
        let _ = kind;
    }

    /// Waits until the handler can take more events, if it is bounded. Until then, the informer stops reading, unless a
    /// caller waits for its cache to catch up.
    fn room(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// Restricts the handler to events that `predicate` admits.
    fn when<P: Predicate>(self, predicate: P) -> When<Self, P>
    where
        Self: Sized,
    {
        When { handler: self, predicate }
    }
}

impl<F: Fn(&Event) + Send + Sync + 'static> Handler for F {
    fn handle(&self, event: &Event) {
        self(event);
    }
}

/// A handler with a predicate. See [`Handler::when`].
///
/// ```
/// use setpoint::Event;
/// use setpoint::handler::{Handler, Predicate, When, predicate};
/// fn quiet<H: Handler>(handler: H) -> When<H, impl Predicate> {
///     handler.when(predicate::version_changed())
/// }
/// # quiet(|_: &Event| {});
/// ```
pub struct When<H, P> {
    handler: H,
    predicate: P,
}

impl<H: Handler, P: Predicate> Handler for When<H, P> {
    fn handle(&self, event: &Event) {
        if self.predicate.admits(event) {
            self.handler.handle(event);
        }
    }

    fn informs_of(&mut self, kind: &Kind) {
        self.handler.informs_of(kind);
    }

    fn room(&self) -> Option<BoxFuture<'_, ()>> {
        self.handler.room()
    }
}
