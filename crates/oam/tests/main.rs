//! Applications and graphs in virtual time, as users see them.

mod admission;
mod clusters;
mod crashes;
mod effort;
mod examples;
mod graph_checks;
mod graph_crashes;
mod graph_safety;
mod graphs;
mod hostile;
mod pages;
mod rendering_steps;
mod requests;
mod runs;
mod safety;
mod steps;

use std::sync::LazyLock;

use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_sim::{Running, Snapshot, TestCluster, World};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn applications() -> Kind {
    Kind::new("core.oam.dev", "v1beta1", "Application", "applications", true)
}

fn deployments() -> Kind {
    Kind::new("apps", "v1", "Deployment", "deployments", true)
}

fn services() -> Kind {
    Kind::new("", "v1", "Service", "services", true)
}

fn config_maps() -> Kind {
    Kind::new("", "v1", "ConfigMap", "configmaps", true)
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

/// A component that is a ConfigMap.
fn config(name: &str, value: &str) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}});
    json!({"name": name, "type": "k8s-objects", "properties": {"objects": [object]}})
}

fn worker(name: &str) -> Value {
    json!({"name": name, "type": "worker", "properties": {"image": "nginx"}})
}

fn everything() -> TestCluster {
    TestCluster::new().all_controllers().scheduler().nodes(3).with(setpoint_oam::runnables)
}

/// Runs a test in a cluster with everything, three nodes, and all definitions.
fn in_cluster(test: impl AsyncFnOnce(&Running)) {
    static INSTALLED: LazyLock<Snapshot> =
        LazyLock::new(|| Snapshot::of(&everything().parts(), async |world| install(world).await));
    everything().starting_from(&INSTALLED).run(async |cluster| test(cluster).await);
}

/// What a cluster with all definitions has, without controllers and nodes. Prepared once: it takes longer than most tests.
fn installed() -> Snapshot {
    static INSTALLED: LazyLock<Snapshot> =
        LazyLock::new(|| Snapshot::of(&TestCluster::new().parts(), async |world| install(world).await));
    INSTALLED.clone()
}

async fn install(world: &World) {
    setpoint_oam::install(&world.client(), world.clock()).await.expect("everything installs");
}

fn application(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

async fn create_app(world: &World, name: &str, spec: Value) {
    world.create(&applications(), Some("default"), application(name, spec)).await;
}

async fn patch(world: &World, kind: &Kind, name: &str, patch: Value) {
    let patched = world.client().patch(kind, &key(name), Subresource::None, Patch::merge(&patch)).await;
    patched.expect("the user's own patch");
}

/// Waits until an application is in a phase.
async fn until_phase(world: &World, name: &str, phase: &str) -> Value {
    let settled = |app: Option<&Value>| {
        app.is_some_and(|app| {
            app["status"]["status"] == phase
                && app["status"]["observedGeneration"] == app["metadata"]["generation"]
        })
    };
    world.until(&applications(), &key(name), settled).await;
    world.get(&applications(), &key(name)).await.expect("it was there")
}

/// Waits until a value at a pointer is what is expected.
async fn until_value(world: &World, kind: &Kind, name: &str, pointer: &str, expected: Value) {
    let settled =
        |object: Option<&Value>| object.and_then(|object| object.pointer(pointer)) == Some(&expected);
    world.until(kind, &key(name), settled).await;
}

/// Waits until a condition holds for an object.
async fn until(world: &World, kind: &Kind, key: &Key, settled: impl Fn(Option<&Value>) -> bool) {
    world.until(kind, key, settled).await;
}

async fn gone(world: &World, kind: &Kind, name: &str) {
    world.until(kind, &key(name), |object| object.is_none()).await;
}
