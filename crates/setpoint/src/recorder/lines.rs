//! Events that wait to be written, in a line for each component.
//!
//! What always holds:
//! - a component that reports too much loses its own events, never those of another;
//! - of each line one event at a time is taken, so events of a component are written in their order.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Recorded;

/// How many events of a component wait, as in client-go: 1,000 of about 1 KiB each.
pub(super) const WAITING: usize = 1000;

#[derive(Default)]
pub(super) struct Lines {
    by_component: Mutex<BTreeMap<&'static str, Line>>,
    joined: Notify,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Recorded>,
    /// The one that was taken last is not done yet.
    busy: bool,
}

impl Lines {
    /// Puts an event at the end of its component's line; gives it back if there is no room.
    pub(super) fn join(&self, recorded: Recorded) -> Result<(), Recorded> {
        let mut lines = self.by_component.lock();
        let line = lines.entry(recorded.event.source.component).or_default();
        if line.waiting.len() == WAITING {
            return Err(recorded);
        }
        line.waiting.push_back(recorded);
        drop(lines);
        self.joined.notify_one();
        Ok(())
    }

    /// The first event of a line of which none is under way.
    pub(super) fn take(&self) -> Option<Recorded> {
        let mut lines = self.by_component.lock();
        let line = lines.values_mut().find(|line| !line.busy && !line.waiting.is_empty())?;
        line.busy = true;
        line.waiting.pop_front()
    }

    /// The event that was taken from this component's line is done with: the next one may go.
    pub(super) fn done(&self, component: &str) {
        if let Some(line) = self.by_component.lock().get_mut(component) {
            line.busy = false;
        }
    }

    /// Waits until an event has joined since the last time.
    pub(super) async fn joined(&self) {
        self.joined.notified().await;
    }
}
