//! Hostile input: a clear status and an event, and others are unaffected.

use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::World;

use super::*;

fn definition(name: &str, template: &str) -> Value {
    json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "ComponentDefinition",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"workload": {"type": "autodetects.core.oam.dev"}, "schematic": {"cue": {"template": template}}}})
}

/// Creates an application of a hostile type beside an ordinary one. Returns what the status says.
async fn run(world: &World, name: &str, component: Value, phase: &str) -> String {
    create_app(world, name, json!({"components": [component]})).await;
    let app = until_phase(world, name, phase).await;
    let neighbour = format!("{name}-neighbour");
    create_app(world, &neighbour, json!({"components": [config(&neighbour, "1")]})).await;
    until_phase(world, &neighbour, "running").await;
    warned(world, name).await;
    app["status"].to_string()
}

/// Waits for a warning about an application.
async fn warned(world: &World, name: &str) {
    let events = Kind::new("", "v1", "Event", "events", true);
    for _ in 0..60 {
        let is_about = |event: &Value| event["involvedObject"]["name"] == name && event["type"] == "Warning";
        if world.list(&events, Some("default")).await.iter().any(is_about) {
            return;
        }
        world.pass(std::time::Duration::from_secs(1)).await;
    }
    panic!("no warning about {name}");
}

async fn fails(world: &World, name: &str, template: &str, message: &str) {
    world
        .create(
            &Kind::new("core.oam.dev", "v1beta1", "ComponentDefinition", "componentdefinitions", true),
            Some("default"),
            definition(name, template),
        )
        .await;
    let component = json!({"name": name, "type": name, "properties": {}});
    let status = run(world, name, component, "workflowFailed").await;
    assert!(status.contains(message), "{name}: {status}");
    assert!(status.len() < 20_000, "{name}: {}", status.len());
}

#[test]
fn endless_recursion_is_stopped() {
    in_cluster(async |cluster| {
        let template = "#F: {n: int, r: (#F & {n: n + 1}).r}\noutput: {apiVersion: \"v1\", kind: \"ConfigMap\", data: x: (#F & {n: 0}).r}\nparameter: {}";
        fails(cluster, "endless", template, "evaluation was stopped").await;
    });
}

#[test]
fn exponential_disjunctions_are_stopped() {
    in_cluster(async |cluster| {
        let pairs: Vec<String> = (0..40).map(|n| format!("({{a{n}: 1}} | {{b{n}: 1}})")).collect();
        let template = format!(
            "x: {}\noutput: {{apiVersion: \"v1\", kind: \"ConfigMap\", data: y: \"\\(x.a0)\"}}\nparameter: {{}}",
            pairs.join(" & ")
        );
        fails(cluster, "explosive", &template, "evaluation was stopped").await;
    });
}

#[test]
fn a_template_of_a_megabyte_works_and_one_that_is_not_cue_is_named() {
    in_cluster(async |cluster| {
        let template = format!(
            "// {}\noutput: {{apiVersion: \"v1\", kind: \"ConfigMap\"}}\nparameter: {{}}",
            "x".repeat(1 << 20)
        );
        cluster.create(definition("huge", &template)).await;
        create_app(cluster, "huge", json!({"components": [{"name": "huge", "type": "huge"}]})).await;
        until_phase(cluster, "huge", "running").await;
        let nonsense = format!("{} {}", "{".repeat(1000), "x ".repeat(1 << 18));
        fails(cluster, "nonsense", &nonsense, "nonsense.cue").await;
    });
}

#[test]
fn a_long_error_is_cut() {
    in_cluster(async |cluster| {
        let template = "parameter: {}\nimport \"strings\"\n";
        let long = format!(
            "import \"strings\"\n_x: strings.Repeat(\"y\", 100000)\noutput: {{apiVersion: \"v1\", kind: \"ConfigMap\", data: z: _x & \"a\"}}\n{}",
            &template[..14]
        );
        fails(cluster, "talkative", &long, "…").await;
    });
}

#[test]
fn parameters_of_the_wrong_type_are_named() {
    in_cluster(async |cluster| {
        let component = json!({"name": "web", "type": "webservice", "properties": {"image": 7}});
        let status = run(cluster, "typed", component, "workflowFailed").await;
        assert!(status.contains("component web") && status.contains("parameter.image"), "{status}");
    });
}

#[test]
fn a_missing_definition_is_named() {
    in_cluster(async |cluster| {
        let component = json!({"name": "web", "type": "nonesuch"});
        let status = run(cluster, "lost", component, "rendering").await;
        assert!(status.contains("ComponentDefinition") && status.contains("nonesuch"), "{status}");
    });
}

