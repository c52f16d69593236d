//! ReplicaSets and Deployments.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::PropagationPolicy;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::{
    another_image, delete, each_pod, gone, is_leaving, is_ready, pods, ready, replicas, runs, set_status,
    small,
};
use crate::sets::scenarios::{anything, count, create, key, patch, tolerates_staleness, until};
use crate::sets::scheduling::{pod, runs as is_running};

pub(crate) fn scaled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(2, small())).await;
        until::<ReplicaSet>(world, "web", ready(2)).await;
    }
    .boxed_local()
}

/// A quota that denies every pod sees few creates.
pub(crate) fn denied(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "0"}}})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["hard"]["pods"] == "0").await;
        create::<ReplicaSet>(world, "web", replicas(100, small())).await;
        world.pass(Duration::from_secs(10)).await;
        let refused = world.trace().text().lines().filter(|line| line.ends_with("/pods 403")).count();
        assert!(refused < 50, "{refused} doomed creates");
    }
    .boxed_local()
}

/// A quota that denies a pod is raised.
fn allowed_later(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "1"}}})).await;
        until::<ResourceQuota>(world, "few", |few| few["status"]["hard"]["pods"] == "1").await;
        create::<ReplicaSet>(world, "web", replicas(2, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        world.pass(Duration::from_secs(5)).await;
        patch::<ResourceQuota>(world, "few", json!({"spec": {"hard": {"pods": "5"}}})).await;
        let raised = world.clock().now();
        until::<ReplicaSet>(world, "web", ready(2)).await;
        let took = world.clock().now().duration_since(raised);
        assert!(took.as_secs() < 180, "it took {took}");
    }
    .boxed_local()
}

#[test]
fn a_pod_denied_by_a_quota_is_created_soon_after_the_quota_is_raised() {
    runs(&["replicaset", "resourcequota"], allowed_later, anything);
}

async fn name_of_only_pod(world: &World) -> String {
    pods(world).await[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// A ReplicaSet is deleted, and the user removes the owner reference from its pod.
fn released(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        delete::<ReplicaSet>(world, "web", PropagationPolicy::Background).await;
        gone::<ReplicaSet>(world, "web").await;
        let name = name_of_only_pod(world).await;
        patch::<Pod>(world, &name, json!({"metadata": {"ownerReferences": null}})).await;
        world.pass(Duration::from_secs(90)).await;
        let orphan = world.get(&Kind::of::<Pod>(), &key(&name)).await.expect("nothing removes it");
        let owners = &orphan["metadata"]["ownerReferences"];
        assert!(owners.is_null(), "adopted for a ReplicaSet that is gone: {owners}");
    }
    .boxed_local()
}

#[test]
fn a_replicaset_that_only_the_cache_knows_adopts_no_pod() {
    tolerates_staleness(&["replicaset"], released, anything);
}

/// An evicted pod is replaced.
fn replaced(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(1, small())).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
        let name = name_of_only_pod(world).await;
        set_status::<Pod>(world, &name, json!({"phase": "Failed", "reason": "Evicted"})).await;
        world.pass(Duration::from_secs(60)).await;
        assert!(pods(world).await.iter().any(is_running), "it is not replaced");
    }
    .boxed_local()
}

#[test]
fn a_pod_that_was_evicted_is_replaced() {
    runs(&["replicaset"], replaced, anything);
}

/// One of two pods fits the node. The other one is removed.
fn shrunk(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(2, pod(20, json!({})))).await;
        until::<ReplicaSet>(world, "web", |web| count(web, "readyReplicas") == 1).await;
        patch::<ReplicaSet>(world, "web", json!({"spec": {"replicas": 1}})).await;
        until::<ReplicaSet>(world, "web", ready(1)).await;
    }
    .boxed_local()
}

fn ready_ones_stay(history: &History) -> Result<(), String> {
    each_pod(history, |_, pod| match is_ready(pod) && is_leaving(pod) {
        true => Err(format!("{} was ready", pod["metadata"]["name"])),
        false => Ok(()),
    })
}

#[test]
fn a_set_that_scales_down_deletes_unready_pods_first() {
    runs(&["replicaset"], shrunk, ready_ones_stay);
}

pub(crate) fn rolled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut slow = replicas(2, small());
        slow["spec"]["template"]["metadata"]["annotations"] = json!({"node.setpoint.dev/ready-after": "20s"});
        create::<Deployment>(world, "web", slow).await;
        until::<Deployment>(world, "web", ready(2)).await;
        patch::<Deployment>(world, "web", another_image()).await;
        let settled = |web: &Value| {
            let observed = web["status"]["observedGeneration"] == web["metadata"]["generation"];
            observed && ready(2)(web) && count(web, "updatedReplicas") == 2
        };
        until::<Deployment>(world, "web", settled).await;
    }
    .boxed_local()
}

pub(crate) fn two_stay_ready(history: &History) -> Result<(), String> {
    let (mut ready, mut complete) = (BTreeSet::new(), false);
    each_pod(history, |change, pod| {
        let name = pod["metadata"]["name"].to_string();
        if is_ready(pod) && !is_leaving(pod) && change != EventKind::Deleted {
            ready.insert(name)
        } else {
            ready.remove(&name)
        };
        complete |= ready.len() == 2;
        if complete && ready.len() < 2 { Err(format!("only {ready:?} are ready")) } else { Ok(()) }
    })
}

#[test]
fn a_rollout_deletes_old_pods_only_for_available_new_ones() {
    runs(&["deployment", "replicaset"], rolled, two_stay_ready);
}

/// Another ReplicaSet already has the name that the Deployment would use.
fn collided(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<Deployment>(world, "web", replicas(0, small())).await;
        let observed = |web: &Value| web["status"]["observedGeneration"] == 1;
        until::<Deployment>(world, "web", observed).await;
        let name = |set: &Value| set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let taken = name(&world.list(&Kind::of::<ReplicaSet>(), Some("default")).await[0]);
        delete::<Deployment>(world, "web", PropagationPolicy::Orphan).await;
        gone::<Deployment>(world, "web").await;
        patch::<ReplicaSet>(world, &taken, json!({"metadata": {"labels": {"app": "other"}}})).await;
        create::<Deployment>(world, "web", replicas(1, small())).await;
        until::<Deployment>(world, "web", |web| ready(1)(web) && web["status"]["collisionCount"] == 1).await;
    }
    .boxed_local()
}

#[test]
fn a_name_collision_does_not_prevent_the_rollout() {
    runs(&["deployment", "replicaset", "garbagecollector"], collided, anything);
}
