//! Graceful shutdown, as in v1.34:
//!
//! ```text
//!  stop ─► readyz fails ─► listening ends, or new requests are told to retry
//!                             ├─► requests in progress finish
//!                             └─► watches end, spread over their grace period
//!                                    └─► connections close ─► detached writes finish
//! ```
//!
//! Every step has a limit: nothing that a client does or fails to do keeps the server from stopping.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::monitored;
use crate::body::Body;
use crate::health;

/// Paths that are served until the end.
const EXEMPT: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];

/// Progress of the shutdown.
#[derive(Default)]
pub(super) struct Draining {
    /// Cancelled when new requests are rejected.
    pub(super) refusing: CancellationToken,
    /// Cancelled when open watches start to end.
    pub(super) watches_end: CancellationToken,
    spread: Mutex<Duration>,
    requests: AtomicUsize,
    done: Notify,
}

/// A request that the shutdown waits for.
pub(super) struct InFlightRequest<'a>(&'a Draining);

impl Draining {
    pub(super) fn begin(&self) -> InFlightRequest<'_> {
        self.requests.fetch_add(1, Ordering::AcqRel);
        InFlightRequest(self)
    }

    /// Waits until no requests are in progress.
    pub(super) async fn requests_done(&self) {
        loop {
            let done = self.done.notified();
            if self.requests.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }

    /// Ends open watches, spread over as much of the grace period as they need.
    pub(super) fn end_watches(&self, watches: usize, grace: Duration) -> Duration {
        let spread = monitored::spread(watches, grace);
        *self.spread.lock() = spread;
        self.watches_end.cancel();
        spread
    }

    pub(super) fn spread(&self) -> Duration {
        *self.spread.lock()
    }

    /// Returns the response to a request that comes too late.
    pub(super) fn refusal(&self, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        if !self.refusing.is_cancelled() || is_exempt(path, headers) {
            return None;
        }
        let text = "The apiserver is shutting down, please try again later.\n";
        let mut response = health::text(StatusCode::TOO_MANY_REQUESTS, text);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        Some(response)
    }
}

fn is_exempt(path: &str, headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    agent.starts_with(b"kube-apiserver/") || EXEMPT.iter().any(|prefix| path.starts_with(prefix))
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        if self.0.requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn draining_waits_for_requests_and_spreads_watches() {
        let draining = Draining::default();
        draining.requests_done().await;
        let request = draining.begin();
        let wait = tokio::time::timeout(Duration::from_secs(1), draining.requests_done());
        assert!(wait.await.is_err());
        drop(request);
        draining.requests_done().await;
        let grace = Duration::from_secs(10);
        assert_eq!(draining.end_watches(100, grace), Duration::from_millis(500));
        assert_eq!(draining.end_watches(10_000, grace), grace);
        assert_eq!(draining.end_watches(10_000, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn late_requests_get_a_retry_after() {
        let draining = Draining::default();
        let headers = HeaderMap::new();
        assert!(draining.refusal("/api", &headers).is_none());
        draining.refusing.cancel();
        let refused = draining.refusal("/api", &headers).unwrap();
        assert_eq!(
            (refused.status().as_u16(), &refused.headers()[RETRY_AFTER]),
            (429, &HeaderValue::from_static("5"))
        );
        assert!(draining.refusal("/readyz", &headers).is_none());
    }
}
