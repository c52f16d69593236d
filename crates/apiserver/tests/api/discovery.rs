//! Discovery, version and health endpoints.

use http::Method;
use serde_json::{Value, json};

use crate::client::Api;
use crate::custom::{DEFINITIONS, definition};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test(start_paused = true)]
async fn openapi_version_2_has_a_form_in_protobuf() {
    let api = Api::start().await;
    let name = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    for accept in [
        name,
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
        &format!("{name},application/json"),
    ] {
        let document = api.get_as(accept, "/openapi/v2").await;
        assert_eq!((document.code, &*document.content_type), (200, name), "{accept}");
        for part in ["io.k8s.api.apps.v1.Deployment", "x-kubernetes-group-version-kind"] {
            assert!(document.text.contains(part), "{part}");
        }
    }
    let json = api.get_as(&format!("application/json,{name};q=0.5"), "/openapi/v2").await;
    assert_eq!(json.content_type, "application/json");
}

#[tokio::test(start_paused = true)]
async fn group_versions_list_their_resources() {
    let api = Api::start().await;
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = api.get("/apis").await.ok();
    let apps = groups["groups"].as_array().unwrap().iter().find(|group| group["name"] == "apps").unwrap();
    assert_eq!(apps["preferredVersion"], json!({"groupVersion": "apps/v1", "version": "v1"}));
    assert_eq!(api.get("/apis/apps").await.ok()["kind"], "APIGroup");
    let core = api.get("/api/v1").await.ok();
    assert_eq!((&core["groupVersion"], &core["apiVersion"]), (&json!("v1"), &Value::Null));
    let resource = |list: &Value, name: &str| {
        list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned().unwrap()
    };
    assert_eq!(resource(&core, "pods")["shortNames"], json!(["po"]));
    let eviction = resource(&core, "pods/eviction");
    assert_eq!((&eviction["group"], &eviction["kind"]), (&json!("policy"), &json!("Eviction")));
    assert_eq!(resource(&core, "namespaces/finalize")["verbs"], json!(["update"]));
    let apps = api.get("/apis/apps/v1").await.ok();
    assert_eq!(apps["apiVersion"], "v1");
    assert_eq!(resource(&apps, "deployments/scale")["version"], "v1");
    for path in ["/api/v9", "/apis/nope", "/apis/apps/v9"] {
        assert_eq!(api.get(path).await.code, 404, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_is_complete_and_cacheable() {
    let api = Api::start().await;
    let response = api.send(Method::GET, "/apis", &[("accept", AGGREGATED)], "").await;
    assert_eq!(response.headers()["content-type"], AGGREGATED);
    let tag = response.headers()["etag"].to_str().unwrap().to_string();
    let document: Value = serde_json::from_slice(&response.into_body().collect().await).unwrap();
    assert_eq!(document["apiVersion"], "apidiscovery.k8s.io/v2");
    let apps =
        document["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps").unwrap();
    let resources = apps["versions"][0]["resources"].as_array().unwrap();
    let deployments = resources.iter().find(|r| r["resource"] == "deployments").unwrap();
    assert_eq!(deployments["scope"], "Namespaced");
    assert_eq!(
        deployments["subresources"][0]["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
    let again = api.send(Method::GET, "/apis", &[("accept", AGGREGATED), ("if-none-match", &tag)], "").await;
    assert_eq!(again.status(), 304);
    let shared = async || {
        let response = api.send(Method::GET, "/apis", &[("accept", AGGREGATED)], "").await;
        response.body().as_full().unwrap().as_ptr() as usize
    };
    assert_eq!(shared().await, shared().await, "the document is built once");
    api.post(DEFINITIONS, definition(json!({"type": "object"}))).await.created();
    let changed =
        api.send(Method::GET, "/apis", &[("accept", AGGREGATED), ("if-none-match", &tag)], "").await;
    assert_eq!(changed.status(), 200, "and rebuilt when the kinds change");

    let v9 = AGGREGATED.replace("v2", "v9");
    assert_eq!(api.get_as(&v9, "/apis").await.code, 406);
    assert_eq!(api.get_as(&format!("{v9},application/json"), "/apis").await.ok()["kind"], "APIGroupList");
    assert_eq!(api.get_as("application/yaml", "/apis/apps/v1").await.content_type, "application/yaml");
}

#[tokio::test(start_paused = true)]
async fn the_version_is_that_of_v1_34() {
    let api = Api::start().await;
    let version = api.get("/version/").await.ok();
    assert_eq!((&version["major"], &version["minor"]), (&json!("1"), &json!("34")));
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1.34."));
    let paths = api.get("/").await.ok();
    assert!(paths["paths"].as_array().unwrap().contains(&json!("/apis/apps/v1")));
}

#[tokio::test(start_paused = true)]
async fn health_lists_every_check() {
    let api = Api::start().await;
    for path in ["/livez", "/readyz", "/healthz", "/livez/ping", "/healthz/etcd", "/readyz?exclude=etcd"] {
        let answer = api.get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "ok"), "{path}");
        assert_eq!(answer.content_type, "text/plain; charset=utf-8");
    }
    let verbose = api.get("/readyz?verbose&exclude=etcd").await;
    assert!(verbose.text.contains("[+]ping ok\n"), "{}", verbose.text);
    assert!(verbose.text.contains("[+]etcd excluded: ok\n"), "{}", verbose.text);
    assert!(verbose.text.ends_with("readyz check passed\n"), "{}", verbose.text);
    assert_eq!(api.get("/livez/nope").await.code, 404);
    api.server.close_watches();
    let stopping = api.get("/readyz").await;
    assert_eq!(stopping.code, 500);
    assert!(stopping.text.contains("[-]shutdown failed: reason withheld\n"), "{}", stopping.text);
    assert_eq!(api.get("/livez").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn documents_have_the_types_that_clients_accept() {
    let api = Api::start().await;
    let aggregated_yaml = AGGREGATED.replace("json", "yaml");
    let aggregated_protobuf = AGGREGATED.replace("json", "vnd.kubernetes.protobuf");
    for (path, accept, code, content_type) in [
        ("/apis", AGGREGATED, 200, AGGREGATED),
        ("/api", AGGREGATED, 200, AGGREGATED),
        // Even if another type is preferred.
        ("/apis", &format!("application/json,{AGGREGATED};q=0.1"), 200, AGGREGATED),
        ("/apis", &aggregated_yaml, 200, &aggregated_yaml),
        ("/api", &aggregated_protobuf, 200, &aggregated_protobuf),
        ("/apis/", AGGREGATED, 406, "application/json"),
        ("/apis/apps", AGGREGATED, 406, "application/json"),
        ("/apis", "text/html", 406, "application/json"),
        ("/api", "application/*", 406, "application/json"),
        ("/apis", "application/*", 200, "application/json"),
        ("/apis/apps/v1", "application/*", 406, "application/json"),
        ("/apis/apps/v1", "application/vnd.kubernetes.protobuf", 200, "application/vnd.kubernetes.protobuf"),
        ("/apis/apps", "application/yaml", 200, "application/yaml"),
        ("/apis", "application/cbor", 406, "application/json"),
        ("/version", "application/yaml", 406, "application/yaml"),
        ("/version", "text/html,*/*;q=0.1", 200, "application/json"),
        ("/openapi/v3", "text/html", 200, "text/plain; charset=utf-8"),
        ("/openapi/v3/apis/apps/v1", "text/html", 406, ""),
        ("/openapi/v3/", "*/*", 404, ""),
        ("/openapi/v2/", "*/*", 404, "text/plain; charset=utf-8"),
    ] {
        let answer = api.get_as(accept, path).await;
        assert_eq!((answer.code, answer.content_type.as_str()), (code, content_type), "{path} {accept}");
    }
    let posted = api.ask(Method::POST, "/api", &[("content-type", "text/html")], "").await;
    assert_eq!(posted.code, 405);
    let typed = api.ask(Method::GET, "/api", &[("content-type", "text/html")], "").await;
    assert_eq!(typed.code, 415);
    assert_eq!(api.get("/apis/apps/v9/deployments").await.body["kind"], "Status");
}
