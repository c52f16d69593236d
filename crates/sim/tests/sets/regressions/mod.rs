//! Scenarios in which a controller of Kubernetes once went wrong: each runs to its end, and what must hold does.
//!
//! The bugs themselves are patches in `crates/sim/tests/historic`. `make historic` puts each of them back and
//! expects the test that its header names to fail.

mod autoscaling;
mod daemons;
mod jobs;
mod removal;
mod replicas;
mod scheduling;
mod services;
mod stateful;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint::client::{Delete, Part, Patch, Propagation};
use setpoint::{Kind, View};
use setpoint_cluster::Parts;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use crate::sets::scenarios::{Always, Script, count, holds, key, parts};

pub(crate) use self::jobs::deleted_in_background;
pub(crate) use self::removal::orphaned;
pub(crate) use self::replicas::{denied, rolled, scaled, two_stay_ready};
pub(crate) use self::services::sliced;
pub(crate) use self::stateful::stateful;

/// How long the world is watched after the script.
const AFTERMATH: Duration = Duration::from_secs(120);

/// Runs a script once, without faults; `always` must hold after every change.
#[track_caller]
fn runs(controllers: &[&str], script: Script, always: Always) {
    runs_with(parts(controllers), script, always);
}

#[track_caller]
fn runs_with(parts: Parts, script: Script, always: Always) {
    World::simulate(1, parts, Vec::new(), async |world| {
        script(world).await;
        world.pass(AFTERMATH).await;
        let held = always(&world.history());
        held.unwrap_or_else(|why| panic!("{why}\n{}", world.trace().text()));
    });
}

async fn delete<K: View>(world: &World, name: &str, propagation: Propagation) {
    let delete = Delete { propagation: Some(propagation), ..Delete::default() };
    world.client().delete(&Kind::of::<K>(), &key(name), &delete).await.expect("the user's own call");
}

/// Reports a status, as a kubelet or another controller would.
async fn set_status<K: View>(world: &World, name: &str, status: Value) {
    let status = Patch::merge(&json!({"status": status}));
    let patched = world.client().patch(&Kind::of::<K>(), &key(name), Part::Status, status).await;
    patched.expect("the user's own call");
}

async fn gone<K: View>(world: &World, name: &str) {
    world.until(&Kind::of::<K>(), &key(name), |object| object.is_none()).await;
}

async fn uid<K: View>(world: &World, name: &str) -> Value {
    let object = world.get(&Kind::of::<K>(), &key(name)).await;
    object.unwrap_or_else(|| panic!("{name} is not there"))["metadata"]["uid"].clone()
}

pub(crate) async fn pods(world: &World) -> Vec<Value> {
    world.list(&Kind::of::<Pod>(), Some("default")).await
}

/// The spec of a workload that runs this pod so many times.
pub(crate) fn replicas(count: u32, pod: Value) -> Value {
    let labels = json!({"app": "web"});
    json!({"spec": {"replicas": count, "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": pod["spec"]}}})
}

/// A pod that asks for nothing and ends at once when it is told to.
pub(crate) fn small() -> Value {
    json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "a"}]}})
}

/// A change of the template that makes another revision of it.
fn another_image() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}})
}

pub(crate) fn ready(wanted: u64) -> impl Fn(&Value) -> bool {
    move |object| count(object, "readyReplicas") == wanted && count(object, "replicas") == wanted
}

fn is_ready(pod: &Value) -> bool {
    holds(pod, "Ready")
}

fn is_leaving(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Checks every change of a pod, in order.
fn each_pod(
    history: &History,
    mut check: impl FnMut(EventKind, &Value) -> Result<(), String>,
) -> Result<(), String> {
    let mut pods = history.changes().filter(|(_, object)| object["kind"] == "Pod");
    pods.try_for_each(|(change, pod)| check(change, &pod))
}
