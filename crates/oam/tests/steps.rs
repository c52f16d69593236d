//! Steps and components that read what is in the cluster.

use serde_json::{Value, json};
use setpoint::{Key, Kind};

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
        let objects = json!([{"resource": "configmap", "name": "origin"}]);
        let spec = json!({
            "components": [{"name": "copy", "type": "ref-objects", "properties": {"objects": objects}}],
            "policies": [{"name": "there", "type": "topology", "properties": {"namespace": "live"}}],
        });
        create_app(cluster, "copier", spec).await;
        until_phase(cluster, "copier", "running").await;
        let live = Key::namespaced("live", "origin");
        let copy = cluster.get(&config_maps(), &live).await.expect("a copy");
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
