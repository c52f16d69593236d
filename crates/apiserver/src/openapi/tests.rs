//! The documents as clients use them.

use serde_json::Value;

use super::*;
use crate::kinds;
use crate::registry::Registry;

fn open_api() -> OpenApi {
    OpenApi::new(Registry::new(kinds::all()).unwrap().all().cloned())
}

fn document_of(path: &str) -> Value {
    serde_json::from_slice(&open_api().document(path).unwrap().body).unwrap()
}

/// Every `$ref` in a document leads somewhere.
fn check_references(document: &Value, at: &Value) {
    match at {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            fields.values().for_each(|value| check_references(document, value));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(document, item)),
        _ => {}
    }
}

#[test]
fn every_address_of_the_index_leads_to_a_consistent_document() {
    let open_api = open_api();
    let index: Value = serde_json::from_slice(&open_api.index().body).unwrap();
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"));
    for (path, entry) in paths {
        let document = open_api.document(path).unwrap();
        assert_eq!(entry["serverRelativeURL"], format!("/openapi/v3/{path}?hash={}", document.hash));
        let document: Value = serde_json::from_slice(&document.body).unwrap();
        check_references(&document, &document);
    }
    assert_eq!(open_api.document("apis/nope/v1"), None);
}

#[test]
fn schemas_carry_descriptions_and_facts() {
    let document = document_of("apis/apps/v1");
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(deployment["description"], "Deployment enables declarative updates for Pods and ReplicaSets.");
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "version": "v1", "kind": "Deployment"}])
    );
    let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(spec["required"], json!(["selector", "template"]));
    assert_eq!(spec["properties"]["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    assert_eq!(
        spec["properties"]["template"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    let policy = &schemas["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let max_surge = &schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!(max_surge["format"], "int-or-string");
}

#[test]
fn a_patch_says_that_fields_are_validated() {
    let document = document_of("apis/apps/v1");
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
}

/// Clients take any patch of a kind for one of its objects, and ask whether it validates fields.
#[test]
fn every_patch_of_a_kind_says_that_fields_are_validated() {
    for group in ["api/v1", "apis/apps/v1", "apis/batch/v1"] {
        let document = document_of(group);
        for (path, item) in document["paths"].as_object().unwrap() {
            let patch = &item["patch"];
            let parameters = patch["parameters"].as_array().into_iter().flatten();
            let validates = parameters.into_iter().any(|parameter| parameter["name"] == "fieldValidation");
            let kind = patch["x-kubernetes-group-version-kind"]["kind"].as_str().unwrap_or_default();
            assert!(patch.is_null() || validates || kind.ends_with("ProxyOptions"), "{path}: {kind}");
        }
    }
}

#[test]
fn operations_have_the_names_that_generators_know() {
    let core = document_of("api/v1");
    for (path, method, id) in [
        ("/api/v1/", "get", "getCoreV1APIResources"),
        ("/api/v1/pods", "get", "listCoreV1PodForAllNamespaces"),
        ("/api/v1/nodes", "get", "listCoreV1Node"),
        ("/api/v1/namespaces/{namespace}/pods", "post", "createCoreV1NamespacedPod"),
        ("/api/v1/namespaces/{namespace}/pods", "delete", "deleteCoreV1CollectionNamespacedPod"),
        ("/api/v1/namespaces/{namespace}/pods/{name}", "get", "readCoreV1NamespacedPod"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/status", "patch", "patchCoreV1NamespacedPodStatus"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/eviction", "post", "createCoreV1NamespacedPodEviction"),
        ("/api/v1/namespaces/{name}/finalize", "put", "replaceCoreV1NamespaceFinalize"),
    ] {
        assert_eq!(core["paths"][path][method]["operationId"], id, "{method} {path}");
    }
}

#[test]
fn version_2_has_all_definitions() {
    let whole: Value = serde_json::from_slice(&open_api().whole().body).unwrap();
    check_references(&whole, &whole);
    assert_eq!(
        whole["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodSpec"
    );
}

#[test]
fn documents_are_found_moved_known_or_unreadable() {
    use http::HeaderMap;
    use http::header::{ACCEPT, ETAG, IF_NONE_MATCH, LOCATION};

    use crate::query::Query;

    let open_api = open_api();
    let get = |segments: &[&str], query: &str, headers: &HeaderMap| {
        serve::answer(&open_api, segments, &Query::parse(query), headers)
    };
    let plain = HeaderMap::new();
    let apps = ["v3", "apis", "apps", "v1"];
    let found = get(&apps, "", &plain);
    assert_eq!(found.status(), 200);
    let moved = get(&apps, "hash=OLD", &plain);
    assert_eq!(
        (moved.status().as_u16(), moved.headers()[LOCATION].to_str().unwrap()),
        (301, &*open_api.address("apis/apps/v1").unwrap())
    );
    let known = HeaderMap::from_iter([(IF_NONE_MATCH, found.headers()[ETAG].clone())]);
    assert_eq!(get(&apps, "", &known).status(), 304);
    let protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf".parse().unwrap();
    assert_eq!(get(&apps, "", &HeaderMap::from_iter([(ACCEPT, protobuf)])).status(), 406);
    assert_eq!(get(&["v3", "apis", "nope", "v1"], "", &plain).status(), 404);
    assert_eq!(get(&["v3"], "", &plain).status(), 200);
    assert_eq!(get(&["v2"], "", &plain).status(), 200);
    assert_eq!(get(&["v4"], "", &plain).status(), 404);
}
