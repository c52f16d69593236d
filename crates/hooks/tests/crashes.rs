//! Composite and decorator controllers, crashed before and after every write, and with every event hidden or late: the
//! objects are the same in the end, and as many were created and deleted.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use setpoint_sim::{Depth, Fault, OnEvent, Scenario, check_at_depth, check_faults};

use super::*;

fn of(
    name: &'static str,
    hooks: Functions,
    script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
) -> Scenario {
    let options = Options::new(hooks);
    let parts = TestCluster::new()
        .controllers(&["garbagecollector"])
        .with(move |context| setpoint_hooks::runnables(context, &options))
        .parts();
    Scenario { name, parts, start: Some(installed()), script, always: |_| Ok(()) }
}

fn finalizing(hooks: Functions, list: &'static str, kind: &'static str) -> Functions {
    hooks.on(FINALIZE, move |request| {
        let left = request[list][kind].as_object().map_or(0, |left| left.len());
        json!({list: [], "finalized": left == 0})
    })
}

/// A controller of things with selectors of their own: no uid is in the text of an annotation.
fn selecting(method: &str) -> Value {
    let mut controller = composite("maps", method);
    controller["spec"]["generateSelector"] = json!(false);
    controller
}

fn selected(mut spec: Value, app: &str) -> Value {
    spec["selector"] = json!({"matchLabels": {"app": app}});
    spec
}

/// Creates a parent, changes it, and finalizes it.
fn composite_life(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let mut controller = selecting("InPlace");
        controller["spec"]["hooks"]["finalize"] = json!({"webhook": {"url": FINALIZE}});
        create_controller(world, controller).await;
        create_thing(world, "a", selected(json!({"count": 2, "value": "1"}), "a")).await;
        until_value(world, &things(), "a", "/status/children", json!(2)).await;
        patch(world, &things(), &key("a"), json!({"spec": {"count": 1, "value": "2"}})).await;
        until_value(world, &config_maps(), "a-0", "/data/value", json!("2")).await;
        gone(world, &config_maps(), "a-1").await;
        create_thing(world, "b", selected(json!({"value": "1"}), "b")).await;
        until_value(world, &things(), "b", "/status/children", json!(1)).await;
        delete(world, &things(), &key("a")).await;
        gone(world, &things(), "a").await;
        gone(world, &config_maps(), "a-0").await;
    }
    .boxed_local()
}

/// Rolls out a change, and deletes the parent.
fn rollout_life(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create_controller(world, selecting("RollingInPlace")).await;
        create_thing(world, "a", selected(json!({"count": 2, "value": "1"}), "a")).await;
        until_value(world, &things(), "a", "/status/children", json!(2)).await;
        patch(world, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        until_value(world, &config_maps(), "a-0", "/data/value", json!("2")).await;
        until_value(world, &config_maps(), "a-1", "/data/value", json!("2")).await;
        world.pass(Duration::from_secs(10)).await;
        delete(world, &things(), &key("a")).await;
        gone(world, &config_maps(), "a-0").await;
        gone(world, &config_maps(), "a-1").await;
    }
    .boxed_local()
}

/// Decorates an object, and takes that back.
fn decorator_life(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let controller = json!({
            "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController", "metadata": {"name": "marks"},
            "spec": {
                "resources": [{"apiVersion": "example.com/v1", "resource": "things",
                    "labelSelector": {"matchLabels": {"marked": "yes"}}}],
                "attachments": [{"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "Recreate"}}],
                "hooks": {"sync": {"webhook": {"url": SYNC}}, "finalize": {"webhook": {"url": FINALIZE}}},
            },
        });
        create_controller(world, controller).await;
        let mut parent = thing("a", json!({"value": "1"}));
        parent["metadata"]["labels"] = json!({"marked": "yes"});
        world.create(&things(), Some("default"), parent).await;
        until_value(world, &config_maps(), "a", "/data/value", json!("1")).await;
        patch(world, &things(), &key("a"), json!({"spec": {"value": "2"}})).await;
        until_value(world, &config_maps(), "a", "/data/value", json!("2")).await;
        patch(world, &things(), &key("a"), json!({"metadata": {"labels": {"marked": "no"}}})).await;
        gone(world, &config_maps(), "a").await;
    }
    .boxed_local()
}

fn mark(request: &Value) -> Value {
    let object = &request["object"];
    let child = config_map(name_of(object), &object["spec"]["value"]);
    json!({"annotations": {"marked-by": "hook"}, "status": {"marked": true}, "attachments": [child]})
}

fn scenarios() -> [Scenario; 3] {
    let maps = || Functions::new().on(SYNC, |request| labelled(&request));
    let marks = Functions::new().on(SYNC, |request| mark(&request));
    [
        of("composite", finalizing(maps(), "children", "ConfigMap.v1"), composite_life),
        of("rollout", maps(), rollout_life),
        of("decorator", finalizing(marks, "attachments", "ConfigMap.v1"), decorator_life),
    ]
}

#[test]
fn composites_survive_every_crash_and_every_lost_event() {
    let [composite, ..] = scenarios();
    let report =
        check_at_depth(&composite, 1, 10, Depth::from_env()).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(report.writes > 10 && report.plans > 2 * report.writes, "{report:?}");
}

#[test]
fn rollouts_survive_every_crash_and_every_lost_event() {
    let [_, rollout, _] = scenarios();
    let report =
        check_at_depth(&rollout, 1, 10, Depth::from_env()).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(report.writes > 10 && report.plans > 2 * report.writes, "{report:?}");
}

#[test]
fn decorators_survive_every_crash_and_every_lost_event() {
    let [_, _, decorator] = scenarios();
    let report =
        check_at_depth(&decorator, 1, 10, Depth::from_env()).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(report.writes > 5 && report.plans > 2 * report.writes, "{report:?}");
}

#[test]
fn all_survive_watches_that_end_and_events_that_repeat() {
    for scenario in scenarios() {
        let plans = [
            vec![Fault::Watches { last: Duration::from_secs(3) }],
            vec![Fault::Events { what: OnEvent::Duplicate }],
        ];
        check_faults(&scenario, 1, plans).unwrap_or_else(|failure| panic!("{failure:?}"));
    }
}
