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
    Add(u8, Priority),
    AddAfter(u8, u64),
    Debounce(u8, u64, u64),
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
        2 => (key.clone(), 1..20u64, 1..40u64).prop_map(|(key, quiet, most)| Step::Debounce(key, quiet, most)),
        1 => key.clone().prop_map(Step::Cancel),
        6 => Just(Step::Take),
        6 => key.prop_map(Step::Done),
        2 => (0..30u64).prop_map(Step::Wait),
        1 => Just(Step::ShutDown),
    ]
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![1 => Just(Priority::Low), 3 => Just(Priority::Normal), 1 => Just(Priority::High)]
}

#[derive(Default)]
struct Model {
    /// Lowest priority first.
    ready: [Vec<u8>; 3],
    passed: [u32; 3],
    again: BTreeMap<u8, Priority>,
    working: BTreeSet<u8>,
    delays: BTreeMap<u8, Delay>,
    asked: usize,
    stopped: bool,
}

#[derive(Clone, Copy)]
struct Delay {
    due: Instant,
    asked: usize,
    since: Instant,
}

impl Model {
    fn add(&mut self, key: u8, priority: Priority) {
        if self.stopped {
        } else if self.working.contains(&key) {
            let again = self.again.entry(key).or_insert(priority);
            *again = priority.max(*again);
        } else if self.ready[priority as usize..].iter().all(|level| !level.contains(&key)) {
            self.ready.iter_mut().for_each(|level| level.retain(|waiting| *waiting != key));
            self.ready[priority as usize].push(key);
        }
    }

    fn add_after(&mut self, key: u8, now: Instant, due: Instant) {
        if !self.stopped && self.delays.get(&key).is_none_or(|known| due < known.due) {
            self.put_off(key, now, due);
        }
    }

    fn debounce(&mut self, key: u8, now: Instant, (quiet, at_most): (Duration, Duration)) {
        let since = self.delays.get(&key).map_or(now, |known| known.since);
        if !self.stopped {
            self.put_off(key, now, (now + quiet).min(since + at_most));
        }
    }

    fn put_off(&mut self, key: u8, now: Instant, due: Instant) {
        self.asked += 1;
        let since = self.delays.get(&key).map_or(now, |known| known.since);
        self.delays.insert(key, Delay { due, asked: self.asked, since });
    }

    fn catch_up(&mut self, now: Instant) {
        let due = self.delays.iter().filter(|(_, delay)| delay.due <= now);
        let mut due: Vec<_> = due.map(|(key, delay)| (delay.due, delay.asked, *key)).collect();
        due.sort();
        for (_, _, key) in due {
            self.delays.remove(&key);
            self.add(key, Priority::Normal);
        }
    }

    fn take(&mut self) -> Option<u8> {
        let highest = (0..3).rev().find(|level| !self.ready[*level].is_empty())?;
        let mut level = highest;
        for lower in 0..highest {
            self.passed[lower] += u32::from(!self.ready[lower].is_empty());
            if self.passed[lower] > ready::PATIENCE {
                level = lower;
            }
        }
        self.passed[level] = 0;
        let key = self.ready[level].remove(0);
        self.working.insert(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        if self.working.remove(&key)
            && let Some(priority) = self.again.remove(&key)
        {
            self.ready[priority as usize].push(key);
        }
    }

    fn shut_down(&mut self) {
        self.stopped = true;
        self.delays.clear();
    }

    fn states(&self) -> BTreeMap<u8, KeyState> {
        let mut states = BTreeMap::<u8, KeyState>::new();
        let levels = [Priority::High, Priority::Normal, Priority::Low];
        let ready =
            levels.iter().flat_map(|level| self.ready[*level as usize].iter().map(|key| (*key, *level)));
        for (position, (key, priority)) in ready.enumerate() {
            let position = Some(position);
            states.insert(key, KeyState { queued: true, position, priority, ..KeyState::default() });
        }
        for (key, priority) in &self.again {
            states.insert(*key, KeyState { queued: true, priority: *priority, ..KeyState::default() });
        }
        for key in &self.working {
            states.entry(*key).or_default().processing = true;
        }
        for (key, delay) in &self.delays {
            states.entry(*key).or_default().delayed_until = Some(delay.due);
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
            Step::Add(key, priority) => {
                queue.add_with_priority(key, priority);
                model.add(key, priority);
            }
            Step::AddAfter(key, 0) => {
                queue.add_after(key, Duration::ZERO);
                model.add(key, Priority::Normal);
            }
            Step::AddAfter(key, delay) => {
                let delay = Duration::from_millis(delay);
                queue.add_after(key, delay);
                model.add_after(key, now, now + delay);
            }
            Step::Debounce(key, quiet, at_most) => {
                queue.len(); // what is due is no longer delayed
                let (quiet, at_most) = (Duration::from_millis(quiet), Duration::from_millis(at_most));
                queue.debounce(key, quiet, at_most);
                model.debounce(key, now, (quiet, at_most));
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
        assert_eq!(queue.len(), model.ready.iter().map(Vec::len).sum::<usize>());
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
