//! Which sets a change concerns.
//!
//! What always holds: the cache already shows a change when these handlers are told of it, so a
//! creation or deletion is observed only once a list would show it.

use std::sync::Arc;

use setpoint::{Event, Expectations, Key, Lister, Object, OwnerRef, Queue};

use super::ReplicaSet;

pub(super) struct Wake {
    queue: Queue<Key>,
    expectations: Arc<Expectations<Key>>,
    sets: Lister<ReplicaSet>,
}

impl Wake {
    pub(super) fn new(
        queue: Queue<Key>,
        expectations: Arc<Expectations<Key>>,
        sets: Lister<ReplicaSet>,
    ) -> Self {
        Self { queue, expectations, sets }
    }

    pub(super) fn set_changed(&self, event: &Event) {
        let replaced = matches!(event, Event::Updated { old, new } if old.meta().uid != new.meta().uid);
        if replaced || matches!(event, Event::Deleted { .. }) {
            // A namesake starts without the expectations of this one.
            self.expectations.forget(event.object().key());
        }
        self.queue.add(event.object().key().clone());
    }

    pub(super) fn pod_changed(&self, event: &Event) {
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
            // It was there before this process, on its way out: no creation of ours.
            return self.pod_deleted(pod);
        }
        match pod.meta().controller() {
            Some(controller) => {
                if let Some(set) = self.resolve(pod, controller) {
                    self.expectations.creation_observed(&set);
                    self.queue.add(set);
                }
            }
            None => self.wake_adopters(pod),
        }
    }

    fn pod_updated(&self, old: &Object, new: &Object) {
        let relabelled = old.meta().labels != new.meta().labels;
        if new.meta().is_being_deleted() {
            // A set replaces a pod as soon as it is told to end, not when it has ended.
            self.pod_deleted(new);
            if relabelled {
                self.pod_deleted(old);
            }
            return;
        }
        let handed_over = old.meta().controller() != new.meta().controller();
        if let Some(controller) = old.meta().controller().filter(|_| handed_over) {
            self.wake_controller(old, controller);
        }
        match new.meta().controller() {
            Some(controller) => self.wake_controller(new, controller),
            None if relabelled || handed_over => self.wake_adopters(new),
            None => {}
        }
    }

    /// Nobody waits for the end of an orphan.
    fn pod_deleted(&self, pod: &Object) {
        if let Some(set) = pod.meta().controller().and_then(|controller| self.resolve(pod, controller)) {
            self.expectations.deletion_observed(&set, &pod.meta().uid);
            self.queue.add(set);
        }
    }

    fn wake_controller(&self, pod: &Object, controller: &OwnerRef) {
        if let Some(set) = self.resolve(pod, controller) {
            self.queue.add(set);
        }
    }

    /// Wakes every set that could adopt an orphan.
    fn wake_adopters(&self, pod: &Object) {
        if pod.meta().labels.is_empty() {
            return;
        }
        match self.sets.list(pod.key().namespace()) {
            Ok(sets) => {
                let selecting = sets.iter().filter(|set| {
                    !set.spec.selector.is_empty() && set.spec.selector.matches(&pod.meta().labels)
                });
                selecting.for_each(|set| self.queue.add(set.key().clone()));
            }
            Err(error) => tracing::warn!(pod = %pod.key(), %error, "cannot tell which sets select a pod"),
        }
    }

    /// The key of the set that a pod names as its controller, if it is a set and still that one.
    fn resolve(&self, pod: &Object, controller: &OwnerRef) -> Option<Key> {
        if &*controller.kind != "ReplicaSet" {
            return None;
        }
        let set = self.sets.get(&pod.key().sibling(&*controller.name)).ok()??;
        (set.meta().uid == controller.uid).then(|| set.key().clone())
    }
}
