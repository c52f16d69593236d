//! The controllers of graphs and definitions are crashed before and after every write, and end with the same objects.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint_sim::{Fault, OnCall, OnEvent, Scenario, TestCluster, World, check_faults};

use super::*;

/// A scenario with one of the controllers.
fn of(
    name: &'static str,
    build: fn(&setpoint::Context) -> Vec<Box<dyn setpoint::Runnable>>,
    script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
) -> Scenario {
    let parts = TestCluster::new().controllers(&["garbagecollector"]).with(build).parts();
    Scenario { name, parts, start: Some(installed()), script, always: |_| Ok(()) }
}

/// Makes a kind and an instance, changes the definition, and deletes both.
fn noted(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        world.create(&graph_checks::graphs(), None, graph_checks::note(json!({"a": "1", "b": "1"}))).await;
        graph_checks::settled(world, "Active").await;
        graph_checks::create_note(world).await;
        graph_checks::change(world, &graph_checks::note(json!({"a": "2"}))).await;
        until_value(world, &config_maps(), "first", "/data", json!({"a": "2"})).await;
        let (client, options) = (world.client(), DeleteOptions::default());
        client
            .delete(&graph_checks::graphs(), &setpoint::Key::cluster("note"), &options)
            .await
            .expect("a delete");
        client.delete(&graph_checks::notes(), &key("first"), &options).await.expect("a delete");
        gone(world, &graph_checks::notes(), "first").await;
        gone(world, &config_maps(), "first").await;
        for name in ["note-r00001", "note-r00002"] {
            world
                .until(&graph_checks::revisions(), &setpoint::Key::cluster(name), |revision| {
                    revision.is_none()
                })
                .await;
        }
    }
    .boxed_local()
}

/// Creates a definition and changes it until its first revision is deleted.
fn definitions(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let kind = setpoint::Kind::new("core.oam.dev", "v1beta1", "TraitDefinition", "traitdefinitions", true);
        let revisions =
            setpoint::Kind::new("core.oam.dev", "v1beta1", "DefinitionRevision", "definitionrevisions", true);
        let template = |round: usize| json!({"schematic": {"cue": {"template": format!("parameter: n: *{round} | int")}}});
        let object = json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "TraitDefinition",
            "metadata": {"name": "numbered", "namespace": "default"}, "spec": template(0)});
        world.create(&kind, Some("default"), object).await;
        for round in 1..5 {
            let latest = json!(format!("numbered-v{round}"));
            until_value(world, &kind, "numbered", "/status/latestRevision/name", latest).await;
            patch(world, &kind, "numbered", json!({"spec": template(round)})).await;
        }
        until_value(world, &kind, "numbered", "/status/latestRevision/revision", json!(5)).await;
        gone(world, &revisions, "numbered-v1").await;
        gone(world, &revisions, "numbered-v2").await;
    }
    .boxed_local()
}

/// The eighth acceptance example. The test plays the controller of Deployments.
fn newsstand(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        install(world).await;
        let (client, options) = (world.client(), DeleteOptions::default());
        let (stand, name) = (setpoint::Key::cluster("newsstand"), "corner");
        world.create(&graphs::graphs(), None, graphs::newsstand()).await;
        let active = |graph: Option<&Value>| graph.is_some_and(|graph| graph["status"]["state"] == "Active");
        until(world, &graphs::graphs(), &stand, active).await;
        let corner = json!({"apiVersion": "kro.run/v1alpha1", "kind": "Newsstand", "metadata": {"name": name},
            "spec": {"papers": ["morning", "evening"]}});
        client.create(&graphs::stands(), Some("default"), &corner).await.expect("an instance is accepted");
        until(world, &deployments(), &key(name), |desk| desk.is_some()).await;
        let ready =
            Patch::merge(&json!({"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}}));
        client.patch(&deployments(), &key(name), Subresource::Status, ready).await.expect("a status");
        until_value(world, &graphs::stands(), name, "/status/state", json!("ACTIVE")).await;
        until_value(world, &graphs::stands(), name, "/status/open", json!(true)).await;
        let wider = json!({"spec": {"papers": ["morning"], "public": true}});
        patch(world, &graphs::stands(), name, wider).await;
        gone(world, &config_maps(), "corner-evening").await;
        until(world, &services(), &key(name), |door| door.is_some()).await;
        patch(world, &graphs::stands(), name, json!({"spec": {"public": false}})).await;
        gone(world, &services(), name).await;
        client.delete(&graphs::graphs(), &stand, &options).await.expect("a delete");
        client.delete(&graphs::stands(), &key(name), &options).await.expect("a delete");
        gone(world, &graphs::stands(), name).await;
        gone(world, &deployments(), name).await;
        gone(world, &config_maps(), "corner-morning").await;
    }
    .boxed_local()
}

#[test]
fn a_graph_survives_every_fault() {
    let cluster = TestCluster::new().controllers(&["garbagecollector"]).with(setpoint_oam::graphs);
    crashes::survives(&cluster, "newsstand", newsstand);
}

#[test]
fn graphs_survive_a_crash_at_every_write() {
    check(&of("graphs", setpoint_oam::graphs, noted), crashes(24));
}

#[test]
fn definitions_survive_a_crash_at_every_write() {
    check(&of("definitions", setpoint_oam::definitions, definitions), crashes(24));
}

#[test]
fn graphs_and_definitions_survive_watches_that_end_and_repeat_and_a_storm_of_failures() {
    let plans = || {
        [
            vec![Fault::Watches { last: Duration::from_secs(3) }],
            vec![Fault::Events { what: OnEvent::Duplicate }],
            vec![Fault::Storm { percent: 30, seed: 2 }],
        ]
    };
    check(&of("graphs", setpoint_oam::graphs, noted), plans());
    check(&of("definitions", setpoint_oam::definitions, definitions), plans());
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
