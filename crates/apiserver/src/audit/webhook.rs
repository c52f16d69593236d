//! The webhook backend: batches of events as `audit.k8s.io/v1 EventList`, posted to a server.
//!
//! Every failure is tried again, as in v1.34: five attempts, the first pause as configured, each half as long
//! again. A batch that is being posted goes on although its request has given up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::{Clock, Rng};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::backend::{Entry, SendError, Sink};
use super::event::{API_VERSION, HEAD};

/// One post to the webhook's server, without retries.
pub trait Post: Send + Sync + 'static {
    fn post(&self, body: Bytes) -> BoxFuture<'_, Result<(), SendError>>;
}

const ATTEMPTS: u32 = 5;
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
/// Batches that are being posted or wait for another attempt. In the blocking modes there is one for each
/// event: 10,000, as many as the buffer of batch mode holds. Beyond, events are refused and counted.
const UNDER_WAY: usize = 10_000;

/// Posts events to a server.
pub struct WebhookSink {
    client: Arc<dyn Post>,
    pause: Duration,
    clock: Clock,
    rng: Rng,
    tasks: TaskTracker,
    room: Arc<Semaphore>,
}

impl WebhookSink {
    pub fn new(client: impl Post, initial_backoff: Duration, clock: Clock, rng: Rng) -> Self {
        Self {
            client: Arc::new(client),
            pause: initial_backoff,
            clock,
            rng,
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(UNDER_WAY)),
        }
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
        let (client, clock, rng) = (self.client.clone(), self.clock.clone(), self.rng.clone());
        let posting = post(client, list(&batch), self.pause, clock, rng);
        let posting = self.tasks.spawn(async move {
            let outcome = posting.await;
            drop(permit);
            outcome
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

async fn post(
    client: Arc<dyn Post>,
    body: Bytes,
    mut pause: Duration,
    clock: Clock,
    rng: Rng,
) -> Result<(), SendError> {
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match client.post(body.clone()).await {
            Err(error) if left > 0 => tracing::debug!(%error, left, "the audit webhook failed"),
            outcome => return outcome,
        }
        clock.sleep(pause.mul_f64(1.0 + JITTER * rng.fraction())).await;
        pause = pause.mul_f64(FACTOR);
    }
}

/// The events as a list. Its items do not repeat their kind.
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
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    /// When, and with what, it was posted.
    type Posts = Arc<Mutex<Vec<(Duration, Value)>>>;

    /// Fails so often, then succeeds.
    struct Flaky {
        failures: Mutex<u32>,
        posts: Posts,
        clock: Clock,
        began: setpoint_clock::Instant,
    }

    impl Post for Flaky {
        fn post(&self, body: Bytes) -> BoxFuture<'_, Result<(), SendError>> {
            let list = serde_json::from_slice(&body).unwrap();
            self.posts.lock().push((self.clock.instant() - self.began, list));
            let mut failures = self.failures.lock();
            let outcome = if *failures > 0 { Err(SendError::new("no")) } else { Ok(()) };
            *failures = failures.saturating_sub(1);
            std::future::ready(outcome).boxed()
        }
    }

    fn sink(failures: u32) -> (WebhookSink, Posts) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let posts = Posts::default();
        let client = Flaky {
            failures: Mutex::new(failures),
            posts: Arc::clone(&posts),
            clock: clock.clone(),
            began: clock.instant(),
        };
        (WebhookSink::new(client, Duration::from_secs(10), clock, Rng::seeded(1)), posts)
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
        assert_eq!(posts[2].1, expected);
        let second = posts[1].0.as_secs_f64();
        assert!((10.0..12.0).contains(&second), "{second}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_five_attempts_the_events_are_lost() {
        let (sink, posts) = sink(100);
        assert_eq!(sink.send(vec![entry("a")]).await.unwrap_err().to_string(), "no");
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
