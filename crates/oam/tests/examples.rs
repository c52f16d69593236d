//! The acceptance examples, with nodes.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint_sim::World;

use super::*;

pub(super) fn shop() -> Value {
    let properties = json!({"image": "registry.local/shop/front:3", "cpu": "250m",
        "ports": [{"port": 8081, "expose": true}, {"port": 9191, "protocol": "UDP"}]});
    let traits = json!([{"type": "scaler", "properties": {"replicas": 4}}, {"type": "labels", "properties": {"team": "checkout"}}]);
    json!({"components": [{"name": "front", "type": "webservice", "properties": properties, "traits": traits}]})
}

#[test]
fn a_shop_front_with_two_traits_runs() {
    in_cluster(async |cluster| {
        create_app(cluster, "shop", shop()).await;
        let app = until_phase(cluster, "shop", "running").await;
        assert_eq!(app["status"]["services"][0]["message"], "Ready:4/4");
        assert_eq!(app["status"]["workflow"]["steps"][0]["phase"], "succeeded");
        assert_eq!(app["status"]["latestRevision"]["name"], "shop-v1");
        let service = cluster.get(&services(), &key("front")).await.unwrap();
        assert_eq!(service["spec"]["ports"].as_array().map(Vec::len), Some(1));
        let labels = &service["metadata"]["labels"];
        assert_eq!(labels["trait.oam.dev/type"], "AuxiliaryWorkload");
        assert_eq!(labels["trait.oam.dev/resource"], "webserviceExpose");
        let front = cluster.get(&deployments(), &key("front")).await.unwrap();
        assert_eq!(
            (&front["spec"]["replicas"], &front["metadata"]["labels"]["team"]),
            (&json!(4), &json!("checkout"))
        );
        let pod = &front["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"]["team"], "checkout");
        let container = &pod["spec"]["containers"][0];
        let cpu = (&container["resources"]["requests"]["cpu"], &container["resources"]["limits"]["cpu"]);
        assert_eq!(cpu, (&json!("250m"), &json!("250m")));
        let ports = [&container["ports"][0]["name"], &container["ports"][1]["name"]];
        assert_eq!(ports, ["port-8081", "port-9191-udp"]);
        let trackers = Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false);
        assert!(cluster.get(&trackers, &setpoint::Key::cluster("shop-v1-default")).await.is_some());
    });
}

/// A worker with three traits, in one order or the other.
pub(super) fn mill(swapped: bool) -> Value {
    let env = json!({"type": "env", "properties": {"env": {"MODE": "fast", "ZONE": "b"}}});
    let storage =
        json!({"type": "storage", "properties": {"emptyDir": [{"name": "tmp", "mountPath": "/scratch"}]}});
    let tail = json!({"type": "sidecar", "properties": {"name": "tail", "image": "busybox"}});
    let traits = if swapped { json!([tail, storage, env]) } else { json!([tail, env, storage]) };
    let properties = json!({"image": "nginx", "env": [{"name": "MODE", "value": "slow"}]});
    json!({"components": [{"name": "mill", "type": "worker", "properties": properties, "traits": traits}]})
}

#[test]
fn traits_patch_one_list_in_order() {
    in_cluster(async |cluster| {
        create_app(cluster, "mill", mill(false)).await;
        until_phase(cluster, "mill", "running").await;
        let before = cluster.get(&deployments(), &key("mill")).await.unwrap();
        let pod = &before["spec"]["template"]["spec"];
        let main = &pod["containers"][0];
        assert_eq!(main["env"], json!([{"name": "MODE", "value": "fast"}, {"name": "ZONE", "value": "b"}]));
        assert_eq!(main["volumeMounts"], json!([{"name": "emptydir-tmp", "mountPath": "/scratch"}]));
        assert_eq!(pod["volumes"][0]["name"], "emptydir-tmp");
        let tail = &pod["containers"][1];
        assert!(tail["env"].is_null() && tail["volumeMounts"].is_null(), "{tail}");
        patch(cluster, &applications(), "mill", json!({"spec": mill(true)})).await;
        until_phase(cluster, "mill", "running").await;
        let after = cluster.get(&deployments(), &key("mill")).await.unwrap();
        assert_eq!(before["spec"], after["spec"]);
    });
}

