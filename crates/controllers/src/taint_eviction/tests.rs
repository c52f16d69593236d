//! Table tests of evictions.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::{Clock, Key};

use super::schedule::{Decision, Schedule};
use super::toleration::{Tolerated, tolerated};
use super::view::{NodeTaints, PodTolerations};
use crate::workload::fixtures::cached;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_shortest_toleration_of_all_taints_counts() {
    let check = |taints: Value, tolerations: Value, expected: Tolerated| {
        let node = cached::<NodeTaints>(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
        let pod = cached::<PodTolerations>(
            json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"tolerations": tolerations}}),
        );
        assert_eq!(tolerated(&node.taints, &pod.tolerations), expected, "{tolerations} of {taints}");
    };
    let taint = |key: &str| json!({"key": key, "value": "v", "effect": "NoExecute"});
    let exists =
        |key: &str, time: Value| json!({"key": key, "operator": "Exists", "tolerationSeconds": time});
    check(json!([]), json!([]), Tolerated::Forever);
    check(json!([{"key": "a", "effect": "NoSchedule"}]), json!([]), Tolerated::Forever);
    check(json!([taint("a")]), json!([]), Tolerated::Not);
    check(json!([taint("a")]), json!([exists("a", Value::Null)]), Tolerated::Forever);
    check(json!([taint("a")]), json!([exists("", Value::Null)]), Tolerated::Forever);
    check(json!([taint("a")]), json!([exists("a", json!(0))]), Tolerated::Not);
    check(json!([taint("a")]), json!([exists("a", json!(-5))]), Tolerated::Not);
    check(
        json!([taint("a"), taint("b")]),
        json!([exists("a", json!(9)), exists("b", json!(3))]),
        Tolerated::For(seconds(3)),
    );
    check(json!([taint("a"), taint("b")]), json!([exists("a", json!(9))]), Tolerated::Not);
    check(
        json!([taint("a")]),
        json!([exists("a", json!(9)), exists("a", Value::Null)]),
        Tolerated::For(seconds(9)),
    );
    check(
        json!([taint("a")]),
        json!([{"key": "a", "value": "v", "effect": "NoExecute"}]),
        Tolerated::Forever,
    );
    check(json!([taint("a")]), json!([{"key": "a", "value": "w"}]), Tolerated::Not);
    check(json!([taint("a")]), json!([{"key": "a", "value": "v", "effect": "NoSchedule"}]), Tolerated::Not);
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_eviction_is_kept_until_it_is_cancelled() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let (mut schedule, pod) = (Schedule::default(), Key::namespaced("ns", "p"));
    let start = clock.instant();
    assert_eq!(schedule.decide(&pod, Tolerated::For(seconds(10)), start), Decision::EvictIn(seconds(10)));
    assert_eq!(
        schedule.decide(&pod, Tolerated::For(seconds(3)), start + seconds(4)),
        Decision::EvictIn(seconds(6))
    );
    assert_eq!(schedule.scheduled(&pod, start + seconds(5)), Decision::EvictIn(seconds(5)));
    assert_eq!(schedule.decide(&pod, Tolerated::Forever, start), Decision::Keep { cancelled: true });
    assert_eq!(schedule.decide(&pod, Tolerated::Forever, start), Decision::Keep { cancelled: false });
    schedule.decide(&pod, Tolerated::For(seconds(10)), start);
    let late = seconds(0);
    assert_eq!(schedule.scheduled(&pod, start + seconds(10)), Decision::Evict { late });
    assert_eq!(schedule.decide(&pod, Tolerated::Not, start), Decision::Evict { late });
}
