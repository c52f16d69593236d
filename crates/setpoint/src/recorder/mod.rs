//! Events about objects: what `kubectl describe` shows at its end.
//!
//! Similar events are aggregated and a chatty source is cut short, as client-go does it, so that a
//! hot loop cannot flood the API server.
//!
//! ```text
//!  recorders ──► a bounded line for each component ──► one task: correlate ─► create, or patch the count
//! ```
//!
//! What always holds:
//! - recording never fails and never waits: what does not fit is dropped and counted;
//! - the events of a component are written in the order they were recorded, each by a name of its own; a
//!   component that reports much does not hold up others.

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

use crate::client::{Part, Patch};
use crate::metrics::Metrics;
use crate::{Client, ClientError, Key, Kind, Object, Runtime};
use correlator::{Correlator, Moment};
use event::{Again, EventMeta, EventObject, EventSource};
use lines::Lines;

/// How often an event is tried while the API server does not answer.
const TRIES: u32 = 12;
/// How long to wait between two tries.
const BETWEEN_TRIES: Duration = Duration::from_secs(10);

/// Records events in the background; never fails and never blocks its caller. Cheap to clone.
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

/// Where recorders put their events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    lines: Arc<Lines>,
    names: Arc<Names>,
    metrics: Metrics,
    /// Who writes them, if it is not the manager's client.
    user_agent: Option<&'static str>,
    /// How many found no room so far.
    dropped: Arc<AtomicU64>,
}

/// The task that writes what was recorded.
pub(crate) struct Recording {
    lines: Arc<Lines>,
    correlator: Correlator,
    names: Arc<Names>,
    writer: Arc<Writer>,
}

/// Writes one event at a time, and tries again while the API server does not answer.
struct Writer {
    client: Client,
    runtime: Runtime,
    events: Kind,
}

/// The two ends of the lines between recorders and the task that writes.
pub(crate) fn channel(client: Client, runtime: Runtime, metrics: Metrics) -> (Events, Recording) {
    let lines = Arc::<Lines>::default();
    let names = Arc::new(Names { runtime: runtime.clone(), last: Mutex::new(i128::MIN) });
    let writer = Writer { client, runtime, events: Kind::new("", "v1", "Event", "events", true) };
    let recording = Recording {
        lines: lines.clone(),
        correlator: Correlator::new(),
        names: names.clone(),
        writer: Arc::new(writer),
    };
    (Events { lines, names, metrics, user_agent: None, dropped: Arc::default() }, recording)
}

impl Events {
    pub(crate) fn recorder(&self, component: &'static str) -> Recorder {
        let source = EventSource { component, host: "".into(), user_agent: self.user_agent };
        Recorder { events: self.clone(), source }
    }

    /// The same, written under another name.
    pub(crate) fn with_user_agent(self, user_agent: &'static str) -> Self {
        Self { user_agent: Some(user_agent), ..self }
    }

    fn send(&self, event: EventObject) {
        if let Err(event) = self.lines.join(event) {
            self.drop_event(&event);
        }
    }

    /// Counts every one, and says so of the first, the second, the fourth: a flood of events is not to
    /// become a flood of lines.
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
    /// The same component on a host of its own, such as a node's agent.
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

    /// Records an event about anything that can be referred to, with annotations.
    pub fn event_about(
        &self,
        about: Reference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
        annotations: BTreeMap<String, String>,
    ) {
        let now = self.events.names.runtime.clock.now();
        // What lives in no namespace is told about in `default`.
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
    /// Writes events until `stop`, then what is left, each tried once.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut under_way = FuturesUnordered::new();
        loop {
            while let Some(event) = self.lines.take() {
                let component = event.source.component;
                let (writer, stop) = (self.writer.clone(), stop.clone());
                match self.correlate(event) {
                    None => self.lines.done(component),
                    Some(event) => under_way.push(async move {
                        writer.record(&event, &stop).await;
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

    /// The event to write, if there have not been too many.
    fn correlate(&mut self, event: EventObject) -> Option<EventObject> {
        let clock = &self.writer.runtime.clock;
        let now = Moment { time: clock.now(), instant: clock.instant() };
        let about = event.involved_object.name.clone();
        self.correlator.correlate(event, now, || self.names.next(&about, now.time))
    }
}

impl Writer {
    async fn record(&self, event: &EventObject, stop: &CancellationToken) {
        for tried in 1..=TRIES {
            match self.write(event).await {
                Ok(()) => return,
                Err(ClientError::Transport(error)) => tracing::warn!(%error, tried, "cannot write an event"),
                Err(error) => return rejected(event, &error),
            }
            if tried == TRIES || !self.pause(tried, stop).await {
                break;
            }
        }
        tracing::error!(name = event.metadata.name, reason = event.reason, "an event is lost");
    }

    async fn write(&self, event: &EventObject) -> Result<(), ClientError> {
        if event.count > 1 {
            match self.raise_count(event).await {
                // It has expired since: write it anew.
                Err(error) if error.code() == Some(404) => {}
                result => return result,
            }
        }
        self.client_of(event).create_and_forget(&self.events, Some(&event.metadata.namespace), event).await
    }

    fn client_of(&self, event: &EventObject) -> Client {
        match event.source.user_agent {
            Some(user_agent) => self.client.clone().with_user_agent(user_agent),
            None => self.client.clone(),
        }
    }

    async fn raise_count(&self, event: &EventObject) -> Result<(), ClientError> {
        let key = Key::namespaced(&*event.metadata.namespace, &*event.metadata.name);
        let EventObject { count, last_timestamp, message, .. } = event;
        let again = Again { count: *count, last_timestamp: *last_timestamp, message };
        let patch = serde_json::to_vec(&again).map_err(|error| ClientError::Answer(Box::new(error)))?;
        let patch = Patch::Strategic(Bytes::from(patch));
        self.client_of(event).patch_and_forget(&self.events, &key, Part::Main, patch).await
    }

    /// Waits before the next try, the first time for a random while so that many clients do not come
    /// back at once. `false`: stopped, so there is no next try.
    async fn pause(&self, tried: u32, stop: &CancellationToken) -> bool {
        let pause =
            if tried == 1 { BETWEEN_TRIES.mul_f64(self.runtime.rng.fraction()) } else { BETWEEN_TRIES };
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

/// Makes names of events: the object's name and a time in hexadecimal that is never the same twice.
struct Names {
    runtime: Runtime,
    /// The last time given out, in nanoseconds. Virtual time stands still, real time may be set back.
    last: Mutex<i128>,
}

impl Names {
    fn next(&self, about: &str, now: Timestamp) -> String {
        let mut last = self.last.lock();
        *last = now.as_nanosecond().max(*last + 1);
        let name = format!("{about}.{:x}", *last);
        // What is no valid name for an object of this kind (`system:node.17a…`) gets one without meaning.
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
