//! Bootstrap tokens, and unused service account tokens.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_controllers::Options;
use setpoint_sim::World;

use super::scenarios::{create, kind, parts, survives, survives_with};

pub(crate) async fn create_in(
    world: &World,
    namespace: &str,
    kind: &Kind,
    name: &str,
    mut body: serde_json::Value,
) {
    body["metadata"]["name"] = json!(name);
    world.create(kind, Some(namespace), body).await;
}

/// A token signs the ConfigMap until it expires.
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

const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Creates a Secret with a token of the account.
async fn kept(world: &World, account: &Value, name: &str, labels: Value) {
    let annotations = json!({
        "kubernetes.io/service-account.name": account["metadata"]["name"],
        "kubernetes.io/service-account.uid": account["metadata"]["uid"],
    });
    let metadata = json!({"labels": labels, "annotations": annotations});
    let body = json!({"metadata": metadata, "type": "kubernetes.io/service-account-token"});
    create(world, "Secret", name, body).await;
}

/// Of the tokens created for an account, the unused one is invalidated and then deleted.
fn retired(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let tracking = "kube-apiserver-legacy-service-account-token-tracking";
        let since = json!({"data": {"since": "2024-01-01"}});
        create_in(world, "kube-system", &kind("ConfigMap"), tracking, since).await;
        let listed = json!({"secrets": [{"name": "unused"}, {"name": "used"}]});
        create(world, "ServiceAccount", "robot", listed).await;
        let robot = world.get(&kind("ServiceAccount"), &Key::namespaced("default", "robot")).await;
        let robot = robot.expect("the account was made");
        kept(world, &robot, "unused", json!({})).await;
        kept(world, &robot, "used", json!({LAST_USED: "2025-12-31"})).await;
        kept(world, &robot, "somebodys", json!({})).await;
        let labels = async |name: &str| {
            let secret = world.get(&kind("Secret"), &Key::namespaced("default", name)).await;
            secret.map(|secret| secret["metadata"]["labels"].clone())
        };
        // The controller runs once a day. If it fails in a storm, the next run makes up for it.
        const ROUNDS: usize = 14;
        world.pass(DAY + DAY / 2).await;
        let mut invalid = labels("unused").await.expect("a token is invalid before it goes");
        for _ in 0..ROUNDS {
            if invalid[INVALID_SINCE].is_string() {
                break;
            }
            world.pass(DAY).await;
            invalid = labels("unused").await.expect("a token is invalid before it goes");
        }
        assert!(invalid[INVALID_SINCE].is_string(), "{invalid}");
        world.pass(3 * DAY).await;
        for _ in 0..ROUNDS {
            if labels("unused").await.is_some() {
                world.pass(DAY).await;
            }
        }
        assert_eq!(labels("unused").await, None);
        for stays in ["used", "somebodys"] {
            let labels = labels(stays).await.expect("a token that stays");
            assert!(labels[INVALID_SINCE].is_null(), "{stays}: {labels}");
        }
    }
    .boxed_local()
}

#[test]
fn retiring_tokens_survives_every_crash_and_every_stale_or_hidden_event() {
    let an_hour = Duration::from_secs(3600);
    let controller_options = Options { legacy_token_clean_up_period: an_hour, ..Options::default() };
    let parts = parts(&["legacy-serviceaccount-token-cleaner-controller"]);
    survives_with("unused tokens", Components { controller_options, ..parts }, retired);
}
