use std::time::Duration;

use super::*;
use crate::{Key, Rng};

fn runtime() -> Runtime {
    Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time")), rng: Rng::seeded(1) }
}

fn queue() -> Queue<Key> {
    Queue::new("test", &runtime())
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

async fn take(queue: &Queue<Key>) -> String {
    queue.take().await.expect("the queue has not ended").name().to_owned()
}

/// Returns whether no key arrives within a second.
async fn idle(queue: &Queue<Key>) -> bool {
    tokio::time::timeout(Duration::from_secs(1), queue.take()).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn keys_are_taken_once_and_in_order() {
    let queue = queue();
    ["b", "a", "b", "c", "a"].iter().for_each(|name| queue.add(key(name)));
    assert_eq!(queue.len(), 3);
    assert_eq!([take(&queue).await, take(&queue).await, take(&queue).await], ["b", "a", "c"]);
    assert!(idle(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_processing_is_processed_again_after_it_is_done() {
    let queue = queue();
    queue.add(key("a"));
    let taken = queue.take().await.expect("a key");
    queue.add(key("a"));
    queue.add(key("a"));
    assert!(idle(&queue).await, "it is being processed");
    queue.done(&taken);
    assert_eq!(take(&queue).await, "a");
    queue.done(&taken);
    assert!(idle(&queue).await);
    assert_eq!(queue.states(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn done_for_a_key_that_was_not_taken_changes_nothing() {
    let queue = queue();
    queue.add(key("a"));
    queue.done(&key("a"));
    queue.done(&key("unknown"));
    assert_eq!(take(&queue).await, "a");
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_delays_wins() {
    let queue = queue();
    let start = queue.clock().instant();
    queue.add_after(key("a"), Duration::from_secs(10));
    queue.add_after(key("a"), Duration::from_secs(3));
    queue.add_after(key("a"), Duration::from_secs(5));
    assert_eq!(queue.delayed(), 1);
    assert_eq!(take(&queue).await, "a");
    assert_eq!(queue.clock().instant() - start, Duration::from_secs(3));
    queue.done(&key("a"));
    assert!(
        tokio::time::timeout(Duration::from_secs(60), queue.take()).await.is_err(),
        "it was delivered once"
    );
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_are_taken_in_the_order_they_are_due() {
    let queue = queue();
    for (name, seconds) in [("c", 3), ("a", 1), ("d", 3), ("b", 2)] {
        queue.add_after(key(name), Duration::from_secs(seconds));
    }
    let taken = [take(&queue).await, take(&queue).await, take(&queue).await, take(&queue).await];
    assert_eq!(taken, ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fell_due_comes_before_one_that_was_added_later() {
    let queue = queue();
    queue.add_after(key("due"), Duration::from_secs(1));
    tokio::time::advance(Duration::from_secs(2)).await;
    queue.add(key("added"));
    assert_eq!([take(&queue).await, take(&queue).await], ["due", "added"]);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_is_noticed_by_a_waiting_taker() {
    let queue = queue();
    let start = queue.clock().instant();
    queue.add_after(key("late"), Duration::from_secs(3600));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { take(&queue).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.add_after(key("soon"), Duration::from_secs(1));
    assert_eq!(waiting.await.expect("no panic"), "soon");
    assert_eq!(queue.clock().instant() - start, Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn when_the_taker_that_watches_the_clock_is_dropped_another_one_does() {
    let queue = queue();
    let take_one = || {
        let queue = queue.clone();
        tokio::spawn(async move { take(&queue).await })
    };
    queue.add_after(key("a"), Duration::from_secs(5));
    let (first, second) = (take_one(), take_one());
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.abort();
    assert_eq!(second.await.expect("no panic"), "a");
}

#[tokio::test(start_paused = true)]
async fn when_the_taker_that_watches_the_clock_gets_a_key_another_one_watches() {
    let queue = queue();
    let (sender, mut receiver) = tokio::sync::mpsc::channel(10);
    for _ in 0..3 {
        let (queue, sender) = (queue.clone(), sender.clone());
        tokio::spawn(async move {
            let taken = take(&queue).await;
            sender.send((taken, queue.clock().instant())).await.expect("a receiver");
        });
    }
    let start = queue.clock().instant();
    tokio::time::sleep(Duration::from_millis(1)).await;
    queue.add_after(key("b"), Duration::from_secs(2));
    queue.add_after(key("c"), Duration::from_secs(3));
    queue.add(key("a"));
    for (name, seconds) in [("a", 0), ("b", 2), ("c", 3)] {
        let (taken, at) = receiver.recv().await.expect("a key");
        assert_eq!((taken.as_str(), (at - start).as_secs()), (name, seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_can_be_cancelled_and_postponed() {
    let queue = queue();
    let start = queue.clock().instant();
    queue.add_after(key("a"), Duration::from_secs(1));
    assert!(queue.cancel_delay(&key("a")));
    assert!(!queue.cancel_delay(&key("a")));
    queue.add_after(key("b"), Duration::from_secs(2));
    queue.postpone(key("b"), Duration::from_secs(7));
    assert_eq!(take(&queue).await, "b");
    assert_eq!(queue.clock().instant() - start, Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_all_time_is_never() {
    let queue = queue();
    queue.add_after(key("a"), Duration::MAX);
    assert!(idle(&queue).await);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_waits_longer_each_time_until_it_is_forgotten() {
    let queue = queue();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let before = queue.clock().instant();
        queue.add_rate_limited(key("a"));
        let taken = queue.take().await.expect("a key");
        queue.done(&taken);
        waits.push((queue.clock().instant() - before).as_secs());
    }
    assert_eq!(waits, [0, 1, 2, 4]);
    assert_eq!(queue.retries(&key("a")), 4);
    queue.forget(&key("a"));
    assert_eq!(queue.retries(&key("a")), 0);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_waits_briefly() {
    let queue = queue();
    let before = queue.clock().instant();
    for _ in 0..3 {
        queue.add_after_conflict(key("a"));
        let taken = queue.take().await.expect("a key");
        queue.done(&taken);
    }
    assert_eq!(queue.clock().instant() - before, Duration::from_millis(10 + 20 + 40));
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_waiting_keys_are_taken_and_adds_are_dropped() {
    let queue = queue();
    queue.add(key("a"));
    queue.add_after(key("delayed"), Duration::from_secs(1));
    queue.shut_down();
    queue.add(key("b"));
    queue.add_after(key("c"), Duration::from_secs(1));
    assert_eq!(take(&queue).await, "a");
    queue.add(key("a"));
    queue.done(&key("a"));
    assert_eq!(queue.take().await, None);
    assert_eq!(queue.take().await, None);
    assert!(queue.is_shut_down());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_every_waiting_taker() {
    let queue = queue();
    queue.add_after(key("later"), Duration::from_secs(3600));
    let takers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.take().await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.shut_down();
    for taker in takers {
        assert_eq!(taker.await.expect("no panic"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_queued_and_running_keys() {
    let queue = queue();
    queue.add(key("a"));
    queue.add(key("b"));
    let first = queue.take().await.expect("a key");
    queue.add(key("a"));
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.done(&first);
    let mut rest = Vec::new();
    while let Some(taken) = queue.take().await {
        assert!(!drain.is_finished());
        rest.push(taken.name().to_owned());
        queue.done(&taken);
    }
    assert_eq!(rest, ["b", "a"]);
    drain.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn an_immediate_shutdown_drops_waiting_keys() {
    let queue = queue();
    queue.add(key("a"));
    queue.add(key("b"));
    let taken = queue.take().await.expect("a key");
    queue.add(taken.clone());
    queue.shut_down_now();
    queue.done(&taken);
    assert_eq!(queue.take().await, None);
    queue.shut_down_with_drain().await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_every_key_can_be_seen() {
    let queue = queue();
    queue.add(key("working"));
    let taken = queue.take().await.expect("a key");
    queue.add(taken.clone());
    queue.add(key("waiting"));
    queue.add_rate_limited(key("failing"));
    queue.cancel_delay(&key("failing"));
    queue.record_error(&key("broken"), "it is broken");
    let states = queue.states();
    assert_eq!(states.keys().map(Key::name).collect::<Vec<_>>(), ["broken", "failing", "waiting", "working"]);
    assert_eq!(queue.state(&taken), KeyState { queued: true, processing: true, ..KeyState::default() });
    assert_eq!(queue.state(&key("failing")).retries, 1);
    assert_eq!(queue.state(&key("broken")).last_error.as_deref(), Some("it is broken"));
    queue.forget(&key("broken"));
    assert_eq!(queue.state(&key("broken")), KeyState::default());
}

/// Runs eight workers on four threads. Keys are added while they are processed, and takers give up while waiting. Every
/// key is processed after it was last added, and never by two workers at once.
#[test]
fn no_key_is_lost_or_worked_on_twice_at_once_on_several_threads() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    const KEYS: usize = 50;
    const ROUNDS: u64 = 400;
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("threads");
    threads.block_on(async {
        let queue: Queue<Key> =
            Queue::new("stress", &Runtime { clock: Clock::system(), rng: Rng::seeded(1) });
        let wanted: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
        let seen: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
        let busy: Arc<Vec<AtomicBool>> = Arc::new((0..KEYS).map(|_| AtomicBool::new(false)).collect());
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (queue, wanted, seen, busy) = (queue.clone(), wanted.clone(), seen.clone(), busy.clone());
            workers.spawn(async move {
                loop {
                    let impatient = tokio::time::timeout(Duration::from_micros(300), queue.take()).await;
                    let Ok(taken) = impatient else { continue };
                    let Some(taken) = taken else { return };
                    let index: usize = taken.name().parse().expect("a number");
                    assert!(!busy[index].swap(true, Ordering::SeqCst), "processed twice at once");
                    seen[index].store(wanted[index].load(Ordering::SeqCst), Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    busy[index].store(false, Ordering::SeqCst);
                    queue.done(&taken);
                }
            });
        }
        for round in 1..=ROUNDS {
            for (index, wanted) in wanted.iter().enumerate() {
                wanted.store(round, Ordering::SeqCst);
                match (round + index as u64) % 3 {
                    0 => queue.add_after(key(&index.to_string()), Duration::from_micros(200)),
                    _ => queue.add(key(&index.to_string())),
                }
            }
            tokio::task::yield_now().await;
        }
        // The last delays end after the last round. A shutdown would drop them.
        let deadline = queue.clock().instant() + Duration::from_secs(20);
        while !(queue.is_empty() && queue.delayed() == 0 && queue.processing() == 0) {
            assert!(queue.clock().instant() < deadline, "stuck: {queue:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        queue.shut_down();
        while let Some(worker) = workers.join_next().await {
            worker.expect("no panic");
        }
        for (index, seen) in seen.iter().enumerate() {
            assert_eq!(seen.load(Ordering::SeqCst), ROUNDS, "key {index}");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_more_urgent_key_goes_first() {
    let queue = queue();
    queue.add_with_priority(key("low"), Priority::Low);
    queue.add(key("normal"));
    queue.add_with_priority(key("high"), Priority::High);
    let positions = ["high", "normal", "low"].map(|name| queue.state(&key(name)).position);
    assert_eq!(positions, [Some(0), Some(1), Some(2)]);
    assert_eq!([take(&queue).await, take(&queue).await, take(&queue).await], ["high", "normal", "low"]);
    assert_eq!(queue.state(&key("low")).position, None, "it is being processed");
}

#[tokio::test(start_paused = true)]
async fn a_less_urgent_key_is_never_starved() {
    let queue = queue();
    for name in ["low-1", "low-2"] {
        queue.add_with_priority(key(name), Priority::Low);
    }
    // Keep adding keys with a higher priority.
    let mut taken = Vec::new();
    for number in 0..30 {
        queue.add_with_priority(key(&format!("high-{number}")), Priority::High);
        queue.add_with_priority(key(&format!("high-{number}-again")), Priority::High);
        taken.push(take(&queue).await);
    }
    let at = |name: &str| taken.iter().position(|taken| taken == name);
    assert_eq!((at("low-1"), at("low-2")), (Some(10), Some(21)), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_raised_and_never_lowered() {
    let queue = queue();
    for name in ["a", "b", "c"] {
        queue.add_with_priority(key(name), Priority::Low);
    }
    queue.add_with_priority(key("b"), Priority::High);
    queue.add_with_priority(key("b"), Priority::Low);
    assert_eq!((queue.len(), queue.state(&key("b")).priority), (3, Priority::High));
    assert_eq!([take(&queue).await, take(&queue).await, take(&queue).await], ["b", "a", "c"]);
    queue.add_with_priority(key("b"), Priority::High);
    queue.add_with_priority(key("d"), Priority::Normal);
    queue.done(&key("b"));
    assert_eq!(take(&queue).await, "b", "it is requeued with the priority it got while processing");
}

#[tokio::test(start_paused = true)]
async fn a_strict_queue_yields_the_highest_priority_first_and_equals_in_order() {
    let queue = queue().strict();
    queue.add_with_priority(key("low"), Priority::new(-7));
    queue.add_with_priority(key("medium-1"), Priority::new(5));
    queue.add_with_priority(key("medium-2"), Priority::new(5));
    // More turns than a fair queue's patience: in a strict queue, nothing ages.
    for number in 0..30 {
        queue.add_with_priority(key(&format!("high-{number}")), Priority::new(1_000_000));
    }
    for number in 0..30 {
        assert_eq!(take(&queue).await, format!("high-{number}"));
    }
    assert_eq!([take(&queue).await, take(&queue).await, take(&queue).await], ["medium-1", "medium-2", "low"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_its_own_work_adds_again_keeps_its_priority() {
    let queue = queue().strict();
    queue.add_with_priority(key("a"), Priority::new(-5));
    take(&queue).await;
    queue.add_after(key("a"), Duration::from_secs(1));
    queue.done(&key("a"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((queue.len(), queue.state(&key("a")).priority), (1, Priority::new(-5)));
    take(&queue).await;
    queue.add_rate_limited(key("a"));
    queue.done(&key("a"));
    assert_eq!(queue.state(&key("a")).priority, Priority::new(-5), "a retry keeps the priority");
    take(&queue).await;
    queue.done(&key("a"));
    queue.add_after_with_priority(key("a"), Duration::from_secs(1), Priority::High);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((queue.len(), queue.state(&key("a")).priority), (1, Priority::High));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_listed_is_retried_like_one_that_changed() {
    let queue = queue();
    queue.add_with_priority(key("a"), Priority::Low);
    take(&queue).await;
    queue.add_rate_limited(key("a"));
    queue.done(&key("a"));
    assert_eq!(queue.state(&key("a")).priority, Priority::Normal);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_key_is_not_handed_out_and_makes_room() {
    use futures::FutureExt;
    let queue = queue().bounded(1);
    queue.add_with_priority(key("a"), Priority::High);
    queue.add_after(key("a"), Duration::from_secs(5));
    assert!(queue.room().now_or_never().is_none());
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.room().await }
    });
    tokio::task::yield_now().await;
    assert!(queue.cancel(&key("a")) && !queue.cancel(&key("a")));
    waiting.await.expect("there is space");
    assert_eq!(queue.states(), BTreeMap::new());

    queue.add(key("b"));
    take(&queue).await;
    queue.add(key("b"));
    assert!(queue.cancel(&key("b")), "the requeue is cancelled, not the running work");
    assert_eq!((queue.processing(), queue.state(&key("b")).queued), (1, false));
    queue.done(&key("b"));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_cancelled_key() {
    let queue = queue();
    queue.add(key("a"));
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move { queue.shut_down_with_drain().await }
    });
    tokio::task::yield_now().await;
    assert!(!draining.is_finished());
    queue.cancel(&key("a"));
    draining.await.expect("nothing is left");
}

/// A key that is raised again and again leaves no more gaps behind than there are keys.
#[tokio::test(start_paused = true)]
async fn the_gaps_of_raised_keys_are_closed() {
    let queue = queue();
    for _ in 0..10_000 {
        queue.add_with_priority(key("a"), Priority::Low);
        queue.add_with_priority(key("a"), Priority::High);
        queue.done(&queue.take().await.expect("a key"));
    }
    assert!(queue.shared.core.lock().places() < 100);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn keys_that_come_within_the_batch_window_are_worked_on_once() {
    let queue = queue().batching(Duration::from_secs(1));
    let start = queue.clock().instant();
    for _ in 0..5 {
        queue.add(key("a"));
        tokio::time::advance(Duration::from_millis(150)).await;
    }
    assert_eq!(take(&queue).await, "a");
    assert_eq!(queue.clock().instant() - start, Duration::from_secs(1), "the window begins with the first");
    queue.done(&key("a"));
    assert!(idle(&queue).await);
    queue.add_rate_limited(key("b"));
    assert_eq!(take(&queue).await, "b", "a retry waits for its backoff");
}

#[tokio::test(start_paused = true)]
async fn a_debounced_key_waits_for_quiet_but_not_for_ever() {
    let (quiet, at_most) = (Duration::from_secs(2), Duration::from_secs(5));
    let queue = queue();
    let start = queue.clock().instant();
    queue.debounce(key("a"), quiet, at_most);
    tokio::time::advance(Duration::from_secs(1)).await;
    queue.debounce(key("a"), quiet, at_most);
    assert_eq!(take(&queue).await, "a");
    assert_eq!(queue.clock().instant() - start, Duration::from_secs(3));
    queue.done(&key("a"));

    let start = queue.clock().instant();
    for _ in 0..20 {
        queue.debounce(key("b"), quiet, at_most);
        if tokio::time::timeout(Duration::from_secs(1), queue.take()).await.is_ok() {
            break;
        }
    }
    assert_eq!(queue.clock().instant() - start, at_most, "it keeps changing");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_has_room_again_when_a_key_is_taken() {
    use futures::FutureExt;
    let queue = queue().bounded(2);
    queue.add(key("a"));
    assert!(queue.room().now_or_never().is_some());
    queue.add(key("b"));
    queue.add(key("c"));
    assert_eq!(queue.len(), 3, "no add is rejected");
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.room().await }
    });
    take(&queue).await;
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    take(&queue).await;
    waiting.await.expect("there is space");
    queue.add(key("d"));
    queue.shut_down();
    queue.room().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_trigger_is_kept_and_does_not_affect_key_equality() {
    let queue = queue();
    let object = |name| Trigger { cause: Cause::Updated, kind: None, object: Some(key(name)) };
    queue.add_for(key("a"), Priority::Normal, object("first"));
    queue.add_for(key("a"), Priority::Normal, object("second"));
    assert_eq!(queue.len(), 1);
    let taken = queue.take_work().await.expect("a key");
    assert_eq!(taken.trigger.to_string(), "updated default/first");
    queue.add_rate_limited(key("a"));
    queue.done(&key("a"));
    assert_eq!(queue.take_work().await.expect("a key").trigger, Cause::Retry.into());
}
