//! DaemonSets.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, ResourceQuota};
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::{another_image, each_pod, runs, runs_with};
use crate::sets::scenarios::{anything, count, create, parts, patch, until};

fn daemons(strategy: Value) -> Value {
    let labels = json!({"app": "agent"});
    let annotations = json!({"node.setpoint.dev/terminate-after": "20s"});
    let template = json!({"metadata": {"labels": &labels, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "a"}]}});
    json!({"spec": {"selector": {"matchLabels": &labels}, "updateStrategy": strategy, "template": template}})
}

fn on_nodes(nodes: usize) -> Components {
    Components { nodes, ..parts(&["daemonset", "resourcequota"]) }
}

fn updated(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<DaemonSet>(world, "agent", daemons(json!({}))).await;
        until::<DaemonSet>(world, "agent", |agent| count(agent, "numberReady") == 1).await;
        patch::<DaemonSet>(world, "agent", another_image()).await;
        let settled =
            |agent: &Value| count(agent, "updatedNumberScheduled") == 1 && count(agent, "numberReady") == 1;
        until::<DaemonSet>(world, "agent", settled).await;
    }
    .boxed_local()
}

/// Terminating pods count until they have ended.
fn one_at_a_time(history: &History) -> Result<(), String> {
    let mut there = BTreeSet::new();
    each_pod(history, |change, pod| {
        let name = pod["metadata"]["name"].to_string();
        let over = change == EventKind::Deleted || pod["status"]["phase"] == "Failed";
        if over {
            there.remove(&name)
        } else {
            there.insert(name)
        };
        if there.len() > 1 { Err(format!("{there:?} are there at once")) } else { Ok(()) }
    })
}

#[test]
fn a_daemon_pod_waits_for_its_predecessor_to_terminate() {
    runs(&["daemonset"], updated, one_at_a_time);
}

/// A quota denies all pods at first, and is then raised.
fn allowed_later(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "0"}}})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["hard"]["pods"] == "0").await;
        create::<DaemonSet>(world, "agent", daemons(json!({}))).await;
        world.pass(Duration::from_secs(5)).await;
        patch::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "5"}}})).await;
        let raised = world.clock().now();
        until::<DaemonSet>(world, "agent", |agent| count(agent, "numberReady") == 3).await;
        let took = world.clock().now().duration_since(raised);
        assert!(took.as_secs() < 180, "it took {took}");
    }
    .boxed_local()
}

#[test]
fn daemon_pods_are_created_soon_after_a_quota_is_raised() {
    runs_with(on_nodes(3), allowed_later, anything);
}

/// A node is tainted after it got its daemon, then the template changes.
fn tainted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let bounds = json!({"maxSurge": 1, "maxUnavailable": 0});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": bounds});
        create::<DaemonSet>(world, "agent", daemons(strategy)).await;
        until::<DaemonSet>(world, "agent", |agent| count(agent, "numberReady") == 2).await;
        let taints = json!([{"key": "example.com/busy", "effect": "NoSchedule"}]);
        let taint = Patch::merge(&json!({"spec": {"taints": taints}}));
        let node = Key::cluster("node-1");
        let tainted = world.client().patch(&Kind::of::<Node>(), &node, Subresource::None, taint).await;
        tainted.expect("the user's own call");
        until::<DaemonSet>(world, "agent", |agent| count(agent, "desiredNumberScheduled") == 1).await;
        patch::<DaemonSet>(world, "agent", another_image()).await;
        let settled = |agent: &Value| {
            count(agent, "updatedNumberScheduled") == 1 && count(agent, "numberMisscheduled") == 0
        };
        until::<DaemonSet>(world, "agent", settled).await;
    }
    .boxed_local()
}

#[test]
fn a_surging_update_skips_nodes_that_should_not_run_the_daemon() {
    runs_with(on_nodes(2), tainted, anything);
}
