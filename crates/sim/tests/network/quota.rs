//! Quotas.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint_sim::World;

use super::scenarios::{create, delete, survives, until};

fn used(quota: &Value) -> &Value {
    &quota["status"]["used"]["count/secrets"]
}

/// A Secret that is older than the quota is counted, and released when it is deleted.
fn counted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "Secret", "a", json!({})).await;
        create(world, "Secret", "b", json!({})).await;
        create(world, "ResourceQuota", "q", json!({"spec": {"hard": {"count/secrets": "5", "pods": "2"}}}))
            .await;
        until(world, "ResourceQuota", "q", |quota| *used(quota) == json!("2")).await;
        delete(world, "Secret", "a").await;
        until(world, "ResourceQuota", "q", |quota| *used(quota) == json!("1")).await;
    }
    .boxed_local()
}

#[test]
fn a_quota_survives_every_crash_and_every_stale_or_hidden_event() {
    survives("quota", &["resourcequota"], counted);
}
