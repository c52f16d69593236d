//! Discovery and OpenAPI documents, merged with those of extension API servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::Method;
use http::request::Parts;
use serde_json::{Value, json};
use setpoint_apiserver::Config;
use setpoint_apiserver::kind::{Kind, Verb};
use setpoint_apiserver::kinds;

use crate::custom::{DEFINITIONS, definition};
use crate::extension_server::{API_SERVICES, Aggregated, Answered, NAME, ok, reply, resources, whole};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const JSON: &str = "application/json";

fn group<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    document["items"].as_array()?.iter().find(|group| group["metadata"]["name"] == name)
}

fn names(document: &Value) -> Vec<&str> {
    let groups = document["groups"].as_array().unwrap();
    groups.iter().map(|group| group["name"].as_str().unwrap()).collect()
}

/// A server with only the documents of its group version.
fn legacy(head: &Parts) -> Answered {
    match head.uri.path() {
        "/apis/ext.example.com/v1" => Ok(reply(200, &resources())),
        _ => Ok(reply(404, &json!({"kind": "Status"}))),
    }
}

fn aggregated_document(groups: &[(&str, &[&str])]) -> Value {
    let resource =
        json!({"resource": "gizmos", "scope": "Cluster", "singularResource": "gizmo", "verbs": ["get"]});
    let version =
        |version: &&str| json!({"version": version, "freshness": "Current", "resources": [resource]});
    let item = |(name, versions): &(&str, &[&str])| {
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"metadata": {"name": name}, "versions": versions})
    };
    let items: Vec<Value> = groups.iter().map(item).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items})
}

fn tagged(document: &Value, tag: &str) -> Answered {
    let mut response = reply(200, document);
    response.headers_mut().insert("content-type", AGGREGATED.parse().unwrap());
    response.headers_mut().insert("etag", tag.parse().unwrap());
    Ok(response)
}

