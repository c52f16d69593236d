//! WorkflowRuns: workflows without an application.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_oam::{Options, selected};
use setpoint_sim::{TestCluster, World};

use super::*;

fn runs() -> Kind {
    Kind::new("core.oam.dev", "v1alpha1", "WorkflowRun", "workflowruns", true)
}

fn alone() -> TestCluster {
    TestCluster::new().controllers(&["garbagecollector"]).with(|context| {
        let entries = selected(&["application-controller", "workflow-run-controller"]).expect("they exist");
        let options = Options::default();
        entries.iter().flat_map(|entry| entry.parts(context, &options)).collect::<Vec<_>>()
    })
}

fn in_world(test: impl AsyncFnOnce(&World)) {
    alone().starting_from(&installed()).run(async |world| test(world).await);
}

async fn create_run(world: &World, name: &str, spec: Value) {
    let run = json!({"apiVersion": "core.oam.dev/v1alpha1", "kind": "WorkflowRun", "metadata": {"name": name}, "spec": spec});
    world.create(&runs(), Some("default"), run).await;
}

async fn until_run(world: &World, name: &str, phase: &str) -> Value {
    world.until(&runs(), &key(name), |run| run.is_some_and(|run| run["status"]["status"] == phase)).await;
    world.get(&runs(), &key(name)).await.expect("it was there")
}

async fn set_status(world: &World, name: &str, status: Value) {
    let patch = Patch::merge(&json!({"status": status}));
    world.client().patch(&runs(), &key(name), Subresource::Status, patch).await.expect("a user's own patch");
}

fn writes(name: &str) -> Value {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": "1"}});
    json!({"name": format!("write-{name}"), "type": "apply-object", "properties": {"value": object}})
}

#[test]
fn a_run_executes_its_steps_and_passes_values_on() {
    in_world(async |world| {
        let steps = json!([
            writes("a"),
            {"name": "read", "type": "read-object", "properties": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"},
                "outputs": [{"name": "value", "valueFrom": "output.$returns.value.data.value + context.extra"}]},
            {"name": "show", "type": "print-message-in-status", "properties": {"message": ""},
                "inputs": [{"from": "value", "parameterKey": "message"}]},
        ]);
        create_run(world, "build", json!({"context": {"extra": "!"}, "workflowSpec": {"steps": steps}}))
            .await;
        let run = until_run(world, "build", "succeeded").await;
        let status = &run["status"];
        assert_eq!(status["steps"][2]["message"], "1!");
        assert_eq!((&status["finished"], &status["terminated"]), (&json!(true), &json!(false)));
        assert_eq!(status["mode"], json!({"steps": "StepByStep", "subSteps": "DAG"}));
        assert_eq!(status["conditions"][0]["type"], "WorkflowRun");
        assert_eq!(status["conditions"][0]["status"], "True");
        let written = world.get(&config_maps(), &key("a")).await.expect("applied");
        assert_eq!(written["metadata"]["labels"]["workflowrun.oam.dev/name"], "build");
        assert!(written["metadata"]["labels"]["app.oam.dev/name"].is_null());
        let backend = status["contextBackend"]["name"].as_str().unwrap().to_owned();
        assert!(world.get(&config_maps(), &key(&backend)).await.is_some());
        let revision = world.revision();
        world.pass(Duration::from_secs(3600)).await;
        assert_eq!(world.revision(), revision, "a run that has ended writes nothing");
        world.client().delete(&runs(), &key("build"), &DeleteOptions::default()).await.expect("a user's own");
        gone(world, &config_maps(), &backend).await;
        assert!(world.get(&config_maps(), &key("a")).await.is_some(), "what it applied stays");
    });
}

#[test]
fn a_run_refers_to_a_workflow_and_waits_for_it() {
    in_world(async |world| {
        create_run(world, "later", json!({"workflowRef": "shared"})).await;
        let run = until_run(world, "later", "initializing").await;
        let message = run["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains("Workflow default/shared not found"), "{message}");
        let workflows = Kind::new("core.oam.dev", "v1alpha1", "Workflow", "workflows", true);
        let shared = json!({"apiVersion": "core.oam.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "shared"},
            "mode": {"steps": "DAG"}, "steps": [writes("a"), writes("b")]});
        world.create(&workflows, Some("default"), shared).await;
        let run = until_run(world, "later", "succeeded").await;
        assert_eq!(run["status"]["mode"]["steps"], "DAG");
        assert!(world.get(&config_maps(), &key("b")).await.is_some());
    });
}

#[test]
fn a_run_is_suspended_resumed_terminated_and_restarted() {
    in_world(async |world| {
        let steps = json!([writes("a"), {"name": "ask", "type": "suspend"}, writes("b")]);
        create_run(world, "asked", json!({"workflowSpec": {"steps": steps}})).await;
        let run = until_run(world, "asked", "suspending").await;
        let mut resumed = run["status"]["steps"].clone();
        resumed[1]["phase"] = "running".into();
        set_status(world, "asked", json!({"suspend": false, "steps": resumed})).await;
        until_run(world, "asked", "succeeded").await;
        assert!(world.get(&config_maps(), &key("b")).await.is_some());

        let again = json!({"status": null, "message": null, "suspend": false, "terminated": false, "finished": false,
            "steps": null, "startTime": null, "endTime": null, "contextBackend": null, "conditions": null});
        set_status(world, "asked", again).await;
        until_run(world, "asked", "suspending").await;
        set_status(world, "asked", json!({"terminated": true})).await;
        let run = until_run(world, "asked", "terminated").await;
        assert_eq!(run["status"]["finished"], true);
    });
}

#[test]
fn what_only_applications_have_and_what_belongs_to_them_is_refused() {
    in_world(async |world| {
        let deploy = json!({"name": "it", "type": "deploy", "properties": {"policies": []}});
        create_run(world, "deploys", json!({"workflowSpec": {"steps": [deploy]}})).await;
        let run = until_run(world, "deploys", "failed").await;
        let message = run["status"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("not in a WorkflowRun"), "{message}");

        create_app(world, "owner", json!({"components": [config("a", "1")]})).await;
        until_phase(world, "owner", "running").await;
        create_run(world, "owner", json!({"workflowSpec": {"steps": [writes("a")]}})).await;
        let run = until_run(world, "owner", "failed").await;
        let message = run["status"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("managed by other application default/owner"), "{message}");

        create_run(world, "none", json!({})).await;
        let run = until_run(world, "none", "initializing").await;
        let message = run["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains("expected workflowSpec or workflowRef"), "{message}");
    });
}

/// Writes, passes a value on, and writes again.
fn builds(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let read = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a"});
        let steps = json!([
            writes("a"),
            {"name": "read", "type": "read-object", "properties": read,
                "outputs": [{"name": "value", "valueFrom": "output.$returns.value.data.value"}]},
            {"name": "show", "type": "print-message-in-status", "properties": {"message": ""},
                "inputs": [{"from": "value", "parameterKey": "message"}]},
            writes("b"),
        ]);
        create_run(world, "build", json!({"workflowSpec": {"steps": steps}})).await;
        until_run(world, "build", "succeeded").await;
        world.client().delete(&runs(), &key("build"), &DeleteOptions::default()).await.expect("a user's own");
        gone(world, &runs(), "build").await;
        let backend = Key::namespaced("default", "workflow-build-context-run");
        until(world, &config_maps(), &backend, |found| found.is_none()).await;
    }
    .boxed_local()
}

#[test]
fn a_run_survives_every_fault() {
    crashes::survives(&alone(), "builds", builds);
}
