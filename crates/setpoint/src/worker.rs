//! Stage 8: the only worker loop.
//!
//! ```text
//!  take ─► reconcile: timed, panics caught ─► count ─► report ─► requeue? ─► done
//!
//!  Settled          forget                        Retry, panic, timeout   add, rate limited
//!  CheckAfter(d)    forget, add after d           Conflict                add, after a short delay
//!  Requeue          add, rate limited             Terminal                forget, until it changes
//! ```
//!
//! Invariants:
//! - A taken key is marked as done exactly once, however its reconcile ends.
//! - If the controller reads its own writes, no key is reconciled before the caches show the writes of its last
//!   reconcile.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::{Clock, Instant};
use tracing::Instrument;

use crate::adaptive::WorkerSlot;
use crate::introspection::{Entry, Inspector};
use crate::metrics::{ReconcileResult, Reconciles};
use crate::pending_writes::PendingWrites;
use crate::queue::{Taken, Trigger};
use crate::reconcile::WorkKey;
use crate::{Outcome, Queue, ReconcileError, Reconciler};

/// State shared by the workers of a controller.
pub(crate) struct Worker<K: WorkKey> {
    pub(crate) controller: &'static str,
    pub(crate) queue: Queue<K>,
    pub(crate) reconciler: Box<dyn AnyReconciler<K>>,
    pub(crate) policy: Policy,
    pub(crate) reconciles: Arc<Reconciles>,
    /// Where outcomes are recorded for introspection, if it is enabled.
    pub(crate) inspector: Option<Arc<Inspector<K>>>,
    pub(crate) clock: Clock,
    /// The writes made so far, if the controller reads its own writes.
    pub(crate) pending_writes: Option<PendingWrites<K>>,
    /// Numbers this controller's reconciles, so that a reconcile's lines can be found in the log.
    pub(crate) started: AtomicU64,
}

/// A reconciler with its type erased. This gives one worker loop per key type instead of one per controller: sixty
/// copies of it would be a megabyte of code.
pub(crate) trait AnyReconciler<K>: Send + Sync {
    fn reconcile<'a>(&'a self, key: &'a K) -> BoxFuture<'a, Result<Outcome, ReconcileError>>;
}

impl<R: Reconciler> AnyReconciler<R::Key> for R {
    fn reconcile<'a>(&'a self, key: &'a R::Key) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(Reconciler::reconcile(self, key))
    }
}

/// How a worker handles failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// A reconcile that takes longer is dropped.
    pub(crate) timeout: Option<Duration>,
    /// After this many failures in a row, a key is not retried until it changes.
    pub(crate) max_retries: Option<u32>,
    /// Retries terminal errors too.
    pub(crate) persistent: bool,
}

/// The delay before a key is tried again whose writes have not reached the cache in time.
const STALE_CACHE: Duration = Duration::from_secs(1);

/// The result of a reconcile.
enum ReconcileEnd {
    Outcome(Outcome),
    Failed(ReconcileError),
    Panicked(String),
    TimedOut(Duration),
}

/// What to do with the key next.
enum NextStep {
    Forget,
    After(Duration),
    Requeue,
    Retry,
    AfterConflict,
    GiveUp,
}

impl<K: WorkKey> Worker<K> {
    /// Processes keys one at a time until the queue ends.
    pub(crate) async fn run(self: Arc<Self>, mut shift: WorkerSlot) {
        loop {
            let Some(taken) = shift.wait(self.queue.take_work()).await else { continue };
            let Some(taken) = taken else { return };
            self.work_on(taken).await;
            // A reconcile that finds nothing to do may never yield, so yield here to let other tasks run.
            tokio::task::coop::consume_budget().await;
        }
    }

    async fn work_on(&self, Taken { key, trigger }: Taken<K>) {
        let id = self.started.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!("reconcile", controller = self.controller, object = %key, id, trigger = %trigger,
            outcome = tracing::field::Empty, otel.status_code = tracing::field::Empty);
        let done = Done { queue: &self.queue, key: &key };
        let marked = span.clone();
        async {
            if !self.caches_show_own_writes(&key).await {
                return;
            }
            let started = self.clock.instant();
            self.reconciles.started();
            let ending = self.reconcile(&key).await;
            let took = self.clock.instant().saturating_duration_since(started);
            self.reconciles.ended(ending.counted(), took);
            let next = self.next(&key, &ending);
            self.report(&key, &ending, &next, took);
            self.record(&key, trigger, &ending, started, took);
            ending.mark(&marked);
            self.requeue(&key, &ending, next);
        }
        .instrument(span)
        .await;
        drop(done);
    }

    /// Returns whether the key can be reconciled now. If not, requeues it for later.
    async fn caches_show_own_writes(&self, key: &K) -> bool {
        let Some(pending_writes) = &self.pending_writes else { return true };
        let shown = pending_writes.wait_until_shown(key).await;
        if !shown {
            tracing::debug!("the caches do not show the last writes yet, requeued");
            self.reconciles.postponed();
            self.queue.add_after(key.clone(), STALE_CACHE);
        }
        shown
    }

    async fn reconcile(&self, key: &K) -> ReconcileEnd {
        match &self.pending_writes {
            None => self.catch_panic(key).await,
            Some(pending_writes) => pending_writes.record(key, self.catch_panic(key)).await,
        }
    }

