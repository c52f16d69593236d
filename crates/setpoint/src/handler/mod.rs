//! Stage 6: what happened to an object, and which keys that is work for.
//!
//! A handler is usually one of [`enqueue_self`], [`enqueue_controller`] and [`enqueue_mapped`], told
//! [`when`](Handler::when) a [`predicate`] admits the event. None of them says to a reconciler what
//! happened: it gets a key and looks for itself.

mod enqueue;
pub mod predicate;

use futures::future::BoxFuture;

use crate::{Kind, Object};

pub use self::enqueue::{enqueue_controller, enqueue_mapped, enqueue_self};
pub use self::predicate::Predicate;

/// What an informer tells its handlers.
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
        /// Whether it was there when the cache was first filled.
        initial: bool,
    },
    /// The object changed, or, when both are the same version, a resync is due.
    Updated {
        /// As it was.
        old: Object,
        /// As it is.
        new: Object,
    },
    /// The object is gone. If its removal was missed, the state may be older than the object's last one.
    Deleted {
        /// Its last known state.
        last: Object,
        /// Whether the removal itself was not seen.
        missed: bool,
    },
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

    /// The state before, if the object was updated.
    pub fn old(&self) -> Option<&Object> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added { .. } | Self::Deleted { .. } => None,
        }
    }

    /// The states that the event is about: the old one, if there is one, and the newest.
    pub fn states(&self) -> impl Iterator<Item = &Object> {
        self.old().into_iter().chain([self.object()])
    }
}

/// Receives the events of an informer, in the order of each object's changes, on the informer's own
/// task: a handler never blocks, it turns an event into keys of a work queue. Any `Fn(&Event)` is one.
///
/// ```
/// use setpoint::Event;
/// use setpoint::handler::{Handler, predicate};
/// let handler = (|event: &Event| println!("{} has a new spec", event.object().key()))
///     .when(predicate::generation_changed());
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Takes note of an event.
    fn handle(&self, event: &Event);

    /// Is told which kind the events are about, once, before the first of them.
    fn informs_of(&mut self, kind: &Kind) {
        let _ = kind;
    }

    /// Waits until it can take more, if it has a bound at all. Until then the informer reads no further,
    /// unless somebody waits for what its cache will show.
    fn room(&self) -> Option<BoxFuture<'_, ()>> {
        None
    }

    /// The same handler, told only of events that `predicate` admits.
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

/// A handler behind a predicate: see [`Handler::when`].
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
