//! What starts after what: a runnable waits until those it needs are ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::Clock;

use crate::health::Health;

/// How often somebody who waits for others looks whether they are ready.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// An order that cannot be followed.
///
/// ```
/// use setpoint::manager::OrderError;
/// let error = OrderError::Circle("a after b after a".into());
/// assert_eq!(error.to_string(), "they would wait for each other: a after b after a");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Nothing of that name was added, neither to run nor as a check of readiness.
    #[error("there is nothing called {0:?} to wait for or to start")]
    Unknown(String),
    /// Each would wait for the other.
    #[error("they would wait for each other: {0}")]
    Circle(String),
}

/// Who waits for whom.
#[derive(Default)]
pub(super) struct Order {
    /// By who waits: those that it waits for.
    needs: BTreeMap<String, BTreeSet<String>>,
}

impl Order {
    /// Lets `later` wait for `earlier`, unless that would close a circle.
    pub(super) fn add(&mut self, later: &str, earlier: &str) -> Result<(), OrderError> {
        if let Some(path) = self.path(earlier, later) {
            return Err(OrderError::Circle(format!("{later} after {}", path.join(" after "))));
        }
        self.needs.entry(later.into()).or_default().insert(earlier.into());
        Ok(())
    }

    /// How `from` comes to wait for `to`, if it does.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        if from == to {
            return Some(vec![from.into()]);
        }
        let found = self.needs.get(from)?.iter().find_map(|next| self.path(next, to))?;
        Some(std::iter::once(from.to_owned()).chain(found).collect())
    }
}

/// The order while it is followed. Cheap to clone.
#[derive(Clone)]
pub(super) struct Starting {
    order: Arc<Order>,
    health: Health,
    clock: Clock,
    /// Those that have been started; of the others, readiness says nothing.
    started: Arc<Mutex<BTreeSet<String>>>,
    names: Arc<BTreeSet<String>>,
}

impl Starting {
    pub(super) fn new(order: Order, health: &Health, clock: &Clock, names: BTreeSet<String>) -> Self {
        Self {
            order: Arc::new(order),
            health: health.clone(),
            clock: clock.clone(),
            started: Arc::default(),
            names: Arc::new(names),
        }
    }

    /// Waits until everything that `name` needs is ready, then counts it as started.
    pub(super) async fn turn_of(&self, name: &str) {
        if let Some(needs) = self.order.needs.get(name) {
            while let Some(missing) = needs.iter().find(|needed| !self.is_ready(needed)) {
                tracing::debug!(name, missing, "waits to be started");
                self.clock.sleep(LOOK_EVERY).await;
            }
        }
        self.started.lock().insert(name.to_owned());
    }

    fn is_ready(&self, name: &str) -> bool {
        let started = !self.names.contains(name) || self.started.lock().contains(name);
        started && self.health.readyz().only(name).is_none_or(|report| report.ok)
    }
}
