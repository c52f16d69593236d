//! Objects in every namespace: the service account and the API server's certificate. Also service account tokens.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::Key;
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint_cluster::Components;
use setpoint_controllers::{Options, TokenSigner};
use setpoint_sim::World;

use super::scenarios::{create, delete, kind, parts, survives, survives_with, until};

/// Generated for these tests and used nowhere else.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYv+TGSc+hZx+HXL4
u6wvx4HPTvU6+xQF9H2fv6nEcYehRANCAARg9h3X5EX6bnkDgkmr/wnYxHHeg9Jg
ERBA0x2Ijvd5k8+KeDp/prlYWB9fHW/tr8baRyPe66Nnb9kq5a/9CObt
-----END PRIVATE KEY-----\n";

/// Deletes an object that every namespace has, and waits until it is restored.
async fn comes_back(world: &World, kind_name: &str, name: &str) {
    let (kind, key) = (kind(kind_name), Key::namespaced("team", name));
    world.until(&kind, &key, |object| object.is_some()).await;
    let first = world.get(&kind, &key).await.expect("it was there a moment ago");
    world.client().delete(&kind, &key, &DeleteOptions::default()).await.expect("the user's own call");
    let is_another =
        |object: Option<&Value>| object.is_some_and(|it| it["metadata"]["uid"] != first["metadata"]["uid"]);
    world.until(&kind, &key, is_another).await;
}

fn accounts(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "Namespace", "team", json!({})).await;
        comes_back(world, "ServiceAccount", "default").await;
    }
    .boxed_local()
}

#[test]
fn accounts_of_namespaces_survive_every_crash_and_every_stale_or_hidden_event() {
    survives("accounts", &["serviceaccount"], accounts);
}

/// The certificate is in every namespace. It is restored if deleted, and corrected if changed.
fn certificate(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "Namespace", "team", json!({})).await;
        comes_back(world, "ConfigMap", "kube-root-ca.crt").await;
        let (maps, key) = (kind("ConfigMap"), Key::namespaced("team", "kube-root-ca.crt"));
        let wrong = Patch::merge(&json!({"data": {"ca.crt": "wrong"}}));
        world.client().patch(&maps, &key, Subresource::None, wrong).await.expect("the user's own call");
        world.until(&maps, &key, |map| map.is_some_and(|map| map["data"]["ca.crt"] == "the authority")).await;
    }
    .boxed_local()
}

#[test]
fn the_certificate_of_the_api_server_survives_crashes_and_stale_events() {
    let controller_options = Options { root_ca: Some("the authority".into()), ..Options::default() };
    let parts = Components { controller_options, ..parts(&["root-ca-cert-publisher"]) };
    survives_with("root certificate", parts, certificate);
}

fn token_of(account: &str) -> Value {
    json!({"type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": account}}})
}

/// A Secret gets its token, and is deleted with its account. A Secret of an account that never existed is deleted
/// immediately.
fn tokens(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceAccount", "robot", json!({})).await;
        create(world, "Secret", "of-robot", token_of("robot")).await;
        until(world, "Secret", "of-robot", |secret| secret["data"]["token"].is_string()).await;
        create(world, "Secret", "of-nobody", token_of("nobody")).await;
        delete(world, "ServiceAccount", "robot").await;
        for name in ["of-robot", "of-nobody"] {
            let key = Key::namespaced("default", name);
            world.until(&kind("Secret"), &key, |secret| secret.is_none()).await;
        }
        create(world, "ServiceAccount", "clerk", json!({})).await;
        create(world, "Secret", "of-clerk", token_of("clerk")).await;
        until(world, "Secret", "of-clerk", |secret| secret["data"]["token"].is_string()).await;
    }
    .boxed_local()
}

#[test]
fn tokens_of_accounts_survive_crashes_and_stale_events() {
    let token_signer = Some(TokenSigner::from_pem(KEY).expect("a key"));
    let controller_options = Options { token_signer, root_ca: Some("ca".into()), ..Options::default() };
    let parts = Components { controller_options, ..parts(&["serviceaccount-token"]) };
    survives_with("tokens", parts, tokens);
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Two tokens have been unused for long, and one of them is mounted: it stays. The other one is invalidated and
/// deleted.
fn unused(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let tracking = "kube-apiserver-legacy-service-account-token-tracking";
        let (maps, key) = (kind("ConfigMap"), Key::namespaced("kube-system", tracking));
        let since = json!({"metadata": {"name": tracking}, "data": {"since": "2024-01-01"}});
        match world.get(&maps, &key).await {
            None => _ = world.create(&maps, Some("kube-system"), since).await,
            Some(_) => {
                let patched =
                    world.client().patch(&maps, &key, Subresource::None, Patch::merge(&since)).await;
                patched.expect("the user's own call");
            }
        }
        create(world, "ServiceAccount", "robot", json!({"secrets": [{"name": "old"}, {"name": "mounted"}]}))
            .await;
        create(world, "ServiceAccount", "default", json!({})).await;
        for name in ["old", "mounted"] {
            create(world, "Secret", name, token_of("robot")).await;
        }
        let volumes = json!([{"name": "t", "secret": {"secretName": "mounted"}}]);
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
        create(world, "Pod", "p", json!({"spec": spec})).await;
        world.pass(6 * DAY).await;
        let secret = async |name: &str| world.get(&kind("Secret"), &Key::namespaced("default", name)).await;
        assert!(secret("old").await.is_none(), "{}", world.trace().text());
        assert!(secret("mounted").await.is_some());
    }
    .boxed_local()
}

#[test]
fn unused_tokens_are_deleted_whatever_happens() {
    let legacy_token_clean_up_period = Duration::from_secs(20 * 3600);
    let controller_options = Options { legacy_token_clean_up_period, ..Options::default() };
    let parts = Components { controller_options, ..parts(&["legacy-service-account-token-cleaner"]) };
    survives_with("unused tokens", parts, unused);
}
