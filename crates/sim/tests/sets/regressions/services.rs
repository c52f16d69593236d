//! EndpointSlices, disruption budgets and quotas.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::{DeleteOptions, PropagationPolicy};
use setpoint_cluster::Components;
use setpoint_sim::World;

use super::{delete, gone, is_leaving, ready, replicas, runs, runs_with, set_status, small, uid};
use crate::sets::scenarios::{anything, create, holds, key, parts, patch, until};
use crate::sets::scheduling::{account, runs as is_running};

fn service() -> Value {
    json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
}

pub(crate) fn sliced(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Service>(world, "web", service()).await;
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        patch::<Service>(world, "web", json!({"metadata": {"labels": {"colour": "red"}}})).await;
        world.pass(Duration::from_secs(90)).await;
    }
    .boxed_local()
}

/// Returns the slices of the service, without those of the API server itself.
async fn slices(world: &World) -> Vec<Value> {
    let mut all = world.list(&Kind::of::<EndpointSlice>(), Some("default")).await;
    all.retain(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web");
    all
}

/// A service is deleted and recreated before its slices are collected.
fn made_again(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Service>(world, "web", service()).await;
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        world.pass(Duration::from_secs(30)).await;
        delete::<Service>(world, "web", PropagationPolicy::Background).await;
        create::<Service>(world, "web", service()).await;
        let owner = uid::<Service>(world, "web").await;
        world.pass(Duration::from_secs(60)).await;
        let slices = slices(world).await;
        assert_eq!(slices.len(), 1, "{slices:?}");
        assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], owner);
    }
    .boxed_local()
}

#[test]
fn a_service_that_is_made_again_has_a_slice_of_its_own() {
    runs(&["replicaset", "endpointslice"], made_again, anything);
}

/// A pod is assigned to a node that does not exist.
fn lost_node(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Service>(world, "web", service()).await;
        account(world).await;
        let mut lost = small();
        lost["metadata"]["labels"] = json!({"app": "web"});
        lost["spec"]["nodeName"] = json!("lost");
        create::<Pod>(world, "lost", lost).await;
        let condition = json!({"type": "Ready", "status": "True"});
        let status = json!({"phase": "Running", "podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}],
            "conditions": [condition]});
        set_status::<Pod>(world, "lost", status).await;
        let mut found = small();
        found["metadata"]["labels"] = json!({"app": "web"});
        create::<Pod>(world, "found", found).await;
        until::<Pod>(world, "found", is_running).await;
        world.pass(Duration::from_secs(60)).await;
        let slices = slices(world).await;
        let endpoints: usize =
            slices.iter().map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).sum();
        assert_eq!(endpoints, 1, "the other pod is served: {slices:?}");
    }
    .boxed_local()
}

#[test]
fn a_pod_on_an_unknown_node_does_not_keep_the_others_out_of_the_slices() {
    runs(&["endpointslice"], lost_node, anything);
}

async fn budget_of_two(world: &World) {
    account(world).await;
    let budget = json!({"spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "w"}}}});
    create::<PodDisruptionBudget>(world, "budget", budget).await;
    for name in ["p", "q", "r"] {
        let mut body = small();
        body["metadata"]["labels"] = json!({"app": "w"});
        create::<Pod>(world, name, body).await;
        until::<Pod>(world, name, is_running).await;
    }
    let allowed = |budget: &Value| budget["status"]["disruptionsAllowed"] == 1;
    until::<PodDisruptionBudget>(world, "budget", allowed).await;
}

/// Another controller has written its own condition.
fn reviewed(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        budget_of_two(world).await;
        let budget =
            world.get(&Kind::of::<PodDisruptionBudget>(), &key("budget")).await.expect("it is there");
        let mut conditions = budget["status"]["conditions"].clone();
        let reviewed = json!({"type": "example.com/Reviewed", "status": "True", "reason": "Reviewed",
            "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"});
        conditions.as_array_mut().expect("a list").push(reviewed);
        set_status::<PodDisruptionBudget>(world, "budget", json!({"conditions": conditions})).await;
        delete::<Pod>(world, "p", PropagationPolicy::Background).await;
        gone::<Pod>(world, "p").await;
        until::<PodDisruptionBudget>(world, "budget", |budget| budget["status"]["disruptionsAllowed"] == 0)
            .await;
        until::<PodDisruptionBudget>(world, "budget", |budget| holds(budget, "example.com/Reviewed")).await;
    }
    .boxed_local()
}

#[test]
fn the_conditions_of_others_on_a_budget_stay() {
    runs(&["disruption"], reviewed, anything);
}

/// A pod is deleted on a node that is down, so it never terminates.
fn overdue(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "1"}}})).await;
        let mut stuck = small();
        stuck["spec"]["nodeName"] = json!("down");
        create::<Pod>(world, "stuck", stuck).await;
        set_status::<Pod>(world, "stuck", json!({"phase": "Running"})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["used"]["pods"] == "1").await;
        let graceful = DeleteOptions { grace_period_seconds: Some(30), ..DeleteOptions::default() };
        world
            .client()
            .delete(&Kind::of::<Pod>(), &key("stuck"), &graceful)
            .await
            .expect("the user's own call");
        until::<ResourceQuota>(world, "few", |few| few["status"]["used"]["pods"] == "0").await;
        until::<Pod>(world, "stuck", is_leaving).await;
    }
    .boxed_local()
}

#[test]
fn a_pod_that_should_have_ended_by_now_counts_for_no_quota() {
    runs_with(Components { nodes: 0, ..parts(&["resourcequota"]) }, overdue, anything);
}
