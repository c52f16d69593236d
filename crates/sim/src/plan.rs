//! Tests a scenario with every possible fault, one after the other.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use setpoint::Rng;
use setpoint_cluster::Components;

use crate::faults::{Fault, OnCall, OnEvent};
use crate::graph::{Counts, Graph, History};
use crate::snapshot::Snapshot;
use crate::world::World;

/// How long a stale cache stays stale.
const STALE_FOR: Duration = Duration::from_secs(60);

/// How long a run continues after the script, so that late failures have a chance to happen.
const TRAILING_TIME: Duration = Duration::from_secs(120);

/// After a storm, keys may wait for up to a quarter of an hour.
const AFTER_STORM: Duration = Duration::from_secs(1200);

/// How many single faults a bounded search tries. A few long scenarios have more, and took a third of the time of all.
const BOUNDED_FAULTS: usize = 60;

/// How many storms a search ends with, and the percentage of calls that fail in them.
const STORMS: u64 = 2;
const STORM_FAILURE_PERCENT: u64 = 30;

/// The actions of a user, and an invariant.
pub struct Scenario {
    pub name: &'static str,
    pub parts: Components,
    /// The initial objects. `None`: those of a new cluster.
    pub start: Option<Snapshot>,
    /// The user's actions. Each waits until the cluster has reacted.
    pub script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
    /// The invariant that must hold after every change.
    pub always: fn(&History) -> Result<(), String>,
}

/// The seed and the faults of a run. Together with the scenario, they determine it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub faults: Vec<Fault>,
}

/// The result of a run.
pub struct Ending {
    graph: Graph,
    counts: Counts,
    writes: usize,
    events: usize,
    trace: String,
}

/// A plan that failed.
pub struct Failure {
    pub scenario: &'static str,
    pub plan: Plan,
    pub why: String,
}

/// The coverage of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub plans: usize,
    pub writes: usize,
    pub events: usize,
}

/// How many single faults a search tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Every write × crash before and after, and every event × hidden and stale.
    Exhaustive,
    /// A crash between any two writes, and every event once: hidden or stale, in turn. A crash before a write leaves the
    /// same objects as a crash after the previous write. If these are more than 60 faults, 60 of them, evenly spread.
    Bounded,
}

impl Depth {
    /// [`Exhaustive`](Self::Exhaustive) if `SETPOINT_SIM_EXHAUSTIVE` is set, so that the regular tests can also run the
    /// long searches.
    pub fn from_env() -> Self {
        if std::env::var_os("SETPOINT_SIM_EXHAUSTIVE").is_some() { Self::Exhaustive } else { Self::Bounded }
    }

    fn at_write(self, nth: usize) -> &'static [OnCall] {
        if self == Self::Exhaustive || nth == 0 {
            &[OnCall::CrashBefore, OnCall::CrashAfter]
        } else {
            &[OnCall::CrashAfter]
        }
    }

    fn at_event(self, nth: usize) -> &'static [OnEvent] {
        const BOTH: &[OnEvent] = &[OnEvent::Hide, OnEvent::Delay(STALE_FOR)];
        if self == Self::Exhaustive { BOTH } else { std::slice::from_ref(&BOTH[nth % BOTH.len()]) }
    }
}

impl Report {
    /// Returns the faults that can happen on their own in a run like this one, as many as the depth allows.
    pub fn single_faults(&self, depth: Depth) -> Vec<Fault> {
        let on_write = |nth| depth.at_write(nth).iter().map(move |&what| Fault::Call { nth, what });
        let on_event = |nth| depth.at_event(nth).iter().map(move |&what| Fault::Event { nth, what });
        let all: Vec<_> =
            (0..self.writes).flat_map(on_write).chain((0..self.events).flat_map(on_event)).collect();
        let tried = if depth == Depth::Exhaustive { all.len() } else { all.len().min(BOUNDED_FAULTS) };
        (0..tried).map(|nth| all[nth * all.len() / tried]).collect()
    }
}

impl Scenario {
    /// Runs a plan. Equal plans give equal traces.
    fn run(&self, plan: &Plan) -> Result<Ending, String> {
        let disturbed = || {
            self.simulate(plan.seed, plan.faults.clone(), async |world| {
                (self.script)(world).await;
                if plan.is_storm() {
                    world.faults().calm();
                    world.pass(AFTER_STORM).await;
                }
                world.pass(TRAILING_TIME).await;
                (self.always)(&world.history())?;
                let (writes, events) = world.faults().seen();
                let trace = world.trace().text();
                Ok(Ending { graph: world.graph().await, counts: world.counts(), writes, events, trace })
            })
        };
        catch_unwind(AssertUnwindSafe(disturbed)).unwrap_or_else(|panic| Err(message(&panic)))
    }

    fn simulate<T>(&self, seed: u64, faults: Vec<Fault>, inside: impl AsyncFnOnce(&World) -> T) -> T {
        match &self.start {
            Some(start) => World::simulate_from(start, seed, self.parts.clone(), faults, inside),
            None => World::simulate(seed, self.parts.clone(), faults, inside),
        }
    }

    /// Checks that a manager that restarts in a steady state writes nothing.
    fn check_idempotent(&self, seed: u64) -> Result<(), String> {
        let restarted = || {
            self.simulate(seed, Vec::new(), async |world| {
                (self.script)(world).await;
                world.pass(TRAILING_TIME).await;
                let before = world.trace().writes().len();
                world.restart().await;
                world.pass(TRAILING_TIME).await;
                // Simulated nodes restart too, and update their objects.
                let is_nodes = |write: &String| self.parts.nodes > 0 && write.contains(" /api/v1/nodes");
                world.trace().writes().into_iter().skip(before).filter(|write| !is_nodes(write)).collect()
            })
        };
        let made: Vec<String> = catch_unwind(AssertUnwindSafe(restarted)).map_err(|panic| message(&panic))?;
        if made.is_empty() { Ok(()) } else { Err(format!("a restart at rest writes:\n{}", made.join("\n"))) }
    }

