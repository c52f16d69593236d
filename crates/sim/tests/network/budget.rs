//! Disruption budgets.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::Key;
use setpoint::client::Subresource;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::scenarios::{create, delete, found, kind, parts, pod, running, survives, survives_within, until};

fn allows(budget: &Value, count: i32) -> bool {
    budget["status"]["disruptionsAllowed"] == count
        && budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
}

/// Two pods, of which one must stay. Then there is only one.
fn budget(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}});
        create(world, "PodDisruptionBudget", "b", json!({"spec": spec})).await;
        for (name, ip) in [("p", "10.1.0.1"), ("q", "10.1.0.2")] {
            pod(world, name, "w").await;
            running(world, name, ip, true).await;
        }
        until(world, "PodDisruptionBudget", "b", |budget| allows(budget, 1)).await;
        delete(world, "Pod", "q").await;
        until(world, "PodDisruptionBudget", "b", |budget| allows(budget, 0)).await;
    }
    .boxed_local()
}

#[test]
fn a_budget_survives_every_crash_and_every_stale_or_hidden_event() {
    survives("budget", &["disruption"], budget);
}

/// Requests the eviction of a pod. Returns whether it was granted.
async fn evict(world: &World, name: &str) -> bool {
    let key = Key::namespaced("default", name);
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    match world.client().post(&kind("Pod"), &key, Subresource::Eviction, &body).await {
        Ok(()) => true,
        Err(error) if error.is_too_many_requests() => false,
        Err(error) => panic!("cannot evict {name}: {error}"),
    }
}

async fn evict_in_time(world: &World, name: &str) {
    while !evict(world, name).await {
        world.pass(Duration::from_secs(1)).await;
    }
}

/// Three pods, of which two must stay: each eviction has to wait until the previous pod is replaced.
fn evictions(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        let spec = json!({"minAvailable": 2, "selector": {"matchLabels": {"app": "w"}}});
        create(world, "PodDisruptionBudget", "b", json!({"spec": spec})).await;
        for (name, ip) in [("p", "10.1.0.1"), ("q", "10.1.0.2"), ("r", "10.1.0.3")] {
            pod(world, name, "w").await;
            running(world, name, ip, true).await;
        }
        evict_in_time(world, "p").await;
        assert!(!evict(world, "q").await, "two must stay");
        pod(world, "s", "w").await;
        running(world, "s", "10.1.0.4", true).await;
        evict_in_time(world, "q").await;
        until(world, "PodDisruptionBudget", "b", |budget| allows(budget, 0)).await;
    }
    .boxed_local()
}

/// Once three pods were ready, there are never fewer than two.
fn two_stay(history: &History) -> Result<(), String> {
    let mut ready = BTreeSet::new();
    let mut complete = false;
    for (change, object) in history.changes().filter(|(_, object)| object["kind"] == "Pod") {
        let name = object["metadata"]["name"].to_string();
        let gone = change == EventKind::Deleted || object["metadata"]["deletionTimestamp"].is_string();
        let conditions = object["status"]["conditions"].as_array();
        let is_ready =
            |all: &Vec<Value>| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        if !gone && conditions.is_some_and(is_ready) {
            ready.insert(name)
        } else {
            ready.remove(&name)
        };
        complete |= ready.len() == 3;
        if complete && ready.len() < 2 {
            return Err(format!("only {ready:?} are left"));
        }
    }
    Ok(())
}

#[test]
fn a_budget_is_never_overdrawn() {
    survives_within("evictions", parts(&["disruption"]), evictions, two_stay);
}
