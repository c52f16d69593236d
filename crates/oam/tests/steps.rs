//! Steps and components that read what is in the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{Context, Key, Kind};
use setpoint_oam::{Egress, Request, Response};
use setpoint_sim::{Running, TestCluster};

use super::*;

fn secrets() -> Kind {
    Kind::new("", "v1", "Secret", "secrets", true)
}

fn with_steps(components: Value, steps: Value) -> Value {
    json!({"components": components, "workflow": {"steps": steps}})
}

#[test]
fn objects_that_exist_are_copied_to_where_a_component_is_deployed() {
    in_cluster(async |cluster| {
        examples::make_live(cluster).await;
        let source = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "origin", "namespace": "default", "labels": {"team": "a"}}, "data": {"k": "1"}});
        cluster.create(source).await;
        create_app(cluster, "source", json!({"components": [worker("source")]})).await;
        until_phase(cluster, "source", "running").await;
        let objects = json!([{"resource": "configmap", "name": "origin"}, {"resource": "deployment", "name": "source"}]);
        let spec = json!({
            "components": [{"name": "copy", "type": "ref-objects", "properties": {"objects": objects}}],
            "policies": [{"name": "there", "type": "topology", "properties": {"namespace": "live"}}],
        });
        create_app(cluster, "copier", spec).await;
        until_phase(cluster, "copier", "running").await;
        let live = Key::namespaced("live", "origin");
        let copy = cluster.get(&config_maps(), &live).await.expect("a copy");
        // No group is needed to find a Deployment.
        assert!(cluster.get(&deployments(), &Key::namespaced("live", "source")).await.is_some());
        assert_eq!((&copy["data"]["k"], &copy["metadata"]["labels"]["team"]), (&json!("1"), &json!("a")));
        // The revision has recorded the object: a change of the original changes nothing.
        patch(cluster, &config_maps(), "origin", json!({"data": {"k": "2"}})).await;
        cluster.pass(std::time::Duration::from_secs(400)).await;
        assert_eq!(cluster.get(&config_maps(), &live).await.expect("still")["data"]["k"], "1");
    });
}

