//! Waiting for a key, and for the time of the earliest delay if nobody else watches the clock.

use std::pin::Pin;
use std::task::{Context, Poll};

use setpoint_clock::Instant;
use tokio::time::Sleep;

use super::Shared;
use super::core::Offer;
use super::state::Taken;
use super::waiters::Place;
use crate::reconcile::WorkKey;

/// A taker: waits for a key.
pub(super) struct Take<'a, K: WorkKey> {
    shared: &'a Shared<K>,
    place: Place,
    /// Runs while this taker is the timekeeper.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, K: WorkKey> Take<'a, K> {
    pub(super) fn new(shared: &'a Shared<K>) -> Self {
        Self { shared, place: Place::default(), timer: None }
    }

    /// Whether it is `due`; if not, this taker is polled again when it is.
    fn poll_time(&mut self, due: Instant, context: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

impl<K: WorkKey> Future for Take<'_, K> {
    type Output = Option<Taken<K>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let now = || this.shared.clock.instant();
            match this.shared.core.take(&mut this.place, context.waker(), now) {
                Offer::Key(taken) => return Poll::Ready(Some(taken)),
                Offer::End => return Poll::Ready(None),
                Offer::Wait(None) => return Poll::Pending,
                Offer::Wait(Some(due)) => {
                    if !this.poll_time(due, context) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl<K: WorkKey> Drop for Take<'_, K> {
    fn drop(&mut self) {
        self.shared.core.give_up(&mut self.place);
    }
}
