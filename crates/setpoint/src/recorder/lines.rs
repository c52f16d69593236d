//! Queues of events to be written, one per component.
//!
//! Invariants:
//! - A component that records too much loses its own events, never those of another.
//! - One event at a time is taken from each queue, so the events of a component are written in order.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Recorded;

/// The capacity per component, as in client-go: 1,000 events of about 1 KiB each.
pub(super) const QUEUE_CAPACITY: usize = 1000;

#[derive(Default)]
pub(super) struct Lines {
    by_component: Mutex<BTreeMap<&'static str, Line>>,
    joined: Notify,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Recorded>,
    /// The last event taken is still being written.
    busy: bool,
}

impl Lines {
    /// Appends an event to its component's queue. Returns the event if the queue is full.
    pub(super) fn join(&self, recorded: Recorded) -> Result<(), Recorded> {
        let mut lines = self.by_component.lock();
        let line = lines.entry(recorded.event.source.component).or_default();
        if line.waiting.len() == QUEUE_CAPACITY {
            return Err(recorded);
        }
        line.waiting.push_back(recorded);
        drop(lines);
        self.joined.notify_one();
        Ok(())
    }

    /// Takes the next event from a queue that has none in progress.
    pub(super) fn take(&self) -> Option<Recorded> {
        let mut lines = self.by_component.lock();
        let line = lines.values_mut().find(|line| !line.busy && !line.waiting.is_empty())?;
        line.busy = true;
        line.waiting.pop_front()
    }

    /// Marks the event taken from this component's queue as done, so that the next one can be taken.
    pub(super) fn done(&self, component: &str) {
        if let Some(line) = self.by_component.lock().get_mut(component) {
            line.busy = false;
        }
    }

    /// Waits until an event has been added since the last call.
    pub(super) async fn joined(&self) {
        self.joined.notified().await;
    }
}
