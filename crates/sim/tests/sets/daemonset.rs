//! DaemonSets.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::scenarios::{count, create, parts, patch, survives, tolerates_staleness, until};

const CONTROLLERS: &[&str] = &["daemonset"];

fn set(max_surge: i32) -> Value {
    let labels = json!({"app": "agent"});
    let bounds = json!({"maxSurge": max_surge, "maxUnavailable": 1 - max_surge});
    json!({"spec": {
        "selector": {"matchLabels": &labels},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": bounds},
        "template": {"metadata": {"labels": &labels}, "spec": {"containers": [{"name": "c", "image": "a"}]}},
    }})
}

/// Returns whether the node has a ready pod of the newest template.
fn settled(set: &Value) -> bool {
    let numbers =
        ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled"];
    let observed = set["status"]["observedGeneration"] == set["metadata"]["generation"];
    observed && numbers.iter().all(|number| count(set, number) == 1)
}

async fn update(world: &World, max_surge: i32) {
    create::<DaemonSet>(world, "agent", set(max_surge)).await;
    until::<DaemonSet>(world, "agent", settled).await;
    let containers = json!([{"name": "c", "image": "b"}]);
    patch::<DaemonSet>(world, "agent", json!({"spec": {"template": {"spec": {"containers": containers}}}}))
        .await;
    until::<DaemonSet>(world, "agent", settled).await;
}

fn replaced(world: &World) -> LocalBoxFuture<'_, ()> {
    update(world, 0).boxed_local()
}

fn surged(world: &World) -> LocalBoxFuture<'_, ()> {
    update(world, 1).boxed_local()
}

/// Returns the node that a pod is meant for.
fn node(pod: &Value) -> String {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].to_string()
}

/// Never more pods on a node, or meant for it, than this, not counting terminating ones.
fn at_most(most: usize, history: &History) -> Result<(), String> {
    let mut pods = BTreeMap::new();
    for (change, object) in history.changes().filter(|(_, object)| object["kind"] == "Pod") {
        let name = object["metadata"]["name"].to_string();
        if change == EventKind::Deleted || object["metadata"]["deletionTimestamp"].is_string() {
            pods.remove(&name);
        } else {
            pods.insert(name, node(&object));
        }
        let mut by_node: BTreeMap<&String, usize> = BTreeMap::new();
        pods.values().for_each(|node| *by_node.entry(node).or_default() += 1);
        if by_node.values().any(|count| *count > most) {
            return Err(format!("more than {most} pods on a node: {pods:?}"));
        }
    }
    Ok(())
}

#[test]
fn a_stale_daemon_set_has_at_most_one_pod_on_a_node() {
    survives("daemonset", CONTROLLERS, replaced, |history| at_most(1, history));
}

#[test]
fn a_stale_daemon_set_that_surges_has_at_most_two_pods_on_a_node() {
    tolerates_staleness(CONTROLLERS, surged, |history| at_most(2, history));
}

/// A manually created revision stays until something else happens to the set.
#[test]
fn a_foreign_revision_stays_until_the_next_change() {
    World::simulate(1, parts(CONTROLLERS), Vec::new(), async |world| {
        create::<DaemonSet>(world, "agent", set(0)).await;
        until::<DaemonSet>(world, "agent", settled).await;
        let kind = Kind::of::<ControllerRevision>();
        let revisions = || world.list(&kind, Some("default"));
        let mut copy = revisions().await.remove(0);
        copy["metadata"] = json!({"labels": copy["metadata"]["labels"],
            "ownerReferences": copy["metadata"]["ownerReferences"]});
        copy["revision"] = json!(2);
        create::<ControllerRevision>(world, "copy", copy).await;
        world.pass(Duration::from_secs(30)).await;
        assert_eq!(revisions().await.len(), 2);
        patch::<DaemonSet>(world, "agent", json!({"metadata": {"labels": {"touched": "yes"}}})).await;
        world.pass(Duration::from_secs(30)).await;
        assert_eq!(revisions().await.len(), 1);
    });
}

#[test]
fn a_restart_with_settled_daemons_writes_nothing() {
    World::simulate(1, parts(CONTROLLERS), Vec::new(), async |world| {
        update(world, 0).await;
        world.pass(Duration::from_secs(5)).await;
        let writes = || {
            let kinds = ["DaemonSet", "Pod", "ControllerRevision"];
            let ours = |object: &Value| kinds.contains(&object["kind"].as_str().unwrap_or(""));
            world.history().changes().filter(|(_, object)| ours(object)).count()
        };
        let before = writes();
        world.restart().await;
        world.pass(Duration::from_secs(600)).await;
        assert_eq!(writes(), before, "{}", world.trace().text());
    });
}