#[tokio::test(start_paused = true)]
async fn groups_of_other_servers_are_listed_with_the_servers_own() {
    let server = |head: Parts, _: Bytes| std::future::ready(legacy(&head)).boxed();
    let aggregated = Aggregated::start_changed(server, |config| config).await;
    aggregated.register().await;
    let api = &aggregated.api;
    let expected = json!({"name": "ext.example.com",
        "versions": [{"groupVersion": "ext.example.com/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "ext.example.com/v1", "version": "v1"}});
    let groups = api.get("/apis").await.ok();
    assert_eq!(*groups["groups"].as_array().unwrap().last().unwrap(), expected);
    assert_eq!(names(&groups)[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
    let one = api.get("/apis/ext.example.com").await.ok();
    assert_eq!((&one["kind"], &one["versions"]), (&json!("APIGroup"), &expected["versions"]));
    assert_eq!(api.get("/apis/ext.example.com/v1").await.ok(), resources());
    let paths = api.get("/").await.ok();
    assert!(paths["paths"].as_array().unwrap().contains(&json!("/apis/ext.example.com/v1")));
    let whole =
        aggregated.until_answered(AGGREGATED, "/apis", |all| group(all, "ext.example.com").is_some()).await;
    assert_eq!(
        group(&whole, "ext.example.com").unwrap()["versions"],
        json!([{"version": "v1", "freshness": "Current", "resources": [{"resource": "gizmos",
            "responseKind": {"group": "", "version": "", "kind": "Gizmo"}, "scope": "Namespaced",
            "singularResource": "gizmo", "verbs": ["get", "list"]}]}])
    );
    assert!(group(&whole, "apps").is_some());
    // The forms of the document and its ETag work as for the server's own.
    let protobuf = AGGREGATED.replace("json", "vnd.kubernetes.protobuf");
    assert!(api.get_as(&protobuf, "/apis").await.text.contains("ext.example.com"));
    let response = api.send(Method::GET, "/apis", &[("accept", AGGREGATED)], "").await;
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let again = api.send(Method::GET, "/apis", &[("accept", AGGREGATED), ("if-none-match", &tag)], "").await;
    assert_eq!(again.status(), 304);
    api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    assert!(!names(&api.get("/apis").await.ok()).contains(&"ext.example.com"));
    assert_eq!(api.get("/apis/ext.example.com").await.code, 404);
    aggregated.until_answered(AGGREGATED, "/apis", |all| group(all, "ext.example.com").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_of_a_server_is_read_once_for_all_its_versions() {
    let tag = Arc::new(AtomicUsize::new(1));
    let current = tag.clone();
    let server = move |head: Parts, _: Bytes| {
        let tag = format!("\"{}\"", current.load(Ordering::SeqCst));
        let groups: [(&str, &[&str]); 2] = [("a.example.com", &["v1", "v2"]), ("b.example.com", &["v1"])];
        let answer = match head.uri.path() {
            "/apis" if head.headers.get("if-none-match").is_some_and(|known| *known == *tag) => {
                Ok(reply(304, &json!(null)))
            }
            "/apis" => tagged(&aggregated_document(&groups), &tag),
            "/openapi/v2" | "/openapi/v3" => Ok(reply(404, &json!({}))),
            _ => Ok(reply(200, &json!({}))),
        };
        std::future::ready(answer).boxed()
    };
    let aggregated = Aggregated::start_changed(server, |config| config).await;
    aggregated.expose().await;
    let api = &aggregated.api;
    for (group, version, priority) in
        [("a.example.com", "v1", 100), ("a.example.com", "v2", 10), ("b.example.com", "v1", 100)]
    {
        let mut service = aggregated.api_service(group, version);
        service["spec"]["versionPriority"] = priority.into();
        if group == "b.example.com" {
            service["spec"]["groupPriorityMinimum"] = 19000.into();
        }
        api.post(API_SERVICES, service).await.created();
    }
    let is_whole = |all: &Value| {
        let versions = group(all, "a.example.com").map(|group| group["versions"].as_array().unwrap().len());
        versions == Some(2) && group(all, "b.example.com").is_some()
    };
    let whole = aggregated.until_answered(AGGREGATED, "/apis", is_whole).await;
    let order: Vec<&str> = whole["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        order[..2],
        ["apiregistration.k8s.io", "b.example.com"],
        "the priority of its group is the highest"
    );
    let versions = group(&whole, "a.example.com").unwrap()["versions"].clone();
    assert_eq!((&versions[0]["version"], &versions[1]["version"]), (&json!("v1"), &json!("v2")));
    // Kinds that the server leaves out are not null: old clients cannot read that.
    assert_eq!(versions[0]["resources"][0]["responseKind"], json!({"group": "", "version": "", "kind": ""}));
    assert_eq!(names(&api.get("/apis").await.ok())[1], "b.example.com");
    // In the steady state it is confirmed by its ETag, once a minute and not once for each APIService.
    tokio::time::sleep(Duration::from_secs(5)).await;
    aggregated.extension.take_all();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let reads = aggregated.extension.take_all();
    let reads: Vec<_> = reads.iter().filter(|one| one.head.uri.path() == "/apis").collect();
    assert!(
        reads.len() <= 15 && reads.iter().all(|one| one.header("if-none-match") == ["\"1\""]),
        "{}",
        reads.len()
    );
    assert_eq!(reads[0].header("x-remote-user"), ["system:kube-aggregator"]);
    assert!(is_whole(&api.get_as(AGGREGATED, "/apis").await.ok()));
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_group_is_marked_stale_and_affects_no_other() {
    type Make = fn() -> Answered;
    let garbage: Make = || tagged(&json!("garbage"), "\"1\"");
    let other: Make = || tagged(&json!({"kind": "Status"}), "\"1\"");
    let huge: Make = || {
        let mut response = http::Response::new(whole(vec![b' '; (4 << 20) + 1]));
        response.headers_mut().insert("content-type", AGGREGATED.parse().unwrap());
        Ok(response)
    };
    let unavailable: Make = || Ok(reply(503, &json!({})));
    let legacy_garbage: Make = || Ok(reply(404, &json!({})));
    let closed: Make = || Err(std::io::Error::other("closed"));
    for bad in [garbage, other, huge, unavailable, legacy_garbage, closed] {
        let is_bad = Arc::new(AtomicBool::new(true));
        let failing = is_bad.clone();
        let server = move |head: Parts, _: Bytes| {
            let is_probe = head.headers.get("x-forwarded-host").is_none();
            let answer = match (failing.load(Ordering::SeqCst), head.uri.path()) {
                (_, "/openapi/v2" | "/openapi/v3") => Ok(reply(404, &json!({}))),
                (true, "/apis") => bad(),
                (true, _) if is_probe => Ok(reply(200, &json!({}))),
                (true, _) => Ok(reply(200, &json!({"kind": "Garbage"}))),
                (false, "/apis") => tagged(&aggregated_document(&[("ext.example.com", &["v1"])]), "\"2\""),
                (false, _) => Ok(reply(200, &json!({}))),
            };
            std::future::ready(answer).boxed()
        };
        let aggregated = Aggregated::start_changed(server, |config| config).await;
        aggregated.register().await;
        let is_listed = |all: &Value| group(all, "ext.example.com").is_some();
        let whole = aggregated.until_answered(AGGREGATED, "/apis", is_listed).await;
        assert_eq!(
            group(&whole, "ext.example.com").unwrap()["versions"],
            json!([{"version": "v1", "freshness": "Stale"}])
        );
        assert!(group(&whole, "apps").is_some());
        is_bad.store(false, Ordering::SeqCst);
        let is_fresh =
            |all: &Value| group(all, "ext.example.com").unwrap()["versions"][0]["freshness"] == "Current";
        aggregated.until_answered(AGGREGATED, "/apis", is_fresh).await;
        is_bad.store(true, Ordering::SeqCst);
        aggregated.until_answered(AGGREGATED, "/apis", |all| !is_fresh(all)).await;
    }
}

/// A built-in kind that v1.34 does not have.
fn with_metrics(config: Config) -> Config {
    let mut kind: Kind = kinds::all().into_iter().find(|kind| kind.kind == "PriorityClass").unwrap();
    kind.group = "metrics.k8s.io".into();
    kind.version = "v1beta1".into();
    kind.stored_as = "metrics.k8s.io/nodes".into();
    kind.plural = "nodes".into();
    kind.verbs = vec![Verb::Get, Verb::List];
    let mut kinds = config.kinds;
    kinds.push(kind);
    Config { kinds, ..config }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_the_server_adds_is_its_own_until_an_api_service_takes_it_over() {
    let server = |_: Parts, _: Bytes| ok(&json!({"kind": "APIResourceList", "resources": []}));
    let aggregated = Aggregated::start_changed(server, with_metrics).await;
    aggregated.expose().await;
    let api = &aggregated.api;
    let nodes = "/apis/metrics.k8s.io/v1beta1/nodes";
    let name = format!("{API_SERVICES}/v1beta1.metrics.k8s.io");
    let is_own = async || api.get(nodes).await.text.contains("PriorityClassList");
    assert!(is_own().await);
    assert_eq!(api.get(&name).await.code, 404);
    assert!(names(&api.get("/apis").await.ok()).contains(&"metrics.k8s.io"));
    let mut service = aggregated.api_service("metrics.k8s.io", "v1beta1");
    service["spec"]["groupPriorityMinimum"] = 100.into();
    api.post(API_SERVICES, service).await.created();
    assert_eq!(api.get(nodes).await.code, 503, "the other server owns it from now on");
    aggregated.until("v1beta1.metrics.k8s.io", "True").await;
    assert_eq!(api.get(nodes).await.ok()["kind"], "APIResourceList");
    assert_eq!(
        names(&api.get("/apis").await.ok()).iter().filter(|name| **name == "metrics.k8s.io").count(),
        1
    );
    let is_taken = |all: &Value| {
        let group = group(all, "metrics.k8s.io").unwrap();
        group["versions"].as_array().unwrap().len() == 1 && group["versions"][0].get("resources").is_none()
    };
    aggregated.until_answered(AGGREGATED, "/apis", is_taken).await;
    api.delete(&name).await.ok();
    assert!(is_own().await);
    aggregated.until_answered(AGGREGATED, "/apis", |all| !is_taken(all)).await;
}

#[tokio::test(start_paused = true)]
async fn versions_of_a_group_can_be_served_by_different_servers() {
    let server = |_: Parts, _: Bytes| {
        ok(&json!({"kind": "APIResourceList", "resources": [
            {"name": "bars", "namespaced": true, "kind": "Bar", "verbs": ["list"]}]}))
    };
    let aggregated = Aggregated::start_changed(server, |config| config).await;
    aggregated.expose().await;
    let api = &aggregated.api;
    api.post(DEFINITIONS, definition(json!({"type": "object"}))).await.created();
    let mut service = aggregated.api_service("e.com", "v2");
    service["spec"]["versionPriority"] = 500.into();
    api.post(API_SERVICES, service).await.created();
    aggregated.until("v2.e.com", "True").await;
    let versions = api.get("/apis/e.com").await.ok()["versions"].clone();
    assert_eq!((&versions[0]["version"], &versions[1]["version"]), (&json!("v2"), &json!("v1")));
    let is_whole = |all: &Value| {
        group(all, "e.com").is_some_and(|group| group["versions"].as_array().unwrap().len() == 2)
    };
    let whole = aggregated.until_answered(AGGREGATED, "/apis", is_whole).await;
    let versions = &group(&whole, "e.com").unwrap()["versions"];
    assert_eq!(
        (&versions[0]["resources"][0]["resource"], &versions[1]["resources"][0]["resource"]),
        (&json!("bars"), &json!("foos"))
    );
    assert_eq!(api.get("/apis/e.com/v1/foos").await.ok()["kind"], "FooList");
    assert_eq!(api.get("/apis/e.com/v2/bars").await.ok()["kind"], "APIResourceList");
}

/// A version 2 document with a definition that the server has too, and one that conflicts with the server's.
fn swagger() -> Value {
    let refers = |name: &str| {
        json!({"get": {"operationId": name, "produces": ["application/json"], "responses": {"200": {
            "description": "OK", "schema": {"$ref": format!("#/definitions/{name}")}}}}})
    };
    json!({"swagger": "2.0", "info": {"title": "ext", "version": "1"},
    "paths": {
        "/apis/ext.example.com/v1/gizmos": refers("com.example.Gizmo"),
        "/apis/ext.example.com/v1/pods": refers("io.k8s.api.core.v1.Pod"),
        "/api/v1/pods": refers("com.example.Evil"),
    },
    "definitions": {
        "com.example.Gizmo": {"type": "object", "x-kubernetes-group-version-kind": [
            {"group": "ext.example.com", "version": "v1", "kind": "Gizmo"}]},
        "com.example.Evil": {"type": "object"},
        "io.k8s.api.core.v1.Pod": {"type": "object", "description": "another pod"},
    }})
}

#[tokio::test(start_paused = true)]
async fn version_2_of_the_documents_is_merged_and_conflicts_get_other_names() {
    let server = |head: Parts, _: Bytes| {
        let answer = match head.uri.path() {
            "/openapi/v2" if head.headers.get("if-none-match").is_some() => Ok(reply(304, &json!(null))),
            "/openapi/v2" => {
                let mut response = reply(200, &swagger());
                response.headers_mut().insert("etag", "\"1\"".parse().unwrap());
                Ok(response)
            }
            _ => legacy(&head),
        };
        std::future::ready(answer).boxed()
    };
    let aggregated = Aggregated::start_changed(server, |config| config).await;
    let own = aggregated.api.get_as(JSON, "/openapi/v2").await.ok();
    aggregated.register().await;
    let is_merged = |all: &Value| all["definitions"].get("com.example.Gizmo").is_some();
    let merged = aggregated.until_answered(JSON, "/openapi/v2", is_merged).await;
    let pods = &merged["paths"]["/apis/ext.example.com/v1/pods"]["get"];
    assert_eq!(pods["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod_v2");
    assert_eq!(merged["definitions"]["io.k8s.api.core.v1.Pod_v2"]["description"], "another pod");
    for part in ["definitions/io.k8s.api.core.v1.Pod", "paths/~1api~1v1~1pods", "info"] {
        assert_eq!(merged.pointer(&format!("/{part}")), own.pointer(&format!("/{part}")), "{part}");
    }
    assert!(
        merged["definitions"].get("com.example.Evil").is_none(),
        "only paths of its group version are merged"
    );
    let protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert!(aggregated.api.get_as(protobuf, "/openapi/v2").await.text.contains("com.example.Gizmo"));
    let response = aggregated.api.send(Method::GET, "/openapi/v2", &[("accept", JSON)], "").await;
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let again = aggregated
        .api
        .send(Method::GET, "/openapi/v2", &[("accept", JSON), ("if-none-match", &tag)], "")
        .await;
    assert_eq!(again.status(), 304);
    aggregated.extension.take_all();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let reads = aggregated.extension.take_all();
    let reads: Vec<_> = reads.iter().filter(|one| one.head.uri.path() == "/openapi/v2").collect();
    assert!(
        (2..=4).contains(&reads.len()) && reads.iter().all(|one| one.header("if-none-match") == ["\"1\""])
    );
    assert_eq!(reads[0].header("x-remote-user"), ["system:aggregator"]);
    assert!(is_merged(&aggregated.api.get_as(JSON, "/openapi/v2").await.ok()));
    // The server has no version 3, so its version 2 is converted.
    let index = aggregated.api.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/ext.example.com/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = aggregated.api.get(&url).await.ok();
    assert_eq!(document["openapi"], "3.0.0");
    assert!(document["components"]["schemas"].get("com.example.Gizmo").is_some());
    let stale = aggregated.api.send(Method::GET, "/openapi/v3/apis/ext.example.com/v1?hash=0", &[], "").await;
    assert_eq!((stale.status().as_u16(), stale.headers()["location"].to_str().unwrap()), (301, &*url));
    aggregated.api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    aggregated.until_answered(JSON, "/openapi/v2", |all| !is_merged(all)).await;
    assert_eq!(aggregated.api.get(&url).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn version_3_of_the_documents_is_listed_and_forwarded() {
    let server = |head: Parts, _: Bytes| {
        let answer = match head.uri.path() {
            "/openapi/v3" => Ok(reply(
                200,
                &json!({"paths": {
                    "apis/ext.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/ext.example.com/v1?hash=ABC"},
                    "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=EVIL"},
                    "version": {"serverRelativeURL": "/openapi/v3/version?hash=EVIL"},
                    "apis/more.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/more.example.com/v1?hash=M"},
                }}),
            )),
            path if path.starts_with("/openapi/v3/") => Ok(reply(
                200,
                &json!({"path": path, "query": head.uri.query(), "user": head.headers["x-remote-user"].to_str().unwrap()}),
            )),
            _ => legacy(&head),
        };
        std::future::ready(answer).boxed()
    };
    let aggregated = Aggregated::start_changed(server, |config| config).await;
    let api = &aggregated.api;
    let own = api.get("/openapi/v3").await.ok();
    aggregated.register().await;
    let is_listed = |all: &Value| all["paths"].get("apis/ext.example.com/v1").is_some();
    let index = aggregated.until_answered("*/*", "/openapi/v3", is_listed).await;
    assert_eq!(
        index["paths"]["apis/ext.example.com/v1"]["serverRelativeURL"],
        "/openapi/v3/apis/ext.example.com/v1?hash=ABC"
    );
    assert!(index["paths"].get("apis/more.example.com/v1").is_some());
    for path in ["api/v1", "version", "apis/apps/v1"] {
        assert_eq!(index["paths"][path], own["paths"][path], "{path}");
    }
    let document = api.get("/openapi/v3/apis/ext.example.com/v1?hash=ABC").await.ok();
    let expected =
        json!({"path": "/openapi/v3/apis/ext.example.com/v1", "query": "hash=ABC", "user": "admin"});
    assert_eq!(document, expected);
    assert_eq!(api.get("/openapi/v3/api/v1").await.ok()["openapi"], "3.0.0");
    assert_eq!(
        api.get("/openapi/v3/apis/more.example.com/v1").await.ok()["path"],
        "/openapi/v3/apis/more.example.com/v1"
    );
    assert_eq!(api.get("/openapi/v3/apis/nobody/v1").await.code, 404);
    api.delete(&format!("{API_SERVICES}/{NAME}")).await.ok();
    aggregated.until_answered("*/*", "/openapi/v3", |all| !is_listed(all)).await;
    assert_eq!(api.get("/openapi/v3/apis/ext.example.com/v1").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn documents_that_cannot_be_used_leave_the_servers_own_alone() {
    for bad in ["[1, 2", "{\"paths\": 3}", "null"] {
        let server = move |head: Parts, _: Bytes| {
            let answer = match head.uri.path() {
                "/openapi/v2" | "/openapi/v3" => Ok(http::Response::new(whole(bad))),
                _ => legacy(&head),
            };
            std::future::ready(answer).boxed()
        };
        let aggregated = Aggregated::start_changed(server, |config| config).await;
        let own = aggregated.api.get_as(JSON, "/openapi/v2").await.ok();
        aggregated.register().await;
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(aggregated.api.get_as(JSON, "/openapi/v2").await.ok(), own, "{bad}");
        let index = aggregated.api.get("/openapi/v3").await.ok();
        assert!(index["paths"].get("apis/ext.example.com/v1").is_none());
        // It is asked again after longer and longer pauses.
        aggregated.extension.take_all();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let reads = aggregated.extension.take_all();
        let reads = reads.iter().filter(|one| one.head.uri.path().starts_with("/openapi")).count();
        assert!((1..=10).contains(&reads), "{reads}");
    }
}
