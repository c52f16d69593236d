//! Tests the queue against a model too simple to be wrong: a list of ready keys, a set of keys being processed and a
//! list of delays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use setpoint_clock::Instant;

use super::*;
use crate::Rng;

#[derive(Clone, Debug)]
enum Step {
    Add(u8, Priority),
    AddAfter(u8, u64),
    AddAfterWithPriority(u8, u64, Priority),
    Debounce(u8, u64, u64),
    CancelDelay(u8),
    Cancel(u8),
    Take,
    Done(u8),
    Wait(u64),
    ShutDown,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6u8;
    prop_oneof![
        6 => (key.clone(), priority()).prop_map(|(key, priority)| Step::Add(key, priority)),
        4 => (key.clone(), 0..50u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        2 => (key.clone(), 0..50u64, priority())
            .prop_map(|(key, delay, priority)| Step::AddAfterWithPriority(key, delay, priority)),
        2 => (key.clone(), 1..20u64, 1..40u64).prop_map(|(key, quiet, most)| Step::Debounce(key, quiet, most)),
        1 => key.clone().prop_map(Step::CancelDelay),
        1 => key.clone().prop_map(Step::Cancel),
        6 => Just(Step::Take),
        6 => key.prop_map(Step::Done),
        2 => (0..30u64).prop_map(Step::Wait),
        1 => Just(Step::ShutDown),
    ]
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![
        1 => Just(Priority::Low),
        3 => Just(Priority::Normal),
        1 => Just(Priority::High),
        1 => (-3..3i32).prop_map(Priority::new),
    ]
}

#[derive(Default)]
struct Model {
    strict: bool,
    /// In the order they were added.
    ready: Vec<(u8, Priority)>,
    passed: u32,
    again: BTreeMap<u8, Priority>,
    /// With the priority they were taken with.
    working: BTreeMap<u8, Priority>,
    delays: BTreeMap<u8, Delay>,
    asked: usize,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Delay {
    due: Instant,
    asked: usize,
    since: Instant,
    priority: Priority,
}

impl Model {
    fn add(&mut self, key: u8, priority: Priority) {
        if self.stopped {
        } else if self.working.contains_key(&key) {
            let again = self.again.entry(key).or_insert(priority);
            *again = priority.max(*again);
        } else if self.ready.iter().all(|(waiting, known)| *waiting != key || *known < priority) {
            self.ready.retain(|(waiting, _)| *waiting != key);
            self.ready.push((key, priority));
        }
    }

    /// Returns the priority of a key that is added without one.
    fn kept(&self, key: u8) -> Priority {
        let kept = self.working.get(&key).copied().unwrap_or_default();
        if self.strict { kept } else { kept.max(Priority::Normal) }
    }

    fn add_after(&mut self, key: u8, now: Instant, due: Instant, priority: Priority) {
        if !self.stopped && self.delays.get(&key).is_none_or(|known| due < known.due) {
            self.set_delay(key, now, due, priority);
        }
    }

    fn debounce(&mut self, key: u8, now: Instant, (quiet, at_most): (Duration, Duration)) {
        let since = self.delays.get(&key).map_or(now, |known| known.since);
        if !self.stopped {
            self.set_delay(key, now, (now + quiet).min(since + at_most), self.kept(key));
        }
    }

    fn set_delay(&mut self, key: u8, now: Instant, due: Instant, priority: Priority) {
        self.asked += 1;
        let known = self.delays.get(&key);
        let since = known.map_or(now, |known| known.since);
        let priority = known.map_or(priority, |known| known.priority.max(priority));
        self.delays.insert(key, Delay { due, asked: self.asked, since, priority });
    }

    fn catch_up(&mut self, now: Instant) {
        let due = self.delays.iter().filter(|(_, delay)| delay.due <= now);
        let mut due: Vec<_> =
            due.map(|(key, delay)| (delay.due, delay.asked, *key, delay.priority)).collect();
        due.sort();
        for (_, _, key, priority) in due {
            self.delays.remove(&key);
            self.add(key, priority);
        }
    }

    fn take(&mut self) -> Option<u8> {
        let highest = self.ready.iter().map(|(_, priority)| *priority).max()?;
        let mut chosen = self.ready.iter().position(|(_, priority)| *priority == highest)?;
        if !self.strict && self.ready.iter().any(|(_, priority)| *priority < highest) {
            self.passed += 1;
        }
        if self.passed > ready::MAX_PASSED_OVER {
            (self.passed, chosen) = (0, 0);
        }
        let (key, priority) = self.ready.remove(chosen);
        self.rest();
        self.working.insert(key, priority);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        if self.working.remove(&key).is_some()
            && let Some(priority) = self.again.remove(&key)
        {
            self.ready.push((key, priority));
        }
    }

    fn cancel(&mut self, key: u8) -> bool {
        let waited = self.ready.len();
        self.ready.retain(|(waiting, _)| *waiting != key);
        let cancelled = self.ready.len() < waited;
        if cancelled {
            self.rest();
        }
        let delay = self.delays.remove(&key).is_some();
        self.again.remove(&key).is_some() || delay || cancelled
    }

    /// An empty queue has passed over no key.
    fn rest(&mut self) {
        if self.ready.is_empty() {
            self.passed = 0;
        }
    }

    fn shut_down(&mut self) {
        self.stopped = true;
        self.delays.clear();
    }