pub(super) fn greeting() -> Value {
    json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "ComponentDefinition",
    "metadata": {"name": "greeting", "namespace": "default"},
    "spec": {
        "workload": {"definition": {"apiVersion": "v1", "kind": "ConfigMap"}},
        "status": {
            "healthPolicy": "isHealth: context.output.data.words != _|_",
            "customStatus": "message: \"\\(len(context.output.data)) entries\"",
        },
        "schematic": {"cue": {"template": GREETING}},
    }})
}

const GREETING: &str = r#"
#Tone: "kind" | "curt"
output: {
	apiVersion: "v1"
	kind:       "ConfigMap"
	data: {
		words: "hello \(parameter.who)"
		tone:  parameter.tone
		if parameter.extra != _|_ for k, v in parameter.extra { "x-\(k)": v }
	}
}
parameter: {
	who:  string
	tone: *"kind" | #Tone
	extra?: [string]: string
}
"#;

pub(super) fn greets(properties: Value) -> Value {
    json!({"components": [{"name": "hi", "type": "greeting", "properties": properties}]})
}

#[test]
fn a_definition_of_ones_own_renders_and_judges() {
    in_cluster(async |cluster| {
        cluster.create(greeting()).await;
        create_app(cluster, "ada", greets(json!({"who": "Ada"}))).await;
        let app = until_phase(cluster, "ada", "running").await;
        assert_eq!(app["status"]["services"][0]["message"], "2 entries");
        let spec = greets(json!({"who": "Ada", "extra": {"b": "2", "a": "1"}}));
        patch(cluster, &applications(), "ada", json!({"spec": spec})).await;
        until_value(cluster, &config_maps(), "hi", "/data/x-b", json!("2")).await;
        let app = until_phase(cluster, "ada", "running").await;
        assert_eq!(app["status"]["services"][0]["message"], "4 entries");
        assert_eq!(app["status"]["latestRevision"]["name"], "ada-v2");
    });
}

#[test]
fn a_wrong_parameter_fails_the_step_and_is_named() {
    in_cluster(async |cluster| {
        cluster.create(greeting()).await;
        for (name, properties, path) in [
            ("loud", json!({"who": "Ada", "tone": "loud"}), "parameter.tone"),
            ("nobody", json!({}), "output.data.words"),
        ] {
            create_app(cluster, name, greets(properties)).await;
            let app = until_phase(cluster, name, "workflowFailed").await;
            let message = app["status"]["workflow"]["steps"][0]["message"].as_str().unwrap().to_owned();
            assert!(message.contains("component hi") && message.contains(path), "{message}");
            assert_eq!(app["status"]["workflow"]["steps"][0]["reason"], "FailedAfterRetries");
        }
        assert!(cluster.get(&config_maps(), &key("hi")).await.is_none());
    });
}

/// A component that needs an address, and the one that gives it.
pub(super) fn store() -> Value {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "store"}, "spec": {"ports": [{"port": 80}]}});
    let store = json!({"name": "store", "type": "k8s-objects", "properties": {"objects": [object]},
        "outputs": [{"name": "addr", "valueFrom": "output.spec.clusterIP"}]});
    let client = json!({"name": "client", "type": "webservice",
        "properties": {"image": "nginx", "env": [{"name": "STORE"}]},
        "inputs": [{"from": "addr", "parameterKey": "env[0].value"}]});
    json!({"components": [client, store]})
}

#[test]
fn components_wait_for_the_values_of_others() {
    in_cluster(async |cluster| {
        create_app(cluster, "lonely", json!({"components": [store()["components"][0]]})).await;
        until_value(
            cluster,
            &applications(),
            "lonely",
            "/status/workflow/steps/0/message",
            json!("Pending on Input: addr"),
        )
        .await;
        until_phase(cluster, "lonely", "runningWorkflow").await;
        cluster.client().delete(&applications(), &key("lonely"), &DeleteOptions::default()).await.unwrap();
        gone(cluster, &applications(), "lonely").await;
        create_app(cluster, "both", store()).await;
        until_phase(cluster, "both", "running").await;
        let address = cluster.get(&services(), &key("store")).await.unwrap()["spec"]["clusterIP"].clone();
        until_value(
            cluster,
            &deployments(),
            "client",
            "/spec/template/spec/containers/0/env/0/value",
            address,
        )
        .await;
    });
}

