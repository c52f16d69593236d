//! The acceptance examples, crashed before and after every write, and with every event hidden or late: the objects are the
//! same in the end, and as many were created and deleted.
//!
//! Only applications and the garbage collector run, and health checks are off: what is tested is what the controller
//! itself writes. The same examples with nodes are in `examples.rs`.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::DeleteOptions;
use setpoint::{Key, Kind};
use setpoint_sim::{
    Depth, Fault, OnCall, OnEvent, Scenario, TestCluster, World, check_at_depth, check_faults,
};

use super::*;

async fn begin(world: &World, name: &str, spec: Value) {
    let mut app = application(name, spec);
    app["metadata"]["annotations"] = json!({"app.oam.dev/disable-health-check": "true"});
    world.create(&applications(), Some("default"), app).await;
}

async fn respec(world: &World, name: &str, spec: Value) {
    patch(world, &applications(), name, json!({"spec": spec})).await;
}

async fn remove(world: &World, kind: &Kind, name: &str) {
    world.client().delete(kind, &key(name), &DeleteOptions::default()).await.expect("the user's own delete");
}

/// Creates an application, changes it, drops a component, and adds another.
fn edits(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "edited", json!({"components": [config("a", "1"), config("b", "1")]})).await;
        until_phase(world, "edited", "running").await;
        respec(world, "edited", json!({"components": [config("a", "2")]})).await;
        gone(world, &config_maps(), "b").await;
        until_phase(world, "edited", "running").await;
        respec(world, "edited", json!({"components": [config("a", "2"), config("c", "3")]})).await;
        until_value(world, &config_maps(), "c", "/data/value", json!("3")).await;
        until_phase(world, "edited", "running").await;
    }
    .boxed_local()
}

async fn edits_of_a_new_cluster(world: &World) {
    install(world).await;
    edits(world).await;
}

/// Creates and deletes an application.
fn ends(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "brief", json!({"components": [config("a", "1")]})).await;
        until_phase(world, "brief", "running").await;
        remove(world, &applications(), "brief").await;
        gone(world, &applications(), "brief").await;
        gone(world, &config_maps(), "a").await;
    }
    .boxed_local()
}

/// 1. A shop front with two traits.
fn shop(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "shop", examples::shop()).await;
        until_phase(world, "shop", "running").await;
    }
    .boxed_local()
}

/// 2. Patches of one list, in order.
fn mill(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "mill", examples::mill(false)).await;
        until_phase(world, "mill", "running").await;
        respec(world, "mill", examples::mill(true)).await;
        until_phase(world, "mill", "running").await;
    }
    .boxed_local()
}

/// 3. A definition of one's own.
fn greeting(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let definitions =
            Kind::new("core.oam.dev", "v1beta1", "ComponentDefinition", "componentdefinitions", true);
        begin(world, "ada", examples::greets(json!({"who": "Ada"}))).await;
        world.create(&definitions, Some("default"), examples::greeting()).await;
        until_phase(world, "ada", "running").await;
        respec(world, "ada", examples::greets(json!({"who": "Ada", "extra": {"b": "2", "a": "1"}}))).await;
        until_value(world, &config_maps(), "hi", "/data/x-b", json!("2")).await;
        until_phase(world, "ada", "running").await;
    }
    .boxed_local()
}

/// 4. Order and data between components.
fn store(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "both", examples::store()).await;
        until_phase(world, "both", "running").await;
    }
    .boxed_local()
}

/// 5. Approval, then another namespace.
fn staged(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        examples::make_live(world).await;
        begin(world, "staged", examples::staged()).await;
        examples::resume(world, "staged").await;
        until_phase(world, "staged", "running").await;
        let live = Key::namespaced("live", "web");
        assert_eq!(world.get(&deployments(), &live).await.expect("approved")["spec"]["replicas"], 3);
    }
    .boxed_local()
}

/// 6. The objects after an update.
fn update(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "pair", examples::pair()).await;
        until_phase(world, "pair", "running").await;
        patch(world, &applications(), "pair", json!({"spec": {"components": [worker("a")]}})).await;
        gone(world, &deployments(), "b").await;
        until_phase(world, "pair", "running").await;
        assert!(world.get(&services(), &key("b")).await.is_some());
        remove(world, &applications(), "pair").await;
        gone(world, &applications(), "pair").await;
        gone(world, &services(), "b").await;
        gone(world, &deployments(), "a").await;
    }
    .boxed_local()
}

