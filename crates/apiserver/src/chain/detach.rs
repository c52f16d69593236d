//! Writes that outlive their clients.
//!
//! The caller polls the write itself. If the caller stops, because the client hung up or the deadline passed, a
//! spawned task takes over, so that the work after a commit always runs.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::Body;

type Work = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A write in progress.
pub(super) struct Detached {
    work: Option<Work>,
    tasks: TaskTracker,
    /// Cancelled when the caller stops waiting.
    waiting: CancellationToken,
}

impl Detached {
    /// Wraps a write. `work` may stop when `waiting` is cancelled, as long as nothing is committed.
    pub(super) fn new(
        work: impl Future<Output = Response<Body>> + Send + 'static,
        tasks: TaskTracker,
        waiting: CancellationToken,
    ) -> Self {
        Self { work: Some(Box::pin(work)), tasks, waiting }
    }
}

impl Future for Detached {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let answered = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(answered)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        self.waiting.cancel();
        // Without a runtime, the process is shutting down.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.tasks.track_future(work));
        }
    }
}
