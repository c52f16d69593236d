//! Autoscalers.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::Subresource;
use setpoint_sim::World;

use super::scenarios::{create, delete, patch, survives, until};

fn has_reason(hpa: &Value, condition: &str, reason: &str) -> bool {
    let conditions = hpa["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["reason"] == reason))
}

/// A target below the minimum is raised to it. Then the bounds change.
fn bounds(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let labels = json!({"app": "w"});
        let containers = json!([{"name": "c", "image": "i"}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
        create(world, "ReplicaSet", "r", json!({"spec": spec})).await;
        let target = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r"});
        let spec = json!({"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 5});
        create(world, "HorizontalPodAutoscaler", "h", json!({"spec": spec})).await;
        until(world, "ReplicaSet", "r", |set| set["spec"]["replicas"] == 3).await;
        until(world, "HorizontalPodAutoscaler", "h", |hpa| {
            has_reason(hpa, "ScalingActive", "FailedGetResourceMetric")
        })
        .await;
        let fewer = json!({"spec": {"minReplicas": 1, "maxReplicas": 2}});
        patch(world, "HorizontalPodAutoscaler", "h", Subresource::None, fewer).await;
        until(world, "ReplicaSet", "r", |set| set["spec"]["replicas"] == 2).await;
        until(world, "HorizontalPodAutoscaler", "h", |hpa| hpa["status"]["currentReplicas"] == 2).await;
        // Without metrics, the status shows the last desired scale, if it was written before a crash. Delete the
        // autoscaler, and keep the target.
        delete(world, "HorizontalPodAutoscaler", "h").await;
    }
    .boxed_local()
}

#[test]
fn an_autoscaler_survives_every_crash_and_every_stale_or_hidden_event() {
    survives("autoscaler", &["horizontalpodautoscaling"], bounds);
}
