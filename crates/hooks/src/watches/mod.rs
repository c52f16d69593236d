//! Operators that are made of existing artifacts: charts, roles and playbooks, as `watches.yaml` of the Operator SDK
//! names them.
//!
//! ```text
//!  watches.yaml ─► file.rs ─► Watches ─► run.rs: one controller for each entry ─► helm/ or ansible/
//! ```

mod file;
mod run;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint::{Context, Runnable};
use tokio::sync::Notify;

use crate::ansible::Ansible;
use crate::helm::Helm;
use crate::parents::Observer;

pub(crate) use file::How;
pub use file::{Watch, read_watches};

/// A kind by its names in objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl GroupKind {
    pub(crate) fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.api_version())
    }
}

/// The watches that run, which can be replaced at run time. Cheap to clone.
///
/// ```
/// let watches = setpoint_hooks::Watches::new(Vec::new());
/// watches.set(Vec::new()); // restarts all operators
/// ```
#[derive(Clone, Default)]
pub struct Watches(Arc<Shared>);

#[derive(Default)]
struct Shared {
    watches: Mutex<Arc<[Watch]>>,
    changed: Notify,
}

impl Watches {
    /// Some watches.
    pub fn new(watches: Vec<Watch>) -> Self {
        let new = Self::default();
        *new.0.watches.lock() = watches.into();
        new
    }

    /// Replaces the watches, and restarts their controllers.
    pub fn set(&self, watches: Vec<Watch>) {
        *self.0.watches.lock() = watches.into();
        self.0.changed.notify_one();
    }

    pub(crate) fn get(&self) -> Arc<[Watch]> {
        self.0.watches.lock().clone()
    }

    async fn changed(&self) {
        self.0.changed.notified().await;
    }
}

/// The settings of operators that are made of artifacts.
#[derive(Clone)]
pub struct WatchOptions {
    /// What runs.
    pub watches: Watches,
    /// Runs `helm`.
    pub helm: Arc<dyn Helm>,
    /// Runs playbooks.
    pub ansible: Arc<dyn Ansible>,
    /// How often objects with a chart are checked although nothing has changed, unless their entry says otherwise.
    pub period: Duration,
    /// Whether events show the values that `watches.yaml` overrides. They may come from the environment.
    pub shows_overrides: bool,
    /// How many objects of one entry are reconciled concurrently.
    pub workers: usize,
    /// Receives a report of each reconcile.
    pub observer: Option<Arc<dyn Observer>>,
}

impl WatchOptions {
    /// The defaults of the Operator SDK.
    pub fn new(watches: Watches, helm: impl Helm, ansible: impl Ansible) -> Self {
        Self {
            watches,
            helm: Arc::new(helm),
            ansible: Arc::new(ansible),
            period: Duration::from_secs(60),
            shows_overrides: true,
            workers: 4,
            observer: None,
        }
    }
}

/// Builds what runs the watches.
pub fn watch_runnables(context: &Context, options: &WatchOptions) -> Vec<Box<dyn Runnable>> {
    vec![Box::new(run::Operators::new(context, options))]
}
