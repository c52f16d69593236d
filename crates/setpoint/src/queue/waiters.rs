//! Who waits for a key.
//!
//! A waiter that is woken leaves the list: it looks for a key and, if another was faster, comes back as
//! the last. Of those who wait one is the timekeeper, who alone watches the clock for the earliest delay.

use std::collections::VecDeque;
use std::task::Waker;

/// A taker's place among the waiters; `None` before it has waited.
#[derive(Debug, Default)]
pub(super) struct Place(Option<u64>);

/// Takers that found nothing, the one that has waited longest first: at most as many as there are workers.
#[derive(Default)]
pub(super) struct Waiters {
    waiting: VecDeque<(u64, Waker)>,
    places: u64,
    timekeeper: Option<u64>,
    /// Whoever waits until the queue is below its bound.
    for_room: Vec<Waker>,
}

/// Who is to be woken once the lock is released. One is the common case and takes no allocation.
#[derive(Default)]
pub(super) struct Wakes {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Wakes {
    #[inline]
    pub(super) fn push(&mut self, waker: Option<Waker>) {
        match (waker, &self.first) {
            (None, _) => {}
            (waker, None) => self.first = waker,
            (Some(waker), Some(_)) => self.more.push(waker),
        }
    }

    /// Nobody is the most common case, then one: they cost a comparison each.
    #[inline]
    pub(super) fn wake(&mut self) {
        if let Some(first) = self.first.take() {
            first.wake();
            self.more.drain(..).for_each(Waker::wake);
        }
    }
}

impl Waiters {
    /// The one to be told of a key that became ready.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Waker> {
        self.waiting.pop_front().map(|(_, waker)| waker)
    }

    /// Everybody, because the queue has ended.
    pub(super) fn everybody(&mut self, wakes: &mut Wakes) {
        self.waiting.drain(..).for_each(|(_, waker)| wakes.push(Some(waker)));
        self.for_room.drain(..).for_each(|waker| wakes.push(Some(waker)));
    }

    /// The one to be told of an earlier delay: the timekeeper, or somebody who will take the post. A
    /// timekeeper that is not in the list has been woken and will look anyway.
    pub(super) fn rearm(&mut self) -> Option<Waker> {
        match self.timekeeper {
            None => self.next(),
            Some(keeper) => {
                self.waiting.iter().find(|(place, _)| *place == keeper).map(|(_, waker)| waker.clone())
            }
        }
    }

    /// Waits, at the end of the list unless the place is still held.
    pub(super) fn wait(&mut self, place: &mut Place, waker: &Waker) {
        if let Some(held) = self.held(place) {
            self.waiting[held].1.clone_from(waker);
            return;
        }
        // Whoever keeps the time keeps it under its old number.
        let number = place.0.unwrap_or_else(|| {
            self.places += 1;
            self.places
        });
        place.0 = Some(number);
        self.waiting.push_back((number, waker.clone()));
    }

    /// Makes the waiter the timekeeper, unless another one is; whether it is.
    pub(super) fn keep_time(&mut self, place: &Place) -> bool {
        self.timekeeper = self.timekeeper.or(place.0);
        self.timekeeper == place.0
    }

    /// Waits no more. Whether the timekeeper's post is vacant now.
    #[inline]
    pub(super) fn leave(&mut self, place: &mut Place) -> bool {
        if place.is_taken() {
            self.clear(place);
        }
        self.timekeeper.is_none()
    }

    fn clear(&mut self, place: &mut Place) {
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
    pub(super) fn there_is_room(&mut self, wakes: &mut Wakes) {
        if !self.for_room.is_empty() {
            self.for_room.drain(..).for_each(|waker| wakes.push(Some(waker)));
        }
    }

    fn held(&self, place: &Place) -> Option<usize> {
        let number = place.0?;
        self.waiting.iter().position(|(waiting, _)| *waiting == number)
    }
}

impl Place {
    /// Whether its holder may be in the list.
    #[inline]
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}
