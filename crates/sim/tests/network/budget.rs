//! Disruption budgets.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint_sim::World;

use crate::land::{create, delete, found, pod, running, survives, until};

fn allows(budget: &Value, count: i32) -> bool {
    budget["status"]["disruptionsAllowed"] == count
        && budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
}

/// Two pods of which one must stay; then there is only one.
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
