//! Scheduling: which pod gets which node, in what order, and which pods are preempted.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{Event, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::scenarios::{anything, create, key, parts, patch, survives, until};

/// A pod that requests this many of the node's 32 CPUs.
pub(crate) fn pod(cpus: u32, fields: Value) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus.to_string()}}}]});
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({"spec": spec})
}

/// Waits until pods can be created: they need a service account.
pub(crate) async fn account(world: &World) {
    until::<ServiceAccount>(world, "default", |_| true).await;
}

pub(crate) async fn class(world: &World, name: &str, value: i32) {
    let body = json!({"metadata": {"name": name}, "value": value});
    world.create(&Kind::of::<PriorityClass>(), None, body).await;
}

pub(crate) fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

/// Returns why the pod is not scheduled, according to its condition.
fn condition(pod: &Value) -> (&str, &str) {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let scheduled = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
    let text = |field: &str| scheduled.and_then(|condition| condition[field].as_str()).unwrap_or("");
    (text("reason"), text("message"))
}

fn preempted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        class(world, "high", 1000).await;
        create::<Pod>(world, "low", pod(20, json!({}))).await;
        create::<Pod>(world, "small", pod(10, json!({}))).await;
        until::<Pod>(world, "low", runs).await;
        until::<Pod>(world, "small", runs).await;
        create::<Pod>(world, "high", pod(20, json!({"priorityClassName": "high"}))).await;
        until::<Pod>(world, "high", runs).await;
    }
    .boxed_local()
}

/// No pod is preempted unnecessarily.
fn only_one_goes(history: &History) -> Result<(), String> {
    let gone = history.changes().filter(|(change, object)| {
        *change == EventKind::Deleted && object["kind"] == "Pod" && object["metadata"]["name"] != "low"
    });
    match gone.map(|(_, object)| object["metadata"]["name"].to_string()).next() {
        Some(other) => Err(format!("{other} is gone too")),
        None => Ok(()),
    }
}

#[test]
fn a_preemption_survives_every_crash_and_every_stale_or_hidden_event() {
    survives("preemption", &[], preempted, only_one_goes);
}

#[test]
fn a_victim_gets_an_event_and_the_preemptor_gets_its_node() {
    World::simulate(1, parts(&[]), Vec::new(), async |world| {
        preempted(world).await;
        world.pass(Duration::from_secs(5)).await;
        assert!(world.get(&Kind::of::<Pod>(), &key("low")).await.is_none());
        let high = world.get(&Kind::of::<Pod>(), &key("high")).await.expect("it runs");
        let events = world.list(&Kind::of::<Event>(), Some("default")).await;
        let expected =
            format!("Preempted by pod {} on node node-0", high["metadata"]["uid"].as_str().unwrap_or(""));
        let reported = events
            .iter()
            .any(|event| event["reason"] == "Preempted" && event["message"] == expected.as_str());
        assert!(reported, "{events:#?}");
    });
}

#[test]
fn a_pod_that_may_not_preempt_waits_and_reports_why() {
    World::simulate(1, parts(&[]), Vec::new(), async |world| {
        let kind = Kind::of::<PriorityClass>();
        world
            .create(
                &kind,
                None,
                json!({"metadata": {"name": "patient"}, "value": 10, "preemptionPolicy": "Never"}),
            )
            .await;
        create::<Pod>(world, "low", pod(20, json!({}))).await;
        until::<Pod>(world, "low", runs).await;
        create::<Pod>(world, "waits", pod(20, json!({"priorityClassName": "patient"}))).await;
        let expected = "0/1 nodes are available: 1 Insufficient cpu. \
                        no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.";
        until::<Pod>(world, "waits", |pod| condition(pod) == ("Unschedulable", expected)).await;
        let waits = world.get(&Kind::of::<Pod>(), &key("waits")).await.expect("it waits");
        let reported = &waits["status"]["conditions"][0];
        assert_eq!(reported["observedGeneration"], 1, "{reported}");
        assert!(reported["lastTransitionTime"].is_string(), "{reported}");
        let gone = setpoint::client::DeleteOptions::default();
        world.client().delete(&Kind::of::<Pod>(), &key("low"), &gone).await.expect("the user's own call");
        until::<Pod>(world, "waits", runs).await;
    });
}

