//! What the introspection API reports about keys.

use setpoint_clock::{Clock, Rng};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Metrics;
use crate::{Controller, Outcome, ReconcileError, Reconciler, Runnable, Runtime};

/// Fails for `bad`, and is slow for `slow`.
struct Picky(Clock);

impl Reconciler for Picky {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        match key.name() {
            "bad" => Err(ReconcileError::retry("the disk is full")),
            "slow" => {
                self.0.sleep(Duration::from_secs(3)).await;
                Ok(Outcome::Settled)
            }
            _ => Ok(Outcome::Settled),
        }
    }
}

/// Runs the controller on some keys for a while, then queries it.
async fn asked(keys: &[&str], path: &str, query: &[(&str, &str)]) -> Option<Value> {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let queue = Queue::new("picky", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    let metrics = Metrics::new();
    let mut controller = Controller::new("picky", queue.clone(), Picky(clock.clone()));
    controller.observe(&metrics);
    keys.iter().for_each(|name| queue.add(Key::namespaced("shop", name)));
    let stop = CancellationToken::new();
    let running = tokio::spawn(Box::new(controller).run(stop.clone()));
    clock.sleep(Duration::from_secs(4)).await;
    let answer = metrics.introspection().handle(path, query);
    stop.cancel();
    running.await.expect("no panic");
    answer
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_shows_its_retries_its_error_and_the_next_attempt() {
    let answer = asked(&["bad"], "/debug/setpoint/keys", &[("namespace", "shop"), ("name", "bad")])
        .await
        .expect("an answer");
    let state = &answer["controllers"][0];
    assert_eq!(state["controller"], "picky");
    assert!(state["retries"].as_u64().is_some_and(|retries| retries > 3), "{state}");
    assert!(state["lastError"].as_str().is_some_and(|error| error.contains("the disk is full")), "{state}");
    let next: Timestamp = state["nextAttempt"].as_str().and_then(|time| time.parse().ok()).expect("a time");
    assert!(next > "2025-01-01T00:00:04Z".parse().expect("a time"), "{next}");
    assert!(state["recent"].as_array().is_some_and(|recent| recent.len() > 3));
}

#[tokio::test(start_paused = true)]
async fn a_controller_shows_its_slowest_keys_and_its_rate() {
    let answer =
        asked(&["a", "slow", "b"], "/debug/setpoint/controllers/picky", &[]).await.expect("an answer");
    assert_eq!(answer["reconciles"], 3);
    assert_eq!(
        (&answer["slowest"][0]["key"], &answer["slowest"][0]["seconds"]),
        (&json!("shop/slow"), &json!(3.0))
    );
    assert_eq!(answer["perSecond"], 3.0 / 60.0);
    assert_eq!(answer["recent"][0]["outcome"], "settled");
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_and_paths_have_no_answer() {
    let answer = asked(&["a"], "/debug/setpoint/keys", &[("namespace", "shop"), ("name", "other")])
        .await
        .expect("an answer");
    assert_eq!(answer, json!({"controllers": []}));
    assert_eq!(asked(&["a"], "/debug/setpoint/other", &[]).await, None);
    assert_eq!(asked(&["a"], "/debug/setpoint/controllers/other", &[]).await, None);
}

#[test]
fn the_journal_keeps_the_latest_and_the_slowest() {
    let clock = Clock::system();
    let mut journal = Journal::default();
    for number in 0..1_000_u64 {
        journal.record(Entry {
            key: Key::cluster(format!("key-{}", number % 100)),
            trigger: Default::default(),
            started: clock.instant(),
            took: Duration::from_millis(number),
            outcome: "settled",
            error: None,
        });
    }
    assert_eq!((journal.recent().count(), journal.slowest().len(), journal.total), (256, 10, 1000));
    assert_eq!(journal.slowest()[0].took, Duration::from_millis(999));
    assert!(journal.recent().next().is_some_and(|entry| entry.key == Key::cluster("key-99")));
}

#[test]
fn keys_with_a_kind_before_them_are_found() {
    let asked = |kind| Asked { key: Key::namespaced("shop", "a"), group: None, kind };
    assert!(asked(None).is_written("shop/a") && asked(Some("Thing")).is_written("shop/a"));
    assert!(asked(Some("Thing")).is_written("Thing shop/a"));
    assert!(!asked(Some("Thing")).is_written("Other shop/a") && !asked(None).is_written("Thing shop/a"));
}
