//! Scenarios in which a Kubernetes controller once misbehaved. Each runs to completion and checks its invariants.
//!
//! The bugs are patches in `crates/sim/tests/historic`. `make historic` applies each of them and expects the test named
//! in its header to fail.

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
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::{Kind, View};
use setpoint_cluster::Components;
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use crate::sets::scenarios::{Always, Script, count, holds, key, parts};

pub(crate) use self::jobs::deleted_in_background;
pub(crate) use self::removal::orphaned;
pub(crate) use self::replicas::{denied, rolled, scaled, two_stay_ready};
pub(crate) use self::services::sliced;
pub(crate) use self::stateful::stateful;

/// How long the simulation continues after the script.
const AFTERMATH: Duration = Duration::from_secs(120);

/// Runs a script once, without faults. `always` must hold after every change.
#[track_caller]
fn runs(controllers: &[&str], script: Script, always: Always) {
    runs_with(parts(controllers), script, always);
}

#[track_caller]
fn runs_with(parts: Components, script: Script, always: Always) {
    World::simulate(1, parts, Vec::new(), async |world| {
        script(world).await;
        world.pass(AFTERMATH).await;
        let held = always(&world.history());
        held.unwrap_or_else(|why| panic!("{why}\n{}", world.trace().text()));
    });
}

async fn delete<K: View>(world: &World, name: &str, propagation: PropagationPolicy) {
    let delete = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
    world.client().delete(&Kind::of::<K>(), &key(name), &delete).await.expect("the user's own call");
}

/// Writes a status, as a kubelet or another controller would.
async fn set_status<K: View>(world: &World, name: &str, status: Value) {
    let status = Patch::merge(&json!({"status": status}));
    let patched = world.client().patch(&Kind::of::<K>(), &key(name), Subresource::Status, status).await;
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

/// Returns the spec of a workload with this many replicas of a pod.
pub(crate) fn replicas(count: u32, pod: Value) -> Value {
    let labels = json!({"app": "web"});
    json!({"spec": {"replicas": count, "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": pod["spec"]}}})
}

/// Returns a pod without resource requests that terminates immediately.
pub(crate) fn small() -> Value {
    json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "a"}]}})
}

/// Returns a template change that creates a new revision.
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