#[test]
fn an_object_that_is_referred_to_and_missing_is_named() {
    in_cluster(async |cluster| {
        let objects = json!([{"resource": "configmaps", "name": "nonesuch"}]);
        let component = json!({"name": "copy", "type": "ref-objects", "properties": {"objects": objects}});
        create_app(cluster, "copier", json!({"components": [component]})).await;
        let app = until_phase(cluster, "copier", "rendering").await;
        let message = app["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.contains("component copy") && message.contains("nonesuch"), "{message}");
    });
}

#[test]
fn endpoints_of_an_application_are_collected() {
    in_cluster(async |cluster| {
        let web = json!({"name": "web", "type": "webservice", "properties": {"image": "nginx", "ports": [{"port": 8080, "expose": true}]}});
        let steps = json!([
            {"name": "web", "type": "apply-component", "properties": {"component": "web"}},
            {"name": "collect", "type": "collect-service-endpoints", "properties": {"components": ["web"]},
                "outputs": [{"name": "url", "valueFrom": "value.url"}]},
            {"name": "show", "type": "print-message-in-status", "properties": {"message": ""},
                "inputs": [{"from": "url", "parameterKey": "message"}]},
        ]);
        create_app(cluster, "reached", with_steps(json!([web]), steps)).await;
        let app = until_phase(cluster, "reached", "running").await;
        assert_eq!(app["status"]["workflow"]["steps"][2]["message"], "http://web.default:8080");
    });
}

#[test]
fn configurations_are_kept_in_secrets() {
    in_cluster(async |cluster| {
        let steps = json!([
            {"name": "write", "type": "create-config", "properties": {"name": "db", "config": {"host": "h", "port": 5}}},
            {"name": "read", "type": "read-config", "properties": {"name": "db"},
                "outputs": [{"name": "host", "valueFrom": "output.$returns.config.host"}]},
            {"name": "show", "type": "print-message-in-status", "properties": {"message": ""},
                "inputs": [{"from": "host", "parameterKey": "message"}]},
            {"name": "ask", "type": "suspend"},
            {"name": "drop", "type": "delete-config", "properties": {"name": "db"}},
        ]);
        create_app(cluster, "configured", with_steps(json!([config("a", "1")]), steps)).await;
        let app = until_phase(cluster, "configured", "workflowSuspending").await;
        assert_eq!(app["status"]["workflow"]["steps"][2]["message"], "h");
        let secret = cluster.get(&secrets(), &key("db")).await.expect("a configuration");
        assert_eq!(secret["metadata"]["labels"]["config.oam.dev/catalog"], "velacore-config");
        let mut steps = app["status"]["workflow"]["steps"].clone();
        steps[3]["phase"] = "running".into();
        let resume = Patch::merge(&json!({"status": {"workflow": {"suspend": false, "steps": steps}}}));
        cluster
            .client()
            .patch(&applications(), &key("configured"), Subresource::Status, resume)
            .await
            .unwrap();
        gone(cluster, &secrets(), "db").await;
    });
}

/// Answers every request, and remembers it.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<Vec<Request>>>);

impl Egress for Outside {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, String>> {
        let status = if request.url.ends_with("/missing") { 404 } else { 200 };
        self.0.lock().push(request);
        let answer = json!({"resultType": "vector", "result": [{"metric": {}, "value": [1, "0.99"]}]});
        let body = json!({"greeting": "hi", "status": "success", "data": answer}).to_string();
        Box::pin(async move { Ok(Response { status, headers: BTreeMap::new(), body }) })
    }
}

fn with_outside(test: impl AsyncFnOnce(&Running, Outside)) {
    let outside = Outside::default();
    let egress = outside.clone();
    let build = move |context: &Context| {
        let mut options = setpoint_oam::Options::default();
        options.egress = Some(Arc::new(egress.clone()));
        setpoint_oam::runnables_with(context, &options)
    };
    TestCluster::new().controllers(&["garbagecollector"]).with(build).run(async |cluster| {
        install(cluster).await;
        test(cluster, outside).await;
    });
}

#[test]
fn steps_send_requests() {
    with_outside(async |cluster, outside| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": "default"}, "stringData": {"url": "https://secret.example/x"}});
        cluster.create(secret).await;
        let steps = json!([
            {"name": "ask", "type": "request", "properties": {"url": "https://api.example/v1", "method": "POST", "body": {"a": 1}},
                "outputs": [{"name": "greeting", "valueFrom": "response.greeting"}]},
            {"name": "show", "type": "print-message-in-status", "properties": {"message": ""},
                "inputs": [{"from": "greeting", "parameterKey": "message"}]},
            {"name": "tell", "type": "webhook", "properties": {"url": {"secretRef": {"name": "hook", "key": "url"}}}},
            {"name": "notify", "type": "notification", "properties": {"slack": {"url": {"value": "https://slack.example"}, "message": {"text": "done"}}}},
        ]);
        create_app(cluster, "talker", with_steps(json!([config("a", "1")]), steps)).await;
        let app = until_phase(cluster, "talker", "running").await;
        assert_eq!(app["status"]["workflow"]["steps"][1]["message"], "hi");
        let sent = outside.0.lock().clone();
        let urls: Vec<&str> = sent.iter().map(|request| request.url.as_str()).collect();
        assert_eq!(urls, ["https://api.example/v1", "https://secret.example/x", "https://slack.example"]);
        assert_eq!((sent[0].method.as_str(), sent[0].body.as_str()), ("POST", "{\"a\":1}"));
        assert!(sent[1].body.contains("\"talker\""), "the application is sent");
        assert_eq!(sent[2].body, "{\"text\":\"done\"}");
    });
}

#[test]
fn a_request_that_fails_fails_its_step() {
    with_outside(async |cluster, _| {
        let steps =
            json!([{"name": "ask", "type": "request", "properties": {"url": "https://api.example/missing"}}]);
        create_app(cluster, "talker", with_steps(json!([config("a", "1")]), steps)).await;
        let app = until_phase(cluster, "talker", "workflowFailed").await;
        let message = app["status"]["workflow"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("404"), "{message}");
    });
}

