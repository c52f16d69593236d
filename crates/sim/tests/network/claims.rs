//! Resource claims created from templates for pods.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::json;
use setpoint::client::Subresource;
use setpoint_sim::World;

use super::scenarios::{create, found, patch, survives, until, until_all};

/// A pod gets its own claim, which is deleted when the pod has finished.
fn claims(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        let request = json!({"name": "r", "exactly": {"deviceClassName": "ghost.example.com"}});
        let spec = json!({"metadata": {"labels": {"l": "1"}}, "spec": {"devices": {"requests": [request]}}});
        create(world, "ResourceClaimTemplate", "t", json!({"spec": spec})).await;
        let asks = json!([{"name": "dev", "resourceClaimTemplateName": "t"}]);
        let containers = json!([{"name": "c", "image": "i"}]);
        let spec = json!({"nodeName": "n", "containers": containers, "resourceClaims": asks});
        create(world, "Pod", "p", json!({"spec": spec})).await;
        until(world, "Pod", "p", |pod| {
            pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].is_string()
        })
        .await;
        until_all(world, "ResourceClaim", |claims| claims.len() == 1).await;
        patch(world, "Pod", "p", Subresource::Status, json!({"status": {"phase": "Succeeded"}})).await;
        until_all(world, "ResourceClaim", |claims| claims.is_empty()).await;
    }
    .boxed_local()
}

#[test]
fn claims_of_pods_survive_every_crash_and_every_stale_or_hidden_event() {
    survives("claims", &["resource-claim-controller"], claims);
}
