use std::time::Duration;

use super::*;
use crate::{Clock, Key, Queue, Rng, Runtime};

fn expect(metrics: &Metrics, lines: &[&str]) {
    let text = metrics.encode();
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_shows_its_depth_its_adds_and_how_long_keys_wait_and_take() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let metrics = Metrics::new();
    let queue = Queue::new("web", &Runtime { clock: clock.clone(), rng: Rng::seeded(1) });
    queue.observe(&metrics);
    queue.add(Key::cluster("a"));
    queue.add(Key::cluster("a"));
    queue.add(Key::cluster("b"));
    queue.add_rate_limited(Key::cluster("c"));
    clock.sleep(Duration::from_millis(50)).await;
    let taken = queue.take().await.expect("a key");
    clock.sleep(Duration::from_secs(3)).await;
    expect(
        &metrics,
        &[
            "# TYPE workqueue_depth gauge",
            "# TYPE workqueue_adds_total counter",
            "# TYPE workqueue_queue_duration_seconds histogram",
            r#"workqueue_depth{controller="web",name="web"} 2"#,
            r#"workqueue_adds_total{controller="web",name="web"} 3"#,
            r#"controller_workqueue_depth{controller="web",name="web"} 2"#,
            r#"workqueue_retries_total{controller="web",name="web"} 1"#,
            r#"workqueue_queue_duration_seconds_bucket{controller="web",name="web",le="0.01"} 0"#,
            r#"workqueue_queue_duration_seconds_bucket{controller="web",name="web",le="0.1"} 1"#,
            r#"workqueue_queue_duration_seconds_bucket{controller="web",name="web",le="10"} 1"#,
            r#"workqueue_queue_duration_seconds_bucket{controller="web",name="web",le="+Inf"} 1"#,
            r#"workqueue_queue_duration_seconds_sum{controller="web",name="web"} 0.05"#,
            r#"workqueue_unfinished_work_seconds{controller="web",name="web"} 3"#,
            r#"workqueue_longest_running_processor_seconds{controller="web",name="web"} 3"#,
        ],
    );
    queue.done(&taken);
    expect(
        &metrics,
        &[
            r#"workqueue_work_duration_seconds_sum{controller="web",name="web"} 3"#,
            r#"workqueue_unfinished_work_seconds{controller="web",name="web"} 0"#,
        ],
    );
    drop(queue);
    assert!(!metrics.encode().contains("workqueue"), "a dropped queue is not exported");
}

#[test]
fn a_controller_shows_how_its_reconciles_ended() {
    let metrics = Metrics::new();
    let reconciles = Arc::new(Reconciles::new(5));
    metrics.add_controller("web", reconciles.clone());
    let all = [
        ReconcileResult::Settled,
        ReconcileResult::Requeue,
        ReconcileResult::CheckAfter,
        ReconcileResult::Failed,
        ReconcileResult::Terminal,
    ];
    for ended in all.into_iter().chain([ReconcileResult::Panicked, ReconcileResult::TimedOut]) {
        reconciles.started();
        reconciles.ended(ended, Duration::from_millis(30));
    }
    reconciles.started();
    expect(
        &metrics,
        &[
            "# TYPE controller_runtime_reconcile_total counter",
            r#"controller_runtime_reconcile_total{controller="web",result="success"} 1"#,
            r#"controller_runtime_reconcile_total{controller="web",result="requeue"} 1"#,
            r#"controller_runtime_reconcile_total{controller="web",result="requeue_after"} 1"#,
            r#"controller_runtime_reconcile_total{controller="web",result="error"} 4"#,
            r#"controller_runtime_reconcile_errors_total{controller="web"} 4"#,
            r#"controller_runtime_terminal_reconcile_errors_total{controller="web"} 1"#,
            r#"controller_runtime_reconcile_panics_total{controller="web"} 1"#,
            r#"controller_runtime_reconcile_timeouts_total{controller="web"} 1"#,
            r#"controller_runtime_max_concurrent_reconciles{controller="web"} 5"#,
            r#"controller_runtime_active_workers{controller="web"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="web"} 7"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{controller="web",le="0.025"} 0"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{controller="web",le="0.05"} 7"#,
        ],
    );
}

#[test]
fn the_text_is_of_the_classic_format_and_in_order() {
    let metrics = Metrics::new();
    metrics.count("b", "Bs", &[("x", "2")], 3);
    metrics.count("b", "Bs", &[("x", "1")], 1);
    metrics.count("b", "Bs", &[("x", "2")], 1);
    metrics.set_gauge("a", "As", &[], 2.5);
    assert_eq!(
        metrics.encode(),
        "# HELP a As\n# TYPE a gauge\na 2.5\n\
         # HELP b_total Bs\n# TYPE b_total counter\nb_total{x=\"1\"} 1\nb_total{x=\"2\"} 4\n"
    );
}

/// An informer that has seen nothing.
struct Fresh;

impl InformerStats for Fresh {
    fn metrics(&self) -> Vec<InformerMetrics> {
        vec![InformerMetrics {
            name: "all".into(),
            group: String::new(),
            version: "v1".into(),
            resource: "pods".into(),
            queued: 0,
            seconds: Histogram::new(histogram::QUEUE_SECONDS),
            revision: 0,
            undecodable: 0,
            inconsistencies: 0,
        }]
    }
}

#[tokio::test(start_paused = true)]
async fn every_upstream_metric_name_is_exported() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let metrics = Metrics::new();
    let queue = Queue::<Key>::new("web", &Runtime { clock, rng: Rng::seeded(1) });
    queue.observe(&metrics);
    metrics.add_controller("web", Arc::new(Reconciles::new(1)));
    let requests = metrics.requests("localhost");
    requests.answered(&http::Method::GET, Some(200), Duration::ZERO);
    requests.limited(&http::Method::GET, Duration::ZERO);
    let informers: Arc<dyn InformerStats> = Arc::new(Fresh);
    metrics.add_informers(Arc::downgrade(&informers));
    let text = metrics.encode();
    for name in [
        "workqueue_depth",
        "workqueue_adds_total",
        "workqueue_queue_duration_seconds",
        "workqueue_work_duration_seconds",
        "workqueue_unfinished_work_seconds",
        "workqueue_longest_running_processor_seconds",
        "workqueue_retries_total",
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_terminal_reconcile_errors_total",
        "controller_runtime_reconcile_panics_total",
        "controller_runtime_reconcile_timeouts_total",
        "controller_runtime_reconcile_time_seconds",
        "controller_runtime_max_concurrent_reconciles",
        "controller_runtime_active_workers",
        "rest_client_requests_total",
        "rest_client_request_duration_seconds",
        "rest_client_rate_limiter_duration_seconds",
        "informer_queued_items",
        "informer_processing_latency_seconds",
        "informer_store_resource_version",
        "controller_workqueue_depth",
        "controller_workqueue_adds_total",
        "controller_workqueue_retries_total",
        "controller_reconcile_errors_total",
        "controller_reconcile_time_seconds",
    ] {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} is not in\n{text}");
    }
}
