//! DecoratorControllers: labels, annotations, status and attachments of objects of any kind.

use std::time::Duration;

use super::*;

fn services() -> Kind {
    Kind::new("", "v1", "Service", "services", true)
}

/// A decorator of ConfigMaps with the annotation `serve`, which get a Service each.
fn decorator(name: &str) -> Value {
    json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "DecoratorController", "metadata": {"name": name},
        "spec": {
            "resources": [{"apiVersion": "v1", "resource": "configmaps",
                "annotationSelector": {"matchExpressions": [{"key": "serve", "operator": "Exists"}]}}],
            "attachments": [{"apiVersion": "v1", "resource": "services", "updateStrategy": {"method": "InPlace"}}],
            "hooks": {"sync": {"webhook": {"url": SYNC}}, "finalize": {"webhook": {"url": FINALIZE}}},
        },
    })
}

fn attach(request: &Value) -> Value {
    let object = &request["object"];
    let port = object["metadata"]["annotations"]["serve"].as_str().and_then(|text| text.parse::<u16>().ok());
    let name = name_of(object);
    json!({
        "labels": {"served": "yes", "unserved": null},
        "annotations": {"service": name},
        "attachments": [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"name": name}, "ports": [{"port": port}]}}],
    })
}

fn hooks() -> Functions {
    Functions::new().on(SYNC, |request| attach(&request)).on(FINALIZE, |request| {
        let left = request["attachments"]["Service.v1"].as_object().expect("a map").len();
        json!({"labels": {"served": null}, "attachments": [], "finalized": left == 0})
    })
}

async fn create_map(world: &World, name: &str, annotations: Value) {
    let mut map = config_map(name, &json!("1"));
    map["metadata"]["annotations"] = annotations;
    map["metadata"]["labels"] = json!({"unserved": "yes", "own": "kept"});
    world.create(&config_maps(), Some("default"), map).await;
}

#[test]
fn an_object_gets_labels_annotations_and_attachments_and_loses_them() {
    with_hooks(hooks(), async |cluster| {
        create_controller(cluster, decorator("serving")).await;
        create_map(cluster, "a", json!({"serve": "80"})).await;
        create_map(cluster, "other", json!({})).await;
        until_value(
            cluster,
            &config_maps(),
            "a",
            "/metadata/labels",
            json!({"own": "kept", "served": "yes"}),
        )
        .await;
        until_value(cluster, &config_maps(), "a", "/metadata/annotations/service", json!("a")).await;
        until_value(cluster, &services(), "a", "/spec/ports/0/port", json!(80)).await;
        let service = cluster.get(&services(), &key("a")).await.expect("it was created");
        assert_eq!(
            service["metadata"]["annotations"]["metacontroller.k8s.io/decorator-controller"],
            "serving"
        );
        assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "ConfigMap");
        patch(cluster, &config_maps(), &key("a"), json!({"metadata": {"annotations": {"serve": "81"}}}))
            .await;
        until_value(cluster, &services(), "a", "/spec/ports/0/port", json!(81)).await;

        patch(cluster, &config_maps(), &key("a"), json!({"metadata": {"annotations": {"serve": null}}}))
            .await;
        gone(cluster, &services(), "a").await;
        cluster.pass(Duration::from_secs(60)).await;
        let map = cluster.get(&config_maps(), &key("a")).await.expect("it stays");
        assert_eq!(map["metadata"]["labels"], json!({"own": "kept"}));
        assert!(map["metadata"]["finalizers"].is_null());
        let other = cluster.get(&config_maps(), &key("other")).await.expect("it stays");
        assert_eq!(other["metadata"]["labels"], json!({"unserved": "yes", "own": "kept"}));
    });
}

#[test]
fn an_attachment_of_another_is_not_touched() {
    with_hooks(hooks(), async |cluster| {
        create_controller(cluster, decorator("serving")).await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
            "spec": {"selector": {"own": "yes"}, "ports": [{"port": 1}]}});
        make(cluster, &services(), service).await;
        create_map(cluster, "a", json!({"serve": "80"})).await;
        until_value(cluster, &config_maps(), "a", "/metadata/labels/served", json!("yes")).await;
        cluster.pass(Duration::from_secs(60)).await;
        until_value(cluster, &services(), "a", "/spec/ports/0/port", json!(1)).await;
    });
}

#[test]
fn a_steady_state_makes_no_writes() {
    with_hooks(hooks(), async |cluster| {
        create_controller(cluster, decorator("serving")).await;
        create_map(cluster, "a", json!({"serve": "80"})).await;
        until_value(cluster, &services(), "a", "/spec/ports/0/port", json!(80)).await;
        cluster.pass(Duration::from_secs(60)).await;
        let before = cluster.revision();
        cluster.pass(Duration::from_secs(7200)).await;
        assert_eq!(cluster.revision(), before);
    });
}

#[test]
fn a_status_is_written_if_the_kind_has_one_and_left_alone_if_it_is_null() {
    let hooks = Functions::new().on(SYNC, |request| {
        let silent = request["object"]["spec"]["silent"] == true;
        json!({"status": if silent { Value::Null } else { json!({"decorated": true}) }})
    });
    with_hooks(hooks, async |cluster| {
        let mut controller = decorator("marking");
        controller["spec"]["resources"] = json!([{"apiVersion": "example.com/v1", "resource": "things"}]);
        controller["spec"]["attachments"] = json!([]);
        controller["spec"]["hooks"] = json!({"sync": {"webhook": {"url": SYNC}}});
        create_controller(cluster, controller).await;
        create_thing(cluster, "a", json!({})).await;
        create_thing(cluster, "b", json!({"silent": true})).await;
        until_value(cluster, &things(), "a", "/status", json!({"decorated": true})).await;
        cluster.pass(Duration::from_secs(60)).await;
        assert!(cluster.get(&things(), &key("b")).await.expect("it is there")["status"].is_null());
    });
}
