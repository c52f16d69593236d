use super::decide::{Calls, pace, workers};

use super::*;
use crate::queue::RateLimiter;

const USUAL: f64 = 0.1;

fn calls(made: u64, failed: u64, seconds: f64) -> Calls {
    Calls { made, failed, seconds, usual_seconds: USUAL }
}

#[test]
fn response_times_and_errors_classify_the_api_server() {
    let check = |calls: Calls, expected: Condition| assert_eq!(Condition::of(&calls), expected, "{calls:?}");
    check(calls(0, 0, 0.0), Condition::Well);
    check(calls(100, 0, 0.1), Condition::Well);
    check(calls(100, 0, 0.2), Condition::Well);
    check(calls(100, 0, 0.21), Condition::Slow);
    check(calls(100, 9, 0.1), Condition::Well);
    check(calls(100, 10, 0.1), Condition::Failing);
    check(calls(1, 1, 9.0), Condition::Failing);
    check(Calls { usual_seconds: 0.001, ..calls(100, 0, 0.04) }, Condition::Well);
}

#[test]
fn the_pace_drops_fast_and_recovers_slowly() {
    let check = |condition, rate: f64, stretch: f64, expected: (f64, f64)| {
        let next = pace(condition, Pace { rate, stretch }, 100.0);
        assert_eq!((next.rate, next.stretch), expected, "{condition:?} at {rate} and {stretch}");
    };
    check(Condition::Well, 100.0, 1.0, (100.0, 1.0));
    check(Condition::Slow, 100.0, 1.0, (70.0, 1.0));
    check(Condition::Failing, 100.0, 1.0, (70.0, 2.0));
    check(Condition::Failing, 11.0, 8.0, (10.0, 8.0));
    check(Condition::Well, 70.0, 4.0, (80.0, 2.0));
    check(Condition::Well, 95.0, 1.5, (100.0, 1.0));
    check(Condition::Slow, 50.0, 4.0, (35.0, 4.0));
}

#[test]
fn workers_follow_the_backlog_but_never_into_an_overloaded_api_server() {
    let check = |condition, waiting: usize, now: usize, expected: usize| {
        let backlog = Backlog { waiting, workers: now, configured: 4, most: 20 };
        assert_eq!(workers(condition, &backlog), expected, "{condition:?} with {waiting} waiting for {now}");
    };
    check(Condition::Well, 0, 4, 4);
    check(Condition::Well, 8, 4, 4);
    check(Condition::Well, 9, 4, 6);
    check(Condition::Well, 1000, 14, 20);
    check(Condition::Well, 1000, 20, 20);
    check(Condition::Slow, 1000, 6, 6);
    check(Condition::Failing, 1000, 6, 3);
    check(Condition::Failing, 1000, 1, 1);
    check(Condition::Well, 0, 20, 16);
    check(Condition::Well, 0, 5, 4);
    check(Condition::Well, 5, 10, 10);
    check(Condition::Well, 0, 2, 3);
}

#[test]
fn without_load_everything_returns_to_the_configured_values() {
    let (mut now, mut count) = (Pace { rate: 10.0, stretch: 8.0 }, 20);
    for _ in 0..40 {
        now = pace(Condition::Well, now, 100.0);
        count = workers(Condition::Well, &Backlog { waiting: 0, workers: count, configured: 4, most: 20 });
    }
    assert_eq!((now, count), (Pace { rate: 100.0, stretch: 1.0 }, 4));
}

#[tokio::test(start_paused = true)]
async fn decisions_apply_to_clients_queues_and_workers_and_appear_in_metrics() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let (adaptive, metrics) = (AdaptiveLimits::new(&clock, 100.0, 1), Metrics::new());
    let waiting = Arc::new(Mutex::new(100));
    let limit = adaptive.adapt("web", 2, 8, {
        let waiting = waiting.clone();
        Arc::new(move || *waiting.lock())
    });
    adaptive.decide(&metrics);
    assert_eq!(*limit.borrow(), 3, "a backlog gets more workers");
    for _ in 0..10 {
        adaptive.traffic().note(None, Duration::from_secs(1));
    }
    adaptive.decide(&metrics);
    assert_eq!((*limit.borrow(), adaptive.pace()), (1, Pace { rate: 70.0, stretch: 2.0 }));
    let stretched =
        Stretched { inner: crate::queue::limiter::default_limiter::<String>(), adaptive: adaptive.clone() };
    let waits: Vec<u64> = (0..3).map(|_| stretched.when(&"a".into()).as_secs()).collect();
    assert_eq!(waits, [0, 2, 4]);
    let text = metrics.encode();
    for line in [
        "setpoint_adaptive_condition 2",
        "setpoint_adaptive_client_qps 70",
        "setpoint_adaptive_retry_stretch 2",
        "setpoint_adaptive_workers{controller=\"web\"} 1",
        "setpoint_adaptive_decisions_total{what=\"workers\",direction=\"up\"} 1",
        "setpoint_adaptive_decisions_total{what=\"client_qps\",direction=\"down\"} 1",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn workers_beyond_the_limit_are_idle() {
    let (limit, stop) = (watch::Sender::new(1), CancellationToken::new());
    let mut shift = WorkerSlot { number: 1, limit: Some(limit.subscribe()), stop: stop.clone() };
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, shift.wait(async {})).await.is_err(), "only one worker is active");
    limit.send_replace(2);
    assert_eq!(shift.wait(async { 7 }).await, Some(7));
    let dismissing = async {
        tokio::time::sleep(second).await;
        limit.send_replace(1);
    };
    let (waited, ()) = tokio::join!(shift.wait(std::future::pending::<()>()), dismissing);
    assert_eq!(waited, None, "stopped while waiting");
    stop.cancel();
    assert_eq!(shift.wait(async { 8 }).await, Some(8), "all workers drain the queue");
}
