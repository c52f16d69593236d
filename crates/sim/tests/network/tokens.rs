//! Tokens by which machines join.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::json;
use setpoint::{Key, Kind};
use setpoint_sim::World;

use crate::land::{kind, survives};

async fn create_in(world: &World, namespace: &str, kind: &Kind, name: &str, mut body: serde_json::Value) {
    body["metadata"]["name"] = json!(name);
    world.create(kind, Some(namespace), body).await;
}

/// A token signs the config map until it expires.
fn token(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let info = json!({"data": {"kubeconfig": "hello"}});
        create_in(world, "kube-public", &kind("ConfigMap"), "cluster-info", info).await;
        let fields = json!({
            "token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-signing": "true", "expiration": "2025-01-01T00:10:00Z",
        });
        let token = json!({"type": "bootstrap.kubernetes.io/token", "stringData": fields});
        create_in(world, "kube-system", &kind("Secret"), "bootstrap-token-abcdef", token).await;
        let info = Key::namespaced("kube-public", "cluster-info");
        let signed = |map: Option<&serde_json::Value>| {
            map.is_some_and(|map| map["data"]["jws-kubeconfig-abcdef"].is_string())
        };
        world.until(&kind("ConfigMap"), &info, signed).await;
        world.until(&kind("ConfigMap"), &info, |map| !signed(map)).await;
        let token = Key::namespaced("kube-system", "bootstrap-token-abcdef");
        assert!(world.get(&kind("Secret"), &token).await.is_none());
    }
    .boxed_local()
}

#[test]
fn bootstrap_tokens_survive_every_crash_and_every_stale_or_hidden_event() {
    survives("bootstrap tokens", &["bootstrapsigner", "tokencleaner"], token);
}
