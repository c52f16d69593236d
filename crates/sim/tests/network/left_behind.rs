//! Leftovers: pods of deleted nodes, terminating namespaces, dead parts of the API.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_controllers::Options;
use setpoint_sim::{Fault, World};

use super::scenarios::{create, delete, found, kind, parts, patch, pod, survives, survives_with, until};

async fn gone(world: &World, kind_name: &str, key: Key) {
    world.until(&kind(kind_name), &key, |object| object.is_none()).await;
}

/// Of three finished pods, one may stay. A pod on a node that never existed is deleted. A pod on an existing node
/// stays.
fn swept(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        pod(world, "kept", "web").await;
        let spec = json!({"nodeName": "nowhere", "containers": [{"name": "c", "image": "i"}]});
        create(world, "Pod", "lost", json!({"spec": spec})).await;
        for name in ["first", "second", "third"] {
            pod(world, name, "work").await;
            patch(world, "Pod", name, Subresource::Status, json!({"status": {"phase": "Succeeded"}})).await;
            // The oldest are deleted first.
            world.pass(Duration::from_secs(2)).await;
        }
        for name in ["lost", "first", "second"] {
            gone(world, "Pod", Key::namespaced("default", name)).await;
        }
        until(world, "Pod", "kept", |_| true).await;
    }
    .boxed_local()
}

#[test]
fn pods_are_garbage_collected_once_whatever_happens() {
    let controller_options = Options { terminated_pod_threshold: 1, ..Options::default() };
    survives_with("pods that are left", Components { controller_options, ..parts(&["podgc"]) }, swept);
}

/// A namespace is removed when the last object with a finalizer in it is released.
fn emptied(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "Namespace", "team", json!({})).await;
        for (name, finalizers) in [("free", json!([])), ("held", json!(["example.com/hold"]))] {
            let body = json!({"metadata": {"name": name, "finalizers": finalizers}});
            world.create(&kind("ConfigMap"), Some("team"), body).await;
        }
        delete(world, "Namespace", "team").await;
        gone(world, "ConfigMap", Key::namespaced("team", "free")).await;
        until(world, "Namespace", "team", |team| holds(team, "NamespaceFinalizersRemaining")).await;
        let released = setpoint::client::Patch::merge(&json!({"metadata": {"finalizers": null}}));
        let key = Key::namespaced("team", "held");
        world
            .client()
            .patch(&kind("ConfigMap"), &key, Subresource::None, released)
            .await
            .expect("the user's own call");
        gone(world, "Namespace", Key::cluster("team")).await;
    }
    .boxed_local()
}

fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == condition && one["status"] == "True"))
}

#[test]
fn a_terminating_namespace_survives_every_crash_and_every_stale_or_hidden_event() {
    survives("namespace", &["namespace"], emptied);
}

/// The server behind part of the API is down, so it is unknown what a namespace contains of it. The namespace waits and
/// says why, until that part of the API is removed.
#[test]
fn a_namespace_waits_for_a_dead_part_of_the_api_and_goes_when_it_is_removed() {
    let faults = vec![Fault::Dead { group: "dead.example.com" }];
    World::simulate(1, parts(&["namespace"]), faults, async |world| {
        create(world, "Namespace", "team", json!({})).await;
        world.create(&kind("ConfigMap"), Some("team"), json!({"metadata": {"name": "a"}})).await;
        delete(world, "Namespace", "team").await;
        let failure = "NamespaceDeletionDiscoveryFailure";
        until(world, "Namespace", "team", |team| holds(team, failure)).await;
        let namespace = world.get(&kind("Namespace"), &Key::cluster("team")).await.expect("it waits");
        assert!(namespace.to_string().contains("dead.example.com/v1"), "{namespace}");
        // Everything that can be deleted is.
        gone(world, "ConfigMap", Key::namespaced("team", "a")).await;
        let calls = world.trace().text().lines().count();
        world.pass(Duration::from_secs(600)).await;
        let more = world.trace().text().lines().count() - calls;
        assert!(more < 600, "{more} calls in ten minutes of waiting");
        world.faults().calm();
        gone(world, "Namespace", Key::cluster("team")).await;
    });
}

fn definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "owners.parts.example.com"},
        "spec": {"group": "parts.example.com", "scope": "Namespaced",
            "names": {"plural": "owners", "singular": "owner", "kind": "Owner"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    }))
    .expect("a definition")
}

fn owned_by(owner: &Value) -> Value {
    let reference = json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
    json!([reference])
}

