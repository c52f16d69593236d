//! ReplicaSets, Deployments and garbage collection with every possible fault: the result is always the same.

use std::collections::BTreeSet;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Depth, History, Plan, Scenario, World, check_at_depth};
use setpoint_store::EventKind;

/// The number of seeded fault combinations in addition to all single faults. A long search raises it.
fn combinations() -> usize {
    number("SETPOINT_SIM_COMBINATIONS", 20) as usize
}

/// The seed of every plan. A failure names the seed that reproduces it.
fn seed() -> u64 {
    number("SETPOINT_SIM_SEED", 1)
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The controllers involved in these scenarios. Every other one would add its own events to be hidden.
const CONTROLLERS: &[&str] = &[
    "replicaset",
    "deployment",
    "garbagecollector",
    "namespace",
    "podgc",
    "nodelifecycle",
    "serviceaccount",
];

fn parts() -> Components {
    Components {
        controllers: setpoint_controllers::selected(CONTROLLERS).expect("known controllers"),
        scheduler: true,
        nodes: 2,
        ..Components::default()
    }
}

fn key() -> Key {
    Key::namespaced("default", "web")
}

fn workload(kind: &str, replicas: usize, image: &str) -> Value {
    let labels = json!({"app": "web"});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": {"containers": [{"name": "c", "image": image}]}},
    }})
}

/// Returns whether the rollout is complete: every replica is updated, ready and observed.
fn settled(replicas: u64) -> impl Fn(Option<&Value>) -> bool {
    move |object| {
        object.is_some_and(|object| {
            let status = &object["status"];
            let count = |field: &str| status[field].as_u64().unwrap_or(0);
            let updated = object["kind"] != "Deployment" || count("updatedReplicas") == replicas;
            let observed = status["observedGeneration"] == object["metadata"]["generation"];
            count("replicas") == replicas && count("readyReplicas") == replicas && updated && observed
        })
    }
}

async fn patch(world: &World, kind: &Kind, patch: Value) {
    let patch = Patch::Merge(patch.to_string().into());
    world.client().patch(kind, &key(), Subresource::None, patch).await.expect("the user's own call succeeds");
}

fn replicaset(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let kind = Kind::of::<ReplicaSet>();
        world.create(&kind, Some("default"), workload("ReplicaSet", 3, "a")).await;
        world.until(&kind, &key(), settled(3)).await;
        patch(world, &kind, json!({"spec": {"replicas": 1}})).await;
        world.until(&kind, &key(), settled(1)).await;
    }
    .boxed_local()
}

fn deployment(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let kind = Kind::of::<Deployment>();
        world.create(&kind, Some("default"), workload("Deployment", 2, "a")).await;
        world.until(&kind, &key(), settled(2)).await;
        let containers = json!([{"name": "c", "image": "b"}]);
        patch(world, &kind, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
        world.until(&kind, &key(), settled(2)).await;
    }
    .boxed_local()
}

fn collection(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let kind = Kind::of::<Deployment>();
        world.create(&kind, Some("default"), workload("Deployment", 2, "a")).await;
        world.until(&kind, &key(), settled(2)).await;
        let delete =
            DeleteOptions { propagation: Some(PropagationPolicy::Foreground), ..DeleteOptions::default() };
        world.client().delete(&kind, &key(), &delete).await.expect("the user's own call succeeds");
        world.until(&kind, &key(), |object| object.is_none()).await;
    }
    .boxed_local()
}

/// Never more pods than desired plus surge (2 + 1 here), not counting terminating ones. Once all were ready, never
/// fewer ready pods than desired, because none may be unavailable.
fn within_rollout_bounds(history: &History) -> Result<(), String> {
    let mut pods = BTreeSet::new();
    let mut ready = BTreeSet::new();
    let mut complete = false;
    for (change, object) in history.changes() {
        if object["kind"] != "Pod" {
            continue;
        }
        let name = object["metadata"]["name"].to_string();
        let gone = change == EventKind::Deleted || object["metadata"]["deletionTimestamp"].is_string();
        include(&mut ready, &name, !gone && is_ready(&object));
        // A storm may make a node, and thereby its pods, not ready. That is not the rollout's fault: it must keep two
        // ready pods from when there are two again.
        complete &= gone || ready.len() == 2 || is_ready(&object);
        include(&mut pods, &name, !gone);
        complete |= ready.len() == 2;
        if pods.len() > 3 {
            return Err(format!("more than 2 + 1 pods: {pods:?}"));
        }
        if complete && ready.len() < 2 {
            return Err(format!("fewer than 2 ready: {ready:?}"));
        }
    }
    Ok(())
}

/// Adds a name to a set, or removes it.
fn include(names: &mut BTreeSet<String>, name: &str, belongs: bool) {
    if belongs {
        names.insert(name.to_owned());
    } else {
        names.remove(name);
    }
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

fn anything(_: &History) -> Result<(), String> {
    Ok(())
}

fn check(scenario: &Scenario) {
    let report = check_at_depth(scenario, seed(), combinations(), Depth::from_env());
    let report = report.unwrap_or_else(|failure| panic!("{failure:?}"));
    let name = scenario.name;
    println!("{name}: {} plans over {} writes and {} events", report.plans, report.writes, report.events);
}

#[test]
fn a_replicaset_survives_every_crash_and_every_stale_or_hidden_event() {
    check(&Scenario {
        name: "replicaset",
        parts: parts(),
        start: None,
        script: replicaset,
        always: anything,
    });
}

#[test]
fn a_rolling_update_survives_crashes_and_stale_events_within_its_bounds() {
    check(&Scenario {
        name: "deployment",
        parts: parts(),
        start: None,
        script: deployment,
        always: within_rollout_bounds,
    });
}

#[test]
fn a_foreground_deletion_survives_crashes_and_stale_events_and_leaves_nothing() {
    check(&Scenario {
        name: "garbage collection",
        parts: parts(),
        start: None,
        script: collection,
        always: anything,
    });
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let scenario =
        Scenario { name: "deployment", parts: parts(), start: None, script: deployment, always: anything };
    let plan = Plan { seed: seed(), faults: Vec::new() };
    let trace = || scenario.trace(&plan).unwrap_or_else(|failure| panic!("{failure:?}"));
    let first = trace();
    assert!(!first.is_empty());
    assert_eq!(first, trace(), "two runs of one seed differ");
}
