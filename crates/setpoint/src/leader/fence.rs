//! Until when this process may write.
//!
//! Whoever lost its lease must not write: somebody else does by then. A lease is lost by the clock, not by a
//! message, so the right to write ends by the clock too: at the renew deadline after the last renewal that
//! succeeded, measured from when it was *sent*. Others take over no sooner than the lease duration after they
//! saw it, and the duration is the longer of the two; the difference is what a write already on its way has to
//! arrive.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use setpoint_clock::{Clock, Instant};
use tokio::sync::watch;

/// The right to write, shared by those who write and those who keep it up. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use setpoint::{Clock, leader::Fence};
/// let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
/// let fence = Fence::closed(&clock);
/// assert!(!fence.holds());
/// fence.hold_until(clock.instant() + Duration::from_secs(10));
/// assert!(fence.holds());
/// clock.sleep(Duration::from_secs(10)).await;
/// assert!(!fence.holds());
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    right: watch::Sender<Right>,
    /// How often the right was lost and gained again: what began before that must not go on after it.
    gained: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    None,
    Until(Instant),
    Always,
}

impl Fence {
    /// Nobody else writes: always allowed.
    pub fn open(clock: &Clock) -> Self {
        Self { clock: clock.clone(), right: watch::Sender::new(Right::Always), gained: Arc::default() }
    }

    /// Not allowed until somebody [holds](Self::hold_until) it open.
    pub fn closed(clock: &Clock) -> Self {
        Self { clock: clock.clone(), right: watch::Sender::new(Right::None), gained: Arc::default() }
    }

    /// Whether this process may write now.
    pub fn holds(&self) -> bool {
        match *self.right.borrow() {
            Right::None => false,
            Right::Until(deadline) => self.clock.instant() < deadline,
            Right::Always => true,
        }
    }

    /// Allows writes until `deadline`.
    pub fn hold_until(&self, deadline: Instant) {
        if !self.holds() {
            self.gained.fetch_add(1, Ordering::AcqRel);
        }
        self.right.send_replace(Right::Until(deadline));
    }

    /// Allows no more writes.
    pub fn close(&self) {
        self.right.send_replace(Right::None);
    }

    /// Waits until writes are no longer allowed.
    pub async fn lost(&self) {
        let mut changes = self.right.subscribe();
        loop {
            let right = *changes.borrow_and_update();
            match right {
                Right::None => return,
                Right::Always => drop(changes.changed().await),
                Right::Until(deadline) => {
                    if self.clock.instant() >= deadline {
                        return;
                    }
                    tokio::select! {
                        biased;
                        _ = changes.changed() => {}
                        () = self.clock.sleep_until(deadline) => {}
                    }
                }
            }
        }
    }

    /// Carries `work` on as long as writes are allowed, and drops it when they no longer are: `None`.
    ///
    /// The clock is read before every step and not only by a timer, so that work in a process that stood
    /// still takes no step when the process moves again.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut lost) = (pin!(work), pin!(self.lost()));
        let gained = self.gained.load(Ordering::Acquire);
        poll_fn(|context| {
            let same = self.gained.load(Ordering::Acquire) == gained;
            if !same || !self.holds() || lost.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }
}
