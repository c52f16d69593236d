//! Priority and fairness: which requests are carried out now, which wait and which are turned away.
//!
//! ```text
//!  FlowSchemas, PriorityLevelConfigurations ─► objects ─► config: schemas in order, levels with seats
//!                                                            │
//!  request ─► filter: rules choose a schema ─► width ─► a seat of its level ─► authorization …
//! ```
//!
//! What always holds:
//! - every request but streams to pods has a schema and a level, whatever the objects in the store say: the
//!   mandatory ones are there even if their objects are not;
//! - a configuration that a client was told is written counts for the very next request;
//! - a request gives its seats back however it ends.
//!
//! Queues, seats and their limits are in `setpoint_flow`; here is what they are for.

mod config;
mod dump;
mod filter;
mod in_flight;
mod keep;
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
use self::objects::Fed;

pub(crate) use self::config::{LevelState, StatsOf};
pub(crate) use self::dump::answer as dump;
pub(crate) use self::filter::{Asked, Classified, Pass, enter};
pub(crate) use self::in_flight::{InFlight, Sort};
pub(crate) use self::keep::Keeper;
pub use self::watches::WatchLimits;
pub(crate) use self::watches::Watches;
use self::width::Sizes;

/// The limits of requests under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Reads at once (`--max-requests-inflight`). With fairness the two limits are one sum.
    pub max_requests: u32,
    /// Writes at once (`--max-mutating-requests-inflight`).
    pub max_mutating_requests: u32,
    /// Priority and fairness; without it the two limits are all there is.
    pub is_fair: bool,
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self { max_requests: 400, max_mutating_requests: 200, is_fair: true }
    }
}

/// What decides on requests under way.
pub(crate) struct Flow {
    settings: FlowSettings,
    pub(crate) in_flight: InFlight,
    fair: Option<Fair>,
}

/// Priority and fairness.
pub(crate) struct Fair {
    store: Arc<dyn Store>,
    clock: Clock,
    /// The sum of both limits.
    seats: u64,
    state: RwLock<Option<State>>,
    sizes: Mutex<Sizes>,
}

/// The configuration and its place in the store's history.
struct State {
    fed: Fed,
    levels: Levels,
    config: Arc<Config>,
}

impl Flow {
    pub(crate) fn new(settings: FlowSettings, store: Arc<dyn Store>, clock: Clock) -> Self {
        let seats = u64::from(settings.max_requests) + u64::from(settings.max_mutating_requests);
        let fair = settings.is_fair.then(|| Fair {
            store,
            clock: clock.clone(),
            seats,
            state: RwLock::new(None),
            sizes: Mutex::default(),
        });
        let in_flight = InFlight::new(clock);
        if fair.is_none() {
            in_flight.limit_executing(Sort::ReadOnly, settings.max_requests.into());
            in_flight.limit_executing(Sort::Mutating, settings.max_mutating_requests.into());
        }
        Self { settings, in_flight, fair }
    }

    pub(crate) fn fair(&self) -> Option<&Fair> {
        self.fair.as_ref()
    }
}

impl Fair {
    /// The configuration as of now.
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
        let fed = Fed::load(&*self.store).await?;
        let mut slot = self.state.write();
        let levels =
            slot.take().map_or_else(|| Levels::new(self.clock.clone(), self.seats), |old| old.levels);
        let mut state = State { fed, levels, config: Arc::default() };
        state.digest();
        Ok(slot.insert(state).config.clone())
    }

    /// `None` if nothing was read yet, or history does not reach back.
    fn catch_up(&self, newest: u64) -> Option<Arc<Config>> {
        let mut slot = self.state.write();
        let state = slot.as_mut()?;
        if state.fed.catch_up(newest).ok()? {
            state.digest();
        }
        Some(state.config.clone())
    }

    /// Moves seats between levels by what they demanded since the last time. Call it every ten seconds.
    pub(crate) async fn adjust(&self) {
        if let Err(error) = self.config().await {
            return tracing::warn!(%error, "cannot read the priority levels");
        }
        if let Some(state) = &mut *self.state.write() {
            // A level without its object goes once it is idle.
            match state.levels.has_idle_leftovers() {
                true => state.digest(),
                false => state.levels.adjust(),
            }
        }
    }

    /// The levels and what was counted of flows, for metrics.
    pub(crate) fn look<R>(
        &self,
        look: impl FnOnce(&BTreeMap<String, LevelState>, &StatsOf, f64) -> R,
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
