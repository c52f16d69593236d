//! Record and replay of everything a controller receives.
//!
//! ```text
//!  recording:   source ─► recording ─► informers        client ─► recording ─► API server
//!  replaying:   recording ─► informers                  client ─► recording
//! ```
//!
//! A controller's behaviour depends on its watches, on the responses to its requests, on time and on randomness. The
//! first two are recorded, each with its time. A replay on a paused clock, with an [`Rng`](crate::Rng) of the same
//! seed, takes the controller through the same reconciles in the same order, in a test and without a cluster. A
//! controller that has been changed since may make other requests. The replay reports those.

mod entry;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use self::entry::{Entry, EntryKind};
use crate::source::Source;
use crate::{Clock, Instant};

pub use self::replay::Replay;

/// The default capacity in entries. With typical objects of 2 KB, a full recording takes 200 MB.
const ENTRIES: usize = 100_000;

/// A recording of everything a controller receives. Cheap to clone; clones share it.
///
/// ```no_run
/// # async fn example(source: std::sync::Arc<dyn setpoint::source::Source>, client: kube::Client,
/// #     runtime: setpoint::Runtime) -> std::io::Result<()> {
/// use setpoint::{Client, Manager, recording::Recording};
/// let recording = Recording::new(runtime.clock.clone());
/// let manager = Manager::new(Client::new(recording.client(client)), recording.source(source), runtime);
/// // … run the manager, then:
/// std::fs::write("incident.recording", recording.to_text())?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Recording {
    clock: Clock,
    started: Instant,
    shared: Arc<Mutex<Inner>>,
}

struct Inner {
    entries: Vec<Entry>,
    most: usize,
    watches: u64,
}

/// An error while parsing a recording.
///
/// ```
/// let error = setpoint::recording::Replay::of("{}", setpoint::Clock::system()).err().unwrap();
/// assert_eq!(error.to_string(), "line 1 of the recording cannot be read");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the recording cannot be read")]
pub struct RecordingError {
    line: usize,
    #[source]
    source: serde_json::Error,
}

impl Recording {
    /// Creates an empty recording that starts now. Call this inside a Tokio runtime.
    pub fn new(clock: Clock) -> Self {
        let started = clock.instant();
        let shared = Inner { entries: Vec::new(), most: ENTRIES, watches: 0 };
        Self { clock, started, shared: Arc::new(Mutex::new(shared)) }
    }

    /// Sets the capacity in entries (default 100,000). Nothing is recorded once it is reached.
    pub fn with_capacity(self, entries: usize) -> Self {
        self.shared.lock().most = entries;
        self
    }

    /// Wraps a source so that it is recorded.
    pub fn source(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        record::source(self, source)
    }

    /// Wraps a client so that it is recorded, for the requests of reconcilers. Responses are read completely, so a
    /// watch through it would never return. Give a [`KubeSource`](crate::source::KubeSource) the original client.
    pub fn client(&self, client: kube::Client) -> kube::Client {
        record::client(self, client)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.shared.lock().entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the recording reached its capacity.
    pub fn is_full(&self) -> bool {
        let shared = self.shared.lock();
        shared.entries.len() >= shared.most
    }

    /// Formats the recording as text, one line per entry.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.shared.lock().entries {
            let line = serde_json::to_string(entry).expect("an entry always encodes");
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn record(&self, what: EntryKind) {
        let at = self.clock.instant().saturating_duration_since(self.started);
        let mut shared = self.shared.lock();
        if shared.entries.len() < shared.most {
            shared.entries.push(Entry { at, what });
        }
    }

    fn next_watch(&self) -> u64 {
        let mut shared = self.shared.lock();
        shared.watches += 1;
        shared.watches
    }
}
