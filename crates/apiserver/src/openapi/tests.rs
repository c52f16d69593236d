//! Tests of the documents from a client's perspective.

use serde_json::Value;

use super::*;
use crate::kinds;
use crate::registry::Registry;

fn open_api() -> OpenApi {
    OpenApi::new(Registry::new(kinds::all()).unwrap().all().cloned())
}

fn whole_of(open_api: &OpenApi, form: Form) -> Document {
    futures::executor::block_on(open_api.whole(form))
}

fn document_of(path: &str) -> Value {
    serde_json::from_slice(&open_api().document(path).unwrap().body).unwrap()
}

/// Checks that all `$ref`s in a document resolve.
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
fn patch_operations_document_field_validation() {
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

/// Clients use any patch operation of a kind to check whether it supports field validation.
#[test]
fn every_patch_operation_documents_field_validation() {
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
        ("/api/v1/watch/pods", "get", "watchCoreV1PodListForAllNamespaces"),
        ("/api/v1/watch/namespaces/{namespace}/pods/{name}", "get", "watchCoreV1NamespacedPod"),
        ("/api/v1/nodes/{name}/proxy/{path}", "head", "connectCoreV1HeadNodeProxyWithPath"),
        ("/api/v1/namespaces/{namespace}/pods/{name}/log", "get", "readCoreV1NamespacedPodLog"),
    ] {
        assert_eq!(core["paths"][path][method]["operationId"], id, "{method} {path}");
    }
}

fn whole() -> Value {
    serde_json::from_slice(&whole_of(&open_api(), Form::Json).body).unwrap()
}

#[test]
fn version_2_has_all_definitions() {
    let whole = whole();
    check_references(&whole, &whole);
    assert_eq!(
        whole["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.PodSpec"
    );
    assert_eq!((&whole["swagger"], &whole["security"]), (&json!("2.0"), &json!([{"BearerToken": []}])));
}

/// A JSON document with a duplicate name is ambiguous.
#[test]
fn version_2_defines_every_name_once() {
    let open_api = open_api();
    let mut names = Vec::new();
    let mut shared = v2::SharedParts::default();
    for section in v2::Section::ALL {
        open_api
            .source()
            .each(section, &mut shared, &mut |name, _| names.push((section as u8, name.to_owned())));
    }
    let (count, unique) = (names.len(), names.into_iter().collect::<BTreeSet<_>>());
    assert_eq!(count, unique.len());
}

#[test]
fn both_versions_have_the_same_endpoints() {
    let open_api = open_api();
    let ids = |paths: &Value| -> BTreeSet<String> {
        let methods = paths.as_object().unwrap().iter().flat_map(|(path, item)| {
            let named = item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
            named.map(move |(method, operation)| format!("{method} {path} {}", operation["operationId"]))
        });
        methods.collect()
    };
    let parse = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap();
    let documents = open_api.documents.keys().map(|path| parse(&open_api.document(path).unwrap().body));
    let version_3: BTreeSet<String> = documents.flat_map(|document| ids(&document["paths"])).collect();
    let version_2 = ids(&parse(&whole_of(&open_api, Form::Json).body)["paths"]);
    assert!(version_2.len() > 700, "only {} operations", version_2.len());
    assert_eq!(version_2, version_3);
}

#[test]
fn an_operation_of_version_2_documents_parameters_and_responses() {
    let whole = whole();
    let item = &whole["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let patch = &item["patch"];
    assert_eq!(patch["consumes"].as_array().unwrap().len(), 4);
    assert_eq!(patch["schemes"], json!(["https"]));
    assert_eq!(
        patch["responses"]["200"],
        json!({"description": "OK", "schema": {"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"}})
    );
    let resolved = |parameter: &Value| match parameter["$ref"].as_str() {
        Some(reference) => whole.pointer(reference.strip_prefix('#').unwrap()).unwrap().clone(),
        None => parameter.clone(),
    };
    let names = |of: &Value| -> Vec<String> {
        let parameters = of["parameters"].as_array().unwrap().iter().map(resolved);
        parameters
            .map(|parameter| format!("{}:{}", parameter["in"], parameter["name"]).replace('"', ""))
            .collect()
    };
    assert_eq!(
        names(patch),
        ["body:body", "query:dryRun", "query:fieldManager", "query:fieldValidation", "query:force"]
    );
    assert_eq!(names(item), ["path:name", "path:namespace", "query:pretty"]);
    let is_inline = |name: &str| {
        patch["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == name)
    };
    // Clients look for these inline.
    assert!(is_inline("dryRun") && is_inline("fieldValidation") && !is_inline("force"));
}

#[test]
fn delete_operations_document_whether_they_return_the_object() {
    let whole = whole();
    for (path, schema) in [
        ("/api/v1/namespaces/{namespace}/pods/{name}", "io.k8s.api.core.v1.Pod"),
        ("/api/v1/namespaces/{namespace}/configmaps/{name}", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
    ] {
        let answer = &whole["paths"][path]["delete"]["responses"]["202"]["schema"]["$ref"];
        assert_eq!(*answer, format!("#/definitions/{schema}"), "{path}");
    }
}

#[test]
fn each_encoding_is_built_once() {
    let open_api = open_api();
    let json = whole_of(&open_api, Form::Json);
    let protobuf = whole_of(&open_api, Form::Protobuf);
    assert_eq!(json.hash, protobuf.hash);
    assert!(protobuf.body.len() > 500_000, "{} bytes", protobuf.body.len());
    for (form, built) in [(Form::Json, &json), (Form::Protobuf, &protobuf)] {
        assert_eq!(whole_of(&open_api, form).body.as_ptr(), built.body.as_ptr(), "{form:?} is cached");
    }
}

#[test]
fn documents_are_found_moved_known_or_unreadable() {
    use http::HeaderMap;
    use http::header::{ACCEPT, ETAG, IF_NONE_MATCH, LOCATION};

    use crate::query::Query;

    let open_api = open_api();
    let get = |path: &str, query: &str, headers: &HeaderMap| {
        futures::executor::block_on(serve::respond(&open_api, path, &Query::parse(query), headers))
    };
    let plain = HeaderMap::new();
    let apps = "v3/apis/apps/v1";
    let found = get(apps, "", &plain);
    assert_eq!(found.status(), 200);
    let moved = get(apps, "hash=OLD", &plain);
    assert_eq!(
        (moved.status().as_u16(), moved.headers()[LOCATION].to_str().unwrap()),
        (301, &*open_api.address("apis/apps/v1").unwrap())
    );
    let known = HeaderMap::from_iter([(IF_NONE_MATCH, found.headers()[ETAG].clone())]);
    assert_eq!(get(apps, "", &known).status(), 304);
    let protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf".parse().unwrap();
    assert_eq!(get(apps, "", &HeaderMap::from_iter([(ACCEPT, protobuf)])).status(), 406);
    assert_eq!(get("v3/apis/nope/v1", "", &plain).status(), 404);
    assert_eq!(get("v3", "", &plain).status(), 200);
    assert_eq!(get("v2", "", &plain).status(), 200);
    assert_eq!(get("v4", "", &plain).status(), 404);
}
