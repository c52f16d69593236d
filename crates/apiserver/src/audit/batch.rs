//! Batch mode: buffers events, and sends them in batches from a background task.
//!
//! The buffer is bounded. If it is full, events are dropped and counted; no request ever waits.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::backend::{Entry, SendError, Sink};
use super::metrics::Metrics;

/// Batching settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSettings {
    /// Maximum number of buffered events.
    pub buffer_size: usize,
    /// Maximum number of events per batch.
    pub max_size: usize,
    /// How long to wait before sending an incomplete batch.
    pub max_wait: Duration,
    pub throttle: Option<Throttle>,
    /// Whether to send a batch before the previous one has arrived.
    pub concurrent: bool,
}

/// How many batches to send per second, and how many in a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    pub qps: f64,
    pub burst: u32,
}

/// Maximum concurrent batches; v1.34 has no such limit. A receiver that takes the whole timeout of 30 s for each of 10
/// batches a second has 300 in flight; beyond that, the buffer fills up.
const MAX_IN_FLIGHT: usize = 300;

/// The name of this stage in metrics.
const PLUGIN: &str = "buffered";

pub(super) struct Batch {
    /// Taken on shutdown: there are no events after that.
    buffer: Mutex<Option<mpsc::Sender<Entry>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Batch {
    pub(super) fn start(
        sink: Arc<dyn Sink>,
        settings: BatchSettings,
        max_bytes: Option<usize>,
        clock: Clock,
        measured: Arc<Metrics>,
    ) -> Self {
        let (buffer, events) = mpsc::channel(settings.buffer_size);
        let bucket = settings.throttle.map(|throttle| Bucket::full(throttle, clock.instant()));
        let worker =
            Worker { sink, settings, max_bytes, clock, measured, bucket, under_way: FuturesUnordered::new() };
        let worker = tokio::spawn(worker.run(events));
        Self { buffer: Mutex::new(Some(buffer)), worker: Mutex::new(Some(worker)) }
    }

    pub(super) fn add(&self, entry: Entry, measured: &Metrics) {
        let why = match &*self.buffer.lock() {
            None => "audit backend shut down",
            Some(buffer) => match buffer.try_send(entry) {
                Ok(()) => return,
                Err(mpsc::error::TrySendError::Full(_)) => "audit buffer queue blocked",
                Err(mpsc::error::TrySendError::Closed(_)) => "audit backend shut down",
            },
        };
        measured.failed(PLUGIN, 1, &SendError::new(why));
    }

    /// Sends buffered events, waits for them and accepts no more.
    pub(super) async fn close(&self) {
        drop(self.buffer.lock().take());
        let worker = self.worker.lock().take();
        if let Some(worker) = worker {
            let _ = worker.await;
        }
    }
}

struct Worker {
    sink: Arc<dyn Sink>,
    settings: BatchSettings,
    max_bytes: Option<usize>,
    clock: Clock,
    measured: Arc<Metrics>,
    bucket: Option<Bucket>,
    under_way: FuturesUnordered<futures::future::BoxFuture<'static, ()>>,
}

impl Worker {
    async fn run(mut self, mut events: mpsc::Receiver<Entry>) {
        loop {
            let (batch, is_last) = self.collect(&mut events).await;
            for part in split(batch, self.max_bytes) {
                self.send(part).await;
            }
            if is_last {
                break;
            }
        }
        while self.under_way.next().await.is_some() {}
        self.sink.close().await;
    }

    /// Collects the next batch, and returns whether it is the last. Batches in flight continue meanwhile.
    async fn collect(&mut self, events: &mut mpsc::Receiver<Entry>) -> (Vec<Entry>, bool) {
        let mut batch = Vec::new();
        // The wait starts with the first event: an empty batch has nothing to send.
        let mut end = self.clock.instant();
        while batch.len() < self.settings.max_size {
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(event) => {
                        if batch.is_empty() {
                            end = self.clock.instant() + self.settings.max_wait;
                        }
                        batch.push(event);
                    }
                    None => return (batch, true),
                },
                Some(()) = self.under_way.next(), if !self.under_way.is_empty() => {}
                () = self.clock.sleep_until(end), if !batch.is_empty() => break,
            }
        }
        (batch, false)
    }

    async fn send(&mut self, batch: Vec<Entry>) {
        if batch.is_empty() {
            return;
        }
        if let Some(bucket) = &mut self.bucket {
            let wait = bucket.take(self.clock.instant());
            self.clock.sleep(wait).await;
        }
        let (count, sink, measured) = (batch.len(), self.sink.clone(), self.measured.clone());
        let sending = self.sink.send(batch);
        self.under_way.push(Box::pin(async move {
            if let Err(error) = sending.await {
                measured.failed(sink.name(), count as u64, &error);
            }
        }));
        let limit = if self.settings.concurrent { MAX_IN_FLIGHT } else { 1 };
        while self.under_way.len() >= limit {
            self.under_way.next().await;
        }
    }
}