#[test]
fn a_gated_pod_waits_until_its_last_gate_opens() {
    World::simulate(1, parts(&[]), Vec::new(), async |world| {
        let gates = json!([{"name": "example.com/a"}, {"name": "example.com/b"}]);
        create::<Pod>(world, "gated", pod(1, json!({"schedulingGates": gates}))).await;
        world.pass(Duration::from_secs(60)).await;
        until::<Pod>(world, "gated", |pod| condition(pod).0 == "SchedulingGated").await;
        patch::<Pod>(world, "gated", json!({"spec": {"schedulingGates": [{"name": "example.com/b"}]}})).await;
        world.pass(Duration::from_secs(60)).await;
        until::<Pod>(world, "gated", |pod| condition(pod).0 == "SchedulingGated").await;
        patch::<Pod>(world, "gated", json!({"spec": {"schedulingGates": null}})).await;
        until::<Pod>(world, "gated", runs).await;
    });
}

/// The node has room for one pod at a time. When it is free, the pod with the higher priority is next.
#[test]
fn of_two_pending_pods_the_one_with_the_higher_priority_is_scheduled_first() {
    World::simulate(1, parts(&[]), Vec::new(), async |world| {
        for (name, value) in [("first", 30), ("second", 20), ("third", 10)] {
            class(world, name, value).await;
        }
        let polite = |class: &str| json!({"priorityClassName": class});
        create::<Pod>(world, "holds", pod(32, polite("first"))).await;
        until::<Pod>(world, "holds", runs).await;
        create::<Pod>(world, "late", pod(32, polite("third"))).await;
        create::<Pod>(world, "early", pod(32, polite("second"))).await;
        world.pass(Duration::from_secs(60)).await;
        let gone = setpoint::client::DeleteOptions::default();
        world.client().delete(&Kind::of::<Pod>(), &key("holds"), &gone).await.expect("the user's own call");
        until::<Pod>(world, "early", runs).await;
        let late = world.get(&Kind::of::<Pod>(), &key("late")).await.expect("it waits");
        assert_eq!(late["status"]["phase"], "Pending");
    });
}

/// A pod that loses the room that was being made for it gets room elsewhere.
#[test]
fn a_pod_that_loses_its_nominated_node_is_rescheduled_at_once() {
    World::simulate(1, parts(&[]), Vec::new(), async |world| {
        account(world).await;
        for (name, value) in [("high", 30), ("medium", 20)] {
            class(world, name, value).await;
        }
        for name in ["a", "b"] {
            let mut slow = pod(16, json!({"terminationGracePeriodSeconds": 600}));
            slow["metadata"]["annotations"] = json!({"node.setpoint.dev/terminate-after": "600s"});
            create::<Pod>(world, name, slow).await;
            until::<Pod>(world, name, runs).await;
        }
        create::<Pod>(world, "medium", pod(16, json!({"priorityClassName": "medium"}))).await;
        until::<Pod>(world, "medium", |pod| pod["status"]["nominatedNodeName"] == "node-0").await;
        create::<Pod>(world, "high", pod(16, json!({"priorityClassName": "high"}))).await;
        world.pass(Duration::from_secs(30)).await;
        for name in ["a", "b"] {
            let victim = world.get(&Kind::of::<Pod>(), &key(name)).await.expect("it takes its time");
            assert!(victim["metadata"]["deletionTimestamp"].is_string(), "{name} makes no room");
        }
    });
}

#[test]
fn unschedulable_pods_cost_nothing_while_nothing_changes() {
    survives("unschedulable", &[], unschedulable, anything);
    World::simulate(1, parts(&[]), Vec::new(), async |world| {
        unschedulable(world).await;
        let before = pod_writes(world);
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(pod_writes(world), before);
    });
}

fn unschedulable(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        create::<Pod>(world, "huge", pod(64, json!({}))).await;
        let expected = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
                        1 Preemption is not helpful for scheduling.";
        until::<Pod>(world, "huge", |pod| condition(pod) == ("Unschedulable", expected)).await;
    }
    .boxed_local()
}

fn pod_writes(world: &World) -> usize {
    world.history().changes().filter(|(_, object)| object["kind"] == "Pod").count()
}
