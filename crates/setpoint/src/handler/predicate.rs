//! Predicates: filters for events.
//!
//! A predicate saves work. It must never be needed for correctness: a reconciler has to do the right thing however
//! often it is called.

use super::Event;
use crate::Object;

/// Filters events. Any `Fn(&Event) -> bool` is a predicate.
///
/// ```
/// use setpoint::Event;
/// use setpoint::handler::{Predicate, predicate};
/// let deleted = |event: &Event| matches!(event, Event::Deleted { .. });
/// let worth_it = predicate::generation_changed().or(predicate::labels_changed()).and(deleted.not());
/// # let _: &dyn Fn(&Event) -> bool = &|event| worth_it.admits(event);
/// ```
pub trait Predicate: Send + Sync + 'static {
    /// Returns whether the event should be handled.
    fn admits(&self, event: &Event) -> bool;

    /// Admits events that both predicates admit.
    fn and<P: Predicate>(self, other: P) -> And<Self, P>
    where
        Self: Sized,
    {
        And(self, other)
    }

    /// Admits events that either predicate admits.
    fn or<P: Predicate>(self, other: P) -> Or<Self, P>
    where
        Self: Sized,
    {
        Or(self, other)
    }

    /// Admits events that this predicate rejects.
    fn not(self) -> Not<Self>
    where
        Self: Sized,
    {
        Not(self)
    }
}

impl<F: Fn(&Event) -> bool + Send + Sync + 'static> Predicate for F {
    fn admits(&self, event: &Event) -> bool {
        self(event)
    }
}

/// See [`Predicate::and`].
pub struct And<A, B>(A, B);

/// See [`Predicate::or`].
pub struct Or<A, B>(A, B);

/// See [`Predicate::not`].
pub struct Not<A>(A);

impl<A: Predicate, B: Predicate> Predicate for And<A, B> {
    fn admits(&self, event: &Event) -> bool {
        self.0.admits(event) && self.1.admits(event)
    }
}

impl<A: Predicate, B: Predicate> Predicate for Or<A, B> {
    fn admits(&self, event: &Event) -> bool {
        self.0.admits(event) || self.1.admits(event)
    }
}

impl<A: Predicate> Predicate for Not<A> {
    fn admits(&self, event: &Event) -> bool {
        !self.0.admits(event)
    }
}

/// Admits every add and delete, and the updates for which `differs` returns true, given the old and the new state.
pub fn updates(differs: impl Fn(&Object, &Object) -> bool + Send + Sync + 'static) -> impl Predicate {
    move |event: &Event| match event {
        Event::Updated { old, new } => differs(old, new),
        Event::Added { .. } | Event::Deleted { .. } => true,
    }
}

/// Admits updates only if they change the generation: the spec, not the status.
pub fn generation_changed() -> impl Predicate {
    updates(|old, new| old.meta().generation != new.meta().generation)
}

/// Admits updates only if they change the labels.
pub fn labels_changed() -> impl Predicate {
    updates(|old, new| old.meta().labels != new.meta().labels)
}

/// Admits updates only if they change anything, which excludes resyncs.
pub fn version_changed() -> impl Predicate {
    updates(|old, new| old.meta().resource_version != new.meta().resource_version)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Metadata;

    fn object(version: &str, generation: i64, app: &str) -> Object {
        let labels = [("app", app)].into_iter().collect();
        let meta = Metadata { resource_version: version.into(), generation, labels, ..Metadata::default() };
        Object::with_metadata(meta, Bytes::new())
    }

    fn update(new: Object) -> Event {
        Event::Updated { old: object("1", 1, "a"), new }
    }

    #[test]
    fn predicates_filter_updates_only() {
        let check = |predicate: &dyn Fn(&Event) -> bool, admitted: [bool; 4]| {
            let updates =
                [object("1", 1, "a"), object("2", 1, "a"), object("2", 2, "a"), object("2", 1, "b")];
            assert_eq!(updates.map(|new| predicate(&update(new))), admitted);
            assert!(predicate(&Event::Added { object: object("1", 1, "a"), initial: false }));
            assert!(predicate(&Event::Deleted { last: object("1", 1, "a"), missed: false }));
        };
        check(&|event| generation_changed().admits(event), [false, false, true, false]);
        check(&|event| labels_changed().admits(event), [false, false, false, true]);
        check(&|event| version_changed().admits(event), [false, true, true, true]);
        check(&|event| generation_changed().or(labels_changed()).admits(event), [false, false, true, true]);
    }

    #[test]
    fn predicates_combine() {
        let (yes, no) = (|_: &Event| true, |_: &Event| false);
        let event = update(object("1", 1, "a"));
        assert!(yes.and(no.not()).admits(&event) && !yes.and(no).admits(&event));
        assert!(no.or(yes).admits(&event) && !no.or(no).admits(&event));
    }
}
