//! The queue's state behind its lock, and the waiters to wake when it changes.
//!
//! Invariant: a ready key reaches a waiting taker, if there is one. This follows from these rules:
//! - A taker looks for a key and becomes a waiter under one lock, so no key can arrive in between.
//! - Whatever makes a key ready wakes one waiter, under the same lock.
//! - A waiter that is dropped while there are keys wakes the next one, because it may have been the one that was woken.
//! - The timekeeper hands its role to another waiter, whether it got a key or was dropped.
//!
//! Wakers are called after the lock is released. There is no clock and no runtime here: a model checker runs this file
//! through every interleaving (`tests/queue_loom`).

use std::task::{Poll, Waker};

use setpoint_clock::Instant;

use super::entry::Add;
use super::lock::{Mutex, MutexGuard};
use super::ready::Priority;
use super::state::State;
use super::trigger::Trigger;
use super::waiters::{WaiterId, WakeList};
use crate::reconcile::WorkKey;

pub(super) struct Core<K> {
    state: Mutex<State<K>>,
}

/// The answer to a taker.
pub(super) enum TakeResult<K> {
    Key(K),
    /// The queue has ended.
    End,
    /// Nothing yet. The timekeeper also gets the time to check again.
    Wait(Option<Instant>),
}

impl<K: WorkKey> Core<K> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new()) }
    }

    /// Locks the state for reading.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    /// Locks the state for a change, after adding all keys that are due. Calls `now` only if there are delayed keys or
    /// metrics. `wakes` collects the waiters to wake once the lock is released.
    #[inline]
    fn lock_current(&self, now: impl Fn() -> Instant, wakes: &mut WakeList) -> MutexGuard<'_, State<K>> {
        let mut state = self.state.lock();
        for _ in 0..state.catch_up(now) {
            wakes.push(state.waiters.next());
        }
        state
    }

    /// Adds all keys that are due, then calls `look` with the state.
    pub(super) fn with<T>(&self, now: impl Fn() -> Instant, look: impl FnOnce(&mut State<K>) -> T) -> T {
        let mut wakes = WakeList::default();
        let mut state = self.lock_current(now, &mut wakes);
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
        let mut wakes = WakeList::default();
        let mut state = self.lock_current(&now, &mut wakes);
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

    /// Adds a key now, even if the queue batches added keys.
    pub(super) fn add_at_once(&self, key: K, add: Add, now: impl Fn() -> Instant) {
        let mut wakes = WakeList::default();
        let mut state = self.lock_current(&now, &mut wakes);
        state.count_retry();
        if state.add_again(key, add, &now) {
            wakes.push(state.waiters.next());
        }
        drop(state);
        wakes.wake();
    }

    /// Changes a delay. `change` returns whether the earliest deadline moved forward.
    pub(super) fn delay(&self, change: impl FnOnce(&mut State<K>) -> bool) {
        let mut wakes = WakeList::default();
        let mut state = self.state.lock();
        state.count_retry();
        if change(&mut state) {
            wakes.push(state.waiters.rearm());
        }
        drop(state);
        wakes.wake();
    }

    /// Removes a queued or delayed key. Returns whether there was one, and whether the queue has ended and this was the
    /// last key.
    pub(super) fn cancel(&self, key: &K, now: impl Fn() -> Instant) -> (bool, bool) {
        let mut wakes = WakeList::default();
        let mut state = self.lock_current(now, &mut wakes);
        let cancelled = state.cancel(key);
        if state.has_room() {
            state.waiters.wake_for_room(&mut wakes);
        }
        let drained = state.stopping() && state.is_drained();
        drop(state);
        wakes.wake();
        (cancelled, drained)
    }

    /// Takes a key and stores its cause in `trigger`, if given. If there is no key, the taker becomes a waiter.
    #[inline]
    pub(super) fn take(
        &self,
        place: &mut WaiterId,
        waker: &Waker,
        trigger: Option<&mut Trigger>,
        now: impl Fn() -> Instant,
    ) -> TakeResult<K> {
        let mut wakes = WakeList::default();
        let mut state = self.state.lock();
        let promoted = state.catch_up(&now);
        let offer = match state.take(trigger, &now) {
            Some(key) => TakeResult::Key(key),
            None if state.stopping() => TakeResult::End,
            None => {
                state.waiters.wait(place, waker);
                return TakeResult::Wait(state.earliest().filter(|_| state.waiters.become_timekeeper(place)));
            }
        };
        let vacant = state.waiters.leave(place) && state.delayed() > 0;
        // This taker already has one of the promoted keys.
        for _ in 0..promoted.saturating_sub(1) + usize::from(vacant) {
            wakes.push(state.waiters.next());
        }
        if state.has_room() {
            state.waiters.wake_for_room(&mut wakes);
        }
        drop(state);
        wakes.wake();
        offer
    }

    /// Removes a dropped taker. Another waiter gets the key it may have been woken for, and its timekeeper role.
    pub(super) fn give_up(&self, place: &mut WaiterId) {
        if !place.is_taken() {
            return;
        }
        let mut wakes = WakeList::default();
        let mut state = self.state.lock();
        let vacant = state.waiters.leave(place) && state.earliest().is_some();
        if vacant || state.len() > 0 {
            wakes.push(state.waiters.next());
        }
        drop(state);
        wakes.wake();
    }

    /// Marks a taken key as done. Returns whether the queue has ended and this was the last key.
    #[inline]
    pub(super) fn done(&self, key: &K, now: impl Fn() -> Instant) -> bool {
        let mut wakes = WakeList::default();
        let mut state = self.lock_current(&now, &mut wakes);
        if state.done(key, &now) {
            wakes.push(state.waiters.next());
        }
        let drained = state.stopping() && state.is_drained();
        drop(state);
        wakes.wake();
        drained
    }

    /// Checks whether there is room. If not, `waker` is woken when there may be.
    pub(super) fn poll_room(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.state.lock();
        if state.has_room() {
            return Poll::Ready(());
        }
        state.waiters.wait_for_room(waker);
        Poll::Pending
    }

    /// Ends the queue, and with `drop_ready` drops the waiting keys too. Returns whether the queue is drained.
    pub(super) fn end(&self, drop_ready: bool) -> bool {
        let mut wakes = WakeList::default();
        let mut state = self.state.lock();
        state.stop();
        if drop_ready {
            state.drop_ready();
        }
        state.waiters.wake_all(&mut wakes);
        let drained = state.is_drained();
        drop(state);
        wakes.wake();
        drained
    }
}
