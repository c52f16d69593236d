//! Table tests of evictions.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::{Clock, Key};

use super::schedule::{Schedule, Verdict};
use super::toleration::{Stay, stay};
use super::view::{Guest, Host};
use crate::workload::fixtures::cached;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_shortest_toleration_of_all_taints_counts() {
    let check = |taints: Value, tolerations: Value, expected: Stay| {
        let node = cached::<Host>(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
        let pod = cached::<Guest>(
            json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"tolerations": tolerations}}),
        );
        assert_eq!(stay(&node.taints, &pod.tolerations), expected, "{tolerations} of {taints}");
    };
    let taint = |key: &str| json!({"key": key, "value": "v", "effect": "NoExecute"});
    let exists =
        |key: &str, time: Value| json!({"key": key, "operator": "Exists", "tolerationSeconds": time});
    check(json!([]), json!([]), Stay::Forever);
    check(json!([{"key": "a", "effect": "NoSchedule"}]), json!([]), Stay::Forever);
    check(json!([taint("a")]), json!([]), Stay::Not);
    check(json!([taint("a")]), json!([exists("a", Value::Null)]), Stay::Forever);
    check(json!([taint("a")]), json!([exists("", Value::Null)]), Stay::Forever);
    check(json!([taint("a")]), json!([exists("a", json!(0))]), Stay::Not);
    check(json!([taint("a")]), json!([exists("a", json!(-5))]), Stay::Not);
    check(
        json!([taint("a"), taint("b")]),
        json!([exists("a", json!(9)), exists("b", json!(3))]),
        Stay::For(seconds(3)),
    );
    check(json!([taint("a"), taint("b")]), json!([exists("a", json!(9))]), Stay::Not);
    check(
        json!([taint("a")]),
        json!([exists("a", json!(9)), exists("a", Value::Null)]),
        Stay::For(seconds(9)),
    );
    check(json!([taint("a")]), json!([{"key": "a", "value": "v", "effect": "NoExecute"}]), Stay::Forever);
    check(json!([taint("a")]), json!([{"key": "a", "value": "w"}]), Stay::Not);
    check(json!([taint("a")]), json!([{"key": "a", "value": "v", "effect": "NoSchedule"}]), Stay::Not);
}

#[tokio::test(start_paused = true)]
async fn a_date_is_kept_until_it_is_taken_back() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let (mut schedule, pod) = (Schedule::default(), Key::namespaced("ns", "p"));
    let start = clock.instant();
    assert_eq!(schedule.decide(&pod, Stay::For(seconds(10)), start), Verdict::GoesIn(seconds(10)));
    assert_eq!(schedule.decide(&pod, Stay::For(seconds(3)), start + seconds(4)), Verdict::GoesIn(seconds(6)));
    assert_eq!(schedule.recall(&pod, start + seconds(5)), Verdict::GoesIn(seconds(5)));
    assert_eq!(schedule.decide(&pod, Stay::Forever, start), Verdict::Stays { reprieved: true });
    assert_eq!(schedule.decide(&pod, Stay::Forever, start), Verdict::Stays { reprieved: false });
    schedule.decide(&pod, Stay::For(seconds(10)), start);
    let late = seconds(0);
    assert_eq!(schedule.recall(&pod, start + seconds(10)), Verdict::Goes { late });
    assert_eq!(schedule.decide(&pod, Stay::Not, start), Verdict::Goes { late });
}
