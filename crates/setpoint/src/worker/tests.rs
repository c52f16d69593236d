use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Metrics;
use crate::{Controller, Key, Rng, Runnable, Runtime};

type Behaviour = Box<dyn Fn(u32) -> Result<Outcome, ReconcileError> + Send + Sync>;

/// Runs a scripted behaviour for the n-th reconcile of each key, and records when it ran.
struct Scripted {
    clock: Clock,
    behaviours: BTreeMap<&'static str, Behaviour>,
    calls: Arc<Mutex<Vec<(String, u64)>>>,
    slow: Duration,
}

impl Reconciler for Scripted {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let millis = (self.clock.now().as_millisecond() - 1_735_689_600_000) as u64;
        let nth = {
            let mut calls = self.calls.lock();
            calls.push((key.name().to_owned(), millis));
            calls.iter().filter(|(name, _)| name == key.name()).count() as u32
        };
        self.clock.sleep(self.slow).await;
        self.behaviours[key.name()](nth)
    }
}

struct World {
    queue: Queue<Key>,
    calls: Arc<Mutex<Vec<(String, u64)>>>,
    metrics: Metrics,
    clock: Clock,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn world(
    behaviours: Vec<(&'static str, Behaviour)>,
    slow: Duration,
    configure: impl FnOnce(Controller) -> Controller,
) -> World {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::new("test", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    behaviours.iter().for_each(|(name, _)| queue.add(Key::cluster(*name)));
    let calls = Arc::<Mutex<Vec<_>>>::default();
    let behaviours = behaviours.into_iter().collect();
    let scripted = Scripted { clock: clock.clone(), behaviours, calls: calls.clone(), slow };
    let mut controller = configure(Controller::new("test", queue.clone(), scripted));
    let metrics = Metrics::new();
    controller.observe(&metrics);
    let stop = CancellationToken::new();
    let task = tokio::spawn(Box::new(controller).run(stop.clone()));
    World { queue, calls, metrics, clock, stop, task }
}

impl World {
    /// Returns when each call was made, in milliseconds, after waiting for `time`.
    async fn after(&self, time: Duration) -> Vec<u64> {
        self.clock.sleep(time).await;
        self.calls.lock().iter().map(|(_, millis)| *millis).collect()
    }

    fn shows(&self, line: &str) {
        let text = self.metrics.encode();
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

fn one(behaviour: impl Fn(u32) -> Result<Outcome, ReconcileError> + Send + Sync + 'static) -> World {
    world(vec![("a", Box::new(behaviour))], Duration::ZERO, |controller| controller)
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_settled_key_is_left_alone() {
    let world = one(|_| Ok(Outcome::Settled));
    assert_eq!(world.after(HOUR).await, [0]);
    world.shows(r#"controller_runtime_reconcile_total{controller="test",result="success"} 1"#);
}

#[tokio::test(start_paused = true)]
async fn check_after_resets_the_failures_of_a_key() {
    let world = one(|nth| match nth {
        1 | 2 | 4 => Err(ReconcileError::retry("try")),
        3 => Ok(Outcome::CheckAfter(Duration::from_secs(60))),
        _ => Ok(Outcome::Settled),
    });
    assert_eq!(world.after(HOUR).await, [0, 0, 1_000, 61_000, 61_000]);
    assert_eq!(world.queue.states(), BTreeMap::new());
    world.shows(r#"controller_runtime_reconcile_total{controller="test",result="requeue_after"} 1"#);
    world.shows(r#"controller_runtime_reconcile_errors_total{controller="test"} 3"#);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_is_retried_with_growing_delays_and_logged() {
    let world = one(|_| Err(ReconcileError::retry("reach the moon")));
    assert_eq!(world.after(Duration::from_secs(10)).await, [0, 0, 1_000, 3_000, 7_000]);
    let state = world.queue.state(&Key::cluster("a"));
    assert_eq!((state.retries, state.last_error.as_deref()), (5, Some("reach the moon")));
    assert!(state.delayed_until.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_retried_soon() {
    let world =
        one(|nth| if nth < 4 { Err(ReconcileError::conflict("write")) } else { Ok(Outcome::Settled) });
    assert_eq!(world.after(HOUR).await, [0, 10, 30, 70]);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_backs_off_without_counting_as_an_error() {
    let world = one(|nth| if nth < 3 { Ok(Outcome::Requeue) } else { Ok(Outcome::Settled) });
    assert_eq!(world.after(HOUR).await, [0, 0, 1_000]);
    world.shows(r#"controller_runtime_reconcile_total{controller="test",result="requeue"} 2"#);
    world.shows(r#"controller_runtime_reconcile_errors_total{controller="test"} 0"#);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_waits_for_a_change_and_stays_visible() {
    let world = one(|_| Err(ReconcileError::terminal("read a bad spec")));
    assert_eq!(world.after(HOUR).await, [0]);
    world.shows(r#"controller_runtime_terminal_reconcile_errors_total{controller="test"} 1"#);
    assert_eq!(world.queue.state(&Key::cluster("a")).last_error.as_deref(), Some("read a bad spec"));
    world.queue.add(Key::cluster("a"));
    assert_eq!(world.after(HOUR).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_persistent_controller_retries_terminal_errors_too() {
    let terminal: Behaviour = Box::new(|_| Err(ReconcileError::terminal("create over quota")));
    let world = world(vec![("a", terminal)], Duration::ZERO, Controller::persistent);
    assert_eq!(world.after(Duration::from_secs(5)).await, [0, 0, 1_000, 3_000]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_keeps_failing_is_given_up_after_its_last_retry() {
    let failing: Behaviour = Box::new(|_| Err(ReconcileError::retry("try")));
    let world = world(vec![("a", failing)], Duration::ZERO, |controller| controller.max_retries(2));
    assert_eq!(world.after(HOUR).await, [0, 0, 1_000]);
    assert_eq!(world.queue.state(&Key::cluster("a")).retries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_recovered_and_retried() {
    let panicking: Behaviour = Box::new(|nth| match nth {
        1 => panic!("of {}", "fear"),
        _ => Ok(Outcome::Settled),
    });
    let calm: Behaviour = Box::new(|_| Ok(Outcome::Settled));
    let world = world(vec![("a", panicking), ("b", calm)], Duration::ZERO, |controller| controller);
    world.clock.sleep(HOUR).await;
    let names: Vec<_> = world.calls.lock().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["a", "b", "a"]);
    world.shows(r#"controller_runtime_reconcile_panics_total{controller="test"} 1"#);
    world.shows(r#"controller_runtime_active_workers{controller="test"} 0"#);
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_times_out_is_cancelled_and_retried() {
    let slow = Duration::from_secs(20);
    let settled: Behaviour = Box::new(|_| Ok(Outcome::Settled));
    let world = world(vec![("a", settled)], slow, |controller| controller.timeout(Duration::from_secs(5)));
    assert_eq!(world.after(Duration::from_secs(12)).await, [0, 5_000, 11_000]);
    assert_eq!(world.queue.state(&Key::cluster("a")).last_error.as_deref(), Some("not finished within 5s"));
    world.shows(r#"controller_runtime_reconcile_timeouts_total{controller="test"} 2"#);
}

fn settling(names: [&'static str; 4]) -> Vec<(&'static str, Behaviour)> {
    names.map(|name| -> (_, Behaviour) { (name, Box::new(|_| Ok(Outcome::Settled))) }).into()
}

#[tokio::test(start_paused = true)]
async fn several_workers_work_at_once() {
    let names = ["a", "b", "c", "d"];
    let world = world(settling(names), Duration::from_secs(1), |controller| controller.workers(3));
    assert_eq!(world.after(Duration::from_millis(500)).await, [0, 0, 0]);
    world.shows(r#"controller_runtime_active_workers{controller="test"} 3"#);
    world.shows(r#"workqueue_depth{controller="test",name="test"} 1"#);
    assert_eq!(world.after(HOUR).await, [0, 0, 0, 1_000]);
}

#[tokio::test(start_paused = true)]
async fn stopping_drains_the_queue() {
    let world = world(settling(["a", "b", "c", "d"]), Duration::from_secs(1), |controller| controller);
    world.clock.sleep(Duration::from_millis(10)).await;
    world.stop.cancel();
    world.task.await.expect("no panic");
    assert_eq!(world.calls.lock().len(), 4);
    assert_eq!(world.clock.now().to_string(), "2025-01-01T00:00:04Z");
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_bounded() {
    let drain = Duration::from_secs(7);
    let mut world = world(settling(["a", "b", "c", "d"]), HOUR, |controller| controller.drain_within(drain));
    world.clock.sleep(Duration::from_secs(1)).await;
    world.stop.cancel();
    (&mut world.task).await.expect("no panic");
    assert_eq!(world.clock.now().to_string(), "2025-01-01T00:00:08Z");
    assert_eq!(world.after(HOUR).await.len(), 1, "no background work remains");
}

/// Finds nothing to do, ten thousand times.
struct Idle(Arc<AtomicU64>);

impl Reconciler for Idle {
    type Key = u64;

    async fn reconcile(&self, _: &u64) -> Result<Outcome, ReconcileError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Settled)
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_yields_to_other_tasks() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::new("idle", &Runtime { clock, rng: Rng::seeded(1) });
    (0..10_000).for_each(|key| queue.add(key));
    let worked = Arc::new(AtomicU64::new(0));
    let controller = Controller::new("idle", queue.clone(), Idle(worked.clone()));
    tokio::spawn(Box::new(controller).run(CancellationToken::new()));
    while worked.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(worked.load(Ordering::Relaxed) < 1_000);
}

#[tokio::test(start_paused = true)]
async fn failures_recoveries_and_dropped_keys_are_counted_by_kind() {
    let flaky: Behaviour = Box::new(|nth| match nth {
        1 => Err(ReconcileError::retry("try")),
        2 | 3 => Err(ReconcileError::conflict("write")),
        _ => Ok(Outcome::Settled),
    });
    let hopeless: Behaviour = Box::new(|_| Err(ReconcileError::terminal("read a bad spec")));
    let world = world(vec![("a", flaky), ("b", hopeless)], Duration::ZERO, |controller| controller);
    world.after(HOUR).await;
    for (kind, count) in [("conflict", 2), ("retry", 1), ("terminal", 1)] {
        let labels = format!(r#"{{controller="test",type="{kind}"}}"#);
        world.shows(&format!("controller_reconcile_error_types_total{labels} {count}"));
    }
    world.shows(r#"controller_retry_successes_total{controller="test"} 1"#);
    world.shows(r#"controller_retry_duration_seconds_sum{controller="test"} 0.03"#);
    world.shows(r#"controller_reconcile_given_up_total{controller="test"} 1"#);
}

/// Collects the fields of every reconcile span.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Spans {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().push(format!("{}={value:?}", field.name()));
    }

    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.0.lock().push(format!("{}={value}", field.name()));
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "reconcile"
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        attributes.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_a_span_with_its_controller_object_and_trigger() {
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(spans.clone());
    let world = one(|nth| if nth == 1 { Err(ReconcileError::retry("try")) } else { Ok(Outcome::Settled) });
    world.after(HOUR).await;
    let first = ["controller=test", "object=a", "id=0", "trigger=asked"];
    let second = ["controller=test", "object=a", "id=1", "trigger=retry"];
    assert_eq!(*spans.0.lock(), [first, second].concat());
}
