//! Auditing: who did what, with what result, as `audit.k8s.io/v1` events.
//!
//! ```text
//!  request ─► policy ─► record ─┬─► RequestReceived    before anything is decided
//!                               ├─► ResponseStarted    long-running requests
//!                               └─► ResponseComplete   before the response leaves; or Panic
//!                                        │
//!                                        └─► backend: truncate ─► batch or wait ─► sink: log, webhook
//! ```
//!
//! Invariants:
//! - without a policy, auditing costs a request one check of an empty option: no body is kept, no object is decoded;
//! - every received request is completed in the log, even if its client hung up, it timed out or it panicked;
//! - in `blocking-strict` mode a response is sent only after its event is written. The last event of a mutating
//!   request is also synced to disk;
//! - a failing backend loses events, which are counted, and in `blocking-strict` mode rejects requests. It never loses
//!   stored data.

mod backend;
mod batch;
mod event;
mod latency;
mod legacy;
mod log;
mod metrics;
mod objects;
mod policy;
mod policy_file;
mod read;
mod record;
mod request;
mod rotate;
mod webhook;

use std::sync::Arc;

use futures::future::join_all;
use setpoint_clock::Clock;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::backend::Backend;
pub use self::backend::{BackendConfig, Entry, Format, Mode, SendError, Sink, Truncation};
pub use self::batch::{BatchSettings, Throttle};
pub(crate) use self::latency::Layer;
pub use self::log::LogSink;
pub(crate) use self::metrics::Metrics;
pub use self::policy::{Level, Policy};
pub use self::policy_file::PolicyError;
pub use self::read::{Read, Reader};
pub(crate) use self::record::Record;
pub(crate) use self::request::{AUDIT_ID, Received, id};
pub use self::rotate::Rotation;
pub use self::webhook::{WebhookSink, WebhookSinkError};

/// The configuration of auditing: the policy and the backends.
pub struct AuditConfig {
    pub policy: Policy,
    pub backends: Vec<BackendConfig>,
}

/// Maximum events in background delivery: those of requests whose clients hung up, and the ends of watches. Twice the
/// maximum number of connections; beyond that, events are dropped and counted.
const MAX_BACKGROUND: usize = 20_000;

/// State shared by all requests.
pub(crate) struct Audit {
    policy: Policy,
    backends: Vec<Backend>,
    pub(crate) measured: Arc<Metrics>,
    clock: Clock,
    /// Background deliveries.
    tasks: TaskTracker,
    background: Arc<Semaphore>,
}

impl Audit {
    /// Starts auditing. Call this inside a runtime.
    pub(crate) fn start(config: AuditConfig, clock: &Clock) -> Arc<Self> {
        let measured = Arc::new(Metrics::default());
        let backends = config.backends.into_iter();
        Arc::new(Self {
            policy: config.policy,
            backends: backends.map(|backend| Backend::start(backend, clock, &measured)).collect(),
            measured,
            clock: clock.clone(),
            tasks: TaskTracker::new(),
            background: Arc::new(Semaphore::new(MAX_BACKGROUND)),
        })
    }

    /// Encodes the event for each backend.
    fn entries(&self, event: &event::Event, is_mutating: bool) -> Vec<Option<Entry>> {
        self.measured.event();
        self.backends.iter().map(|backend| backend.entry(event, is_mutating)).collect()
    }

    /// Delivers an event to all backends. Returns false if the request must not continue without it.
    async fn deliver(&self, entries: Vec<Option<Entry>>) -> bool {
        let delivering = self.backends.iter().zip(entries);
        let delivering = delivering.map(|(backend, entry)| backend.deliver(entry, &self.measured));
        join_all(delivering).await.into_iter().all(|delivered| delivered)
    }

    /// Delivers an event in the background.
    fn deliver_in_background(self: &Arc<Self>, entries: Vec<Option<Entry>>) {
        let permit = self.background.clone().try_acquire_owned();
        let (Ok(permit), Ok(runtime)) = (permit, Handle::try_current()) else {
            let why = SendError::new("too many events wait to be delivered");
            return self.measured.failed("buffered", 1, &why);
        };
        let audit = self.clone();
        let delivering = async move {
            audit.deliver(entries).await;
            drop(permit);
        };
        self.tasks.spawn_on(delivering, &runtime);
    }

    /// Delivers buffered and pending events. Later events may be lost.
    pub(crate) async fn close(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        join_all(self.backends.iter().map(Backend::close)).await;
    }
}
