//! Event recording: the events that `kubectl describe` shows.
//!
//! As in client-go, similar events are aggregated and each source is rate limited, so that a hot loop cannot flood the
//! API server.
//!
//! ```text
//!  recorders ──► a bounded queue per component ──► one task: correlate ─► create, or patch the count
//! ```
//!
//! Invariants:
//! - Recording never fails and never waits. Events that do not fit are dropped and counted.
//! - A component's events are written in the order they were recorded, each with a unique name. A chatty component does
//!   not delay others.

mod correlator;
mod event;
mod lines;
mod lru;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

pub use event::{EventType, Reference};

use crate::client::{Patch, Subresource};
use crate::metrics::Metrics;
use crate::{Client, ClientError, Identify, Key, Kind, Object, Runtime};
use correlator::{Correlator, EventTime};
use event::{EventMeta, EventObject, EventSource, RepeatPatch};
use lines::Lines;

/// How often writing an event is attempted while the API server does not respond.
const MAX_TRIES: u32 = 12;
/// The delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// An event recorder that writes in the background. Never fails and never blocks the caller. Cheap to clone.
///
/// ```
/// # fn example(context: &setpoint::Context, replica_sets: &setpoint::Kind, set: &setpoint::Object) {
/// use setpoint::EventType;
/// let recorder = context.recorder("replicaset-controller");
/// recorder.event(replica_sets, set, EventType::Normal, "SuccessfulCreate", "Created pod: web-x2x5k");
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder {
    events: Events,
    source: EventSource,
}

/// The sending half, used by recorders. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    lines: Arc<Lines>,
    names: Arc<Names>,
    metrics: Metrics,
    /// The number of dropped events.
    dropped: Arc<AtomicU64>,
    /// The client that writes the events.
    client: Arc<Client>,
}

/// An event, and the client that writes it.
struct Recorded {
    event: EventObject,
    client: Arc<Client>,
}

/// The task that writes the recorded events.
pub(crate) struct Recording {
    lines: Arc<Lines>,
    correlator: Correlator,
    names: Arc<Names>,
    writer: Arc<Writer>,
}

/// Writes one event at a time, and retries while the API server does not respond.
struct Writer {
    runtime: Runtime,
    events: Kind,
}

/// Creates the two halves: for recorders, and for the task that writes.
pub(crate) fn channel(client: Client, runtime: Runtime, metrics: Metrics) -> (Events, Recording) {
    let lines = Arc::<Lines>::default();
    let names = Arc::new(Names { runtime: runtime.clone(), last: Mutex::new(i128::MIN) });
    let writer = Writer { runtime, events: Kind::new("", "v1", "Event", "events", true) };
    let recording = Recording {
        lines: lines.clone(),
        correlator: Correlator::new(),
        names: names.clone(),
        writer: Arc::new(writer),
    };
    (Events { lines, names, metrics, dropped: Arc::default(), client: Arc::new(client) }, recording)
}

impl Events {
    pub(crate) fn recorder(&self, component: &'static str) -> Recorder {
        Recorder { events: self.clone(), source: EventSource { component, host: "".into() } }
    }

    /// Returns a handle to the same queues for events that another client writes.
    pub(crate) fn written_by(&self, client: Client) -> Self {
        Self { client: Arc::new(client), ..self.clone() }
    }

    fn send(&self, event: EventObject) {
        if let Err(recorded) = self.lines.join(Recorded { event, client: self.client.clone() }) {
            self.drop_event(&recorded.event);
        }
    }

    /// Counts every dropped event, but logs only the first, second, fourth and so on: a flood of events must not become
    /// a flood of log lines.
    fn drop_event(&self, event: &EventObject) {
        self.metrics.count("setpoint_events_dropped", "Events that were not recorded", &[], 1);
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped.is_power_of_two() {
            let (object, reason) = (&event.involved_object.name, &event.reason);
            tracing::warn!(object, reason, dropped, "too many events: some are dropped");
        }
    }
}

impl Recorder {
    /// Sets the host, for components with one per host, such as a node agent.
    pub fn on_host(self, host: impl Into<Arc<str>>) -> Self {
        Self { source: EventSource { host: host.into(), ..self.source }, ..self }
    }

    /// Records an event about `object`.
    pub fn event(
        &self,
        kind: &Kind,
        object: &Object,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event_about(Reference::to(kind, object), event_type, reason, message, BTreeMap::new());
    }

    /// Records an event about an object that knows its kind.
    pub fn record(
        &self,
        about: &impl Identify,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event_about(about.identity().reference(), event_type, reason, message, BTreeMap::new());
    }

