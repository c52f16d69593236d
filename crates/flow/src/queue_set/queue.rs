//! A queue of a level.

use std::collections::BTreeSet;

use super::RequestId;
use crate::seat_seconds::SeatSeconds;

/// Waiting requests, first come first served, and the totals of executing ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// IDs are ascending, so this is the order of arrival.
    waiting: BTreeSet<RequestId>,
    pub(super) initial_seats: u64,
    pub(super) max_seats: u64,
    work: SeatSeconds,
    /// When its next request starts in virtual time.
    pub(super) next_r: SeatSeconds,
    pub(super) executing: u64,
    /// Including lingering seats.
    pub(super) seats_in_use: u64,
}

impl Queue {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &RequestId> {
        self.waiting.iter()
    }

    pub(super) fn waiting_work(&self) -> SeatSeconds {
        self.work
    }

    pub(super) fn first(&self) -> Option<RequestId> {
        self.waiting.first().copied()
    }

    /// Returns whether nothing waits or executes.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.executing == 0
    }

    pub(super) fn push(&mut self, id: RequestId, initial: u64, max: u64, work: SeatSeconds) {
        self.waiting.insert(id);
        self.initial_seats += initial;
        self.max_seats += max;
        self.work = self.work.plus(work);
    }

    pub(super) fn remove(&mut self, id: RequestId, initial: u64, max: u64, work: SeatSeconds) {
        self.waiting.remove(&id);
        self.initial_seats -= initial;
        self.max_seats -= max;
        self.work = self.work.minus(work);
    }
}
