//! Compiles the stored objects for request handling: ordered schemas, and levels with seats.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderValue, Method, Uri};
use parking_lot::Mutex;
use setpoint_clock::Clock;
use setpoint_flow::{
    Adjusted, DemandStats, FlowStats, Level, LevelLimits, Queuing, RetryAfter, adjust, max_seats,
    nominal_limits,
};

use super::in_flight::Limits;
use super::objects::{CATCH_ALL, Distinguisher, EXEMPT, FlowObjects, Priority, Schema};
use super::rules::{Digest, Rule};

/// Metrics by level and schema. Entries of removed schemas are kept, so that counters never go back, until there are
/// more than [`KEPT_STATS`].
pub(crate) type FlowStatsMap = BTreeMap<(Arc<str>, Arc<str>), Arc<FlowStats>>;

/// Maximum number of entries: about 1.5 KB each.
const KEPT_STATS: usize = 1000;

/// Information about a queued request, for the debug endpoints.
#[derive(Clone)]
pub(crate) struct Label {
    pub(super) schema: Arc<str>,
    pub(super) distinguisher: Option<Distinguisher>,
    pub(super) user: String,
    pub(super) method: Method,
    pub(super) uri: Uri,
}

/// The schemas that requests are matched against, in order.
#[derive(Default)]
pub(super) struct Config {
    schemas: Vec<ActiveSchema>,
    /// The total limits of all levels.
    pub(super) limits: Limits,
}

/// A schema whose level exists.
pub(super) struct ActiveSchema {
    pub(super) name: Arc<str>,
    pub(super) uid: HeaderValue,
    pub(super) distinguisher: Option<Distinguisher>,
    pub(super) level: Arc<ActiveLevel>,
    pub(super) stats: Arc<FlowStats>,
    precedence: i64,
    rules: Arc<Vec<Rule>>,
}

/// A level, as used by requests.
pub(super) struct ActiveLevel {
    pub(super) uid: HeaderValue,
    pub(super) level: Arc<Level<Label>>,
    pub(super) queuing: Queuing,
    /// Maximum seats of one request; `None` for levels without queues.
    pub(super) max_seats: Option<u64>,
    pub(super) retry_after: Arc<Mutex<RetryAfter>>,
}

impl Config {
    /// Returns a request's schema. The last one, catch-all, is for everyone, even a user in neither of its groups,
    /// which authentication never produces.
    pub(super) fn schema_of(&self, request: &Digest<'_>) -> Option<&ActiveSchema> {
        let matching = |schema: &&ActiveSchema| schema.rules.iter().any(|rule| rule.matches(request));
        let catch_all = || self.schemas.iter().find(|schema| &*schema.name == CATCH_ALL);
        self.schemas.iter().find(matching).or_else(catch_all)
    }
}

/// A level, and how its seats were computed.
pub(crate) struct LevelState {
    pub(crate) level: Arc<Level<Label>>,
    priority: Priority,
    retry_after: Arc<Mutex<RetryAfter>>,
    /// Whether its object is gone; it is removed once idle.
    pub(crate) is_quiescing: bool,
    pub(crate) limits: LevelLimits,
    pub(crate) demand: DemandStats,
    pub(crate) adjusted: Adjusted,
}

/// All levels.
pub(super) struct Levels {
    clock: Clock,
    seats: u64,
    all: BTreeMap<String, LevelState>,
    stats: FlowStatsMap,
    fair_fraction: f64,
}

impl Levels {
    pub(super) fn new(clock: Clock, seats: u64) -> Self {
        Self { clock, seats, all: BTreeMap::new(), stats: FlowStatsMap::new(), fair_fraction: 0.0 }
    }

    pub(super) fn all(&self) -> &BTreeMap<String, LevelState> {
        &self.all
    }

    pub(super) fn stats(&self) -> &FlowStatsMap {
        &self.stats
    }

    pub(super) fn fair_fraction(&self) -> f64 {
        self.fair_fraction
    }

    pub(super) fn has_idle_leftovers(&self) -> bool {
        self.all.values().any(|state| state.is_quiescing && state.is_idle())
    }

    /// Updates the levels from the objects, and returns the schemas to match requests against.
    pub(super) fn digest(&mut self, fed: &FlowObjects) -> Config {
        self.remove_unused_levels(fed);
        for (name, priority) in &fed.levels {
            self.set(name, priority);
        }
        for name in [EXEMPT, CATCH_ALL] {
            if !self.all.contains_key(name)
                && let Some(priority) = Priority::mandatory(name)
            {
                self.set(name, &priority);
            }
        }
        self.divide();
        self.schemas(fed)
    }

    /// Removes levels without an object, or drains them first if they are busy. Keeps the mandatory ones.
    fn remove_unused_levels(&mut self, fed: &FlowObjects) {
        self.all.retain(|name, state| {
            let is_wanted = fed.levels.contains_key(name) || name == EXEMPT || name == CATCH_ALL;
            state.is_quiescing = !is_wanted;
            is_wanted || !state.is_idle()
        });
    }