    async fn catch_panic(&self, key: &K) -> ReconcileEnd {
        let caught = AssertUnwindSafe(async { self.reconciler.reconcile(key).await }).catch_unwind();
        let result = match self.policy.timeout {
            None => caught.await,
            Some(timeout) => match tokio::time::timeout(timeout, caught).await {
                Ok(result) => result,
                Err(_) => return ReconcileEnd::TimedOut(timeout),
            },
        };
        match result {
            Ok(Ok(outcome)) => ReconcileEnd::Outcome(outcome),
            Ok(Err(error)) => ReconcileEnd::Failed(error),
            Err(panic) => ReconcileEnd::Panicked(panic_message(&*panic)),
        }
    }

    fn next(&self, key: &K, ending: &ReconcileEnd) -> NextStep {
        let next = match ending {
            ReconcileEnd::Outcome(Outcome::Settled) => return NextStep::Forget,
            ReconcileEnd::Outcome(Outcome::CheckAfter(delay)) => return NextStep::After(*delay),
            ReconcileEnd::Outcome(Outcome::Requeue) => return NextStep::Requeue,
            ReconcileEnd::Failed(ReconcileError::Terminal { .. }) if !self.policy.persistent => {
                return NextStep::GiveUp;
            }
            ReconcileEnd::Failed(ReconcileError::Conflict { .. }) => NextStep::AfterConflict,
            ReconcileEnd::Failed(_) | ReconcileEnd::Panicked(_) | ReconcileEnd::TimedOut(_) => {
                NextStep::Retry
            }
        };
        let exhausted = self.policy.max_retries.is_some_and(|most| self.queue.retries(key) >= most);
        if exhausted { NextStep::GiveUp } else { next }
    }

    fn requeue(&self, key: &K, ending: &ReconcileEnd, next: NextStep) {
        if let Some(category) = ending.category() {
            self.reconciles.failed(category, matches!(next, NextStep::GiveUp));
        }
        match next {
            NextStep::Forget => self.forget(key),
            NextStep::After(delay) => {
                self.forget(key);
                self.queue.add_after(key.clone(), delay);
            }
            NextStep::Requeue | NextStep::Retry => self.queue.add_rate_limited(key.clone()),
            NextStep::AfterConflict => self.queue.add_after_conflict(key.clone()),
            // Keep the error visible until a reconcile succeeds.
            NextStep::GiveUp => self.queue.forget_retries(key),
        }
    }

    fn forget(&self, key: &K) {
        if let Some(failing) = self.queue.recovered(key) {
            self.reconciles.recovered(failing);
        }
    }

    fn record(&self, key: &K, trigger: Trigger, ending: &ReconcileEnd, started: Instant, took: Duration) {
        let Some(inspector) = &self.inspector else { return };
        let (key, error) = (key.clone(), ending.error().map(Arc::from));
        let entry = Entry { key, trigger, started, took, outcome: ending.outcome(), error };
        inspector.journal.lock().record(entry);
    }

    fn report(&self, key: &K, ending: &ReconcileEnd, next: &NextStep, took: Duration) {
        let Some(error) = ending.error() else {
            tracing::debug!(?took, "reconciled");
            return;
        };
        match (ending, next) {
            (ReconcileEnd::Panicked(_), _) => tracing::error!(%error, ?took, "the reconciler panicked"),
            (_, NextStep::GiveUp) => tracing::error!(%error, ?took, "not retrying until something changes"),
            (_, NextStep::AfterConflict) => tracing::debug!(%error, ?took, "requeued after a conflict"),
            _ => tracing::warn!(%error, ?took, retries = self.queue.retries(key), "requeued after an error"),
        }
        self.queue.record_error(key, error);
    }
}

impl ReconcileEnd {
    fn counted(&self) -> ReconcileResult {
        match self {
            Self::Outcome(Outcome::Settled) => ReconcileResult::Settled,
            Self::Outcome(Outcome::CheckAfter(_)) => ReconcileResult::CheckAfter,
            Self::Outcome(Outcome::Requeue) => ReconcileResult::Requeue,
            Self::Failed(ReconcileError::Terminal { .. }) => ReconcileResult::Terminal,
            Self::Failed(_) => ReconcileResult::Failed,
            Self::Panicked(_) => ReconcileResult::Panicked,
            Self::TimedOut(_) => ReconcileResult::TimedOut,
        }
    }

    /// Records the outcome in the reconcile's span, and its error status.
    fn mark(&self, span: &tracing::Span) {
        span.record("outcome", self.outcome());
        if self.category().is_some() {
            span.record("otel.status_code", "ERROR");
        }
    }

    /// Returns the outcome as one word.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Outcome(Outcome::Settled) => "settled",
            Self::Outcome(Outcome::CheckAfter(_)) => "check_after",
            Self::Outcome(Outcome::Requeue) => "requeue",
            Self::Failed(_) | Self::Panicked(_) | Self::TimedOut(_) => self.category().unwrap_or("error"),
        }
    }

    /// Returns the failure category as one word.
    fn category(&self) -> Option<&'static str> {
        match self {
            Self::Outcome(_) => None,
            Self::Failed(error) => Some(error.category()),
            Self::Panicked(_) => Some("panic"),
            Self::TimedOut(_) => Some("timeout"),
        }
    }

    fn error(&self) -> Option<String> {
        match self {
            Self::Outcome(_) => None,
            Self::Failed(error) => Some(error.report()),
            Self::Panicked(message) => Some(format!("panic: {message}")),
            Self::TimedOut(timeout) => Some(format!("not finished within {timeout:?}")),
        }
    }
}

/// A guard that marks a taken key as done, even if the worker is dropped midway.
struct Done<'a, K: WorkKey> {
    queue: &'a Queue<K>,
    key: &'a K,
}

impl<K: WorkKey> Drop for Done<'_, K> {
    fn drop(&mut self) {
        self.queue.done(self.key);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("of unknown cause")
        .to_owned()
}
