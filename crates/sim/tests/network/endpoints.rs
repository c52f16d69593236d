//! Endpoints and EndpointSlices.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint_sim::{Fault, OnEvent, World};
use setpoint_store::EventKind;

use super::scenarios::{create, delete, found, list, parts, pod, running, survives, until, until_all};

const SLICES: &[&str] = &["endpointslice"];

fn service(selector: Value) -> Value {
    json!({"spec": {"selector": selector, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
}

/// Returns whether a slice belongs to the service of these scenarios, and not to the API server's own.
fn is_ours(slice: &Value) -> bool {
    slice["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
}

/// Returns whether there is one slice, with the expected number of endpoints and of ready ones.
fn listed(slices: &[Value], expected: (usize, usize)) -> bool {
    let ours = || slices.iter().filter(|slice| is_ours(slice));
    let all = || ours().filter_map(|slice| slice["endpoints"].as_array()).flatten();
    let ready = all().filter(|endpoint| endpoint["conditions"]["ready"] == true).count();
    ours().count() == 1 && (all().count(), ready) == expected
}

/// A service gets a pod, which becomes ready and is deleted.
fn slices(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        create(world, "Service", "s", service(json!({"app": "w"}))).await;
        until_all(world, "EndpointSlice", |slices| listed(slices, (0, 0))).await;
        pod(world, "p", "w").await;
        running(world, "p", "10.1.0.1", true).await;
        until_all(world, "EndpointSlice", |slices| listed(slices, (1, 1))).await;
        delete(world, "Pod", "p").await;
        until_all(world, "EndpointSlice", |slices| listed(slices, (0, 0))).await;
    }
    .boxed_local()
}

fn addresses(endpoints: &Value) -> usize {
    endpoints["subsets"].as_array().map_or(0, |subsets| {
        subsets.iter().filter_map(|subset| subset["addresses"].as_array()).map(Vec::len).sum()
    })
}

/// The same with Endpoints, and the service is deleted.
fn objects(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        create(world, "Service", "s", service(json!({"app": "w"}))).await;
        pod(world, "p", "w").await;
        running(world, "p", "10.1.0.1", true).await;
        until(world, "Endpoints", "s", |endpoints| addresses(endpoints) == 1).await;
        delete(world, "Pod", "p").await;
        until(world, "Endpoints", "s", |endpoints| addresses(endpoints) == 0).await;
        delete(world, "Service", "s").await;
        until_all(world, "Endpoints", |all| all.iter().all(|one| one["metadata"]["name"] != "s")).await;
    }
    .boxed_local()
}

fn are(slices: &[Value], count: usize) -> bool {
    slices.iter().filter(|slice| is_ours(slice)).count() == count
}

/// A user creates Endpoints, and deletes them.
fn mirror(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "Service", "s", service(Value::Null)).await;
        let subsets = json!([{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"name": "http", "port": 80}]}]);
        create(world, "Endpoints", "s", json!({"subsets": subsets})).await;
        until_all(world, "EndpointSlice", |slices| are(slices, 1)).await;
        delete(world, "Endpoints", "s").await;
        until_all(world, "EndpointSlice", |slices| are(slices, 0)).await;
    }
    .boxed_local()
}

#[test]
fn slices_survive_every_crash_and_every_stale_or_hidden_event() {
    survives("slices", SLICES, slices);
}

#[test]
fn endpoints_survive_crashes_and_stale_events() {
    survives("endpoints", &["endpoint"], objects);
}

#[test]
fn mirrored_slices_survive_crashes_and_stale_events() {
    survives("mirrored slices", &["endpointslicemirroring"], mirror);
}

/// The controller creates a slice, its cache does not show it, and the service changes. It must not create another one.
#[test]
fn a_slice_that_was_created_and_not_yet_seen_is_not_created_again() {
    let stale: Vec<Fault> =
        (0..12).map(|nth| Fault::Event { nth, what: OnEvent::Delay(Duration::from_secs(60)) }).collect();
    for fault in stale {
        World::simulate(1, parts(SLICES), vec![fault], async |world| {
            found(world).await;
            create(world, "Service", "s", service(json!({"app": "w"}))).await;
            until_all(world, "EndpointSlice", |slices| slices.iter().any(is_ours)).await;
            for colour in ["red", "green", "blue"] {
                let labels = json!({"metadata": {"labels": {"colour": colour}}});
                super::scenarios::patch(world, "Service", "s", setpoint::client::Subresource::None, labels)
                    .await;
                world.pass(Duration::from_secs(3)).await;
                assert!(are(&list(world, "EndpointSlice").await, 1), "{fault:?}");
            }
            let is_blue = |slice: &Value| slice["metadata"]["labels"]["colour"] == "blue";
            until_all(world, "EndpointSlice", |slices| slices.iter().any(is_blue)).await;
            let history = world.history();
            let created = history.changes().filter(|(change, object)| {
                *change == EventKind::Created && object["kind"] == "EndpointSlice" && is_ours(object)
            });
            assert_eq!(created.count(), 1, "{fault:?}");
        });
    }
}

#[test]
fn user_managed_endpoints_without_a_service_are_kept() {
    World::simulate(1, parts(&["endpoint"]), Vec::new(), async |world| {
        create(world, "Endpoints", "s", json!({})).await;
        let labels = json!({"metadata": {"labels": {"colour": "red"}}});
        super::scenarios::patch(world, "Endpoints", "s", setpoint::client::Subresource::None, labels).await;
        world.pass(Duration::from_secs(30)).await;
        until(world, "Endpoints", "s", |kept| kept["metadata"]["labels"]["colour"] == "red").await;
    });
}

/// In a steady state, a new manager has nothing to write.
#[test]
fn a_restart_in_a_steady_state_writes_nothing() {
    let controllers = ["endpointslice", "endpoint", "endpointslicemirroring"];
    World::simulate(1, parts(&controllers), Vec::new(), async |world| {
        slices(world).await;
        world.pass(Duration::from_secs(30)).await;
        let before = world.revision();
        world.restart().await;
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(world.revision(), before, "{}", world.trace().text());
    });
}
