//! Record and replay: what a controller saw and was answered, kept on a tape, and played to it again.
//!
//! ```text
//!  recording:   source ─► tape ─► informers        client ─► tape ─► API server
//!  replaying:   tape ─► informers                  client ─► tape
//! ```
//!
//! A controller is a function of what its watches show, of what its calls are answered, of time and of
//! chance. The first two are on the tape, each with its moment; a replay on a paused clock, with an
//! [`Rng`](crate::Rng) of the same seed, takes it through the same reconciles in the same order, in a test,
//! without a cluster. A controller that has been changed since may ask for something else: the replay says
//! what.

mod entry;
mod record;
mod replay;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use self::entry::{Entry, What};
use crate::source::Source;
use crate::{Clock, Instant};

pub use self::replay::Replay;

/// Entries that a tape holds unless told otherwise. At 2 KB each, a typical object, they take 200 MB.
const ENTRIES: usize = 100_000;

/// What a controller sees and is answered, from now on. Cheap to clone; clones are the same tape.
///
/// ```no_run
/// # async fn example(source: std::sync::Arc<dyn setpoint::source::Source>, client: kube::Client,
/// #     runtime: setpoint::Runtime) -> std::io::Result<()> {
/// use setpoint::{Client, Manager, tape::Tape};
/// let tape = Tape::new(runtime.clock.clone());
/// let manager = Manager::new(Client::new(tape.client(client)), tape.source(source), runtime);
/// // … run the manager, then:
/// std::fs::write("incident.tape", tape.to_text())?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tape {
    clock: Clock,
    started: Instant,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    entries: Vec<Entry>,
    most: usize,
    watches: u64,
}

/// A text that is no tape.
///
/// ```
/// let error = setpoint::tape::Replay::of("{}", setpoint::Clock::system()).err().unwrap();
/// assert_eq!(error.to_string(), "line 1 of the tape cannot be read");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the tape cannot be read")]
pub struct TapeError {
    line: usize,
    #[source]
    source: serde_json::Error,
}

impl Tape {
    /// An empty tape. Call inside a runtime: the tape starts now.
    pub fn new(clock: Clock) -> Self {
        let started = clock.instant();
        let shared = Shared { entries: Vec::new(), most: ENTRIES, watches: 0 };
        Self { clock, started, shared: Arc::new(Mutex::new(shared)) }
    }

    /// Holds no more than this many entries; what comes after is not recorded (default 100,000).
    pub fn with_room_for(self, entries: usize) -> Self {
        self.shared.lock().most = entries;
        self
    }

    /// The same source, recorded.
    pub fn source(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        record::source(self, source)
    }

    /// The same client, recorded: for the calls of reconcilers. Replies are read as a whole, so a watch
    /// through it would never be answered; a [`KubeSource`](crate::source::KubeSource) gets the client as it
    /// was.
    pub fn client(&self, client: kube::Client) -> kube::Client {
        record::client(self, client)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.shared.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the tape ran out before the recording ended.
    pub fn is_full(&self) -> bool {
        let shared = self.shared.lock();
        shared.entries.len() >= shared.most
    }

    /// The tape as text, one line an entry.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for entry in &self.shared.lock().entries {
            let line = serde_json::to_string(entry).expect("an entry is made of strings and numbers");
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn record(&self, what: What) {
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
