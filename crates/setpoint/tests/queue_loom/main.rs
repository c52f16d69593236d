//! Runs the core of the work queue through every interleaving of its threads.
//!
//! These are the queue's own source files, with the model checker's lock instead of the real one. By default, every
//! interleaving with up to three preemptions is tried; `make loom` tries more.

#![allow(dead_code, unreachable_pub, reason = "the queue's files are used in part")]

use std::future::poll_fn;
use std::task::{Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;
use setpoint::{Clock, Instant, Key, Kind, reconcile};

#[path = "../../src/queue/core.rs"]
mod core;
#[path = "../../src/queue/entry.rs"]
mod entry;
mod lock;
mod metrics;
#[path = "../../src/queue/ready.rs"]
mod ready;
#[path = "../../src/queue/state.rs"]
mod state;
#[path = "../../src/queue/timing.rs"]
mod timing;
#[path = "../../src/queue/trigger.rs"]
mod trigger;
#[path = "../../src/queue/waiters.rs"]
mod waiters;

use self::core::{Core, TakeResult};
use self::ready::Priority;
use self::trigger::Trigger;
use self::waiters::WaiterId;

/// Preemptions per run, unless the environment sets more.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    builder.check(model);
}

fn now() -> Instant {
    Clock::system().instant()
}

fn add(core: &Core<u8>, key: u8) {
    core.add(key, Priority::Normal, Trigger::default, now);
}

/// Waits for a key. Returns `None` once the queue has ended.
async fn take(core: &Core<u8>) -> Option<u8> {
    let mut place = WaiterId::default();
    poll_fn(|context| match core.take(&mut place, context.waker(), None, now) {
        TakeResult::Key(key) => Poll::Ready(Some(key)),
        TakeResult::End => Poll::Ready(None),
        TakeResult::Wait(_) => Poll::Pending,
    })
    .await
}

fn work(core: &Core<u8>) -> Option<u8> {
    let key = block_on(take(core))?;
    core.done(&key, now);
    Some(key)
}

#[test]
fn every_key_that_is_added_is_taken() {
    check(|| {
        let core = Arc::new(Core::new());
        let adders = [1, 2].map(|key| {
            let core = core.clone();
            thread::spawn(move || add(&core, key))
        });
        let mut taken = [work(&core), work(&core)];
        taken.sort();
        assert_eq!(taken, [Some(1), Some(2)]);
        adders.into_iter().for_each(|adder| adder.join().expect("no panic"));
    });
}

#[test]
fn a_key_added_while_it_is_worked_on_is_taken_again() {
    check(|| {
        let core = Arc::new(Core::new());
        add(&core, 1);
        let key = block_on(take(&core)).expect("it exists");
        let adder = {
            let core = core.clone();
            thread::spawn(move || add(&core, 1))
        };
        core.done(&key, now);
        assert_eq!(work(&core), Some(1));
        adder.join().expect("no panic");
        assert!(core.lock().is_drained());
    });
}

#[test]
fn a_key_is_worked_on_by_one_worker_at_a_time() {
    check(|| {
        let core = Arc::new(Core::new());
        add(&core, 1);
        let worker = {
            let core = core.clone();
            thread::spawn(move || {
                let key = block_on(take(&core)).expect("it exists");
                assert_eq!(core.lock().processing(), 1);
                add(&core, key);
                core.done(&key, now);
            })
        };
        let key = block_on(take(&core)).expect("it is taken again, or was never taken");
        assert_eq!(core.lock().processing(), 1);
        add(&core, key);
        core.done(&key, now);
        worker.join().expect("no panic");
        assert_eq!(core.lock().len(), 1);
    });
}

#[test]
fn a_taker_that_gives_up_leaves_its_key_to_the_next() {
    check(|| {
        let core = Arc::new(Core::<u8>::new());
        let fickle = {
            let core = core.clone();
            thread::spawn(move || {
                let mut place = WaiterId::default();
                if let TakeResult::Key(key) = core.take(&mut place, Waker::noop(), None, now) {
                    add(&core, key);
                    core.done(&key, now);
                }
                core.give_up(&mut place);
            })
        };
        let adder = {
            let core = core.clone();
            thread::spawn(move || add(&core, 1))
        };
        assert_eq!(work(&core), Some(1));
        fickle.join().expect("no panic");
        adder.join().expect("no panic");
    });
}

#[test]
fn the_end_reaches_every_taker() {
    check(|| {
        let core = Arc::new(Core::<u8>::new());
        let taker = {
            let core = core.clone();
            thread::spawn(move || work(&core))
        };
        let ender = {
            let core = core.clone();
            thread::spawn(move || core.end(false))
        };
        assert_eq!(work(&core), None);
        assert_eq!(taker.join().expect("no panic"), None);
        ender.join().expect("no panic");
    });
}
