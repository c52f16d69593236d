//! Futures that wait for a key. One of them also watches the clock for the earliest delay.

use std::pin::Pin;
use std::task::{Context, Poll};

use setpoint_clock::Instant;
use tokio::time::Sleep;

use super::Inner;
use super::core::TakeResult;
use super::trigger::Trigger;
use super::waiters::WaiterId;
use crate::reconcile::WorkKey;

/// A key taken by a worker, and its trigger.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<K> {
    pub(crate) key: K,
    pub(crate) trigger: Trigger,
}

/// A taker. It is two words, because usually a key is available and nothing has to wait.
pub(super) struct Take<'a, K: WorkKey> {
    shared: &'a Inner<K>,
    waiting: Option<Box<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    place: WaiterId,
    /// Runs while this taker is the timekeeper.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, K: WorkKey> Take<'a, K> {
    pub(super) fn new(shared: &'a Inner<K>) -> Self {
        Self { shared, waiting: None }
    }

    /// Waits for a key and its trigger.
    pub(super) async fn work(mut self) -> Option<Taken<K>> {
        let mut trigger = Trigger::default();
        let key = std::future::poll_fn(|context| self.poll_key(Some(&mut trigger), context)).await?;
        Some(Taken { key, trigger })
    }

    #[inline]
    fn poll_key(&mut self, mut trigger: Option<&mut Trigger>, context: &mut Context<'_>) -> Poll<Option<K>> {
        loop {
            let mut place = self.waiting.as_mut().map(|waiting| std::mem::take(&mut waiting.place));
            let place = place.get_or_insert_default();
            let now = || self.shared.clock.instant();
            match self.shared.core.take(place, context.waker(), trigger.as_deref_mut(), now) {
                TakeResult::Key(key) => return Poll::Ready(Some(key)),
                TakeResult::End => return Poll::Ready(None),
                TakeResult::Wait(due) => {
                    let waiting = self.waiting.get_or_insert_default();
                    waiting.place = std::mem::take(place);
                    if !due.is_some_and(|due| waiting.poll_time(due, context)) {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Waiting {
    /// Returns whether `due` has passed. If not, this taker is polled again when it has.
    fn poll_time(&mut self, due: Instant, context: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

impl<K: WorkKey> Future for Take<'_, K> {
    type Output = Option<K>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_key(None, context)
    }
}

impl<K: WorkKey> Drop for Take<'_, K> {
    fn drop(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            self.shared.core.give_up(&mut waiting.place);
        }
    }
}
