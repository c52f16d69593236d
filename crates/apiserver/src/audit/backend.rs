//! Audit backends: deliver events to a sink, and handle failures.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_clock::Clock;

use super::batch::{Batch, BatchSettings};
use super::event::Event;
use super::legacy;
use super::metrics::Metrics;
use super::policy::{Level, Stage};

/// The destination of events.
pub trait Sink: Send + Sync + 'static {
    /// Returns its name in metrics.
    fn name(&self) -> &'static str;

    /// Sends a batch. It is sent even if the future is dropped: a request that gives up waiting is still recorded.
    fn send(&self, batch: Vec<Entry>) -> BoxFuture<'static, Result<(), SendError>>;

    /// Waits until everything sent so far has arrived.
    fn close(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// An encoded event, without a line break.
#[derive(Clone, Debug)]
pub struct Entry {
    pub bytes: Bytes,
    /// Whether this is the last event of a mutating request: the response waits for it.
    pub ends_write: bool,
}

/// Why a batch was not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub Arc<str>);

impl SendError {
    pub fn new(why: impl Into<String>) -> Self {
        Self(Arc::from(why.into()))
    }
}

/// When events are sent, and whether requests wait for them.
#[derive(Clone, Debug)]
pub enum Mode {
    /// In the background, in batches. Requests do not wait; events are dropped and counted if the buffer is full.
    Batch(BatchSettings),
    /// Before the response. A failure is counted; the request continues.
    Blocking,
    /// Before the response. A failure fails the request.
    BlockingStrict,
}

/// The format of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Json,
    Legacy,
}

/// Maximum size of an event and a batch, in bytes of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    pub max_event_bytes: usize,
    pub max_batch_bytes: usize,
}

/// The configuration of a backend.
pub struct BackendConfig {
    pub sink: Box<dyn Sink>,
    pub mode: Mode,
    pub format: Format,
    pub truncation: Option<Truncation>,
}

/// A sink with its mode.
pub(super) struct Backend {
    delivery: Delivery,
    format: Format,
    truncation: Option<Truncation>,
}

enum Delivery {
    Batch(Batch),
    Blocking { sink: Arc<dyn Sink>, strict: bool },
}

const TRUNCATED: &str = "audit.k8s.io/truncated";

impl Backend {
    /// Starts a backend. Call this inside a runtime: a spawned task sends batches.
    pub(super) fn start(config: BackendConfig, clock: &Clock, measured: &Arc<Metrics>) -> Self {
        let BackendConfig { sink, mode, format, truncation } = config;
        let sink: Arc<dyn Sink> = Arc::from(sink);
        let delivery = match mode {
            Mode::Batch(settings) => {
                let limit = truncation.map(|truncation| truncation.max_batch_bytes);
                Delivery::Batch(Batch::start(sink, settings, limit, clock.clone(), measured.clone()))
            }
            Mode::Blocking => Delivery::Blocking { sink, strict: false },
            Mode::BlockingStrict => Delivery::Blocking { sink, strict: true },
        };
        Self { delivery, format, truncation }
    }

    fn is_strict(&self) -> bool {
        matches!(self.delivery, Delivery::Blocking { strict: true, .. })
    }

    /// Encodes an event for this backend; `None` if it is too large even without its objects.
    pub(super) fn entry(&self, event: &Event, is_mutating: bool) -> Option<Entry> {
        let ends_write = is_mutating && matches!(event.stage, Stage::ResponseComplete | Stage::Panic);
        let encode = |event: &Event| match self.format {
            Format::Json => event.json(),
            Format::Legacy => legacy::line(event).into(),
        };
        let Some(limit) = self.truncation.map(|truncation| truncation.max_event_bytes) else {
            return Some(Entry { bytes: encode(event), ends_write });
        };
        // Includes a line break. The limit applies to the JSON, whatever the format.
        let fits = |event: &Event| event.json().len() < limit;
        if fits(event) {
            return Some(Entry { bytes: encode(event), ends_write });
        }
        let mut small = event.clone();
        if event.level >= Level::Request {
            small.request_object = None;
            small.response_object = None;
            small.annotations.insert(TRUNCATED.into(), "true".into());
        }
        fits(&small).then(|| Entry { bytes: encode(&small), ends_write })
    }

    /// Delivers an event. Returns false if the request must not continue without it.
    pub(super) async fn deliver(&self, entry: Option<Entry>, measured: &Metrics) -> bool {
        let Some(entry) = entry else {
            measured.failed("truncate", 1, &SendError::new("event is too large even after truncating"));
            return !self.is_strict();
        };
        match &self.delivery {
            Delivery::Batch(batch) => {
                batch.add(entry, measured);
                true
            }
            Delivery::Blocking { sink, strict } => match sink.send(vec![entry]).await {
                Ok(()) => true,
                Err(error) => {
                    measured.failed(sink.name(), 1, &error);
                    !strict
                }
            },
        }
    }

    /// Sends buffered events and waits for them.
    pub(super) async fn close(&self) {
        match &self.delivery {
            Delivery::Batch(batch) => batch.close().await,
            Delivery::Blocking { sink, .. } => sink.close().await,
        }
    }
}