/// Splits a batch into parts within the limit, or with a single event.
fn split(batch: Vec<Entry>, max_bytes: Option<usize>) -> Vec<Vec<Entry>> {
    let Some(max_bytes) = max_bytes else { return vec![batch] };
    let mut parts: Vec<Vec<Entry>> = Vec::new();
    let mut bytes = 0;
    for entry in batch {
        let length = entry.bytes.len() + 1;
        match parts.last_mut() {
            Some(part) if bytes + length <= max_bytes => {
                bytes += length;
                part.push(entry);
            }
            _ => {
                bytes = length;
                parts.push(vec![entry]);
            }
        }
    }
    parts
}

/// A token bucket.
struct Bucket {
    throttle: Throttle,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(throttle: Throttle, now: Instant) -> Self {
        Self { throttle, tokens: f64::from(throttle.burst), at: now }
    }

    /// Takes a token; returns how long to wait until it is available.
    fn take(&mut self, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * self.throttle.qps;
        self.tokens = (self.tokens + gained).min(f64::from(self.throttle.burst)) - 1.0;
        self.at = now;
        let wait = (-self.tokens / self.throttle.qps).max(0.0);
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    type Batches = Arc<Mutex<Vec<(Duration, Vec<String>)>>>;

    struct Noting {
        batches: Batches,
        clock: Clock,
        began: Instant,
        takes: Duration,
    }

    impl Sink for Noting {
        fn name(&self) -> &'static str {
            "noting"
        }

        fn send(&self, batch: Vec<Entry>) -> BoxFuture<'static, Result<(), SendError>> {
            let texts =
                batch.iter().map(|entry| String::from_utf8_lossy(&entry.bytes).into_owned()).collect();
            self.batches.lock().push((self.clock.instant() - self.began, texts));
            let (clock, takes) = (self.clock.clone(), self.takes);
            async move {
                clock.sleep(takes).await;
                Ok(())
            }
            .boxed()
        }
    }

    fn start(settings: BatchSettings, takes: Duration) -> (Batch, Batches, Arc<Metrics>) {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let (batches, measured) = (Batches::default(), Arc::new(Metrics::default()));
        let sink = Noting { batches: batches.clone(), clock: clock.clone(), began: clock.instant(), takes };
        (Batch::start(Arc::new(sink), settings, None, clock, measured.clone()), batches, measured)
    }

    fn entry(text: &str) -> Entry {
        Entry { bytes: text.to_owned().into(), ends_write: false }
    }

    const SETTINGS: BatchSettings = BatchSettings {
        buffer_size: 10,
        max_size: 3,
        max_wait: Duration::from_secs(30),
        throttle: None,
        concurrent: true,
    };

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_sent_when_it_is_full_or_has_waited_long_enough() {
        let (batch, batches, measured) = start(SETTINGS, Duration::ZERO);
        for text in ["a", "b", "c", "d"] {
            batch.add(entry(text), &measured);
        }
        tokio::time::sleep(Duration::from_secs(40)).await;
        let sent = batches.lock().clone();
        let texts: Vec<_> = sent.iter().map(|(_, texts)| texts.concat()).collect();
        assert_eq!(texts, ["abc", "d"]);
        assert_eq!((sent[0].0.as_secs(), sent[1].0.as_secs()), (0, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_dropped_and_counted_when_the_buffer_is_full() {
        let settings = BatchSettings { max_size: 1, concurrent: false, ..SETTINGS };
        let (batch, batches, measured) = start(settings, Duration::from_secs(3600));
        for number in 0..20 {
            batch.add(entry(&number.to_string()), &measured);
        }
        assert_eq!(measured.errors_of(PLUGIN), 10);
        batch.close().await;
        assert_eq!(batches.lock().len(), 10, "buffered events are sent before the server stops");
        batch.add(entry("late"), &measured);
        assert_eq!(measured.errors_of(PLUGIN), 11);
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_throttled() {
        let throttle = Some(Throttle { qps: 2.0, burst: 2 });
        let (batch, batches, measured) =
            start(BatchSettings { max_size: 1, throttle, ..SETTINGS }, Duration::ZERO);
        for number in 0..5 {
            batch.add(entry(&number.to_string()), &measured);
        }
        batch.close().await;
        let millis: Vec<_> = batches.lock().iter().map(|(at, _)| at.as_millis()).collect();
        assert_eq!(millis, [0, 0, 500, 1000, 1500]);
    }

    #[test]
    fn a_batch_is_split_by_its_size() {
        let entries = || ["aaaa", "bbbb", "cc", "dddddddddddd", "e"].map(entry).to_vec();
        let texts = |parts: Vec<Vec<Entry>>| -> Vec<usize> { parts.iter().map(Vec::len).collect() };
        assert_eq!(texts(split(entries(), Some(10))), [2, 1, 1, 1]);
        assert_eq!(texts(split(entries(), None)), [5]);
    }
}
