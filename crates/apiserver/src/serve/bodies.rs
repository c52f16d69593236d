//! Tracks the responses that a connection is sending: whether its socket accepts bytes, and since when a response has
//! been waiting for its client.
//!
//! Invariant: while the socket is blocked, no response produces bytes that would only wait in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use setpoint_clock::Instant;

/// A client that has not read a written response for this long is disconnected.
pub(super) const STALLED: Duration = Duration::from_secs(120);

/// The responses that a connection is sending.
pub(super) struct Bodies {
    start: Instant,
    next: AtomicU64,
    /// Whether the socket is blocked.
    is_blocked: AtomicBool,
    all: Mutex<BTreeMap<u64, Arc<Sending>>>,
}

#[derive(Default)]
struct Sending {
    /// When it handed out a chunk that has not been followed by a request for another, in milliseconds since `start`;
    /// 0 while it waits for data to send.
    handed: AtomicU64,
    /// Woken when the socket is writable.
    waker: AtomicWaker,
}

impl Bodies {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        let (next, is_blocked, all) = Default::default();
        Arc::new(Self { start: now, next, is_blocked, all })
    }

    /// Tracks another body.
    pub(super) fn follow(self: &Arc<Self>) -> BodyInFlight {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let sending = Arc::<Sending>::default();
        self.all.lock().insert(id, sending.clone());
        BodyInFlight { bodies: self.clone(), id, sending }
    }

    /// Marks the socket as blocked.
    pub(super) fn block(&self) {
        self.is_blocked.store(true, Ordering::SeqCst);
    }

    /// Marks the socket as writable, or gone.
    pub(super) fn unblock(&self) {
        self.is_blocked.store(false, Ordering::SeqCst);
        self.all.lock().values().for_each(|sending| sending.waker.wake());
    }

    pub(super) fn has_stalled(&self, now: Instant) -> bool {
        let limit = STALLED.as_millis() as u64;
        let now = self.millis(now);
        let is_stalled = |sending: &Arc<Sending>| match sending.handed.load(Ordering::Relaxed) {
            0 => false,
            at => now.saturating_sub(at) >= limit,
        };
        self.all.lock().values().any(is_stalled)
    }

    /// Returns the milliseconds since `start`, never 0.
    fn millis(&self, at: Instant) -> u64 {
        1 + at.saturating_duration_since(self.start).as_millis() as u64
    }
}

/// A body being sent.
pub(super) struct BodyInFlight {
    bodies: Arc<Bodies>,
    id: u64,
    sending: Arc<Sending>,
}

impl BodyInFlight {
    /// Waits until the socket is writable.
    pub(super) fn poll_unblocked(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.bodies.is_blocked.load(Ordering::SeqCst) {
            return Poll::Ready(());
        }
        self.sending.waker.register(context.waker());
        // The socket may have become writable before the waker was registered.
        match self.bodies.is_blocked.load(Ordering::SeqCst) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    pub(super) fn mark_sent(&self, now: Instant) {
        self.sending.handed.store(self.bodies.millis(now), Ordering::Relaxed);
    }

    pub(super) fn mark_polled(&self) {
        self.sending.handed.store(0, Ordering::Relaxed);
    }
}

impl Drop for BodyInFlight {
    fn drop(&mut self) {
        self.bodies.all.lock().remove(&self.id);
    }
}