    fn states(&self) -> BTreeMap<u8, KeyState> {
        let mut states = BTreeMap::<u8, KeyState>::new();
        let mut ready = self.ready.clone();
        ready.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
        for (position, (key, priority)) in ready.into_iter().enumerate() {
            let position = Some(position);
            states.insert(key, KeyState { queued: true, position, priority, ..KeyState::default() });
        }
        for (key, priority) in &self.again {
            states.insert(*key, KeyState { queued: true, priority: *priority, ..KeyState::default() });
        }
        for key in self.working.keys() {
            states.entry(*key).or_default().processing = true;
        }
        for (key, delay) in &self.delays {
            states.entry(*key).or_default().delayed_until = Some(delay.due);
        }
        states
    }
}

/// Returns what a taker gets now: a key, the end, or nothing yet.
fn take_now(queue: &Queue<u8>) -> Option<Option<u8>> {
    use futures::FutureExt;
    queue.take().now_or_never()
}

async fn run(steps: Vec<Step>, strict: bool) {
    let runtime = Runtime {
        clock: Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time")),
        rng: Rng::seeded(1),
    };
    let queue = Queue::<u8>::new("model", &runtime);
    let queue = if strict { queue.strict() } else { queue };
    let mut model = Model { strict, ..Model::default() };
    for step in steps {
        let now = runtime.clock.instant();
        model.catch_up(now);
        match step {
            Step::Add(key, priority) => {
                queue.add_with_priority(key, priority);
                model.add(key, priority);
            }
            Step::AddAfter(key, 0) => {
                queue.add_after(key, Duration::ZERO);
                model.add(key, model.kept(key));
            }
            Step::AddAfter(key, delay) => {
                let delay = Duration::from_millis(delay);
                queue.add_after(key, delay);
                model.add_after(key, now, now + delay, model.kept(key));
            }
            Step::AddAfterWithPriority(key, 0, priority) => {
                queue.add_after_with_priority(key, Duration::ZERO, priority);
                model.add(key, priority);
            }
            Step::AddAfterWithPriority(key, delay, priority) => {
                let delay = Duration::from_millis(delay);
                queue.len(); // what is due is no longer delayed
                queue.add_after_with_priority(key, delay, priority);
                model.add_after(key, now, now + delay, priority);
            }
            Step::Debounce(key, quiet, at_most) => {
                queue.len(); // what is due is no longer delayed
                let (quiet, at_most) = (Duration::from_millis(quiet), Duration::from_millis(at_most));
                queue.debounce(key, quiet, at_most);
                model.debounce(key, now, (quiet, at_most));
            }
            Step::CancelDelay(key) => {
                queue.len(); // what is due is no longer delayed
                assert_eq!(queue.cancel_delay(&key), model.delays.remove(&key).is_some());
            }
            Step::Cancel(key) => assert_eq!(queue.cancel(&key), model.cancel(key)),
            Step::Take => {
                let expected = model.take();
                let taken = take_now(&queue);
                assert_eq!(taken, expected.map(Some).or(model.stopped.then_some(None)));
            }
            Step::Done(key) => {
                queue.done(&key);
                model.done(key);
            }
            Step::Wait(delay) => tokio::time::advance(Duration::from_millis(delay)).await,
            Step::ShutDown => {
                queue.len();
                queue.shut_down();
                model.shut_down();
            }
        }
        model.catch_up(runtime.clock.instant());
        assert_eq!(queue.len(), model.ready.len());
        assert_eq!(queue.states(), model.states());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_queue_matches_the_model(
        steps in prop::collection::vec(step(), 1..120),
        strict in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(steps, strict));
    }

    /// Workers come, go and fail at random. Everything that was added is processed afterwards.
    #[test]
    fn no_key_is_lost_among_workers(
        adds in prop::collection::vec((0..5u8, 0..40u64, 0..20u64), 1..60),
        workers in 1..4usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(work_through(adds, workers));
    }
}

async fn work_through(adds: Vec<(u8, u64, u64)>, workers: usize) {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::<u8>::new("workers", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    let worked = Arc::new(Mutex::new(BTreeMap::<u8, Instant>::new()));
    let busy = Arc::new(Mutex::new(BTreeSet::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let (queue, worked, busy, clock) = (queue.clone(), worked.clone(), busy.clone(), clock.clone());
        tasks.spawn(async move {
            loop {
                // A taker that gives up must not lose a wake-up.
                let Ok(taken) = tokio::time::timeout(Duration::from_millis(7), queue.take()).await else {
                    continue;
                };
                let Some(key) = taken else { return };
                assert!(busy.lock().insert(key), "{key} is processed twice at once");
                worked.lock().insert(key, clock.instant());
                clock.sleep(Duration::from_millis(3)).await;
                busy.lock().remove(&key);
                queue.done(&key);
            }
        });
    }
    let mut wanted = BTreeMap::new();
    for (key, delay, pause) in adds {
        let delay = Duration::from_millis(delay);
        queue.add_after(key, delay);
        let due = clock.instant() + delay;
        let last = wanted.entry(key).or_insert(due);
        *last = due.max(*last);
        clock.sleep(Duration::from_millis(pause)).await;
    }
    clock.sleep(Duration::from_secs(1)).await;
    queue.shut_down_with_drain().await;
    while let Some(result) = tasks.join_next().await {
        result.expect("no panic");
    }
    for (key, added) in &wanted {
        // The earliest of several delays wins, so an earlier pending delay may have served the last add. Either way,
        // the key is processed after it was added.
        let worked = worked.lock().get(key).copied();
        assert!(worked.is_some_and(|at| at + Duration::from_millis(40) >= *added), "{key} was lost");
    }
    assert_eq!(queue.states(), BTreeMap::new());
}