#[test]
fn without_a_way_out_a_step_cannot_send_requests() {
    in_cluster(async |cluster| {
        let steps = json!([{"name": "ask", "type": "request", "properties": {"url": "https://api.example"}}]);
        create_app(cluster, "talker", with_steps(json!([config("a", "1")]), steps)).await;
        let app = until_phase(cluster, "talker", "workflowFailed").await;
        let message = app["status"]["workflow"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("not enabled"), "{message}");
    });
}

#[test]
fn a_metric_has_to_meet_its_condition_for_a_time() {
    with_outside(async |cluster, outside| {
        let check = |condition: &str| {
            let properties = json!({"query": "up{job=\"a\"}", "metricEndpoint": "http://prom.example", "condition": condition, "duration": "1m", "failDuration": "30s"});
            with_steps(
                json!([config("a", "1")]),
                json!([{"name": "check", "type": "check-metrics", "properties": properties}]),
            )
        };
        let before = cluster.clock().now();
        create_app(cluster, "good", check(">=0.95")).await;
        until_phase(cluster, "good", "running").await;
        assert!(cluster.clock().now().duration_since(before).as_secs() >= 60);
        assert!(outside.0.lock()[0].url.ends_with("/api/v1/query?query=up%7Bjob%3D%22a%22%7D"));
        create_app(cluster, "bad", check(">1")).await;
        let app = until_phase(cluster, "bad", "workflowFailed").await;
        let message = app["status"]["workflow"]["steps"][0]["message"].as_str().unwrap();
        assert!(message.contains("misses >1"), "{message}");
    });
}

#[test]
fn a_deletion_without_name_and_labels_deletes_nothing() {
    in_cluster(async |cluster| {
        let jobs = Kind::new("batch", "v1", "Job", "jobs", true);
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other", "namespace": "default"},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "busybox"}]}}}});
        cluster.create(job).await;
        let steps = json!([{"name": "clean", "type": "clean-jobs", "properties": {"labelselector": {}}}]);
        create_app(cluster, "cleaner", with_steps(json!([]), steps)).await;
        let app = until_phase(cluster, "cleaner", "workflowFailed").await;
        assert!(app["status"].to_string().contains("delete: expected a name"), "{app}");
        assert!(cluster.get(&jobs, &key("other")).await.is_some());
    });
}

fn step_definition(name: &str, template: &str) -> Value {
    json!({"apiVersion": "core.oam.dev/v1beta1", "kind": "WorkflowStepDefinition",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"schematic": {"cue": {"template": template}}}})
}

const CANARY: &str = r#"
import ("vela/op")

load: op.#Load & {}
apply: op.#ApplyComponent & {
	value: load.value[parameter.component]
	patch: {
		workload: {
			// +patchStrategy=retainKeys
			metadata: annotations: stage: "canary"
			spec: template: spec: {
				// +patchKey=name
				containers: [{name: parameter.component, env: [{name: "STAGE", value: "canary"}]}]
			}
		}
		traits: {
			service: metadata: labels: stage: "canary"
		}
	}
}
parameter: component: string
"#;

#[test]
fn the_patch_of_a_step_comes_after_the_traits() {
    in_cluster(async |cluster| {
        cluster.create(step_definition("canary", CANARY)).await;
        let web = json!({"name": "web", "type": "webservice", "properties": {"image": "nginx"},
            "traits": [{"type": "expose", "properties": {"port": [80]}}]});
        let steps = json!([{"name": "it", "type": "canary", "properties": {"component": "web"}}]);
        create_app(cluster, "app", with_steps(json!([web]), steps)).await;
        until_phase(cluster, "app", "running").await;
        let web = cluster.get(&deployments(), &key("web")).await.unwrap();
        assert_eq!(web["metadata"]["annotations"]["stage"], "canary");
        let container = &web["spec"]["template"]["spec"]["containers"][0];
        assert_eq!((&container["image"], &container["env"][0]["name"]), (&json!("nginx"), &json!("STAGE")));
        let service = cluster.get(&services(), &key("web")).await.unwrap();
        assert_eq!(service["metadata"]["labels"]["stage"], "canary");
    });
}

