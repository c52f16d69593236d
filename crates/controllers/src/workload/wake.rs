//! Maps pod events to sets, for kinds that create and delete pods by count.
//!
//! Invariant: the cache is updated before handlers run, so a create or delete is only observed once a list would show
//! it.

use std::sync::Arc;

use setpoint::{Context, Event, Expectations, Informer, Key, Object, Queue};

use super::owners::{Owner, Owners};
use super::throttle::Throttle;
use crate::wiring;

pub(crate) struct Wake<R> {
    queue: Queue<Key>,
    pub(crate) expectations: Arc<Expectations<Key>>,
    pub(crate) throttle: Arc<Throttle<Key>>,
    sets: Owners<R>,
}

impl<R: Owner> Wake<R> {
    /// Adds handlers for sets and their pods.
    pub(crate) fn follow(
        context: &Context,
        queue: &Queue<Key>,
        sets: &Informer,
        pods: &Informer,
    ) -> Arc<Self> {
        let clock = &context.runtime.clock;
        let wake = Arc::new(Self {
            queue: queue.clone(),
            expectations: Arc::new(Expectations::new(clock.clone())),
            throttle: Arc::new(Throttle::new(clock.clone())),
            sets: Owners::new(sets.lister()),
        });
        wiring::follow(sets, &wake, Self::set_changed);
        wiring::follow(pods, &wake, Self::pod_changed);
        wake
    }

    pub(crate) fn set_changed(&self, event: &Event) {
        let replaced = matches!(event, Event::Updated { old, new } if old.meta().uid != new.meta().uid);
        if replaced || matches!(event, Event::Deleted { .. }) {
            // A new set of the same name must not inherit these expectations.
            self.expectations.forget(event.object().key());
        }
        self.queue.add(event.object().key().clone());
    }

    pub(crate) fn pod_changed(&self, event: &Event) {
        match event {
            Event::Added { object, .. } => self.pod_added(object),
            Event::Updated { old, new } if old.meta().uid != new.meta().uid => {
                self.pod_deleted(old);
                self.pod_added(new);
            }
            Event::Updated { old, new } if !old.same_version(new) => self.pod_updated(old, new),
            Event::Updated { .. } => {}
            Event::Deleted { last, .. } => self.pod_deleted(last),
        }
    }

    fn pod_added(&self, pod: &Object) {
        if pod.meta().is_being_deleted() {
            // It already existed and was terminating, so it is not one of our creations.
            return self.pod_deleted(pod);
        }
        if pod.meta().controller().is_none() {
            return self.wake_adopters(pod);
        }
        if let Some(set) = self.sets.of(pod) {
            self.expectations.creation_observed(set.key());
            self.queue.add(set.key().clone());
        }
    }

    fn pod_updated(&self, old: &Object, new: &Object) {
        let relabelled = old.meta().labels != new.meta().labels;
        if new.meta().is_being_deleted() {
            // A set replaces a pod when it starts terminating, not when it is gone.
            self.pod_deleted(new);
            if relabelled {
                self.pod_deleted(old);
            }
            return;
        }
        let handed_over = old.meta().controller() != new.meta().controller();
        if handed_over && let Some(set) = self.sets.of(old) {
            self.queue.add(set.key().clone());
        }
        if let Some(set) = self.sets.of(new) {
            // Probably just a status count, so changes can be batched.
            self.queue.add_after(set.key().clone(), self.throttle.delay(set.key()));
        } else if new.meta().controller().is_none() && (relabelled || handed_over) {
            self.wake_adopters(new);
        }
    }

    /// Handles a deleted or terminating pod. Orphans concern no set.
    fn pod_deleted(&self, pod: &Object) {
        if let Some(set) = self.sets.of(pod) {
            self.expectations.deletion_observed(set.key(), &pod.meta().uid);
            self.queue.add(set.key().clone());
        }
    }

    fn wake_adopters(&self, pod: &Object) {
        self.sets.selecting(pod).into_iter().for_each(|set| self.queue.add(set));
    }
}
