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

use super::entry::Add;
use super::lock::{Mutex, MutexGuard};
use super::ready::Priority;
use super::state::State;
use super::trigger::Trigger;
use super::waiters::{Place, Wakes};
use crate::reconcile::WorkKey;

pub(super) struct Core<K> {
    state: Mutex<State<K>>,
}

/// What a taker gets.
pub(super) enum Offer<K> {
    Key(K),
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

    /// The state to change, with every key added whose time has come. `now` is only asked while something
    /// is delayed or observed. Whoever is to be woken is, once the lock is released.
    #[inline]
    fn caught_up(&self, now: impl Fn() -> Instant, wakes: &mut Wakes) -> MutexGuard<'_, State<K>> {
        let mut state = self.state.lock();
        for _ in 0..state.catch_up(now) {
            wakes.push(state.waiters.next());
        }
        state
    }

    /// Adds every key whose time has come, then shows the state.
    pub(super) fn with<T>(&self, now: impl Fn() -> Instant, look: impl FnOnce(&mut State<K>) -> T) -> T {
        let mut wakes = Wakes::default();
        let mut state = self.caught_up(now, &mut wakes);
        let result = look(&mut state);
        drop(state);
        wakes.wake();
        result
    }

    #[inline]
    pub(super) fn add(
        &self,
        key: K,
        priority: Priority,
        trigger: impl FnOnce() -> Trigger,
        now: impl Fn() -> Instant,
    ) {
        let mut wakes = Wakes::default();
        let mut state = self.caught_up(&now, &mut wakes);
        if let Some(window) = state.window {
            let add = Add { priority: Some(priority), trigger: trigger() };
            if state.delay(key, now(), window, add) {
                wakes.push(state.waiters.rearm());
            }
        } else if state.add(key, priority, trigger, &now) {
            wakes.push(state.waiters.next());
        }
        drop(state);
        wakes.wake();
    }

    /// Adds a key now, whether or not keys that are added wait for others.
    pub(super) fn add_at_once(&self, key: K, add: Add, now: impl Fn() -> Instant) {
        let mut wakes = Wakes::default();
        let mut state = self.caught_up(&now, &mut wakes);
        state.count_retry();
        if state.add_again(key, add, &now) {
            wakes.push(state.waiters.next());
        }
        drop(state);
        wakes.wake();
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

    /// Takes back what was added for a key; whether there was anything, and whether the queue has ended and this was
    /// the last.
    pub(super) fn cancel(&self, key: &K, now: impl Fn() -> Instant) -> (bool, bool) {
        let mut wakes = Wakes::default();
        let mut state = self.caught_up(now, &mut wakes);
        let cancelled = state.cancel(key);
        if state.has_room() {
            state.waiters.there_is_room(&mut wakes);
        }
        let drained = state.stopping() && state.is_drained();
        drop(state);
        wakes.wake();
        (cancelled, drained)
    }

    /// Looks for a key, and says in `trigger` what set it off, if that is wanted; if there is no key the
    /// taker becomes a waiter.
    #[inline]
    pub(super) fn take(
        &self,
        place: &mut Place,
        waker: &Waker,
        trigger: Option<&mut Trigger>,
        now: impl Fn() -> Instant,
    ) -> Offer<K> {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let promoted = state.catch_up(&now);
        let offer = match state.take(trigger, &now) {
            Some(key) => Offer::Key(key),
            None if state.stopping() => Offer::End,
            None => {
                state.waiters.wait(place, waker);
                return Offer::Wait(state.earliest().filter(|_| state.waiters.keep_time(place)));
            }
        };
        let vacant = state.waiters.leave(place) && state.delayed() > 0;
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
    #[inline]
    pub(super) fn done(&self, key: &K, now: impl Fn() -> Instant) -> bool {
        let mut wakes = Wakes::default();
        let mut state = self.caught_up(&now, &mut wakes);
        if state.done(key, &now) {
            wakes.push(state.waiters.next());
        }
        let drained = state.stopping() && state.is_drained();
        drop(state);
        wakes.wake();
        drained
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
