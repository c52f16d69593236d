//! The controller is crashed before and after every write, and sees the same objects in the end.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::DeleteOptions;
use setpoint_sim::{Fault, OnCall, OnEvent, Scenario, TestCluster, World, check_faults};

use super::*;

fn config(name: &str, value: &str) -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}});
    json!({"name": name, "type": "k8s-objects", "properties": {"objects": [object]}})
}

/// Creates an application, changes it, drops a component, and takes that back.
fn edits(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        install(world).await;
        create_app(world, "edited", json!({"components": [config("a", "1"), config("b", "1")]})).await;
        until_phase(world, "edited", "running").await;
        patch(world, &applications(), "edited", json!({"spec": {"components": [config("a", "2")]}})).await;
        gone(world, &config_maps(), "b").await;
        until_phase(world, "edited", "running").await;
        patch(
            world,
            &applications(),
            "edited",
            json!({"spec": {"components": [config("a", "2"), config("c", "3")]}}),
        )
        .await;
        until_value(world, &config_maps(), "c", "/data/value", json!("3")).await;
        until_phase(world, "edited", "running").await;
    }
    .boxed_local()
}

/// Creates and deletes an application.
fn ends(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        install(world).await;
        create_app(world, "brief", json!({"components": [config("a", "1")]})).await;
        until_phase(world, "brief", "running").await;
        world
            .client()
            .delete(&applications(), &key("brief"), &DeleteOptions::default())
            .await
            .expect("a delete");
        gone(world, &applications(), "brief").await;
        gone(world, &config_maps(), "a").await;
    }
    .boxed_local()
}

fn scenario(name: &'static str, script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>) -> Scenario {
    let parts =
        TestCluster::new().controllers(&["garbagecollector"]).with(setpoint_oam::applications).parts();
    Scenario { name, parts, script, always: |_| Ok(()) }
}

fn check(scenario: &Scenario, plans: impl IntoIterator<Item = Vec<Fault>>) {
    if let Err(failure) = check_faults(scenario, 1, plans) {
        panic!("{} with {:?}: {}", failure.scenario, failure.plan, failure.why);
    }
}

/// Crashes before and after each of the first writes. There are fewer in a run.
fn crashes(writes: usize) -> impl Iterator<Item = Vec<Fault>> {
    let at = |nth| [OnCall::CrashBefore, OnCall::CrashAfter].map(|what| vec![Fault::Call { nth, what }]);
    (0..writes).flat_map(at)
}

#[test]
fn edits_survive_a_crash_at_every_write() {
    check(&scenario("edits", edits), crashes(40));
}

#[test]
fn a_deletion_survives_a_crash_at_every_write() {
    check(&scenario("ends", ends), crashes(20));
}

#[test]
fn edits_survive_watches_that_end_and_repeat_and_a_storm_of_failures() {
    let plans = [
        Fault::Watches { last: Duration::from_secs(3) },
        Fault::Events { what: OnEvent::Duplicate },
        Fault::Storm { percent: 30, seed: 2 },
    ];
    check(&scenario("edits", edits), plans.map(|fault| vec![fault]));
}
