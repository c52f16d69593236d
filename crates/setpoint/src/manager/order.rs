//! Start order: a runnable waits until everything it depends on is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Clock;

use crate::health::Health;

/// How often a waiting runnable polls its dependencies.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An invalid start order.
///
/// ```
/// use setpoint::manager::OrderError;
/// let error = OrderError::Circle("a after b after a".into());
/// assert_eq!(error.to_string(), "circular start order: a after b after a");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No runnable or readiness check has this name.
    #[error("there is no runnable named {0:?}")]
    Unknown(String),
    /// The dependencies form a cycle.
    #[error("circular start order: {0}")]
    Circle(String),
}

/// The dependencies between runnables.
#[derive(Default)]
pub(super) struct Order {
    /// From each runnable to the ones it waits for.
    needs: BTreeMap<String, BTreeSet<String>>,
}

impl Order {
    /// Makes `later` wait for `earlier`, unless that would create a cycle.
    pub(super) fn add(&mut self, later: &str, earlier: &str) -> Result<(), OrderError> {
        if let Some(path) = self.path(earlier, later) {
            return Err(OrderError::Circle(format!("{later} after {}", path.join(" after "))));
        }
        self.needs.entry(later.into()).or_default().insert(earlier.into());
        Ok(())
    }

    /// Returns the chain of dependencies from `from` to `to`, if there is one.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        if from == to {
            return Some(vec![from.into()]);
        }
        let found = self.needs.get(from)?.iter().find_map(|next| self.path(next, to))?;
        Some(std::iter::once(from.to_owned()).chain(found).collect())
    }
}

/// The state during startup. Cheap to clone.
#[derive(Clone)]
pub(super) struct Startup {
    order: Arc<Order>,
    health: Health,
    clock: Clock,
    /// The runnables that have been started. A readiness check says nothing before its runnable has started.
    started: Arc<Mutex<BTreeSet<String>>>,
    names: Arc<BTreeSet<String>>,
}

impl Startup {
    pub(super) fn new(order: Order, health: &Health, clock: &Clock, names: BTreeSet<String>) -> Self {
        Self {
            order: Arc::new(order),
            health: health.clone(),
            clock: clock.clone(),
            started: Arc::default(),
            names: Arc::new(names),
        }
    }

    /// Waits until everything that `name` depends on is ready, then marks `name` as started.
    pub(super) async fn wait_for_dependencies(&self, name: &str) {
        if let Some(needs) = self.order.needs.get(name) {
            while let Some(missing) = needs.iter().find(|needed| !self.is_ready(needed)) {
                tracing::debug!(name, missing, "waiting to start");
                self.clock.sleep(POLL_INTERVAL).await;
            }
        }
        self.started.lock().insert(name.to_owned());
    }

    fn is_ready(&self, name: &str) -> bool {
        let started = !self.names.contains(name) || self.started.lock().contains(name);
        started && self.health.readyz().only(name).is_none_or(|report| report.ok)
    }
}