/// 7. Drift.
fn drift(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world, "kept", examples::scaled(json!([]))).await;
        until_phase(world, "kept", "running").await;
        patch(world, &deployments(), "web", json!({"spec": {"replicas": 5}})).await;
        until_value(world, &deployments(), "web", "/spec/replicas", json!(2)).await;
        remove(world, &deployments(), "web").await;
        until_value(world, &deployments(), "web", "/spec/replicas", json!(2)).await;
        until_phase(world, "kept", "running").await;
    }
    .boxed_local()
}

fn cluster() -> TestCluster {
    TestCluster::new().controllers(&["garbagecollector"]).with(setpoint_oam::applications)
}

type Script = for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>;

fn scenario(name: &'static str, script: Script) -> Scenario {
    Scenario { name, parts: cluster().parts(), start: Some(installed()), script, always: |_| Ok(()) }
}

/// Runs a script with a crash between any two writes, a fault at every event, and a storm.
pub(super) fn survives(cluster: &TestCluster, name: &'static str, script: Script) {
    let scenario = Scenario { parts: cluster.parts(), ..scenario(name, script) };
    let seen = check_faults(&scenario, 1, []).expect("it runs without faults");
    let faults = seen.single_faults(Depth::from_env());
    let storm = Fault::Storm { percent: 30, seed: 2 };
    match check_faults(&scenario, 1, faults.into_iter().chain([storm]).map(|fault| vec![fault])) {
        Ok(report) => println!("{name}: {report:?}"),
        Err(failure) => panic!("{failure:?}"),
    }
}

macro_rules! survivors {
    ($($test:ident $script:ident)*) => {$(
        #[test]
        fn $test() {
            survives(&cluster(), stringify!($script), $script);
        }
    )*};
}

survivors! {
    a_deletion_survives_every_fault ends
    a_shop_front_survives_every_fault shop
    patches_of_one_list_survive_every_fault mill
    a_definition_of_ones_own_survives_every_fault greeting
    values_between_components_survive_every_fault store
    an_approval_survives_every_fault staged
    an_update_that_drops_objects_survives_every_fault update
    drift_is_taken_back_after_every_fault drift
}

#[test]
fn edits_survive_every_fault_also_of_the_installation() {
    let scenario =
        Scenario { start: None, ..scenario("edits", |world| edits_of_a_new_cluster(world).boxed_local()) };
    match check_at_depth(&scenario, 1, 4, Depth::from_env()) {
        Ok(report) => println!("edits: {report:?}"),
        Err(failure) => panic!("{failure:?}"),
    }
}

#[test]
fn edits_survive_watches_that_end_and_repeat() {
    let plans = [Fault::Watches { last: Duration::from_secs(3) }, Fault::Events { what: OnEvent::Duplicate }];
    if let Err(failure) = check_faults(&scenario("edits", edits), 1, plans.map(|fault| vec![fault])) {
        panic!("{failure:?}");
    }
}

/// Changes a spec and takes the change back at once. How often the workflow runs depends on what the controller sees,
/// but nothing is ever deleted.
#[test]
fn a_reversal_deletes_nothing_whatever_write_it_crashes_at() {
    for nth in 0..40 {
        for what in [OnCall::CrashBefore, OnCall::CrashAfter] {
            let faults = [Fault::Call { nth, what }];
            cluster().starting_from(&installed()).faults(faults).run(async |cluster| {
                let whole = json!({"components": [config("a", "1"), config("b", "1")]});
                begin(cluster, "pair", whole.clone()).await;
                until_phase(cluster, "pair", "running").await;
                let uid =
                    cluster.get(&config_maps(), &key("b")).await.expect("applied")["metadata"]["uid"].clone();
                respec(cluster, "pair", json!({"components": [config("a", "2")]})).await;
                cluster.pass(Duration::from_millis(10 * nth as u64)).await;
                respec(cluster, "pair", whole).await;
                cluster.pass(Duration::from_secs(60)).await;
                until_phase(cluster, "pair", "running").await;
                let b = cluster.get(&config_maps(), &key("b")).await.expect("it stays");
                assert_eq!(b["metadata"]["uid"], uid, "{faults:?}");
                until_value(cluster, &config_maps(), "a", "/data/value", json!("1")).await;
            });
        }
    }
}
