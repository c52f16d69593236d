//! Shadow mode: controllers run beside those that are in charge of a cluster, and write nothing.
//!
//! ```text
//!            ┌── reads ──────────────────────────────┐
//!  controllers                                       ▼
//!    ▲       └── writes ─► guard ─► ledger      API server ◄── the live controllers
//!    │                                ▲              │
//!    └─── watching ◄── what changed ──┴──────────────┘
//! ```
//!
//! - [`Shadow::guard`] makes a client that reads, records what would be written and answers as the API server would.
//! - [`Shadow::source`] makes a source for informers that compares what it hands on with what was intended. It hands
//!   on a write of the live controllers only after those here had the time to intend it, too: else the faster of the
//!   two would hide what the slower would have done.
//! - [`Shadow::report`] says what was intended, what the cluster shows of it, and what it does not.
//!
//! What always holds:
//! - a guarded client sends reads and nothing else;
//! - only fields that were to be written are compared;
//! - an intention, a live write and a difference are each counted once.

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

/// How a shadow compares.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long the cluster has to show what was intended, and the other way round.
    pub window: Duration,
    /// How long a write of the live controllers is kept from those here, which may intend it meanwhile.
    pub head_start: Duration,
    /// What the live controllers call themselves in managed fields.
    pub manager: String,
    /// The resources that only controllers write which run here, too: a live write to another one is not missing.
    pub expected: BTreeSet<Resource>,
    /// The resources that are changed at intervals, so that the live controllers may be ahead by more than the head
    /// start: a live change that those here accept is not missing.
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

/// Resources that the controllers of Kubernetes look at in intervals, or that others write a lot.
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
    /// Expects writes to what is written by the controllers that run here, and by no `others`. Both are groups and
    /// resources, such as `("apps", "deployments/status")`; all resources (`*`) are not expected.
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

/// What is shared by everything that runs in the shadow of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Shadow {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    runtime: Runtime,
    started: Timestamp,
    ledger: Mutex<Ledger>,
    order: Order,
    /// Something was intended, or handed on.
    changed: Arc<Notify>,
}

impl Shadow {
    /// Nothing was intended yet.
    pub fn new(config: Config, runtime: Runtime, metrics: Metrics) -> Self {
        let started = runtime.clock.now();
        let ledger = Mutex::new(Ledger::new(config.window, metrics));
        let changed = Arc::new(Notify::new());
        let order = Order::new(runtime.clock.clone(), changed.clone());
        let shared = Shared { config, runtime, started, ledger, order, changed };
        Self { shared: Arc::new(shared) }
    }

    /// A client that reads through `client` and writes nothing. Whoever writes is known by what a client's user agent
    /// says after the first slash.
    pub fn guard(&self, client: kube::Client) -> kube::Client {
        guard::guard(self, client)
    }

    /// A source for informers that compares what it hands on.
    pub fn source(&self, client: kube::Client) -> Arc<dyn Source> {
        let runtime = &self.shared.runtime;
        let watches = KubeSource::new(client.clone(), runtime.clone()).with_managed_fields();
        Arc::new(watching::Watching::new(self.clone(), KubeSource::new(client, runtime.clone()), watches))
    }

    /// The context of one controller, whose writes are counted under its name.
    pub fn context(&self, context: &Context, client: Client, controller: &str) -> Context {
        context.acting_as(client.add_user_agent(controller))
    }

    /// What decides about intentions when their time is up, to be run by the manager; reads through `client`.
    pub fn verifier(&self, client: kube::Client) -> impl Runnable + use<> {
        verify::Verifier::new(self.clone(), client)
    }

    /// Looks at everything that is not decided, before the last report.
    pub async fn look_again(&self, client: &kube::Client) {
        verify::look_again(self, client).await;
    }

    /// Everything that is known so far.
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

    /// How many intentions are kept.
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
    pub(crate) fn woken(&self) {
        self.shared.changed.notify_waiters();
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.shared.changed
    }

    pub(crate) fn order(&self) -> &Order {
        &self.shared.order
    }
}
