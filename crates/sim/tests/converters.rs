//! Conversion webhooks in the simulation: functions of the test, with faults in their calls. The built-in controllers
//! read custom resources in the preferred version, which is not the stored one here.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use setpoint_sim::{Callee, Fault, OnReply, Running, TestCluster};

const GADGETS: &str = "/apis/e.com/v2/namespaces/default/gadgets";
const OLD_GADGETS: &str = "/apis/e.com/v1/namespaces/default/gadgets";

/// v1 has `spec.size`, v2 has `spec.replicas`.
fn convert(mut gadget: Value, to: &str) -> Result<Value, String> {
    let (old, new) = if to == "e.com/v2" { ("size", "replicas") } else { ("replicas", "size") };
    let spec = gadget["spec"].as_object_mut().ok_or("a gadget has a spec")?;
    if let Some(value) = spec.remove(old) {
        spec.insert(new.to_owned(), value);
    }
    Ok(gadget)
}

fn definition() -> CustomResourceDefinition {
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "integer"}}});
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let service = json!({"name": "gadgets", "namespace": "default", "path": "/convert"});
    let definition = json!({"metadata": {"name": "gadgets.e.com"}, "spec": {
        "group": "e.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [version("v1", "size"), version("v2", "replicas")],
        "conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}},
    }});
    serde_json::from_value(definition).unwrap()
}

fn cluster(controllers: &[&str]) -> TestCluster {
    TestCluster::new().controllers(controllers).converter("gadgets.default.svc", "/convert", convert)
}

fn gadget(name: &str, metadata: Value) -> Value {
    let mut gadget =
        json!({"apiVersion": "e.com/v1", "kind": "Gadget", "metadata": metadata, "spec": {"size": 3}});
    gadget["metadata"]["name"] = name.into();
    gadget["metadata"]["namespace"] = "default".into();
    gadget
}

async fn send(cluster: &Running, method: &str, path: &str, body: &Value) -> Result<Value, kube::Error> {
    let request = http::Request::builder().method(method).uri(path).header(
        "content-type",
        match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        },
    );
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    cluster.kube().request(request.body(body).unwrap()).await
}

async fn get(cluster: &Running, path: &str) -> Option<Value> {
    send(cluster, "GET", path, &Value::Null).await.ok()
}

async fn items(cluster: &Running, path: &str) -> usize {
    get(cluster, path).await.expect("a list")["items"].as_array().unwrap().len()
}

#[test]
fn a_converter_of_a_test_converts() {
    cluster(&[]).run(async |cluster| {
        cluster.install(&definition()).await;
        cluster.create(gadget("a", json!({}))).await;
        assert_eq!(get(cluster, &format!("{GADGETS}/a")).await.unwrap()["spec"], json!({"replicas": 3}));
        send(cluster, "PATCH", &format!("{GADGETS}/a"), &json!({"spec": {"replicas": 4}})).await.unwrap();
        assert_eq!(get(cluster, &format!("{OLD_GADGETS}/a")).await.unwrap()["spec"], json!({"size": 4}));
    });
}

#[test]
fn dependents_are_collected_though_conversions_are_delayed_and_lost() {
    let faults = [
        Fault::Reply { of: Callee::Converter, nth: 0, what: OnReply::Drop },
        Fault::Reply { of: Callee::Converter, nth: 1, what: OnReply::Delay(Duration::from_secs(45)) },
        Fault::Reply { of: Callee::Converter, nth: 2, what: OnReply::Fail(503) },
        Fault::Reply { of: Callee::Converter, nth: 3, what: OnReply::Delay(Duration::from_secs(20)) },
    ];
    cluster(&["garbage-collector-controller"]).faults(faults).run(async |cluster| {
        cluster.install(&definition()).await;
        let owner = cluster.create(gadget("owner", json!({}))).await;
        let reference = json!([{"apiVersion": "e.com/v2", "kind": "Gadget", "name": "owner",
            "uid": &*owner.meta().uid, "blockOwnerDeletion": true}]);
        cluster.create(gadget("dependent", json!({"ownerReferences": reference}))).await;
        cluster.pass(Duration::from_secs(300)).await;
        assert_eq!(items(cluster, OLD_GADGETS).await, 2);
        send(cluster, "DELETE", &format!("{OLD_GADGETS}/owner"), &json!({"propagationPolicy": "Foreground"}))
            .await
            .unwrap();
        cluster.pass(Duration::from_secs(300)).await;
        assert_eq!(items(cluster, OLD_GADGETS).await, 0);
        assert!(cluster.faults().calls(Callee::Converter) > 4);
    });
}

#[test]
fn a_namespace_is_deleted_once_its_objects_can_be_converted() {
    cluster(&["namespace-controller"]).run(async |cluster| {
        cluster.install(&definition()).await;
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).await;
        cluster.faults().add(Fault::Replies { of: Callee::Converter, what: OnReply::Fail(500) });
        let mut one = gadget("a", json!({}));
        one["metadata"]["namespace"] = "shop".into();
        cluster.create(one).await;
        send(cluster, "DELETE", "/api/v1/namespaces/shop", &Value::Null).await.unwrap();
        cluster.pass(Duration::from_secs(120)).await;
        let namespace = get(cluster, "/api/v1/namespaces/shop").await.expect("it waits");
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        assert!(conditions.iter().any(|one| one["status"] == "True"), "{namespace}");
        cluster.faults().calm();
        cluster.pass(Duration::from_secs(1200)).await;
        assert!(get(cluster, "/api/v1/namespaces/shop").await.is_none());
    });
}

#[test]
fn a_migration_rewrites_objects_in_the_new_storage_version() {
    let cluster = cluster(&["storage-version-migrator-controller", "garbage-collector-controller"]);
    let cluster = cluster.feature("StorageVersionMigrator", true).feature("InformerResourceVersion", true);
    cluster.run(async |cluster| {
        cluster.install(&definition()).await;
        for name in ["a", "b", "c"] {
            cluster.create(gadget(name, json!({}))).await;
        }
        let mut definition =
            get(cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.e.com")
                .await
                .unwrap();
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["storage"] = (version["name"] == "v2").into();
        }
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.e.com";
        send(cluster, "PUT", path, &definition).await.unwrap();
        cluster.pass(Duration::from_secs(60)).await;
        cluster
            .create(
                json!({"apiVersion": "storagemigration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
                "metadata": {"name": "gadgets"},
                "spec": {"resource": {"group": "e.com", "version": "v2", "resource": "gadgets"}}}),
            )
            .await;
        cluster.pass(Duration::from_secs(300)).await;
        let migration =
            get(cluster, "/apis/storagemigration.k8s.io/v1alpha1/storageversionmigrations/gadgets")
                .await
                .unwrap();
        let is_done = |one: &Value| one["type"] == "Succeeded" && one["status"] == "True";
        assert!(migration["status"]["conditions"].as_array().unwrap().iter().any(is_done), "{migration}");
        // Nothing is left in v1: reading v2 needs no conversion.
        cluster.faults().add(Fault::Replies { of: Callee::Converter, what: OnReply::Fail(500) });
        assert_eq!(items(cluster, GADGETS).await, 3);
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        cluster(&["garbage-collector-controller"]).seed(7).run(async |cluster| {
            cluster.install(&definition()).await;
            for name in ["a", "b"] {
                cluster.create(gadget(name, json!({}))).await;
            }
            cluster.pass(Duration::from_secs(60)).await;
            (cluster.trace().text(), cluster.faults().calls(Callee::Converter))
        })
    };
    assert_eq!(run(), run());
}
