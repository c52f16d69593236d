//! Priority and fairness: decides which requests execute now, which wait and which are rejected.
//!
//! ```text
//!  FlowSchemas, PriorityLevelConfigurations ─► objects ─► config: schemas in order, levels with seats
//!                                                            │
//!  request ─► filter: rules choose a schema ─► width ─► a seat of its level ─► authorization …
//! ```
//!
//! Invariants:
//! - every request but streams to pods has a schema and a level, whatever is in the store: the mandatory ones exist
//!   even without their objects;
//! - a configuration write that was acknowledged takes effect on the very next request;
//! - a request releases its seats however it ends.
//!
//! Queues, seats and their limits are in `setpoint_flow`; this module applies them to requests.

mod config;
mod controller;
mod dump;
mod filter;
mod in_flight;
mod objects;
mod rules;
mod watches;
mod width;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use setpoint_clock::Clock;
use setpoint_store::{Error, Store};

use self::config::{Config, Levels};
use self::objects::FlowObjects;

pub(crate) use self::config::{FlowStatsMap, LevelState};
pub(crate) use self::controller::FlowController;
pub(crate) use self::dump::respond as dump;
pub(crate) use self::filter::{Classified, ExecutionGuard, FlowRequest, enter};
pub(crate) use self::in_flight::{InFlight, RequestKind};
pub use self::watches::WatchLimits;
pub(crate) use self::watches::Watches;
use self::width::Sizes;

/// Limits on requests in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Maximum concurrent reads (`--max-requests-inflight`). With fairness only the sum of both limits matters.
    pub max_requests: u32,
    /// Maximum concurrent writes (`--max-mutating-requests-inflight`).
    pub max_mutating_requests: u32,
    /// Whether priority and fairness is enabled; without it only the two limits apply.
    pub is_fair: bool,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self { max_requests: 400, max_mutating_requests: 200, is_fair: true }
    }
}

/// Admits requests.
pub(crate) struct Flow {
    settings: FlowSettings,
    pub(crate) in_flight: InFlight,
    fair: Option<PriorityAndFairness>,
}

/// Priority and fairness.
pub(crate) struct PriorityAndFairness {
    store: Arc<dyn Store>,
    clock: Clock,
    /// The sum of both limits.
    seats: u64,
    state: RwLock<Option<State>>,
    sizes: Mutex<Sizes>,
}

/// The configuration and its position in the store's history.
struct State {
    fed: FlowObjects,
    levels: Levels,
    config: Arc<Config>,
}

impl Flow {
    pub(crate) fn new(settings: FlowSettings, store: Arc<dyn Store>, clock: Clock) -> Self {
        let seats = u64::from(settings.max_requests) + u64::from(settings.max_mutating_requests);
        let fair = settings.is_fair.then(|| PriorityAndFairness {
            store,
            clock: clock.clone(),
            seats,
            state: RwLock::new(None),
            sizes: Mutex::default(),
        });
        let in_flight = InFlight::new(clock);
        if fair.is_none() {
            in_flight.limit_executing(RequestKind::ReadOnly, settings.max_requests.into());
            in_flight.limit_executing(RequestKind::Mutating, settings.max_mutating_requests.into());
        }
        Self { settings, in_flight, fair }
    }

    pub(crate) fn fair(&self) -> Option<&PriorityAndFairness> {
        self.fair.as_ref()
    }
}

impl PriorityAndFairness {
    /// Returns the current configuration.
    async fn config(&self) -> Result<Arc<Config>, Error> {
        let newest = self.store.revision();
        if let Some(state) = &*self.state.read()
            && state.fed.has_seen(newest)
        {
            return Ok(state.config.clone());
        }
        if let Some(config) = self.catch_up(newest) {
            return Ok(config);
        }
        let fed = FlowObjects::load(&*self.store).await?;
        let mut slot = self.state.write();
        let levels =
            slot.take().map_or_else(|| Levels::new(self.clock.clone(), self.seats), |old| old.levels);
        let mut state = State { fed, levels, config: Arc::default() };
        state.digest();
        Ok(slot.insert(state).config.clone())
    }

    /// Returns `None` if nothing was loaded yet, or the history does not reach back far enough.
    fn catch_up(&self, newest: u64) -> Option<Arc<Config>> {
        let mut slot = self.state.write();
        let state = slot.as_mut()?;
        if state.fed.catch_up(newest).ok()? {
            state.digest();
        }
        Some(state.config.clone())
    }

    /// Moves seats between levels according to their demand since the last call. Call it every ten seconds.
    pub(crate) async fn adjust(&self) {
        if let Err(error) = self.config().await {
            return tracing::warn!(%error, "cannot read the priority levels");
        }
        if let Some(state) = &mut *self.state.write() {
            // A level without its object is removed once idle.
            match state.levels.has_idle_leftovers() {
                true => state.digest(),
                false => state.levels.adjust(),
            }
        }
    }

    /// Gives metrics access to the levels and the flow statistics.
    pub(crate) fn look<R>(
        &self,
        look: impl FnOnce(&BTreeMap<String, LevelState>, &FlowStatsMap, f64) -> R,
    ) -> Option<R> {
        let state = self.state.read();
        let levels = &state.as_ref()?.levels;
        Some(look(levels.all(), levels.stats(), levels.fair_fraction()))
    }
}

impl State {
    fn digest(&mut self) {
        self.config = Arc::new(self.levels.digest(&self.fed));
    }
}
