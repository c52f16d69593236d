//! Shadow mode: controllers that run beside the live controllers of a cluster and write nothing.
//!
//! ```text
//!            ┌── reads ──────────────────────────────┐
//!  controllers                                       ▼
//!    ▲       └── writes ─► guard ─► ledger      API server ◄── the live controllers
//!    │                                ▲              │
//!    └─── watching ◄── what changed ──┴──────────────┘
//! ```
//!
//! - [`Shadow::guard`] returns a client that reads, records writes and responds as the API server would.
//! - [`Shadow::source`] returns a source for informers that compares events with the intentions. It delays a write of
//!   the live controllers until the controllers here had time to intend it too. Otherwise the faster side would hide
//!   what the slower one would have done.
//! - [`Shadow::report`] returns the intentions, and which of them the cluster shows.
//!
//! Invariants:
//! - A guarded client only sends reads.
//! - Only fields that were to be written are compared.
//! - An intention, a live write and a difference are each counted once.

mod family;
mod fields;
mod findings;
mod guard;
mod intention;
mod ledger;
mod merge;
mod observed;
mod order;
mod reply;
mod report;
mod target;
mod verify;
mod watching;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use setpoint::metrics::Metrics;
use setpoint::source::{KubeSource, Source};
use setpoint::{Client, Context, Instant, Rng, Runnable, Runtime};
use tokio::sync::Notify;

pub use guard::{REVIEWS, reviewer};
pub use intention::Verb;
pub use report::{Counts, Difference, FieldDifference, Finding, Report};
pub use target::Resource;

use ledger::Ledger;
use order::Order;

/// The configuration of a comparison.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long the cluster has to show an intended write, and the controllers here to intend a live one.
    pub window: Duration,
    /// How long a live write is delayed, so that the controllers here can intend it meanwhile.
    pub head_start: Duration,
    /// The field manager of the live controllers.
    pub manager: String,
    /// The resources that only the controllers running here write. Live writes to other resources are not reported as
    /// missing.
    pub expected: BTreeSet<Resource>,
    /// The resources that are written periodically, so that the live controllers may be ahead by more than the head
    /// start. Live changes that the controllers here accept are not reported as missing.
    pub periodic: BTreeSet<Resource>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(30),
            head_start: Duration::from_secs(1),
            manager: "kube-controller-manager".into(),
            expected: BTreeSet::new(),
            periodic: PERIODIC.iter().map(|(group, name)| Resource::new(group, name)).collect(),
        }
    }
}

/// Resources that Kubernetes' controllers resync periodically, or that other clients write often.
const PERIODIC: &[(&str, &str)] = &[
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "resourcequotas"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("storage.k8s.io", "volumeattachments"),
];

impl Config {
    /// Expects writes to the resources that are written by the controllers running here, but not by `others`. Both are
    /// groups and resources, such as `("apps", "deployments/status")`. The wildcard `*` is not expected.
    pub fn expecting<'a>(
        self,
        ours: impl Iterator<Item = (&'a str, &'a str)>,
        others: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let whole = |(group, resource): (&str, &str)| {
            let name = resource.split('/').next().unwrap_or_default();
            (group != "*" && name != "*").then(|| Resource::new(group, name))
        };
        let others: BTreeSet<_> = others.filter_map(whole).collect();
        let expected = ours.filter_map(whole).filter(|one| !others.contains(one)).collect();
        Self { expected, ..self }
    }
}

/// The shared state of everything that runs in shadow mode against one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Shadow {
    shared: Arc<Inner>,
}

struct Inner {
    config: Config,
    runtime: Runtime,
    started: Timestamp,
    ledger: Mutex<Ledger>,
    order: Order,
    /// Notified when something was intended or forwarded.
    changed: Arc<Notify>,
}

impl Shadow {
    /// Creates a shadow without intentions.
    pub fn new(config: Config, runtime: Runtime, metrics: Metrics) -> Self {
        let started = runtime.clock.now();
        let ledger = Mutex::new(Ledger::new(config.window, metrics));
        let changed = Arc::new(Notify::new());
        let order = Order::new(runtime.clock.clone(), changed.clone());
        let shared = Inner { config, runtime, started, ledger, order, changed };
        Self { shared: Arc::new(shared) }
    }

    /// Returns a client that reads through `client` and writes nothing. The writer is identified by the user agent
    /// after the first slash.
    pub fn guard(&self, client: kube::Client) -> kube::Client {
        guard::guard(self, client)
    }

    /// Returns a source for informers that compares the events it forwards.
    pub fn source(&self, client: kube::Client) -> Arc<dyn Source> {
        let runtime = &self.shared.runtime;
        let watches = KubeSource::new(client.clone(), runtime.clone()).with_managed_fields();
        Arc::new(watching::Watching::new(self.clone(), KubeSource::new(client, runtime.clone()), watches))
    }

    /// Returns the context of one controller. Its writes are counted under its name.
    pub fn context(&self, context: &Context, client: Client, controller: &str) -> Context {
        context.acting_as(client.add_user_agent(controller))
    }

    /// Returns the runnable that decides on expired intentions. It reads through `client`.
    pub fn verifier(&self, client: kube::Client) -> impl Runnable + use<> {
        verify::Verifier::new(self.clone(), client)
    }

    /// Decides on everything that is pending, before the final report.
    pub async fn recheck(&self, client: &kube::Client) {
        verify::recheck(self, client).await;
    }

    /// Returns the report so far.
    pub fn report(&self) -> Report {
        let ledger = self.lock();
        Report {
            started: self.shared.started,
            until: self.now(),
            window_seconds: ledger.window().as_secs(),
            controllers: ledger.counts(),
            missing: ledger.missing,
            accepted: ledger.accepted,
            differences: ledger.findings.listed.iter().cloned().collect(),
            unlisted: ledger.findings.unlisted,
        }
    }

    /// Returns the number of stored intentions.
    pub fn pending(&self) -> usize {
        self.lock().pending()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.shared.ledger.lock()
    }

    pub(crate) fn rng(&self) -> &Rng {
        &self.shared.runtime.rng
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.runtime.clock.now()
    }

    pub(crate) fn instant(&self) -> Instant {
        self.shared.runtime.clock.instant()
    }

    pub(crate) async fn sleep(&self, duration: Duration) {
        self.shared.runtime.clock.sleep(duration).await;
    }

    /// Wakes the events that wait for an intention.
    pub(crate) fn wake_events(&self) {
        self.shared.changed.notify_waiters();
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.shared.changed
    }

    pub(crate) fn order(&self) -> &Order {
        &self.shared.order
    }
}
