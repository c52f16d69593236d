//! The order in which events are forwarded, across watches.
//!
//! Resource versions are comparable across kinds if they come from one etcd. If they are not, events wait for each
//! other until their deadlines, with no other effect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::{Clock, Instant};
use tokio::sync::Notify;

use crate::target::Resource;

/// The waiting events and the last forwarded ones: one entry per held event, of which each watch has a bounded number,
/// and one per watched resource.
#[derive(Clone)]
pub(crate) struct Order {
    clock: Clock,
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Queue {
    held: BTreeMap<u64, usize>,
    passed: BTreeMap<Resource, Instant>,
}

/// The position of an event. Dropped when the event has been forwarded, or never will be.
pub(crate) struct Ticket {
    order: Order,
    resource: Resource,
    revision: u64,
    is_held: bool,
}

impl Order {
    pub(crate) fn new(clock: Clock, changed: Arc<Notify>) -> Self {
        Self { clock, queue: Arc::default(), changed }
    }

    /// Makes later events wait for this one while it is held.
    pub(crate) fn enter(&self, resource: Resource, revision: u64, is_held: bool) -> Ticket {
        if is_held {
            *self.queue.lock().held.entry(revision).or_default() += 1;
        }
        Ticket { order: self.clone(), resource, revision, is_held }
    }
}

impl Ticket {
    /// Whether no older event waits.
    pub(crate) fn is_first(&self) -> bool {
        self.order.queue.lock().held.keys().next().is_none_or(|oldest| *oldest >= self.revision)
    }

    /// Returns when the last event of another resource will have been forwarded for this long.
    pub(crate) fn after_others(&self, time: Duration) -> Option<Instant> {
        let queue = self.order.queue.lock();
        let others = queue.passed.iter().filter(|(resource, _)| **resource != self.resource);
        others.map(|(_, at)| *at + time).max()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut queue = self.order.queue.lock();
        queue.passed.insert(self.resource.clone(), self.order.clock.instant());
        if !self.is_held {
            return;
        }
        if let Some(count) = queue.held.get_mut(&self.revision) {
            *count -= 1;
            if *count == 0 {
                queue.held.remove(&self.revision);
            }
        }
        drop(queue);
        self.order.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_event_waits_for_older_ones_that_are_held() {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let order = Order::new(clock.clone(), Arc::default());
        let [pods, sets] = ["pods", "replicasets"].map(|name| Resource::new("", name));
        let [held, free] = [(5, true), (4, false)].map(|(at, held)| order.enter(pods.clone(), at, held));
        let later = order.enter(sets, 7, false);
        assert!(held.is_first() && free.is_first() && !later.is_first());
        assert_eq!(later.after_others(Duration::from_secs(1)), None);
        drop(held);
        assert!(later.is_first());
        assert_eq!(
            later.after_others(Duration::from_secs(1)),
            Some(clock.instant() + Duration::from_secs(1))
        );
        assert_eq!(free.after_others(Duration::from_secs(1)), None, "of its own kind");
    }
}
