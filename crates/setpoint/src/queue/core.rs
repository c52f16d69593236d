//! The state behind its lock, and who is woken when it changes.
//!
//! What always holds: a key that is ready finds a waiting taker, if there is one. It rests on these rules:
//! - a taker looks for a key and becomes a waiter under one lock: no key comes in between;
//! - whatever makes a key ready wakes one waiter, under the same lock;
//! - a waiter that is dropped while there are keys wakes the next one, for it may have been the one woken;
//! - the timekeeper leaves its post to another waiter, whether it got a key or was dropped.
//!
//! Nobody is woken while the lock is held. There is no clock and no runtime here: a model checker runs
//! this very file through every order of steps (`tests/queue_loom`).

use std::task::{Poll, Waker};

use setpoint_clock::Instant;

use super::lock::{Mutex, MutexGuard};
use super::state::{Add, State, Taken};
use super::waiters::{Place, Wakes};
use crate::reconcile::WorkKey;

pub(super) struct Core<K> {
    state: Mutex<State<K>>,
}

/// What a taker gets.
pub(super) enum Offer<K> {
    Key(Taken<K>),
    /// The queue has ended.
    End,
    /// Nothing yet. The timekeeper is told when to look again.
    Wait(Option<Instant>),
}

impl<K: WorkKey> Core<K> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new()) }
    }

    /// The state as it is, to look at.
    pub(super) fn look(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    /// Changes the state, with every key added whose time has come, then wakes whom `change` names. `now`
    /// is only asked while something is delayed or observed.
    fn change<T>(&self, now: impl Fn() -> Instant, change: impl FnOnce(&mut State<K>, &mut Wakes) -> T) -> T {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        for _ in 0..state.catch_up(now) {
            wakes.push(state.waiters.next());
        }
        let result = change(&mut state, &mut wakes);
        drop(state);
        wakes.wake();
        result
    }

    /// Adds every key whose time has come, then shows the state.
    pub(super) fn with<T>(&self, now: impl Fn() -> Instant, look: impl FnOnce(&mut State<K>) -> T) -> T {
        self.change(now, |state, _| look(state))
    }

    pub(super) fn add(&self, key: K, add: Add, now: impl Fn() -> Instant) {
        self.change(&now, |state, wakes| {
            if let Some(window) = state.window {
                if state.delay(key, now(), window, add) {
                    wakes.push(state.waiters.rearm());
                }
            } else if state.add(key, add, &now) {
                wakes.push(state.waiters.next());
            }
        });
    }

    /// Adds a key now, whether or not keys that are added wait for others.
    pub(super) fn add_at_once(&self, key: K, add: Add, now: impl Fn() -> Instant) {
        self.change(&now, |state, wakes| {
            state.count_retry();
            if state.add(key, add, &now) {
                wakes.push(state.waiters.next());
            }
        });
    }

    /// Changes a delay; `change` says whether the earliest of all came forward.
    pub(super) fn delay(&self, change: impl FnOnce(&mut State<K>) -> bool) {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        state.count_retry();
        if change(&mut state) {
            wakes.push(state.waiters.rearm());
        }
        drop(state);
        wakes.wake();
    }

    /// Looks for a key; if there is none the taker becomes a waiter.
    pub(super) fn take(&self, place: &mut Place, waker: &Waker, now: impl Fn() -> Instant) -> Offer<K> {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let promoted = state.catch_up(&now);
        let offer = match state.take(&now) {
            Some(taken) => Offer::Key(taken),
            None if state.stopping() => Offer::End,
            None => {
                state.waiters.wait(place, waker);
                return Offer::Wait(state.earliest().filter(|_| state.waiters.keep_time(place)));
            }
        };
        let vacant = state.waiters.leave(place) && state.earliest().is_some();
        // One of those whose time has come is in this taker's hands.
        for _ in 0..promoted.saturating_sub(1) + usize::from(vacant) {
            wakes.push(state.waiters.next());
        }
        if state.has_room() {
            state.waiters.there_is_room(&mut wakes);
        }
        drop(state);
        wakes.wake();
        offer
    }

    /// A taker gives up: somebody else gets the key it may have been woken for, and the post it may have had.
    pub(super) fn give_up(&self, place: &mut Place) {
        if !place.is_taken() {
            return;
        }
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let vacant = state.waiters.leave(place) && state.earliest().is_some();
        if vacant || state.len() > 0 {
            wakes.push(state.waiters.next());
        }
        drop(state);
        wakes.wake();
    }

    /// The work on a taken key has ended; whether the queue has ended and this was the last.
    pub(super) fn done(&self, key: &K, now: impl Fn() -> Instant) -> bool {
        self.change(&now, |state, wakes| {
            if state.done(key, &now) {
                wakes.push(state.waiters.next());
            }
            state.stopping() && state.is_drained()
        })
    }

    /// Whether there is room; if not, `waker` is woken when there may be.
    pub(super) fn poll_room(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.state.lock();
        if state.has_room() {
            return Poll::Ready(());
        }
        state.waiters.wait_for_room(waker);
        Poll::Pending
    }

    /// Ends the queue; `drop_ready`: what waits is dropped too. Whether nothing is left.
    pub(super) fn end(&self, drop_ready: bool) -> bool {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        state.stop();
        if drop_ready {
            state.drop_ready();
        }
        state.waiters.everybody(&mut wakes);
        let drained = state.is_drained();
        drop(state);
        wakes.wake();
        drained
    }
}
