//! The scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use setpoint::client::PropagationPolicy;
use setpoint_cluster::Components;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::{delete, each_pod, is_leaving, pods, replicas, runs, runs_with};
use crate::sets::scenarios::{anything, count, create, parts, tolerates_staleness, until};
use crate::sets::scheduling::{account, class, pod, runs as is_running};

/// The node has room for one of them.
fn two_for_one(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create::<ReplicaSet>(world, "web", replicas(2, pod(20, json!({})))).await;
        until::<ReplicaSet>(world, "web", |web| count(web, "readyReplicas") == 1).await;
        world.pass(Duration::from_secs(30)).await;
    }
    .boxed_local()
}

fn one_fits(history: &History) -> Result<(), String> {
    let mut placed: BTreeMap<String, bool> = BTreeMap::new();
    each_pod(history, |change, pod| {
        let there = change != EventKind::Deleted && pod["spec"]["nodeName"].is_string();
        placed.insert(pod["metadata"]["name"].to_string(), there);
        match placed.values().filter(|there| **there).count() {
            0 | 1 => Ok(()),
            more => Err(format!("{more} of 20 cpus on a node of 32")),
        }
    })
}

#[test]
fn the_resources_of_an_assumed_pod_are_not_given_to_another() {
    tolerates_staleness(&["replicaset"], two_for_one, one_fits);
}

/// A pod preempts another, which takes time to terminate. Meanwhile the scheduler tries the pod again.
fn patient(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        class(world, "high", 1000).await;
        for name in ["a", "b"] {
            let mut slow = pod(20, json!({"terminationGracePeriodSeconds": 120}));
            slow["metadata"]["annotations"] = json!({"node.setpoint.dev/terminate-after": "120s"});
            create::<Pod>(world, name, slow).await;
            until::<Pod>(world, name, is_running).await;
        }
        create::<Pod>(world, "high", pod(20, json!({"priorityClassName": "high"}))).await;
        until::<Pod>(world, "high", |pod| pod["status"]["nominatedNodeName"].is_string()).await;
        for _ in 0..5 {
            create::<Pod>(world, "brief", pod(1, json!({}))).await;
            until::<Pod>(world, "brief", is_running).await;
            delete::<Pod>(world, "brief", PropagationPolicy::Background).await;
            world.pass(Duration::from_secs(10)).await;
        }
        let leaving = pods(world).await.iter().filter(|pod| is_leaving(pod)).count();
        assert_eq!(leaving, 1, "one victim is enough");
    }
    .boxed_local()
}

#[test]
fn a_preemptor_that_waits_for_its_victim_evicts_no_other_pod() {
    runs_with(Components { nodes: 2, ..parts(&[]) }, patient, anything);
}

fn nothing_leaves(history: &History) -> Result<(), String> {
    each_pod(history, |_, pod| match is_leaving(pod) {
        true => Err(format!("{} was preempted", pod["metadata"]["name"])),
        false => Ok(()),
    })
}

#[test]
fn a_pod_preempts_none_of_its_own_priority() {
    runs(&["replicaset"], two_for_one, nothing_leaves);
}

/// While a victim terminates, a small pod arrives that would fit beside it, but not beside the preemptor.
fn promised(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        class(world, "high", 1000).await;
        let mut slow = pod(20, json!({"terminationGracePeriodSeconds": 60}));
        slow["metadata"]["annotations"] = json!({"node.setpoint.dev/terminate-after": "60s"});
        create::<Pod>(world, "low", slow).await;
        until::<Pod>(world, "low", is_running).await;
        create::<Pod>(world, "high", pod(28, json!({"priorityClassName": "high"}))).await;
        until::<Pod>(world, "high", |pod| pod["status"]["nominatedNodeName"].is_string()).await;
        create::<Pod>(world, "small", pod(8, json!({}))).await;
        until::<Pod>(world, "high", is_running).await;
        until::<Pod>(world, "small", |pod| pod["spec"]["nodeName"].is_null()).await;
    }
    .boxed_local()
}

#[test]
fn resources_freed_by_preemption_are_not_given_to_a_pod_of_lower_priority() {
    runs(&[], promised, anything);
}

/// On both nodes the budget of one victim is violated. On the first, a more important pod has to go too.
fn two_nodes(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        account(world).await;
        for (name, value) in [("mid", 10), ("high", 20), ("top", 30)] {
            class(world, name, value).await;
        }
        let kept = json!({"spec": {"minAvailable": 2, "selector": {"matchLabels": {"kept": "yes"}}}});
        create::<PodDisruptionBudget>(world, "kept", kept).await;
        let victims =
            [("low", 14, "", "node-0"), ("high", 14, "high", "node-0"), ("mid", 28, "mid", "node-1")];
        for (name, cpus, class, node) in victims {
            let node = json!({"kubernetes.io/hostname": node});
            let mut victim = pod(cpus, json!({"priorityClassName": class, "nodeSelector": node}));
            victim["metadata"]["labels"] = json!({"kept": if name == "high" { "no" } else { "yes" }});
            create::<Pod>(world, name, victim).await;
            until::<Pod>(world, name, is_running).await;
        }
        create::<Pod>(world, "top", pod(28, json!({"priorityClassName": "top"}))).await;
        until::<Pod>(world, "top", is_running).await;
        until::<Pod>(world, "top", |pod| pod["spec"]["nodeName"] == "node-1").await;
    }
    .boxed_local()
}

#[test]
fn preemption_chooses_the_node_whose_victim_has_the_lower_priority() {
    runs_with(Components { nodes: 2, ..parts(&["disruption"]) }, two_nodes, anything);
}