const TOOLS: &str = r#"
import ("vela/op", "vela/oam", "vela/time", "vela/builtin")

all: oam.#LoadComponetsInOrder & {$params: {}}
names: [for one in all.$returns.value {one.name}]
patched: op.#PatchK8sObject & {
	value: {metadata: labels: a: "1", l: [{name: "x", v: 1}]}
	patch: {
		metadata: labels: b: "2"
		// +patchKey=name
		l: [{name: "y"}]
	}
}
stamp: time.#DateToTimestamp & {$params: {date: "2024-03-01 12:30", layout: "2006-01-02 15:04"}}
day: op.#TimestampToDate & {timestamp: stamp.$returns.timestamp, layout: "Jan 2"}
say: builtin.#Message & {$params: message: "\(names[0]) \(names[1]) \(patched.result.metadata.labels.b) \(len(patched.result.l)) \(day.date)"}
"#;

#[test]
fn templates_load_components_patch_values_and_convert_dates() {
    in_cluster(async |cluster| {
        cluster.create(step_definition("tools", TOOLS)).await;
        let steps = json!([{"name": "it", "type": "tools"}]);
        create_app(cluster, "app", with_steps(json!([config("b", "1"), config("a", "1")]), steps)).await;
        let app = until_phase(cluster, "app", "running").await;
        assert_eq!(app["status"]["workflow"]["steps"][0]["message"], "b a 2 2 Mar 1");
    });
}

/// The health of components is not waited for.
#[test]
fn an_application_is_applied_in_parallel() {
    in_cluster(async |cluster| {
        let never =
            json!({"name": "never", "type": "webservice", "properties": {"image": "nginx", "cpu": "9999"}});
        let steps = json!([{"name": "it", "type": "apply-application-in-parallel"}]);
        create_app(cluster, "app", with_steps(json!([never, config("a", "1")]), steps)).await;
        let ended =
            |app: Option<&Value>| app.is_some_and(|app| app["status"]["workflow"]["status"] == "succeeded");
        until(cluster, &applications(), &key("app"), ended).await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_some());
    });
}

const INLINE: &str = r#"
import ("vela/multicluster")

deploy: multicluster.#Deploy & {
	$params: {
		policies: []
		inlinePolicies: [{name: "more", type: "override", properties: components: [{
			name: "web"
			traits: [{type: "scaler", properties: replicas: 2}]
		}]}]
	}
}
"#;

/// The revision has recorded no definition of them.
#[test]
fn traits_that_a_step_adds_are_looked_up() {
    in_cluster(async |cluster| {
        cluster.create(step_definition("inline", INLINE)).await;
        let web = json!({"name": "web", "type": "webservice", "properties": {"image": "nginx"}});
        let steps = json!([{"name": "it", "type": "inline"}]);
        create_app(cluster, "app", with_steps(json!([web]), steps)).await;
        let app = until_phase(cluster, "app", "running").await;
        assert_eq!(cluster.get(&deployments(), &key("web")).await.unwrap()["spec"]["replicas"], 2);
        assert_eq!(app["status"]["services"][0]["traits"][0]["type"], "scaler");
        let revision = cluster.revision();
        cluster.pass(std::time::Duration::from_secs(30)).await;
        assert_eq!(cluster.get(&applications(), &key("app")).await, Some(app), "{revision}");
    });
}

/// In a cluster of KubeVela, the definition has parameters only.
#[test]
fn components_are_applied_whatever_the_definition_of_that_step_is() {
    in_cluster(async |cluster| {
        cluster.create(step_definition("apply-component", "parameter: {component: string}")).await;
        create_app(cluster, "app", json!({"components": [config("a", "1")]})).await;
        until_phase(cluster, "app", "running").await;
        assert!(cluster.get(&config_maps(), &key("a")).await.is_some());
    });
}
