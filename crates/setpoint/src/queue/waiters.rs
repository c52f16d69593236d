//! Takers waiting for a key.
//!
//! A woken waiter leaves the list. It looks for a key and, if another taker was faster, rejoins at the end. One of the
//! waiters is the timekeeper: it alone watches the clock for the earliest delay.

use std::collections::VecDeque;
use std::task::Waker;

/// A taker's position among the waiters. `None` before it has waited.
#[derive(Debug, Default)]
pub(super) struct WaiterId(Option<u64>);

/// Takers that found no key, longest waiting first. At most as many as there are workers.
#[derive(Default)]
pub(super) struct Waiters {
    waiting: VecDeque<(u64, Waker)>,
    places: u64,
    timekeeper: Option<u64>,
    /// The wakers of callers that wait until the queue is below its bound.
    for_room: Vec<Waker>,
}

/// The wakers to call once the lock is released. A single one, the common case, needs no allocation.
#[derive(Default)]
pub(super) struct WakeList {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl WakeList {
    #[inline]
    pub(super) fn push(&mut self, waker: Option<Waker>) {
        match (waker, &self.first) {
            (None, _) => {}
            (waker, None) => self.first = waker,
            (Some(waker), Some(_)) => self.more.push(waker),
        }
    }

    /// No waker is the most common case, then one. Each costs one comparison.
    #[inline]
    pub(super) fn wake(&mut self) {
        if let Some(first) = self.first.take() {
            first.wake();
            self.more.drain(..).for_each(Waker::wake);
        }
    }
}

impl Waiters {
    /// Removes the waiter to wake for a key that became ready.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Waker> {
        self.waiting.pop_front().map(|(_, waker)| waker)
    }

    /// Removes all waiters, because the queue has ended.
    pub(super) fn wake_all(&mut self, wakes: &mut WakeList) {
        self.waiting.drain(..).for_each(|(_, waker)| wakes.push(Some(waker)));
        self.for_room.drain(..).for_each(|waker| wakes.push(Some(waker)));
    }

    /// Returns the waiter to wake for an earlier delay: the timekeeper, or a waiter that will become it. A timekeeper
    /// that is not in the list has been woken and will check anyway.
    pub(super) fn rearm(&mut self) -> Option<Waker> {
        match self.timekeeper {
            None => self.next(),
            Some(keeper) => {
                self.waiting.iter().find(|(place, _)| *place == keeper).map(|(_, waker)| waker.clone())
            }
        }
    }

    /// Adds the waiter to the end of the list, unless it is already in it.
    pub(super) fn wait(&mut self, place: &mut WaiterId, waker: &Waker) {
        if let Some(held) = self.held(place) {
            self.waiting[held].1.clone_from(waker);
            return;
        }
        // A timekeeper keeps its number.
        let number = place.0.unwrap_or_else(|| {
            self.places += 1;
            self.places
        });
        place.0 = Some(number);
        self.waiting.push_back((number, waker.clone()));
    }

    /// Makes the waiter the timekeeper if there is none. Returns whether it is.
    pub(super) fn become_timekeeper(&mut self, place: &WaiterId) -> bool {
        self.timekeeper = self.timekeeper.or(place.0);
        self.timekeeper == place.0
    }

    /// Removes the waiter. Returns whether there is no timekeeper now.
    #[inline]
    pub(super) fn leave(&mut self, place: &mut WaiterId) -> bool {
        if place.is_taken() {
            self.clear(place);
        }
        self.timekeeper.is_none()
    }

    fn clear(&mut self, place: &mut WaiterId) {
        if let Some(held) = self.held(place) {
            self.waiting.remove(held);
        }
        if self.timekeeper == place.0 {
            self.timekeeper = None;
        }
        place.0 = None;
    }

    pub(super) fn wait_for_room(&mut self, waker: &Waker) {
        if !self.for_room.iter().any(|waiting| waiting.will_wake(waker)) {
            self.for_room.push(waker.clone());
        }
    }

    #[inline]
    pub(super) fn wake_for_room(&mut self, wakes: &mut WakeList) {
        if !self.for_room.is_empty() {
            self.for_room.drain(..).for_each(|waker| wakes.push(Some(waker)));
        }
    }

    fn held(&self, place: &WaiterId) -> Option<usize> {
        let number = place.0?;
        self.waiting.iter().position(|(waiting, _)| *waiting == number)
    }
}

impl WaiterId {
    /// Returns whether the taker may be in the list.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}
