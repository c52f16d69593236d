//! Limits how long this process may write.
//!
//! A process that has lost its lease must not write, because another one may be writing by then. A lease is lost by the
//! passage of time, not by a message, so the permission to write expires by time too: at the renew deadline after the
//! last successful renewal, measured from when that renewal was *sent*. Others take over no sooner than the lease
//! duration after they saw it. The lease duration is the longer of the two, and the difference is the time a write in
//! flight has to arrive.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use setpoint_clock::{Clock, Instant};
use tokio::sync::watch;

/// The permission to write, shared by writers and the code that renews it. Cheap to clone.
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
    permission: watch::Sender<Permission>,
    /// How often the permission was lost and regained. Work that started before a loss must not continue after it.
    gained: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    None,
    Until(Instant),
    Always,
}

impl Fence {
    /// Creates a fence that always allows writes, for a single replica.
    pub fn open(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            permission: watch::Sender::new(Permission::Always),
            gained: Arc::default(),
        }
    }

    /// Creates a fence that allows no writes until [`hold_until`](Self::hold_until) is called.
    pub fn closed(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            permission: watch::Sender::new(Permission::None),
            gained: Arc::default(),
        }
    }

    /// Returns whether this process may write now.
    pub fn holds(&self) -> bool {
        match *self.permission.borrow() {
            Permission::None => false,
            Permission::Until(deadline) => self.clock.instant() < deadline,
            Permission::Always => true,
        }
    }

    /// Allows writes until `deadline`.
    pub fn hold_until(&self, deadline: Instant) {
        if !self.holds() {
            self.gained.fetch_add(1, Ordering::AcqRel);
        }
        self.permission.send_replace(Permission::Until(deadline));
    }

    /// Stops allowing writes.
    pub fn close(&self) {
        self.permission.send_replace(Permission::None);
    }

    /// Waits until writes are no longer allowed.
    pub async fn lost(&self) {
        let mut changes = self.permission.subscribe();
        loop {
            let permission = *changes.borrow_and_update();
            match permission {
                Permission::None => return,
                Permission::Always => drop(changes.changed().await),
                Permission::Until(deadline) => {
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

    /// Polls `work` as long as writes are allowed. When they no longer are, drops it and returns `None`.
    ///
    /// The clock is read before every poll, not only by a timer. So if the permission expired while the process was
    /// paused, `work` makes no progress after it resumes.
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