    /// Records an event about any reference, with annotations.
    pub fn event_about(
        &self,
        about: Reference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let now = self.events.names.runtime.clock.now();
        // Events about cluster-scoped objects are written to `default`.
        let namespace = if about.namespace.is_empty() { "default".into() } else { about.namespace.clone() };
        self.events.send(EventObject {
            api_version: "v1",
            kind: "Event",
            metadata: EventMeta { name: self.events.names.next(&about.name, now), namespace, annotations },
            involved_object: about,
            reason: reason.into(),
            message: message.into(),
            first_timestamp: now,
            last_timestamp: now,
            count: 1,
            event_type,
            reporting_component: self.source.component,
            reporting_instance: self.source.host.clone(),
            source: self.source.clone(),
        });
    }
}

impl Recording {
    /// Writes events until `stop` is cancelled, then attempts each remaining one once.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut under_way = FuturesUnordered::new();
        loop {
            while let Some(Recorded { event, client }) = self.lines.take() {
                let component = event.source.component;
                let (writer, stop) = (self.writer.clone(), stop.clone());
                match self.correlate(event) {
                    None => self.lines.done(component),
                    Some(event) => under_way.push(async move {
                        writer.record(&client, &event, &stop).await;
                        component
                    }),
                }
            }
            tokio::select! {
                biased;
                Some(component) = under_way.next() => self.lines.done(component),
                () = self.lines.joined() => {}
                () = stop.cancelled(), if under_way.is_empty() => return,
            }
        }
    }

    /// Returns the event to write, unless there have been too many.
    fn correlate(&mut self, event: EventObject) -> Option<EventObject> {
        let clock = &self.writer.runtime.clock;
        let now = EventTime { time: clock.now(), instant: clock.instant() };
        let about = event.involved_object.name.clone();
        self.correlator.correlate(event, now, || self.names.next(&about, now.time))
    }
}

impl Writer {
    async fn record(&self, client: &Client, event: &EventObject, stop: &CancellationToken) {
        for tried in 1..=MAX_TRIES {
            match self.write(client, event).await {
                Ok(()) => return,
                Err(ClientError::Transport(error)) => tracing::warn!(%error, tried, "cannot write an event"),
                Err(error) => return rejected(event, &error),
            }
            if tried == MAX_TRIES || !self.pause(tried, stop).await {
                break;
            }
        }
        tracing::error!(name = event.metadata.name, reason = event.reason, "dropped an event");
    }

    async fn write(&self, client: &Client, event: &EventObject) -> Result<(), ClientError> {
        if event.count > 1 {
            match self.raise_count(client, event).await {
                // The event has expired in the meantime: create it again.
                Err(error) if error.code() == Some(404) => {}
                result => return result,
            }
        }
        client.create_ignoring_response(&self.events, Some(&event.metadata.namespace), event).await
    }

    async fn raise_count(&self, client: &Client, event: &EventObject) -> Result<(), ClientError> {
        let key = Key::namespaced(&*event.metadata.namespace, &*event.metadata.name);
        let EventObject { count, last_timestamp, message, .. } = event;
        let again = RepeatPatch { count: *count, last_timestamp: *last_timestamp, message };
        let patch =
            serde_json::to_vec(&again).map_err(|error| ClientError::InvalidResponse(Box::new(error)))?;
        let patch = Patch::Strategic(Bytes::from(patch));
        client.patch_ignoring_response(&self.events, &key, Subresource::None, patch).await
    }

    /// Waits before the next attempt. The first wait is random, so that many clients do not retry at the same time.
    /// Returns `false` if stopped, in which case there is no next attempt.
    async fn pause(&self, tried: u32, stop: &CancellationToken) -> bool {
        let pause =
            if tried == 1 { RETRY_INTERVAL.mul_f64(self.runtime.rng.fraction()) } else { RETRY_INTERVAL };
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = self.runtime.clock.sleep(pause) => true,
        }
    }
}

fn rejected(event: &EventObject, error: &ClientError) {
    let (name, reason) = (&event.metadata.name, &event.reason);
    if error.is_already_exists() || error.has_cause("NamespaceTerminating") {
        tracing::debug!(%error, name, reason, "the API server rejected an event");
    } else {
        tracing::warn!(%error, name, reason, "the API server rejected an event");
    }
}

/// A generator of event names: the object's name and a unique timestamp in hexadecimal.
struct Names {
    runtime: Runtime,
    /// The last timestamp used, in nanoseconds. Virtual time may stand still, and real time may be set back.
    last: Mutex<i128>,
}

impl Names {
    fn next(&self, about: &str, now: Timestamp) -> String {
        let mut last = self.last.lock();
        *last = now.as_nanosecond().max(*last + 1);
        let name = format!("{about}.{:x}", *last);
        // If the result is not a valid object name (`system:node.17a…`), use a random one.
        if is_dns_subdomain(&name) { name } else { self.runtime.rng.uid().to_string() }
    }
}

fn is_dns_subdomain(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|byte| alphanumeric(*byte))
            && bytes.last().is_some_and(|byte| alphanumeric(*byte))
            && bytes.iter().all(|byte| alphanumeric(*byte) || *byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