pub(super) fn staged() -> Value {
    json!({
        "components": [{"name": "web", "type": "webservice", "properties": {"image": "nginx"}}],
        "policies": [
            {"name": "here", "type": "topology", "properties": {"clusters": ["local"]}},
            {"name": "there", "type": "topology", "properties": {"clusters": ["local"], "namespace": "live"}},
            {"name": "big", "type": "override", "properties": {"components": [
                {"type": "webservice", "traits": [{"type": "scaler", "properties": {"replicas": 3}}]}]}},
        ],
        "workflow": {"steps": [
            {"name": "first", "type": "deploy", "properties": {"policies": ["here"]}},
            {"name": "ask", "type": "suspend"},
            {"name": "last", "type": "deploy", "properties": {"policies": ["there", "big"]}},
        ]},
    })
}

pub(super) async fn make_live(world: &World) {
    let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
    world.create(&namespaces, None, json!({"metadata": {"name": "live"}})).await;
}

/// Waits for a suspended workflow, checks that nothing is in the second namespace, and resumes it.
pub(super) async fn resume(world: &World, name: &str) {
    let app = until_phase(world, name, "workflowSuspending").await;
    let live = setpoint::Key::namespaced("live", "web");
    assert!(world.get(&deployments(), &live).await.is_none());
    let mut steps = app["status"]["workflow"]["steps"].clone();
    steps[1]["phase"] = "running".into();
    let resume = Patch::merge(&json!({"status": {"workflow": {"suspend": false, "steps": steps}}}));
    world.client().patch(&applications(), &key(name), Subresource::Status, resume).await.expect("resumed");
}

#[test]
fn approval_comes_before_another_namespace() {
    in_cluster(async |cluster| {
        make_live(cluster).await;
        create_app(cluster, "staged", staged()).await;
        let live = setpoint::Key::namespaced("live", "web");
        resume(cluster, "staged").await;
        let app = until_phase(cluster, "staged", "running").await;
        assert_eq!(app["status"]["services"].as_array().map(Vec::len), Some(2));
        assert_eq!(cluster.get(&deployments(), &live).await.unwrap()["spec"]["replicas"], 3);
        assert_eq!(cluster.get(&deployments(), &key("web")).await.unwrap()["spec"]["replicas"], 1);
    });
}

#[test]
fn an_approval_that_never_comes_times_out() {
    in_cluster(async |cluster| {
        make_live(cluster).await;
        let mut spec = staged();
        spec["workflow"]["steps"][1]["timeout"] = "10s".into();
        create_app(cluster, "staged", spec).await;
        let app = until_phase(cluster, "staged", "workflowFailed").await;
        let steps = &app["status"]["workflow"]["steps"];
        assert_eq!((&steps[1]["reason"], &steps[2]["phase"]), (&json!("Timeout"), &json!("skipped")));
    });
}

/// Two workers, and a Service that stays until the application is deleted.
pub(super) fn pair() -> Value {
    let rule = json!({"selector": {"traitTypes": ["expose"]}, "strategy": "onAppDelete"});
    let policies = json!([{"name": "gc", "type": "garbage-collect", "properties": {"rules": [rule]}}]);
    let mut b = worker("b");
    b["traits"] = json!([{"type": "expose", "properties": {"port": [80]}}]);
    json!({"components": [worker("a"), b], "policies": policies})
}

#[test]
fn an_update_deletes_what_it_drops_and_keeps_what_a_policy_keeps() {
    in_cluster(async |cluster| {
        create_app(cluster, "pair", pair()).await;
        until_phase(cluster, "pair", "running").await;
        patch(cluster, &applications(), "pair", json!({"spec": {"components": [worker("a")]}})).await;
        gone(cluster, &deployments(), "b").await;
        let app = until_phase(cluster, "pair", "running").await;
        assert_eq!(app["status"]["latestRevision"]["name"], "pair-v2");
        assert!(cluster.get(&services(), &key("b")).await.is_some());
        let broken =
            json!({"name": "a", "type": "worker", "properties": {"image": "nginx", "cpu": "nonsense"}});
        patch(cluster, &applications(), "pair", json!({"spec": {"components": [broken]}})).await;
        until_phase(cluster, "pair", "workflowFailed").await;
        assert!(cluster.get(&deployments(), &key("a")).await.is_some());
        cluster.client().delete(&applications(), &key("pair"), &DeleteOptions::default()).await.unwrap();
        gone(cluster, &applications(), "pair").await;
        gone(cluster, &services(), "b").await;
        gone(cluster, &deployments(), "a").await;
        let trackers = Kind::new("core.oam.dev", "v1beta1", "ResourceTracker", "resourcetrackers", false);
        assert!(cluster.list(&trackers, None).await.is_empty());
    });
}

