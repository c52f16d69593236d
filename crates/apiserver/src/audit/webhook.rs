//! The webhook backend: posts batches of events as `audit.k8s.io/v1 EventList` to the server in a kubeconfig file.
//!
//! Every failure is retried, as in v1.34: five attempts, with the configured initial delay, which grows by half each
//! time. A batch continues to be posted even if its request has given up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_webhook::{Backoff, Client, Endpoint, KubeconfigError, Retries, Settings};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::backend::{Entry, SendError, Sink};
use super::event::{API_VERSION, HEAD};
use crate::auth::{ConfigError, Outbound};

/// Maximum batches in flight or waiting for a retry. In the blocking modes there is one per event: 10,000, as many as
/// the buffer of batch mode holds. Beyond that, events are rejected and counted.
const MAX_IN_FLIGHT: usize = 10_000;

/// Posts events to a server.
pub struct WebhookSink {
    client: Client,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
}

/// Why the webhook cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum WebhookSinkError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Client(#[from] ConfigError),
}

impl WebhookSink {
    /// Posts to the server of a kubeconfig file's current context.
    pub fn from_kubeconfig(
        file: &Path,
        initial_backoff: Duration,
        outbound: &Outbound,
    ) -> Result<Self, WebhookSinkError> {
        Self::new(Endpoint::from_kubeconfig(file)?, initial_backoff, outbound)
    }

    fn new(
        endpoint: Endpoint,
        initial_backoff: Duration,
        outbound: &Outbound,
    ) -> Result<Self, WebhookSinkError> {
        let settings = Settings {
            sends_timeout: true,
            backoff: Backoff { pause: initial_backoff, ..Backoff::default() },
            retries: Retries::All,
            ..Settings::default()
        };
        Ok(Self {
            client: outbound.client(endpoint, settings)?,
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        })
    }
}

impl Sink for WebhookSink {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn send(&self, batch: Vec<Entry>) -> BoxFuture<'static, Result<(), SendError>> {
        let Ok(permit) = self.room.clone().try_acquire_owned() else {
            let why = SendError::new("too many batches wait for the audit webhook");
            return std::future::ready(Err(why)).boxed();
        };
        let (client, body) = (self.client.clone(), list(&batch));
        let posting = self.tasks.spawn(async move {
            let outcome = client
                .post_encoded_with_backoff(body, |call| {
                    if let Err(error) = call.outcome {
                        tracing::debug!(%error, "the audit webhook failed");
                    }
                })
                .await;
            drop(permit);
            outcome.map(drop).map_err(|why| SendError::new(why.to_string()))
        });
        async move { posting.await.unwrap_or_else(|_| Err(SendError::new("the server is shutting down"))) }
            .boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let tasks = self.tasks.clone();
        async move {
            tasks.close();
            tasks.wait().await;
        }
        .boxed()
    }
}

/// Encodes the events as a list. Its items omit their kind.
fn list(batch: &[Entry]) -> Bytes {
    let bytes: usize = batch.iter().map(|entry| entry.bytes.len() + 1).sum();
    let mut list = Vec::with_capacity(bytes + 128);
    let head = format!(r#"{{"kind":"EventList","apiVersion":"{API_VERSION}","metadata":{{}},"items":["#);
    list.extend_from_slice(head.as_bytes());
    for (at, entry) in batch.iter().enumerate() {
        list.extend_from_slice(if at == 0 { b"{" } else { b",{" });
        list.extend_from_slice(entry.bytes.strip_prefix(HEAD).unwrap_or(b"}"));
    }
    list.extend_from_slice(b"]}");
    list.into()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use setpoint_clock::{Clock, Rng};
    use setpoint_webhook::{Dial, Dialed, TlsSettings};

    use super::*;

    /// The time, target and body of each post.
    type Posts = Arc<Mutex<Vec<(Duration, String, Value)>>>;

    /// A server that fails this often, then succeeds.
    #[derive(Clone)]
    struct Flaky {
        failures: Arc<Mutex<u32>>,
        posts: Posts,
        clock: Clock,
        began: setpoint_clock::Instant,
    }

    impl Flaky {
        async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
            let path = request.uri().to_string();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let list = serde_json::from_slice(&body).unwrap();
            self.posts.lock().push((self.clock.instant() - self.began, path, list));
            let mut failures = self.failures.lock();
            let mut response = Response::new(Full::default());
            // Elsewhere, Kubernetes clients do not retry this status.
            if *failures > 0 {
                *response.status_mut() = StatusCode::FORBIDDEN;
            }
            *failures = failures.saturating_sub(1);
            Ok(response)
        }
    }

    impl Dial for Flaky {
        fn dial(&self, _: String, _: u16) -> BoxFuture<'static, std::io::Result<Dialed>> {
            let server = self.clone();
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(async move {
                let service = service_fn(move |request| server.clone().answer(request));
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection.serve_connection(TokioIo::new(theirs), service).await;
            });
            std::future::ready(Ok(Box::new(ours) as Dialed)).boxed()
        }
    }

    fn sink(failures: u32) -> (WebhookSink, Posts) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let posts = Posts::default();
        let server = Flaky {
            failures: Arc::new(Mutex::new(failures)),
            posts: Arc::clone(&posts),
            clock: clock.clone(),
            began: clock.instant(),
        };
        let outbound = Outbound { dial: Arc::new(server), ..Outbound::new(clock, Rng::seeded(1)) };
        let endpoint = Endpoint::new("http://audit.example/x".parse().unwrap(), TlsSettings::default());
        (WebhookSink::new(endpoint, Duration::from_secs(10), &outbound).unwrap(), posts)
    }

    fn entry(id: &str) -> Entry {
        let event = json!({"auditID": id}).to_string();
        let bytes = [HEAD, &event.as_bytes()[1..]].concat();
        Entry { bytes: bytes.into(), ends_write: false }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_posted_as_a_list_until_it_is_accepted() {
        let (sink, posts) = sink(2);
        sink.send(vec![entry("a"), entry("b")]).await.unwrap();
        let posts = posts.lock();
        assert_eq!(posts.len(), 3);
        let expected = json!({
            "kind": "EventList",
            "apiVersion": "audit.k8s.io/v1",
            "metadata": {},
            "items": [{"auditID": "a"}, {"auditID": "b"}],
        });
        assert_eq!((posts[2].1.as_str(), &posts[2].2), ("/x?timeout=30s", &expected));
        let second = posts[1].0.as_secs_f64();
        assert!((10.0..12.1).contains(&second), "{second}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_five_attempts_the_events_are_lost() {
        let (sink, posts) = sink(100);
        assert!(sink.send(vec![entry("a")]).await.is_err());
        assert_eq!(posts.lock().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_posted_although_its_sender_does_not_wait() {
        let (sink, posts) = sink(1);
        drop(sink.send(vec![entry("a")]));
        sink.close().await;
        assert_eq!(posts.lock().len(), 2);
    }
}
