//! Table tests of replica calculation and scaling behavior.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::{Clock, Instant, Object};

use super::behavior::{Bounds, decide};
use super::history::History;
use super::metrics_api::{Sample, Samples};
use super::replicas::{
    Goal, NoReplicaCount, Proposal, Thresholds, propose, propose_by_average, propose_by_value,
};
use super::settings::{Settings, Tolerances};
use super::view::{Behavior, Replica};
use crate::workload::fixtures::at;

const NOW: i64 = 1_000_000;

fn pod(name: &str, phase: &str, ready: bool) -> Replica {
    let status = if ready { "True" } else { "False" };
    let pod = json!({
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {
            "phase": phase, "startTime": at(0),
            "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": at(1)}],
        },
    });
    Replica::of(&Object::from_json(pod.to_string().into()).expect("a pod")).expect("a pod")
}

fn running(count: usize) -> Vec<Replica> {
    (0..count).map(|n| pod(&format!("p{n}"), "Running", true)).collect()
}

fn samples(values: &[i64]) -> Samples {
    let sample = |value: i64| Sample { time: Some(at(NOW)), window: Duration::from_secs(60), value };
    values.iter().enumerate().map(|(n, value)| (format!("p{n}"), sample(*value))).collect()
}

const HALF: Goal<'_> = Goal::Utilization { percent: 50, resource: "cpu", container: "" };

const EVEN: Tolerances = Tolerances { down: 0.1, up: 0.1 };

fn lenient() -> Thresholds {
    Thresholds { tolerances: EVEN, start: Settings::default().start }
}

#[track_caller]
fn check(goal: Goal<'_>, current: i32, values: &[i64], pods: &[Replica], expected: i32) {
    let proposal = propose(goal, current, samples(values), pods, lenient(), at(NOW)).expect("a number");
    assert_eq!(proposal.replicas, expected, "{goal:?} of {current} with {values:?}");
}

#[test]
fn replicas_follow_the_ratio_of_usage_to_target() {
    check(HALF, 3, &[500, 500, 500], &running(3), 3);
    check(HALF, 3, &[1000, 1000, 1000], &running(3), 6);
    check(HALF, 3, &[100, 100, 100], &running(3), 1);
    check(HALF, 3, &[540, 540, 540], &running(3), 3);
    check(Goal::Value { milli: 100 }, 2, &[300, 100], &running(2), 4);
    check(Goal::Resource { milli: 100, resource: "memory" }, 2, &[60, 60], &running(2), 2);
    let proposal = propose(HALF, 2, samples(&[500, 700]), &running(2), lenient(), at(NOW));
    assert_eq!(proposal, Ok(Proposal { replicas: 3, usage: 600, utilization: Some(60) }));
}

#[test]
fn an_autoscalers_tolerance_overrides_the_default() {
    let check = |behavior: Value, expected: (f64, f64)| {
        let behavior: Option<Behavior> = serde_json::from_value(behavior).expect("a behaviour");
        let Tolerances { down, up } = Tolerances::of(&Settings::default(), behavior.as_ref());
        assert_eq!((down, up), expected, "{behavior:?}");
    };
    check(Value::Null, (0.1, 0.1));
    check(json!({"scaleUp": {}, "scaleDown": {}}), (0.1, 0.1));
    check(json!({"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0.5"}}), (0.5, 0.05));
    let uneven = Tolerances { down: 0.5, up: 0.0 };
    for (ratio, expected) in [(0.5, true), (0.49, false), (1.0, true), (1.01, false)] {
        assert_eq!(uneven.cover(ratio), expected, "{ratio}");
    }
}

#[test]
fn pods_without_metrics_dampen_the_change() {
    let missing = running(4);
    check(HALF, 4, &[1000, 1000], &missing, 4);
    check(HALF, 4, &[2000, 2000, 2000], &missing, 12);
    check(HALF, 4, &[100, 100, 100], &missing, 3);
    let mut unready = running(3);
    unready.push(pod("p3", "Pending", false));
    check(HALF, 4, &[1000, 1000, 1000], &unready, 6);
    check(HALF, 4, &[100, 100, 100], &unready, 1);
    let mut gone = running(2);
    gone.push(pod("p2", "Failed", false));
    check(HALF, 2, &[500, 500, 9000], &gone, 2);
}

