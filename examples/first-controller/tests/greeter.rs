//! Tests the controller in a simulated cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;
use setpoint::client::DeleteOptions;
use setpoint::{Key, Kind};
use setpoint_example_first_controller::greeter;
use setpoint_sim::TestCluster;

fn namespace(name: &str, greet: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"greet": greet}}})
}

#[test]
fn a_labelled_namespace_is_greeted_and_others_are_not() {
    TestCluster::new().with(greeter).run(async |cluster| {
        cluster.create(namespace("shop", "true")).await;
        cluster.create(namespace("attic", "false")).await;
        let greeting = cluster.until(&Key::namespaced("shop", "greeting"), |_: &ConfigMap| true).await;
        assert_eq!(greeting.data.unwrap_or_default()["text"], "hello, shop");
        cluster.pass(Duration::from_secs(600)).await;
        assert!(cluster.find::<ConfigMap>(&Key::namespaced("attic", "greeting")).await.is_none());
    });
}

#[test]
fn a_deleted_greeting_is_created_again() {
    TestCluster::new().with(greeter).run(async |cluster| {
        cluster.create(namespace("shop", "true")).await;
        let key = Key::namespaced("shop", "greeting");
        let first = cluster.until(&key, |_: &ConfigMap| true).await;
        let deleted =
            cluster.client().delete(&Kind::of::<ConfigMap>(), &key, &DeleteOptions::default()).await;
        deleted.expect("the user may");
        let again = |map: &ConfigMap| map.metadata.uid != first.metadata.uid;
        cluster.until(&key, again).await;
    });
}

#[test]
fn a_deleted_namespace_goes() {
    TestCluster::new().with(greeter).controllers(&["namespace"]).run(async |cluster| {
        cluster.create(namespace("shop", "true")).await;
        cluster.until(&Key::namespaced("shop", "greeting"), |_: &ConfigMap| true).await;
        let key = Key::cluster("shop");
        let deleted =
            cluster.client().delete(&Kind::of::<Namespace>(), &key, &DeleteOptions::default()).await;
        deleted.expect("the user may");
        cluster.gone::<Namespace>(&key).await;
    });
}
