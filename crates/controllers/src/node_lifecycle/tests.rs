//! Table tests of taints, health and zones.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use setpoint::{Cached, Clock};

use super::config::NodeLifecycle;
use super::health::{Health, HealthCheck, check_health};
use super::labels::missing;
use super::taints::{EvictionReason, by_conditions, with_eviction_taint};
use super::view::{Node, Taint};
use super::zones::{Census, OutageChange, Zones};
use crate::workload::fixtures::{at, cached};

fn node(spec: Value, conditions: Value) -> Cached<Node> {
    let metadata = json!({"name": "n", "uid": "n", "creationTimestamp": at(0)});
    cached(json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}))
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "effect": effect, "value": "v"})
}

fn words(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
    Some(taints?.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
}

mod taints {
    use super::*;

    fn written(spec: Value, conditions: Value) -> Option<Vec<String>> {
        words(by_conditions(&node(spec, conditions), at(0)))
    }

    #[test]
    fn a_ready_node_loses_its_initial_taint() {
        let born = json!({"taints": [taint("node.kubernetes.io/not-ready", "NoSchedule"), taint("mine", "NoSchedule")]});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(written(born, ready), Some(vec!["mine:NoSchedule".into()]));
    }

    #[test]
    fn each_condition_and_a_cordon_bring_their_taint() {
        let conditions =
            json!([{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"}]);
        let expected = ["unreachable", "disk-pressure", "unschedulable"]
            .map(|key| format!("node.kubernetes.io/{key}:NoSchedule"));
        assert_eq!(written(json!({"unschedulable": true}), conditions), Some(expected.to_vec()));
    }

    #[test]
    fn eviction_taints_are_kept_and_a_settled_node_is_not_written() {
        let evicting = json!({"taints": [taint("node.kubernetes.io/not-ready", "NoExecute")]});
        assert_eq!(written(evicting, json!([{"type": "Ready", "status": "True"}])), None);
    }

    #[test]
    fn a_node_has_at_most_one_eviction_taint() {
        let check = |taints: Value, why: Option<EvictionReason>, expected: Option<&[&str]>| {
            let written = words(with_eviction_taint(&node(json!({"taints": taints}), json!([])), why, at(0)));
            let expected = expected.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
            assert_eq!(written, expected, "{taints} {why:?}");
        };
        let (not_ready, unreachable) = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable");
        let mine = taint("mine", "NoExecute");
        check(json!([mine]), None, None);
        check(
            json!([mine]),
            Some(EvictionReason::NotReady),
            Some(&["mine:NoExecute", "node.kubernetes.io/not-ready:NoExecute"]),
        );
        check(json!([taint(not_ready, "NoExecute")]), Some(EvictionReason::NotReady), None);
        check(
            json!([taint(not_ready, "NoExecute"), taint(not_ready, "NoSchedule")]),
            Some(EvictionReason::Unreachable),
            Some(&["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]),
        );
        check(json!([taint(unreachable, "NoExecute"), mine]), None, Some(&["mine:NoExecute"]));
    }
}

#[test]
fn deprecated_labels_are_set_too() {
    let check = |labels: &[(&str, &str)], expected: &[(&'static str, &str)]| {
        let expected: Vec<_> = expected.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        assert_eq!(missing(&labels.iter().copied().collect()), expected);
    };
    check(&[], &[]);
    check(&[("kubernetes.io/os", "linux")], &[("beta.kubernetes.io/os", "linux")]);
    check(
        &[("kubernetes.io/arch", "arm"), ("beta.kubernetes.io/arch", "x")],
        &[("beta.kubernetes.io/arch", "arm")],
    );
    check(&[("kubernetes.io/os", "linux"), ("beta.kubernetes.io/os", "linux")], &[]);
}

mod health {
    use super::*;

    fn ready(status: &str, heartbeat: i64) -> Value {
        json!([{"type": "Ready", "status": status, "lastHeartbeatTime": at(heartbeat)}, {"type": "Custom", "status": "True"}])
    }

    fn find(conditions: Value, renewed: Option<i64>, known: Option<&Health>, now: i64) -> HealthCheck {
        check_health(&node(json!({}), conditions), renewed.map(at), known, &NodeLifecycle::default(), at(now))
    }

    #[test]
    fn a_node_without_heartbeats_for_its_grace_period_is_unknown() {
        let first = find(ready("True", 5), Some(7), None, 1000);
        assert!(first.conditions.is_none(), "nobody is declared silent at first sight");
        let second = find(ready("True", 5), Some(7), Some(&first.health), 1050);
        assert!(second.conditions.is_none());
        let renewed = find(ready("True", 5), Some(8), Some(&second.health), 1050);
        assert_eq!(renewed.health.last_heartbeat, at(1050), "its lease is enough");
        let posted = find(ready("True", 6), Some(7), Some(&second.health), 1050);
        assert_eq!(posted.health.last_heartbeat, at(1050), "and so is its status");

        let silent = find(ready("True", 5), Some(7), Some(&second.health), 1051);
        assert_eq!((silent.before.as_deref(), silent.after.as_deref()), (Some("True"), Some("Unknown")));
        let conditions = silent.conditions.expect("it is silent");
        let reported: Vec<_> =
            conditions.iter().map(|one| format!("{} {} {}", one.r#type, one.status, one.reason)).collect();
        let expected = [
            "Ready Unknown NodeStatusUnknown",
            "Custom True ",
            "MemoryPressure Unknown NodeStatusNeverUpdated",
            "DiskPressure Unknown NodeStatusNeverUpdated",
            "PIDPressure Unknown NodeStatusNeverUpdated",
        ];
        assert_eq!(reported, expected);
        let again = find(ready("Unknown", 5), Some(7), Some(&silent.health), 2000);
        assert!(again.conditions.is_none(), "it is reported once");
    }

    #[test]
    fn a_node_that_never_reported_has_a_minute_from_its_creation() {
        let early = find(json!([]), None, None, 60);
        assert!(early.conditions.is_none() && early.after.is_none());
        let late = find(json!([]), None, Some(&early.health), 61);
        assert_eq!(late.conditions.map(|all| all.len()), Some(4));
        assert_eq!(late.before, None);
        let leased = find(json!([]), Some(50), Some(&early.health), 61);
        assert!(leased.conditions.is_none(), "it renews its lease");
    }
}

mod zones {
    use super::*;

    fn census(zones: &[(&str, usize, usize)]) -> BTreeMap<String, Census> {
        zones
            .iter()
            .map(|(zone, ready, not_ready)| {
                ((*zone).to_owned(), Census { ready: *ready, not_ready: *not_ready })
            })
            .collect()
    }

    /// Returns how many of `count` waiting nodes of zone `z` are tainted within `seconds`.
    fn tainted(zones: &mut Zones, count: usize, seconds: u64) -> usize {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let start = clock.instant();
        for n in 0..count {
            zones.enqueue("z", &format!("n{n}"));
        }
        let mut done = 0;
        for second in 0..seconds {
            let now = start + Duration::from_secs(second);
            while let Some(node) = zones.due("z", now) {
                zones.mark_tainted("z", &node, now);
                done += 1;
            }
        }
        done
    }

    #[tokio::test(start_paused = true)]
    async fn the_worse_a_zone_the_slower_its_nodes_are_tainted() {
        let now = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time")).instant();
        let check = |ready: usize, not_ready: usize, seconds: u64, expected: usize| {
            let mut zones = Zones::default();
            zones.assess(&census(&[("z", ready, not_ready), ("other", 1, 0)]), now);
            assert_eq!(tainted(&mut zones, not_ready, seconds), expected, "{ready} ready, {not_ready} not");
        };
        check(10, 3, 100, 3);
        check(10, 8, 100, 8);
        check(60, 20, 100, 10);
        check(1, 2, 100, 2);
        check(2, 3, 1000, 0);
        check(20, 30, 1000, 0);
        check(20, 31, 1000, 10);
        check(0, 5, 1000, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn no_node_is_tainted_when_no_node_is_ready() {
        let now = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time")).instant();
        let mut zones = Zones::default();
        assert_eq!(zones.assess(&census(&[("z", 2, 0), ("y", 1, 0)]), now), OutageChange::None);
        zones.enqueue("z", "early");
        assert_eq!(zones.assess(&census(&[("z", 0, 2), ("y", 0, 1)]), now), OutageChange::Started);
        assert_eq!(zones.assess(&census(&[("z", 0, 2), ("y", 0, 1)]), now), OutageChange::None);
        assert_eq!(tainted(&mut zones, 2, 1000), 0);
        assert_eq!(zones.assess(&census(&[("z", 1, 1), ("y", 0, 1)]), now), OutageChange::Ended);
        assert_eq!(tainted(&mut zones, 1, 1000), 1);
    }
}
