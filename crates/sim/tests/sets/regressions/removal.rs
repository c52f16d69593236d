//! The garbage collector and namespace deletion.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Fault, History, World};
use setpoint_store::EventKind;

use super::{delete, gone, pods, ready, replicas, runs, small, uid};
use crate::sets::scenarios::{anything, create, holds, key, parts, tolerates_staleness_with, until};

pub(crate) fn orphaned(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        delete::<ReplicaSet>(world, "web", PropagationPolicy::Orphan).await;
        gone::<ReplicaSet>(world, "web").await;
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(pods(world).await.len(), 1, "the orphan stays");
    }
    .boxed_local()
}

fn collected(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = replicas(1, small());
        slow["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(30);
        slow["spec"]["template"]["metadata"]["annotations"] =
            json!({"node.setpoint.dev/terminate-after": "20s"});
        create::<ReplicaSet>(world, "web", slow).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        delete::<ReplicaSet>(world, "web", PropagationPolicy::Foreground).await;
        gone::<ReplicaSet>(world, "web").await;
    }
    .boxed_local()
}

fn dependents_go_first(history: &History) -> Result<(), String> {
    let mut pods = BTreeSet::new();
    for (change, object) in history.changes() {
        let name = object["metadata"]["name"].to_string();
        match (object["kind"].as_str(), change) {
            (Some("Pod"), EventKind::Deleted) => _ = pods.remove(&name),
            (Some("Pod"), _) => _ = pods.insert(name),
            (Some("ReplicaSet"), EventKind::Deleted) if !pods.is_empty() => {
                return Err(format!("{name} is gone before {pods:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn an_owner_that_is_deleted_in_the_foreground_waits_for_its_dependents() {
    runs(&["replicaset", "garbagecollector"], collected, dependents_go_first);
}

/// The time after which the collector watches every kind.
const MONITORED: Duration = Duration::from_secs(30);

/// Only the garbage collector.
fn collector() -> Components {
    Components { scheduler: false, nodes: 0, ..parts(&["garbagecollector"]) }
}

/// An owner is deleted, but not a dependent created just before.
fn left_behind(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        world.pass(MONITORED).await;
        create::<ConfigMap>(world, "owner", json!({})).await;
        let owner = uid::<ConfigMap>(world, "owner").await;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner});
        create::<Secret>(world, "owned", json!({"metadata": {"ownerReferences": [reference]}})).await;
        delete::<ConfigMap>(world, "owner", PropagationPolicy::Orphan).await;
        gone::<ConfigMap>(world, "owner").await;
        world.pass(Duration::from_secs(120)).await;
        let owned = world.get(&Kind::of::<Secret>(), &key("owned")).await;
        assert!(owned.is_some(), "the orphan stays");
    }
    .boxed_local()
}

#[test]
fn a_dependent_that_is_seen_late_is_orphaned_with_the_others() {
    tolerates_staleness_with(&collector(), left_behind, anything);
}

/// A namespaced object has a cluster-scoped owner.
fn owned_from_outside(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        world.pass(MONITORED).await;
        let class = json!({"metadata": {"name": "owner"}, "value": 1});
        let owner = world.create(&Kind::of::<PriorityClass>(), None, class).await;
        let reference = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": "owner",
            "uid": &*owner.meta().uid});
        create::<ConfigMap>(world, "owned", json!({"metadata": {"ownerReferences": [reference]}})).await;
        world.pass(Duration::from_secs(120)).await;
        let owned = world.get(&Kind::of::<ConfigMap>(), &key("owned")).await;
        assert!(owned.is_some(), "its owner exists");
    }
    .boxed_local()
}

#[test]
fn an_object_whose_cluster_scoped_owner_is_seen_late_is_not_collected() {
    tolerates_staleness_with(&collector(), owned_from_outside, anything);
}

async fn delete_team(world: &World) {
    let (namespaces, team) = (Kind::of::<Namespace>(), Key::cluster("team"));
    world.client().delete(&namespaces, &team, &DeleteOptions::default()).await.expect("the user's own call");
}

/// An object blocks the deletion of a namespace.
fn emptied(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let (namespaces, maps) = (Kind::of::<Namespace>(), Kind::of::<ConfigMap>());
        world.create(&namespaces, None, json!({"metadata": {"name": "team"}})).await;
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        world.create(&maps, Some("team"), held).await;
        delete_team(world).await;
        world.pass(Duration::from_secs(60)).await;
        let team = Key::cluster("team");
        assert!(world.get(&namespaces, &team).await.is_some(), "something is left in it");
        let released = Patch::merge(&json!({"metadata": {"finalizers": null}}));
        let key = Key::namespaced("team", "held");
        world.client().patch(&maps, &key, Subresource::None, released).await.expect("the user's own call");
        world.until(&namespaces, &team, |namespace| namespace.is_none()).await;
    }
    .boxed_local()
}

#[test]
fn a_namespace_waits_for_what_is_left_in_it() {
    runs(&["namespace"], emptied, anything);
}

/// Everything that can be deleted is deleted, even if other objects cannot.
#[test]
fn one_kind_that_cannot_be_deleted_does_not_keep_the_rest_of_a_namespace() {
    let faults = vec![Fault::Deny { path: "/namespaces/team/configmaps", code: 503 }];
    World::simulate(1, parts(&["namespace"]), faults, async |world| {
        let (namespaces, secrets) = (Kind::of::<Namespace>(), Kind::of::<Secret>());
        world.create(&namespaces, None, json!({"metadata": {"name": "team"}})).await;
        world.create(&Kind::of::<ConfigMap>(), Some("team"), json!({"metadata": {"name": "a"}})).await;
        world.create(&secrets, Some("team"), json!({"metadata": {"name": "a"}})).await;
        delete_team(world).await;
        let failed =
            |team: Option<&Value>| team.is_some_and(|team| holds(team, "NamespaceDeletionContentFailure"));
        world.until(&namespaces, &Key::cluster("team"), failed).await;
        assert!(world.list(&secrets, Some("team")).await.is_empty(), "{}", world.trace().text());
    });
}
