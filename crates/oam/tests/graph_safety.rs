//! Graphs take nothing that belongs to others, and lose nothing that is theirs.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::Key;
use setpoint::client::DeleteOptions;
use setpoint_sim::Fault;

use super::*;

/// A graph with one resource.
async fn define(world: &World, template: Value) {
    let graph = json!({"apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "metadata": {"name": "crate"}, "spec": {
        "schema": {"apiVersion": "v1alpha1", "kind": "Crate", "spec": {"word": "string | default=\"x\""}},
        "resources": [{"id": "thing", "template": template}]}});
    let kind = graph_checks::graphs();
    world.create(&kind, None, graph).await;
    let active = |graph: Option<&Value>| graph.is_some_and(|graph| graph["status"]["state"] == "Active");
    world.until(&kind, &Key::cluster("crate"), active).await;
}

fn crates() -> Kind {
    Kind::new("kro.run", "v1alpha1", "Crate", "crates", true)
}

async fn create_crate(world: &World, name: &str) {
    let instance =
        json!({"apiVersion": "kro.run/v1alpha1", "kind": "Crate", "metadata": {"name": name}, "spec": {}});
    world.create(&crates(), Some("default"), instance).await;
}

fn config_template() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${schema.metadata.name}"}, "data": {"word": "${schema.spec.word}"}})
}

/// As in kro, an object without an owner is taken over.
#[test]
fn only_objects_without_an_owner_are_taken_over() {
    in_cluster(async |cluster| {
        define(cluster, config_template()).await;
        let owned = |labels: Value, owners: Value| json!({"labels": labels, "ownerReferences": owners});
        let boss = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "boss", "namespace": "default"}});
        let uid = &*cluster.create(boss).await.meta().uid.clone();
        let boss = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": uid, "controller": true}]);
        let application = json!({"app.oam.dev/name": "shop", "app.oam.dev/namespace": "default"});
        for (name, mut meta, owner) in [
            ("free", json!({"labels": {"team": "a"}}), None),
            ("helm", owned(json!({"app.kubernetes.io/managed-by": "Helm"}), json!([])), Some("Helm")),
            (
                "set",
                owned(json!({"applyset.kubernetes.io/part-of": "applyset-1"}), json!([])),
                Some("applyset-1"),
            ),
            ("app", owned(application, json!([])), Some("Application default/shop")),
            ("other", owned(json!({"kro.run/instance-id": "1"}), json!([])), Some("another instance")),
            ("controlled", owned(json!({}), boss), Some("ConfigMap boss")),
        ] {
            meta["name"] = name.into();
            meta["namespace"] = "default".into();
            cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})).await;
            create_crate(cluster, name).await;
            let state = if owner.is_none() { "ACTIVE" } else { "ERROR" };
            until_value(cluster, &crates(), name, "/status/state", json!(state)).await;
            let found = cluster.get(&config_maps(), &key(name)).await;
            let instance = cluster.get(&crates(), &key(name)).await.unwrap();
            match owner {
                None => assert_eq!(found.unwrap()["data"]["word"], "x"),
                Some(owner) => {
                    assert!(found.is_none_or(|found| found["data"].is_null()), "{name}");
                    assert!(instance["status"].to_string().contains(owner), "{instance}");
                }
            }
        }
    });
}

#[test]
fn an_object_outlives_the_version_it_was_written_in_and_failed_discovery() {
    in_cluster(async |cluster| {
        safety::define_shelves(cluster).await;
        define(
            cluster,
            json!({"apiVersion": "shop.example/v1alpha1", "kind": "Shelf",
            "metadata": {"name": "${schema.metadata.name}"}, "spec": {"word": "${schema.spec.word}"}}),
        )
        .await;
        create_crate(cluster, "full").await;
        until_value(cluster, &crates(), "full", "/status/state", json!("ACTIVE")).await;
        let shelf = async || cluster.get(&safety::shelves(), &key("full")).await;
        assert!(shelf().await.is_some());
        safety::drop_old_version(cluster).await;
        cluster.faults().add(Fault::Dead { group: "shop.example" });
        cluster.restart().await;
        cluster.client().delete(&crates(), &key("full"), &DeleteOptions::default()).await.unwrap();
        cluster.pass(Duration::from_secs(60)).await;
        assert!(cluster.get(&crates(), &key("full")).await.is_some(), "its object may exist");
        cluster.faults().calm();
        gone(cluster, &crates(), "full").await;
        assert!(shelf().await.is_none());
    });
}

#[test]
fn an_object_whose_kind_is_gone_does_not_keep_its_instance() {
    in_cluster(async |cluster| {
        safety::define_shelves(cluster).await;
        define(
            cluster,
            json!({"apiVersion": "shop.example/v1", "kind": "Shelf",
            "metadata": {"name": "${schema.metadata.name}"}, "spec": {"word": "${schema.spec.word}"}}),
        )
        .await;
        create_crate(cluster, "full").await;
        until_value(cluster, &crates(), "full", "/status/state", json!("ACTIVE")).await;
        let crd = Kind::new(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        );
        let shelves = Key::cluster("shelves.shop.example");
        cluster.client().delete(&crd, &shelves, &DeleteOptions::default()).await.unwrap();
        until(cluster, &crd, &shelves, |found| found.is_none()).await;
        cluster.client().delete(&crates(), &key("full"), &DeleteOptions::default()).await.unwrap();
        gone(cluster, &crates(), "full").await;
    });
}

#[test]
fn a_template_that_gives_no_object_is_an_error_of_its_instance() {
    in_cluster(async |cluster| {
        let template = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "${schema.metadata.name}", "labels": "${json.unmarshal(schema.spec.word)}"}});
        define(cluster, template).await;
        let instance = json!({"apiVersion": "kro.run/v1alpha1", "kind": "Crate", "metadata": {"name": "odd"}, "spec": {"word": "[1]"}});
        cluster.client().create(&crates(), Some("default"), &instance).await.unwrap();
        until_value(cluster, &crates(), "odd", "/status/state", json!("ERROR")).await;
        let odd = cluster.get(&crates(), &key("odd")).await.unwrap();
        assert!(
            odd["status"].to_string().contains("metadata.labels: expected an object, found a list"),
            "{odd}"
        );
    });
}
