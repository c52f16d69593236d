//! The panic boundary: a bug in a handler costs one response.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures::FutureExt;
use http::{Response, StatusCode};

use crate::body::Body;
use crate::health;

/// Panics since the process started. They are counted per process, not per server.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Returns how many requests have panicked.
pub(crate) fn count() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Returns the response of `work`, or an error response if it panics.
pub(super) async fn guard(work: impl Future<Output = Response<Body>>) -> Response<Body> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| respond(&*panic))
}

/// Polls a frame of a body; a panic ends the body.
pub(crate) fn guard_poll<T>(poll: impl FnOnce() -> Poll<Option<T>>) -> Poll<Option<T>> {
    catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
        note(&*panic);
        Poll::Ready(None)
    })
}

fn respond(panic: &(dyn Any + Send)) -> Response<Body> {
    note(panic);
    let text = "This request caused apiserver to panic. Look in the logs for details.\n";
    health::text(StatusCode::INTERNAL_SERVER_ERROR, text)
}

fn note(panic: &(dyn Any + Send)) {
    PANICS.fetch_add(1, Ordering::Relaxed);
    tracing::error!(panic = text(panic), "a request panicked");
}

/// Returns a panic's message.
pub(super) fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