#[test]
fn without_pods_or_requests_there_is_no_replica_count() {
    let check = |pods: &[Replica], values: &[i64], expected: NoReplicaCount| {
        assert_eq!(propose(HALF, 1, samples(values), pods, lenient(), at(NOW)), Err(expected));
    };
    check(&[], &[1], NoReplicaCount::NoPods);
    check(&[pod("p0", "Pending", false)], &[1], NoReplicaCount::NoMetrics);
    let mut greedy = running(1);
    greedy[0].containers[0].1.clear();
    let missing =
        NoReplicaCount::MissingRequest { resource: "cpu".into(), container: "c".into(), pod: "p0".into() };
    check(&greedy, &[1], missing);
}

#[test]
fn one_value_counts_for_all() {
    let by_value = |current, usage, pods: &[Replica]| {
        propose_by_value(current, usage, 100, pods, EVEN).map(|one| one.replicas)
    };
    assert_eq!(by_value(2, 105, &running(2)), Ok(2));
    assert_eq!(by_value(2, 300, &running(2)), Ok(6));
    assert_eq!(by_value(0, 250, &[]), Ok(3));
    assert_eq!(by_value(2, 300, &[]), Err(NoReplicaCount::NoPods));
    let average = propose_by_average(2, 500, 100, EVEN);
    assert_eq!((average.replicas, average.usage), (5, 250));
    assert_eq!(propose_by_average(5, 500, 100, EVEN).replicas, 5);
}

/// Returns the decisions for a series of recommendations, 15 seconds apart.
fn decisions(behavior: Value, start: i32, recommended: &[i32]) -> Vec<String> {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let behavior: Option<Behavior> = serde_json::from_value(behavior).expect("a behaviour");
    let (mut history, mut current, begin) = (History::default(), start, clock.instant());
    history.begin(start, begin);
    let mut decided = Vec::new();
    for (n, recommended) in recommended.iter().enumerate() {
        let now: Instant = begin + Duration::from_secs(15 * (n as u64 + 1));
        let bounds = Bounds { min: 1, max: 20, stable_before_down: Duration::from_secs(300) };
        let decision = decide(behavior.as_ref(), &mut history, current, *recommended, bounds, now);
        if decision.replicas != current {
            history.scaled(current, decision.replicas, now);
        }
        current = decision.replicas;
        decided.push(format!("{current} {} {}", decision.able.1, decision.limited.1));
    }
    decided
}

#[tokio::test(start_paused = true)]
async fn by_default_it_doubles_and_scales_down_after_five_minutes() {
    let up = decisions(Value::Null, 3, &[30, 30, 30]);
    let expected = [
        "6 ReadyForNewScale ScaleUpLimit",
        "12 ReadyForNewScale ScaleUpLimit",
        "20 ReadyForNewScale TooManyReplicas",
    ];
    assert_eq!(up, expected);
    let down = decisions(Value::Null, 10, &[2; 22]);
    assert_eq!(down[0], "10 ScaleDownStabilized DesiredWithinRange");
    assert_eq!(down[18], "10 ScaleDownStabilized DesiredWithinRange");
    assert_eq!(down[20], "2 ReadyForNewScale DesiredWithinRange");
    assert_eq!(decisions(Value::Null, 1, &[0]), ["1 ScaleDownStabilized DesiredWithinRange"]);
}

#[tokio::test(start_paused = true)]
async fn a_behavior_limits_the_scaling_rate_and_sets_the_stabilization_window() {
    let two_a_minute = json!({"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]});
    let up = decisions(json!({"scaleUp": two_a_minute}), 3, &[30; 5]);
    let replicas: Vec<_> = up.iter().map(|text| text.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(replicas, ["5", "5", "5", "5", "7"]);
    assert!(up[0].ends_with("ScaleUpLimit"));

    let at_once = json!({"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 50, "periodSeconds": 15}]});
    let down = decisions(json!({"scaleDown": at_once}), 8, &[1, 1, 1]);
    assert_eq!(
        down,
        [
            "4 ReadyForNewScale ScaleDownLimit",
            "2 ReadyForNewScale ScaleDownLimit",
            "1 ReadyForNewScale DesiredWithinRange"
        ]
    );
    let never = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"});
    assert_eq!(decisions(json!({"scaleDown": never}), 8, &[1]), ["8 ReadyForNewScale ScaleDownLimit"]);
    let slow = json!({"stabilizationWindowSeconds": 60, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    assert_eq!(decisions(json!({"scaleUp": slow}), 2, &[9])[0], "2 ScaleUpStabilized DesiredWithinRange");
}
