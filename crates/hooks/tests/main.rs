//! Operators whose logic is a hook, in virtual time, as their users see them.

mod ansible;
mod composites;
mod controllers;
mod crashes;
mod customizing;
mod decorators;
mod failures;
mod helm;
mod https;
mod recorded;
mod rollouts;
mod sharding;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_hooks::{Functions, Options};
use setpoint_sim::{Running, Snapshot, TestCluster, World};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SYNC: &str = "http://hooks/sync";
const FINALIZE: &str = "http://hooks/finalize";
const CUSTOMIZE: &str = "http://hooks/customize";

fn things() -> Kind {
    Kind::new("example.com", "v1", "Thing", "things", true)
}

fn config_maps() -> Kind {
    Kind::new("", "v1", "ConfigMap", "configmaps", true)
}

fn composites() -> Kind {
    Kind::new("metacontroller.k8s.io", "v1alpha1", "CompositeController", "compositecontrollers", false)
}

fn decorators() -> Kind {
    Kind::new("metacontroller.k8s.io", "v1alpha1", "DecoratorController", "decoratorcontrollers", false)
}

fn revisions() -> Kind {
    Kind::new("metacontroller.k8s.io", "v1alpha1", "ControllerRevision", "controllerrevisions", true)
}

fn definitions() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}

fn events() -> Kind {
    Kind::new("", "v1", "Event", "events", true)
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

/// A kind of which nothing is checked.
fn definition(kind: &str, plural: &str, with_status: bool) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let subresources = if with_status { json!({"status": {}}) } else { json!({}) };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}}}],
        },
    })
}

async fn define(world: &World, definition: Value) {
    let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
    world.create(&definitions(), None, definition).await;
    let is_served = |definition: Option<&Value>| {
        let conditions = definition.and_then(|definition| definition["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    world.until(&definitions(), &Key::cluster(name), is_served).await;
}

/// What a cluster with all kinds has, and the kind Thing. Prepared once: it takes longer than most tests.
fn installed() -> Snapshot {
    static INSTALLED: LazyLock<Snapshot> = LazyLock::new(|| {
        Snapshot::of(&TestCluster::new().parts(), async |world| {
            setpoint_hooks::install(&world.client(), world.clock()).await.expect("everything installs");
            define(world, definition("Thing", "things", true)).await;
        })
    });
    INSTALLED.clone()
}

/// Runs a test in a cluster with these hooks.
fn with_hooks(hooks: Functions, test: impl AsyncFnOnce(&Running)) {
    with_options(Options::new(hooks), test);
}

fn with_options(options: Options, test: impl AsyncFnOnce(&Running)) {
    let cluster = TestCluster::new()
        .controllers(&["garbagecollector"])
        .with(move |context| setpoint_hooks::runnables(context, &options));
    cluster.starting_from(&installed()).run(async |cluster| test(cluster).await);
}

/// A CompositeController of things that have ConfigMaps.
fn composite(name: &str, method: &str) -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": name},
        "spec": {
            "parentResource": {"apiVersion": "example.com/v1", "resource": "things"},
            "childResources": [{"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": method}}],
            "generateSelector": true,
            "hooks": {"sync": {"webhook": {"url": SYNC}}},
        },
    })
}

fn thing(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn config_map(name: &str, value: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// A hook: as many ConfigMaps as the parent wants, with its value.
fn maps(request: &Value) -> Value {
    let parent = &request["parent"];
    let count = parent["spec"]["count"].as_u64().unwrap_or(1);
    let child = |nth| config_map(&format!("{}-{nth}", name_of(parent)), &parent["spec"]["value"]);
    let observed = request["children"]["ConfigMap.v1"].as_object().map_or(0, |children| children.len());
    json!({"status": {"children": observed}, "children": (0..count).map(child).collect::<Vec<_>>()})
}

/// A hook whose children have the labels that the parent's own selector wants.
fn labelled(request: &Value) -> Value {
    let mut answer = maps(request);
    for child in answer["children"].as_array_mut().expect("a list") {
        child["metadata"]["labels"] = request["parent"]["spec"]["selector"]["matchLabels"].clone();
    }
    answer
}

/// The hook, and how often it has been called.
fn counted(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (Functions, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let hooks = Functions::new().on(SYNC, move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        answer(&request)
    });
    (hooks, calls)
}

fn count(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::Relaxed)
}

async fn create_controller(world: &World, controller: Value) {
    let kind = if controller["kind"] == "CompositeController" { composites() } else { decorators() };
    let name = name_of(&controller).to_owned();
    world.create(&kind, None, controller).await;
    until_condition(world, &kind, &name, "Ready", "True").await;
}

async fn until_condition(world: &World, kind: &Kind, name: &str, condition: &str, status: &str) -> Value {
    let is_it = |one: &&Value| one["type"] == condition && one["status"] == status;
    let found = |object: Option<&Value>| -> Option<Value> {
        object?["status"]["conditions"].as_array()?.iter().find(is_it).cloned()
    };
    world.until(kind, &Key::cluster(name), |object| found(object).is_some()).await;
    found(world.get(kind, &Key::cluster(name)).await.as_ref()).expect("it was there")
}

async fn make(world: &World, kind: &Kind, object: Value) {
    world.create(kind, Some("default"), object).await;
}

async fn create_thing(world: &World, name: &str, spec: Value) {
    world.create(&things(), Some("default"), thing(name, spec)).await;
}

async fn patch(world: &World, kind: &Kind, key: &Key, patch: Value) {
    let patched = world.client().patch(kind, key, Subresource::None, Patch::merge(&patch)).await;
    patched.expect("the user's own patch");
}

async fn delete(world: &World, kind: &Kind, key: &Key) {
    world.client().delete(kind, key, &DeleteOptions::default()).await.expect("the user's own delete");
}

/// Waits until a value at a pointer is what is expected.
async fn until_value(world: &World, kind: &Kind, name: &str, pointer: &str, expected: Value) {
    let settled =
        |object: Option<&Value>| object.and_then(|object| object.pointer(pointer)) == Some(&expected);
    world.until(kind, &key(name), settled).await;
}

async fn gone(world: &World, kind: &Kind, name: &str) {
    world.until(kind, &key(name), |object| object.is_none()).await;
}

/// Returns the messages of the events about an object with a reason.
async fn messages(world: &World, name: &str, reason: &str) -> Vec<String> {
    let about = |event: &Value| event["involvedObject"]["name"] == name && event["reason"] == reason;
    let all = world.list(&events(), None).await;
    all.into_iter()
        .filter(about)
        .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}
