//! Events about objects: what `kubectl describe` shows at its end.
//!
//! Similar events are aggregated and a chatty source is cut short, as client-go does it, so that a
//! hot loop cannot flood the API server.
//!
//! ```text
//!  recorders ──► a bounded channel ──► one task: correlate ─► create, or patch the count
//! ```
//!
//! What always holds:
//! - recording never fails and never waits: what does not fit is dropped and counted;
//! - events are written in the order they were recorded, each by a name of its own.

mod correlator;
mod event;
mod lru;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use event::{EventType, Reference};

use crate::client::{Part, Patch};
use crate::metrics::Metrics;
use crate::{Client, ClientError, Key, Kind, Object, Runtime};
use correlator::{Correlator, Moment};
use event::{Again, EventMeta, EventObject, EventSource};

/// How many events wait to be written, as in client-go: 1,000 of about 1 KiB each.
const WAITING: usize = 1000;
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
    sender: mpsc::Sender<EventObject>,
    names: Arc<Names>,
    metrics: Metrics,
    /// How many found no room so far.
    dropped: Arc<AtomicU64>,
}

/// The task that writes what was recorded.
pub(crate) struct Recording {
    receiver: mpsc::Receiver<EventObject>,
    correlator: Correlator,
    names: Arc<Names>,
    client: Client,
    runtime: Runtime,
    events: Kind,
}

/// The two ends of the channel between recorders and the task that writes.
pub(crate) fn channel(client: Client, runtime: Runtime, metrics: Metrics) -> (Events, Recording) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let names = Arc::new(Names { runtime: runtime.clone(), last: Mutex::new(i128::MIN) });
    let recording = Recording {
        receiver,
        correlator: Correlator::new(),
        names: names.clone(),
        client,
        runtime,
        events: Kind::new("", "v1", "Event", "events", true),
    };
    (Events { sender, names, metrics, dropped: Arc::default() }, recording)
}

impl Events {
    pub(crate) fn recorder(&self, component: &'static str) -> Recorder {
        Recorder { events: self.clone(), source: EventSource { component, host: "".into() } }
    }

    fn send(&self, event: EventObject) {
        if let Err(rejected) = self.sender.try_send(event) {
            self.drop_event(&rejected.into_inner());
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
        loop {
            let event = tokio::select! {
                biased;
                event = self.receiver.recv() => event,
                () = stop.cancelled() => None,
            };
            match event {
                Some(event) => self.record(event, &stop).await,
                None => return,
            }
        }
    }

    async fn record(&mut self, event: EventObject, stop: &CancellationToken) {
        let now = Moment { time: self.runtime.clock.now(), instant: self.runtime.clock.instant() };
        let about = event.involved_object.name.clone();
        let name = || self.names.next(&about, now.time);
        let Some(event) = self.correlator.correlate(event, now, name) else { return };
        for tried in 1..=TRIES {
            match self.write(&event).await {
                Ok(()) => return,
                Err(ClientError::Transport(error)) => tracing::warn!(%error, tried, "cannot write an event"),
                Err(error) => return rejected(&event, &error),
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
        self.client.create_and_forget(&self.events, Some(&event.metadata.namespace), event).await
    }

    async fn raise_count(&self, event: &EventObject) -> Result<(), ClientError> {
        let key = Key::namespaced(&*event.metadata.namespace, &*event.metadata.name);
        let EventObject { count, last_timestamp, message, .. } = event;
        let again = Again { count: *count, last_timestamp: *last_timestamp, message };
        let patch = serde_json::to_vec(&again).map_err(|error| ClientError::Answer(Box::new(error)))?;
        let patch = Patch::Strategic(Bytes::from(patch));
        self.client.patch_and_forget(&self.events, &key, Part::Main, patch).await
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