#[test]
fn a_workflow_that_waits_for_itself_fails() {
    in_cluster(async |cluster| {
        let step = |name: &str, on: &str| json!({"name": name, "type": "suspend", "dependsOn": [on]});
        let spec = json!({"components": [config("a", "1")], "workflow": {"steps": [step("x", "y"), step("y", "x")]}});
        create_app(cluster, "round", spec).await;
        let app = until_phase(cluster, "round", "workflowFailed").await;
        let message = app["status"]["workflow"]["message"].as_str().unwrap();
        assert!(message.contains("depends on itself"), "{message}");
        warned(cluster, "round").await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_none());
    });
}

#[test]
fn a_long_workflow_is_planned_quickly() {
    in_cluster(async |cluster| {
        let step = |n: usize| json!({"name": format!("s{n}"), "type": "print-message-in-status", "properties": {"message": "m"}, "dependsOn": [format!("s{}", (n + 1) % 2_000)]});
        let steps: Vec<Value> = (0..2_000).map(step).collect();
        create_app(cluster, "long", json!({"components": [config("a", "1")], "workflow": {"steps": steps}}))
            .await;
        until_phase(cluster, "long", "workflowFailed").await;
    });
}

#[test]
fn two_applications_that_claim_one_object_are_told_apart() {
    in_cluster(async |cluster| {
        create_app(cluster, "one", json!({"components": [config("shared", "1")]})).await;
        create_app(cluster, "two", json!({"components": [config("shared", "2")]})).await;
        let phase = |app: &Value| app["status"]["status"].as_str().unwrap_or_default().to_owned();
        let ended = |app: Option<&Value>| {
            app.is_some_and(|app| ["running", "workflowFailed"].contains(&&*phase(app)))
        };
        for name in ["one", "two"] {
            until(cluster, &applications(), &key(name), ended).await;
        }
        let one = cluster.get(&applications(), &key("one")).await.unwrap();
        let (winner, loser, value) =
            if phase(&one) == "running" { ("one", "two", "1") } else { ("two", "one", "2") };
        until_phase(cluster, winner, "running").await;
        let lost = until_phase(cluster, loser, "workflowFailed").await;
        let message = format!("is managed by other application default/{winner}");
        assert!(lost["status"].to_string().contains(&message), "{lost}");
        warned(cluster, loser).await;
        until_value(cluster, &config_maps(), "shared", "/data/value", json!(value)).await;
    });
}

/// Templates can give anything where an object is expected.
#[test]
fn templates_that_give_no_objects_are_named() {
    in_cluster(async |cluster| {
        let object = "apiVersion: \"v1\", kind: \"ConfigMap\"";
        for (name, template, message) in [
            ("text", "output: \"text\"".to_owned(), "output: expected an object, found a text"),
            (
                "kindless",
                "output: {apiVersion: \"v1\"}".into(),
                "output: kind: expected a text, found nothing",
            ),
            (
                "meta",
                format!("output: {{{object}, metadata: \"x\"}}"),
                "output: metadata: expected an object",
            ),
            (
                "labels",
                format!("output: {{{object}, metadata: labels: [1]}}"),
                "metadata.labels: expected an object",
            ),
            ("number", format!("output: {{{object}, metadata: name: 7}}"), "metadata.name: expected a text"),
            ("others", "outputs: a: 1".into(), "outputs.a: expected an object, found a number"),
        ] {
            fails(cluster, name, &format!("{template}\nparameter: {{}}"), message).await;
        }
    });
}

#[test]
fn policies_and_steps_that_give_no_objects_are_named() {
    in_cluster(async |cluster| {
        let of = |kind: &str, name: &str, template: &str| {
            json!({"apiVersion": "core.oam.dev/v1beta1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
                "spec": {"schematic": {"cue": {"template": template}}}})
        };
        for (name, template) in [
            ("odd", "output: \"text\""),
            ("meta", "output: {apiVersion: \"v1\", kind: \"ConfigMap\", metadata: \"x\"}"),
        ] {
            cluster.create(of("PolicyDefinition", name, &format!("{template}\nparameter: {{}}"))).await;
            let policies = json!([{"name": "p", "type": name, "properties": {}}]);
            create_app(cluster, name, json!({"components": [config(name, "1")], "policies": policies})).await;
            let app = until_phase(cluster, name, "generatingPolicy").await;
            assert!(app["status"].to_string().contains("expected an object, found a text"), "{app}");
            warned(cluster, name).await;
        }
        for (name, value, message) in [
            ("step-text", "\"text\"", "expected struct, got string"),
            ("step-meta", "{apiVersion: \"v1\", kind: \"ConfigMap\", metadata: \"x\"}", "expected an object"),
        ] {
            let template = format!(
                "import (\"vela/kube\")\nwrite: kube.#Apply & {{$params: value: {value}}}\nparameter: {{}}"
            );
            cluster.create(of("WorkflowStepDefinition", name, &template)).await;
            let steps = json!([{"name": "s", "type": name}]);
            create_app(cluster, name, json!({"components": [], "workflow": {"steps": steps}})).await;
            let app = until_phase(cluster, name, "workflowFailed").await;
            assert!(app["status"].to_string().contains(message), "{app}");
            warned(cluster, name).await;
        }
    });
}