#[test]
fn an_edit_and_its_reversal_delete_nothing() {
    in_cluster(async |cluster| {
        create_app(cluster, "pair", json!({"components": [worker("a"), worker("b")]})).await;
        until_phase(cluster, "pair", "running").await;
        let uid = cluster.get(&deployments(), &key("b")).await.unwrap()["metadata"]["uid"].clone();
        patch(cluster, &applications(), "pair", json!({"spec": {"components": [worker("a")]}})).await;
        patch(cluster, &applications(), "pair", json!({"spec": {"components": [worker("a"), worker("b")]}}))
            .await;
        cluster.pass(Duration::from_secs(120)).await;
        until_phase(cluster, "pair", "running").await;
        assert_eq!(cluster.get(&deployments(), &key("b")).await.unwrap()["metadata"]["uid"], uid);
    });
}

pub(super) fn scaled(policies: Value) -> Value {
    let traits = json!([{"type": "scaler", "properties": {"replicas": 2}}]);
    let web =
        json!({"name": "web", "type": "webservice", "properties": {"image": "nginx"}, "traits": traits});
    json!({"components": [web], "policies": policies})
}

#[test]
fn drift_is_taken_back_at_once() {
    in_cluster(async |cluster| {
        create_app(cluster, "kept", scaled(json!([]))).await;
        until_phase(cluster, "kept", "running").await;
        let before = cluster.clock().now();
        patch(cluster, &deployments(), "web", json!({"spec": {"replicas": 5}})).await;
        until_value(cluster, &deployments(), "web", "/spec/replicas", json!(2)).await;
        assert!(cluster.clock().now().duration_since(before).as_secs() < 5);
        cluster.client().delete(&deployments(), &key("web"), &DeleteOptions::default()).await.unwrap();
        until_value(cluster, &deployments(), "web", "/status/readyReplicas", json!(2)).await;
    });
}

#[test]
fn paths_of_apply_once_are_left_to_others() {
    in_cluster(async |cluster| {
        let rule =
            json!({"selector": {"resourceTypes": ["Deployment"]}, "strategy": {"path": ["spec.replicas"]}});
        let policies =
            json!([{"name": "once", "type": "apply-once", "properties": {"enable": true, "rules": [rule]}}]);
        create_app(cluster, "kept", scaled(policies)).await;
        until_phase(cluster, "kept", "running").await;
        let image = json!({"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "web", "image": "other"}]}}}});
        let patched = cluster
            .client()
            .patch(&deployments(), &key("web"), Subresource::None, Patch::strategic(&image))
            .await;
        patched.unwrap();
        until_value(cluster, &deployments(), "web", "/spec/template/spec/containers/0/image", json!("nginx"))
            .await;
        cluster.pass(Duration::from_secs(60)).await;
        until_value(cluster, &deployments(), "web", "/spec/replicas", json!(5)).await;
    });
}

#[test]
fn a_settled_application_makes_no_writes() {
    in_cluster(async |cluster| {
        create_app(cluster, "quiet", json!({"components": [worker("a")]})).await;
        until_phase(cluster, "quiet", "running").await;
        cluster.pass(Duration::from_secs(60)).await;
        let version =
            |object: Option<Value>| object.map(|object| object["metadata"]["resourceVersion"].clone());
        let before = (
            version(cluster.get(&applications(), &key("quiet")).await),
            version(cluster.get(&deployments(), &key("a")).await),
        );
        cluster.pass(Duration::from_secs(900)).await;
        let after = (
            version(cluster.get(&applications(), &key("quiet")).await),
            version(cluster.get(&deployments(), &key("a")).await),
        );
        assert_eq!(before, after);
    });
}

#[test]
fn an_object_of_another_application_is_refused() {
    in_cluster(async |cluster| {
        create_app(cluster, "first", json!({"components": [worker("a")]})).await;
        until_phase(cluster, "first", "running").await;
        create_app(cluster, "second", json!({"components": [worker("a")]})).await;
        let app = until_phase(cluster, "second", "workflowFailed").await;
        let message = app["status"]["workflow"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("default/first"), "{message}");
        until_phase(cluster, "first", "running").await;
    });
}

#[test]
fn names_of_components_are_unique() {
    in_cluster(async |cluster| {
        let twice = application("twice", json!({"components": [worker("a"), worker("a")]}));
        let refused = cluster.client().create(&applications(), Some("default"), &twice).await.unwrap_err();
        assert!(refused.to_string().contains("unique"), "{refused}");
    });
}