    fn set(&mut self, name: &str, priority: &Priority) {
        if let Some(state) = self.all.get_mut(name) {
            state.priority = priority.clone();
            return;
        }
        match Level::new(self.clock.clone(), priority.queuing, 0) {
            Ok(level) => {
                let state = LevelState {
                    level,
                    priority: priority.clone(),
                    retry_after: Arc::default(),
                    is_quiescing: false,
                    limits: LevelLimits::default(),
                    demand: DemandStats::default(),
                    adjusted: Adjusted::default(),
                };
                self.all.insert(name.to_owned(), state);
            }
            Err(why) => tracing::warn!(level = name, %why, "ignoring a priority level"),
        }
    }

    /// Divides the server's seats by shares, then by demand.
    fn divide(&mut self) {
        let shares: Vec<_> = self.all.values().map(|state| state.priority.shares).collect();
        let limits = nominal_limits(self.seats, &shares);
        for (state, limits) in self.all.values_mut().zip(limits) {
            if state.limits == LevelLimits::default() {
                state.adjusted.current = limits.initial();
            }
            state.limits = limits;
        }
        self.adjust();
    }

    /// Moves seats between levels according to their demand.
    pub(super) fn adjust(&mut self) {
        for state in self.all.values_mut() {
            state.demand.update(&state.level.take_demand());
        }
        let bids: Vec<_> = self.all.values().map(LevelState::allocation_input).collect();
        let (adjusted, fair_fraction) = adjust(&bids);
        self.fair_fraction = fair_fraction;
        for ((name, state), adjusted) in self.all.iter_mut().zip(adjusted) {
            state.adjusted = adjusted;
            let denominator = match adjusted.current {
                0 => (self.seats as f64 / 10.0).round().max(1.0) as u64,
                current => current,
            };
            if let Err(why) = state.level.configure(state.priority.queuing, adjusted.current, denominator) {
                tracing::warn!(level = name, %why, "keeping the queues of a priority level");
            }
        }
    }

    fn schemas(&mut self, fed: &FlowObjects) -> Config {
        let active: BTreeMap<&str, Arc<ActiveLevel>> = self
            .all
            .iter()
            .filter(|(_, state)| !state.is_quiescing)
            .map(|(name, state)| (name.as_str(), Arc::new(state.active())))
            .collect();
        let mut schemas: Vec<ActiveSchema> = Vec::new();
        for schema in fed.schemas.values() {
            // A schema whose level does not exist is ignored.
            let level = active.get(schema.level.as_str()).filter(|_| fed.levels.contains_key(&schema.level));
            if let Some(level) = level {
                schemas.push(activate(schema, level, &mut self.stats));
            }
        }
        schemas.sort_by(|one, other| (one.precedence, &one.name).cmp(&(other.precedence, &other.name)));
        let mut missing = |name: &str| {
            let is_there = schemas.iter().any(|schema| &*schema.name == name);
            let schema = Schema::mandatory(name).filter(|_| !is_there)?;
            Some(activate(&schema, active.get(schema.level.as_str())?, &mut self.stats))
        };
        let (exempt, catch_all) = (missing(EXEMPT), missing(CATCH_ALL));
        schemas.splice(0..0, exempt);
        schemas.extend(catch_all);
        self.forget_stats(&schemas);
        Config { schemas, limits: self.limits() }
    }

    fn limits(&self) -> Limits {
        let waiting = |state: &LevelState| match state.priority.queuing {
            Queuing::Queue { queues, length_limit, .. } => queues.saturating_mul(length_limit) as u64,
            Queuing::Exempt | Queuing::Reject => 0,
        };
        let executing = self.all.values().map(|state| state.limits.nominal).sum();
        Limits { executing, waiting: self.all.values().map(waiting).sum() }
    }

    fn forget_stats(&mut self, schemas: &[ActiveSchema]) {
        if self.stats.len() > KEPT_STATS {
            let in_use =
                |stats: &Arc<FlowStats>| schemas.iter().any(|schema| Arc::ptr_eq(&schema.stats, stats));
            self.stats.retain(|_, stats| in_use(stats));
        }
    }
}

fn activate(schema: &Schema, level: &Arc<ActiveLevel>, stats: &mut FlowStatsMap) -> ActiveSchema {
    let name: Arc<str> = schema.name.as_str().into();
    let stats = stats.entry((schema.level.as_str().into(), name.clone())).or_default().clone();
    ActiveSchema {
        name,
        uid: schema.uid.clone(),
        distinguisher: schema.distinguisher,
        level: level.clone(),
        stats,
        precedence: schema.precedence,
        rules: schema.rules.clone(),
    }
}

impl LevelState {
    pub(crate) fn is_idle(&self) -> bool {
        self.level.with(|set, _| set.is_idle())
    }

    fn allocation_input(&self) -> (LevelLimits, DemandStats, bool, u64) {
        let is_exempt = self.priority.queuing == Queuing::Exempt;
        (self.limits, self.demand, is_exempt, self.adjusted.current)
    }

    fn active(&self) -> ActiveLevel {
        let queuing = self.priority.queuing;
        ActiveLevel {
            uid: self.priority.uid.clone(),
            level: self.level.clone(),
            queuing,
            max_seats: match queuing {
                Queuing::Queue { hand_size, .. } => Some(max_seats(self.limits.nominal, hand_size)),
                Queuing::Exempt | Queuing::Reject => None,
            },
            retry_after: self.retry_after.clone(),
        }
    }
}