    /// Returns the trace of a plan, for comparing two runs of it.
    pub fn trace(&self, plan: &Plan) -> Result<String, Failure> {
        self.run(plan).map(|ending| ending.trace).map_err(|why| self.failure(plan, why))
    }

    fn failure(&self, plan: &Plan, why: String) -> Failure {
        Failure { scenario: self.name, plan: plan.clone(), why }
    }

    fn check(&self, plan: &Plan, expected: &Ending) -> Result<(), Failure> {
        let ending = self.run(plan).map_err(|why| self.failure(plan, why))?;
        let difference = expected.graph.difference(&ending.graph);
        if !difference.is_empty() {
            return Err(self.failure(plan, format!("another object graph:\n{}", difference.join("\n"))));
        }
        if ending.counts != expected.counts {
            let why = format!(
                "other counts of creates and deletes: {:?} instead of {:?}",
                ending.counts, expected.counts
            );
            return Err(self.failure(plan, why));
        }
        Ok(())
    }
}

impl Ending {
    fn report(&self) -> Report {
        Report { plans: 1, writes: self.writes, events: self.events }
    }
}

impl Plan {
    fn is_storm(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Storm { .. }))
    }
}

/// Runs every write × crash before and after, and every event × hidden and stale, then `combinations` of two to four
/// faults drawn from the seed, then storms in which a third of all calls fail, then a restart in a steady state. The
/// first failure ends the search, and is reduced to the faults it needs.
pub fn check_all(scenario: &Scenario, seed: u64, combinations: usize) -> Result<Report, Failure> {
    check_at_depth(scenario, seed, combinations, Depth::Exhaustive)
}

/// Like [`check_all`], but with the single faults of a depth.
pub fn check_at_depth(
    scenario: &Scenario,
    seed: u64,
    combinations: usize,
    depth: Depth,
) -> Result<Report, Failure> {
    let expected = undisturbed(scenario, seed)?;
    let report = search(scenario, seed, &expected, combinations, depth)?;
    let storms =
        (1..=STORMS).map(|nth| vec![Fault::Storm { percent: STORM_FAILURE_PERCENT, seed: seed + nth }]);
    let stormy = check_against(scenario, seed, &expected, storms)?;
    let plan = Plan { seed, faults: Vec::new() };
    scenario.check_idempotent(seed).map_err(|why| scenario.failure(&plan, why))?;
    // The run without faults counts once, and includes the restart.
    Ok(Report { plans: report.plans + stormy.plans, ..report })
}

/// Runs the scenario with each of these sets of faults, and expects the same result as without faults.
pub fn check_faults(
    scenario: &Scenario,
    seed: u64,
    plans: impl IntoIterator<Item = Vec<Fault>>,
) -> Result<Report, Failure> {
    let expected = undisturbed(scenario, seed)?;
    check_against(scenario, seed, &expected, plans)
}

/// Runs a scenario without faults. All other runs are compared with its result.
fn undisturbed(scenario: &Scenario, seed: u64) -> Result<Ending, Failure> {
    let plan = Plan { seed, faults: Vec::new() };
    scenario.run(&plan).map_err(|why| scenario.failure(&plan, why))
}

/// Runs the single faults and combinations of [`check_at_depth`], and also a run without faults, and compares each with an
/// existing result.
fn search(
    scenario: &Scenario,
    seed: u64,
    expected: &Ending,
    combinations: usize,
    depth: Depth,
) -> Result<Report, Failure> {
    let singles = expected.report().single_faults(depth);
    let rng = Rng::seeded(seed);
    let combined: Vec<_> = (0..combinations).map(|_| combination(&rng, &singles)).collect();
    let disturbed = singles.into_iter().map(|fault| vec![fault]).chain(combined);
    check_against(scenario, seed, expected, std::iter::once(Vec::new()).chain(disturbed))
}

/// Runs these sets of faults. The first failure ends it, and is reduced to the faults it needs.
fn check_against(
    scenario: &Scenario,
    seed: u64,
    expected: &Ending,
    plans: impl IntoIterator<Item = Vec<Fault>>,
) -> Result<Report, Failure> {
    let mut report = expected.report();
    for faults in plans {
        let plan = Plan { seed, faults };
        scenario.check(&plan, expected).map_err(|failure| shrink(scenario, expected, failure))?;
        report.plans += 1;
    }
    Ok(report)
}

fn combination(rng: &Rng, singles: &[Fault]) -> Vec<Fault> {
    let size = 2 + rng.below(3) as usize;
    (0..size).map(|_| singles[rng.below(singles.len() as u64) as usize]).collect()
}

/// Removes faults one by one as long as the plan still fails.
fn shrink(scenario: &Scenario, expected: &Ending, mut failure: Failure) -> Failure {
    let mut at = 0;
    while at < failure.plan.faults.len() && failure.plan.faults.len() > 1 {
        let mut smaller = failure.plan.clone();
        smaller.faults.remove(at);
        match scenario.check(&smaller, expected) {
            Err(simpler) => failure = simpler,
            Ok(()) => at += 1,
        }
    }
    failure
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
    format!("panicked: {}", text.unwrap_or("with something that is not text"))
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} fails with seed {} and faults {:?}",
            self.scenario, self.plan.seed, self.plan.faults
        )?;
        f.write_str(&self.why)
    }
}
