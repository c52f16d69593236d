//! The queue against a model too simple to be wrong: a set of keys that want work, a set of keys that
//! are worked on, and a list of delays.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use setpoint_clock::Instant;

use super::*;
use crate::Rng;

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    Cancel(u8),
    Take,
    Done(u8),
    Wait(u64),
    ShutDown,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6u8;
    prop_oneof![
        6 => key.clone().prop_map(Step::Add),
        4 => (key.clone(), 0..50u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        1 => key.clone().prop_map(Step::Cancel),
        6 => Just(Step::Take),
        6 => key.prop_map(Step::Done),
        2 => (0..30u64).prop_map(Step::Wait),
        1 => Just(Step::ShutDown),
    ]
}

#[derive(Default)]
struct Model {
    ready: Vec<u8>,
    again: BTreeSet<u8>,
    working: BTreeSet<u8>,
    delays: BTreeMap<u8, (Instant, usize)>,
    asked: usize,
    stopped: bool,
}

impl Model {
    fn add(&mut self, key: u8) {
        if self.stopped {
        } else if self.working.contains(&key) {
            self.again.insert(key);
        } else if !self.ready.contains(&key) {
            self.ready.push(key);
        }
    }

    fn add_after(&mut self, key: u8, due: Instant) {
        self.asked += 1;
        if !self.stopped && self.delays.get(&key).is_none_or(|(earlier, _)| due < *earlier) {
            self.delays.insert(key, (due, self.asked));
        }
    }

    fn catch_up(&mut self, now: Instant) {
        let mut due: Vec<_> =
            self.delays.iter().filter(|(_, (due, _))| *due <= now).map(|(k, at)| (*at, *k)).collect();
        due.sort();
        for (_, key) in due {
            self.delays.remove(&key);
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<u8> {
        let key = (!self.ready.is_empty()).then(|| self.ready.remove(0))?;
        self.working.insert(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        if self.working.remove(&key) && self.again.remove(&key) {
            self.ready.push(key);
        }
    }

    fn shut_down(&mut self) {
        self.stopped = true;
        self.delays.clear();
    }

    fn states(&self) -> BTreeMap<u8, KeyState> {
        let mut states = BTreeMap::<u8, KeyState>::new();
        for key in self.ready.iter().chain(&self.again) {
            states.entry(*key).or_default().queued = true;
        }
        for key in &self.working {
            states.entry(*key).or_default().processing = true;
        }
        for (key, (due, _)) in &self.delays {
            states.entry(*key).or_default().delayed_until = Some(*due);
        }
        states
    }
}

/// What a taker gets now: a key, the end, or nothing yet.
fn take_now(queue: &Queue<u8>) -> Option<Option<u8>> {
    use futures::FutureExt;
    queue.take().now_or_never()
}

async fn run(steps: Vec<Step>) {
    let runtime = Runtime {
        clock: Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time")),
        rng: Rng::seeded(1),
    };
    let queue = Queue::<u8>::new("model", &runtime);
    let mut model = Model::default();
    for step in steps {
        let now = runtime.clock.instant();
        model.catch_up(now);
        match step {
            Step::Add(key) => {
                queue.add(key);
                model.add(key);
            }
            Step::AddAfter(key, 0) => {
                queue.add_after(key, Duration::ZERO);
                model.add(key);
            }
            Step::AddAfter(key, delay) => {
                let delay = Duration::from_millis(delay);
                queue.add_after(key, delay);
                model.add_after(key, now + delay);
            }
            Step::Cancel(key) => {
                queue.len(); // what is due is no longer delayed
                assert_eq!(queue.cancel_delay(&key), model.delays.remove(&key).is_some());
            }
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
    fn the_queue_does_what_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(run(steps));
    }

    /// Workers that come, go and fail at random: everything that was added is worked on afterwards.
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
                // A taker that gives up after a while must leave no gap behind.
                let Ok(taken) = tokio::time::timeout(Duration::from_millis(7), queue.take()).await else {
                    continue;
                };
                let Some(key) = taken else { return };
                assert!(busy.lock().insert(key), "{key} is worked on twice at once");
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
        // Of several delays the earliest counts, so the last add may have been met by an earlier one
        // that was still to come; whatever was added is met after it was asked for.
        let worked = worked.lock().get(key).copied();
        assert!(worked.is_some_and(|at| at + Duration::from_millis(40) >= *added), "{key} was lost");
    }
    assert_eq!(queue.states(), BTreeMap::new());
}