/// If a part of the API cannot be discovered, an owner in that part may exist although it is not visible.
#[test]
fn with_partial_discovery_the_garbage_collector_deletes_nothing_live() {
    World::simulate(1, parts(&["garbagecollector"]), Vec::new(), async |world| {
        let definitions = Kind::of::<CustomResourceDefinition>();
        world.create(&definitions, None, serde_json::to_value(definition()).expect("JSON")).await;
        let key = Key::cluster("owners.parts.example.com");
        world.until(&definitions, &key, |it| it.is_some_and(|it| holds(it, "Established"))).await;
        let owners = Kind::new("parts.example.com", "v1", "Owner", "owners", true);
        world
            .create(
                &owners,
                Some("default"),
                json!({"apiVersion": "parts.example.com/v1", "kind": "Owner",
            "metadata": {"name": "boss"}}),
            )
            .await;
        let boss = world.get(&owners, &Key::namespaced("default", "boss")).await.expect("it is there");
        let mine = json!({"metadata": {"ownerReferences": owned_by(&boss)}});
        create(world, "ConfigMap", "mine", mine).await;
        world.pass(Duration::from_secs(60)).await;

        world.faults().add(Fault::Dead { group: "parts.example.com" });
        world.restart().await;
        // Something else is deleted in the meantime: the garbage collector is not stuck.
        create(world, "ConfigMap", "other", json!({})).await;
        let other = world.get(&kind("ConfigMap"), &Key::namespaced("default", "other")).await;
        let mut reference = owned_by(&other.expect("it is there"));
        reference[0]["apiVersion"] = json!("v1");
        create(world, "Secret", "of-other", json!({"metadata": {"ownerReferences": reference}})).await;
        delete(world, "ConfigMap", "other").await;
        gone(world, "Secret", Key::namespaced("default", "of-other")).await;
        world.pass(Duration::from_secs(1800)).await;
        until(world, "ConfigMap", "mine", |_| true).await;

        world.faults().calm();
        world.pass(Duration::from_secs(300)).await;
        until(world, "ConfigMap", "mine", |_| true).await;
        let delete = DeleteOptions::default();
        let key = Key::namespaced("default", "boss");
        world.client().delete(&owners, &key, &delete).await.expect("the user's own call");
        gone(world, "ConfigMap", Key::namespaced("default", "mine")).await;
    });
}

/// Returns all permutations of `count` items.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with_last = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, count - 1);
            order
        })
    };
    orders(count - 1).into_iter().flat_map(with_last).collect()
}

/// Invalid references: to another namespace, with a wrong kind, from a cluster-scoped object to a namespaced one. In
/// whatever order the garbage collector learns of the four objects, the result is the same.
#[test]
fn dangling_references_end_the_same_in_every_order_of_events() {
    for order in orders(4) {
        World::simulate(1, parts(&["garbagecollector"]), Vec::new(), async |world| {
            create(world, "Namespace", "team", json!({})).await;
            let owner = json!({"metadata": {"name": "owner"}});
            world.create(&kind("ConfigMap"), Some("team"), owner).await;
            let owner = world.get(&kind("ConfigMap"), &Key::namespaced("team", "owner")).await;
            let mut to_owner = owned_by(&owner.expect("it is there"));
            to_owner[0]["apiVersion"] = json!("v1");
            to_owner[0]["kind"] = json!("ConfigMap");
            let mut by_wrong_kind = to_owner.clone();
            by_wrong_kind[0]["kind"] = json!("Secret");
            // The manager learns of none of this before it is released, kind by kind, in this order.
            world.pass(Duration::from_secs(5)).await;
            let kinds = ["ServiceAccount", "Secret", "ClusterRole", "ConfigMap"];
            for nth in order {
                let references = if nth == 1 { &by_wrong_kind } else { &to_owner };
                let body = json!({"metadata": {"name": "dependent", "ownerReferences": references}});
                // The fourth is in the owner's namespace, and stays.
                let namespace = match nth {
                    2 => None,
                    3 => Some("team"),
                    _ => Some("default"),
                };
                world.create(&kind(kinds[nth]), namespace, body).await;
                world.pass(Duration::from_secs(3)).await;
            }
            world.pass(Duration::from_secs(120)).await;
            let there = async |kind_name: &str, key: Key| world.get(&kind(kind_name), &key).await.is_some();
            assert!(
                !there("ServiceAccount", Key::namespaced("default", "dependent")).await,
                "another namespace"
            );
            assert!(!there("Secret", Key::namespaced("default", "dependent")).await, "no such secret");
            assert!(there("ClusterRole", Key::cluster("dependent")).await, "outside of namespaces");
            assert!(there("ConfigMap", Key::namespaced("team", "dependent")).await, "its owner is there");
            assert!(there("ConfigMap", Key::namespaced("team", "owner")).await);
        });
    }
}
