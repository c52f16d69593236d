//! Paths, methods and names.

use http::Method;
use serde_json::{Value, json};

use crate::client::{Api, names};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(start_paused = true)]
async fn path_traversal_is_rejected() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}});
    api.post("/api/v1/namespaces/default/secrets", secret).await.created();
    for (path, code) in [
        ("/api/v1/namespaces/default/configmaps/../secrets", 404),
        ("/api/v1/namespaces/default/configmaps/%2e%2e/secrets", 404),
        ("/api/v1/namespaces/default/configmaps/..%2fsecrets", 404),
        ("/api/v1/namespaces/default/configmaps/a%2f..%2f..%2fsecrets%2fs", 404),
        ("/api/v1/namespaces/default%2fconfigmaps%2Fa", 200),
        ("/api/v1%2fnamespaces/default/configmaps", 200),
        ("//api/v1/namespaces/default/configmaps/a", 404),
        ("/api/v1/watch", 500),
        ("/api/v1/namespaces/default/configmaps/a%25b", 400),
        ("/healthz/", 404),
        ("/%68ealthz", 200),
        ("/index.html", 200),
        ("/version//", 200),
        ("/api/v1/namespaces/default/configmaps/%2e%2e", 400),
        ("/api/v1/namespaces/default/configmaps/.", 400),
        ("/api/v1/namespaces/default%2fsecrets/configmaps/s", 404),
        ("/api/v1/namespaces/default/configmaps/a%00", 404),
        ("/api//v1/namespaces", 404),
        ("/api/v1/namespaces/default/configmaps//a", 404),
        ("/api/v2/namespaces", 404),
        ("/apis/apps/v1/namespaces/default/Deployment", 404),
        ("/api/v1/namespaces/default/nodes", 404),
        ("/api/v1/configmaps/a", 404),
        ("/api/v1/namespaces/default/configmaps/a/", 200),
        ("/api/v1/namespaces/default/configmaps//", 200),
        ("/api/v1/namespaces//configmaps", 200),
        ("/api/v1/namespaces//configmaps/a", 400),
        ("/api/v1/namespaces/%2e%2e/configmaps/a", 500),
        ("/api/v1/namespaces/default/pods//log", 400),
        ("/api/v1/namespaces/Bad_NS/configmaps", 200),
        ("/api/v1/namespaces/default/configmaps/a%20b", 404),
    ] {
        let answer = api.get(path).await;
        assert_eq!(answer.code, code, "{path}");
        assert!(!answer.text.contains("hidden"), "{path}");
    }
    let malformed = api.get("/api/v1/pods/%zz").await;
    let page = (malformed.code, malformed.content_type.as_str(), malformed.text.as_str());
    assert_eq!(page, (400, "text/plain; charset=utf-8", "400 Bad Request"));
    for path in ["/foo/bar", "/API/v1", "/nope", "//api/v1/pods", "//", "/apis//"] {
        let answer = api.get(path).await;
        assert_eq!((answer.code, answer.content_type.as_str()), (404, "text/plain; charset=utf-8"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_has_to_be_a_duration() {
    let api = Api::start().await;
    for timeout in ["", "0s", "3m", "32s", "1.5s"] {
        assert_eq!(api.get(&format!("{MAPS}?timeout={timeout}")).await.code, 200, "{timeout}");
    }
    for path in [MAPS, "/version"] {
        let answer = api.get(&format!("{path}?timeout=5")).await;
        let why = "invalid timeout specified in the request URL - time: missing unit in duration \"5\"";
        assert_eq!(answer.refusal(), (400, "BadRequest", why), "{path}");
    }
    assert_eq!(api.get(&format!("{MAPS}?watch=1&timeout=5&timeoutSeconds=1")).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_path_has_only_its_methods() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    for (method, path) in [
        (Method::PUT, MAPS),
        (Method::PATCH, MAPS),
        (Method::OPTIONS, MAPS),
        (Method::TRACE, MAPS),
        (Method::DELETE, "/api/v1/configmaps"),
        (Method::POST, "/api/v1/configmaps"),
        (Method::POST, "/api/v1/namespaces/default/configmaps/a"),
        (Method::HEAD, "/api/v1/namespaces/default/configmaps/a"),
        (Method::DELETE, "/api/v1/namespaces"),
        (Method::DELETE, "/version"),
    ] {
        let answer = api.ask(method.clone(), path, &[], "").await;
        assert_eq!(answer.code, 405, "{method} {path}");
        assert_eq!(answer.body["details"], json!({}), "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_checked_and_generated() {
    let api = Api::start().await;
    for (meta, field) in [
        (json!({"name": "a_b"}), "metadata.name"),
        (json!({"name": "a."}), "metadata.name"),
        (json!({"name": "a".repeat(254)}), "metadata.name"),
        (json!({"generateName": "Pre_"}), "metadata.generateName"),
        (json!({}), "metadata.name"),
        (json!({"name": "a", "labels": {"-": "x"}}), "metadata.labels"),
        (json!({"name": "a", "labels": {"x": "y z"}}), "metadata.labels"),
        (json!({"name": "a", "annotations": {"a b": ""}}), "metadata.annotations"),
        (json!({"name": "a", "annotations": {"a": "x".repeat(262_145)}}), "metadata.annotations"),
        (json!({"name": "a", "finalizers": ["a b"]}), "metadata.finalizers"),
        (json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}), "metadata.finalizers"),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}),
            "metadata.ownerReferences.uid",
        ),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}),
            "metadata.ownerReferences",
        ),
    ] {
        let refused = api.post(MAPS, json!({"metadata": meta})).await;
        assert_eq!(refused.code, 422, "{field}: {}", refused.text);
        assert_eq!(refused.body["details"]["causes"][0]["field"], field);
    }
    let missing = api.post(MAPS, json!({})).await;
    assert_eq!(
        missing.refusal(),
        (
            422,
            "Invalid",
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
        )
    );
    let made = api.post(MAPS, json!({"metadata": {"generateName": "web-"}})).await.created();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), &name[..4]), (9, "web-"));
    let long = api.post(MAPS, json!({"metadata": {"generateName": "a".repeat(70)}})).await.created();
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_once_and_in_one_namespace() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let taken = api.post(MAPS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(taken.refusal(), (409, "AlreadyExists", "configmaps \"a\" already exists"));
    let elsewhere = json!({"metadata": {"name": "a", "namespace": "kube-system"}});
    assert_eq!(api.post(MAPS, elsewhere.clone()).await.code, 400);
    api.post("/api/v1/namespaces/kube-system/configmaps", elsewhere).await.created();
    let all = api.get("/api/v1/configmaps").await.ok();
    assert_eq!(names(&all), ["a", "a"]);
    let version = api.post(MAPS, json!({"metadata": {"name": "v", "resourceVersion": "5"}})).await;
    assert_eq!(version.code, 500, "a new object has no version yet");
    assert_eq!(version.refusal().2, "resourceVersion should not be set on objects to be created");
}

#[tokio::test(start_paused = true)]
async fn invalid_bodies_are_rejected() {
    let api = Api::start().await;
    for (body, words) in [
        ("{\"apiVersion\":\"v1\",", "unexpected end of JSON input"),
        ("[]", "cannot unmarshal array"),
        ("{\"kind\":\"Nope\",\"apiVersion\":\"v1\"}", "no kind \"Nope\" is registered"),
        ("{\"metadata\":\"x\"}", "cannot unmarshal string into Go struct field ConfigMap.metadata"),
        ("{\"metadata\":{\"name\":\"a\"}} xx", "after top-level value"),
    ] {
        let refused = api.ask(Method::POST, MAPS, &[], body).await;
        let (code, reason, message) = refused.refusal();
        assert_eq!((code, reason), (400, "BadRequest"), "{body}");
        assert!(message.contains(words), "{body}: {message}");
    }
    let deep = format!("{{\"metadata\":{{\"name\":\"a\"}},\"x\":{}", "[".repeat(20_000));
    assert_eq!(api.ask(Method::POST, MAPS, &[], deep).await.code, 400);
    for media in ["application/x-www-form-urlencoded", "garbage"] {
        let refused = api.ask(Method::POST, MAPS, &[("content-type", media)], "{}").await;
        assert_eq!((refused.code, refused.refusal().1), (415, "UnsupportedMediaType"), "{media}");
    }
    let patch =
        api.ask(Method::PATCH, &format!("{MAPS}/a"), &[("content-type", "application/json")], "{}").await;
    assert_eq!((patch.code, &patch.body["details"]), (415, &json!({})));
    assert_eq!(api.get(MAPS).await.ok()["items"], Value::Array(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn operations_are_counted() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    api.get("/api/v1/namespaces/default/configmaps/none").await.expect(404);
    api.get("/livez").await;
    let watch = api.open_watch("/api/v1/configmaps?watch=1").await;
    let seen = watch.take(1).await;
    assert_eq!(seen.len(), 1);
    let open = api.open_watch("/api/v1/namespaces/default/configmaps?watch=1").await;
    let text = api.get("/metrics").await.text;
    let of = |more: &str| {
        format!(r#"component="apiserver",dry_run="",group="",resource="configmaps",{more},version="v1"}}"#)
    };
    for line in [
        format!(r#"apiserver_request_total{{code="201",{} 1"#, of(r#"scope="resource",subresource="",verb="POST""#)),
        format!(r#"apiserver_request_total{{code="404",{} 1"#, of(r#"scope="resource",subresource="",verb="GET""#)),
        format!(r#"apiserver_request_duration_seconds_count{{{} 1"#, of(r#"scope="resource",subresource="",verb="POST""#)),
        r#"apiserver_longrunning_requests{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="WATCH",version="v1"} 1"#.into(),
        r#"apiserver_watch_events_total{group="",resource="configmaps",version="v1"} 1"#.into(),
        r#"apiserver_storage_objects{resource="configmaps"} 1"#.into(),
        r#"apiserver_storage_objects{resource="priorityclasses.scheduling.k8s.io"} 2"#.into(),
        r#"apiserver_current_inflight_requests{request_kind="mutating"} 0"#.into(),
        r#"subresource="/livez",verb="GET",version=""} 1"#.into(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    drop(open);
    let text = api.get("/metrics").await.text;
    assert!(!text.contains("apiserver_longrunning_requests{"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_are_not_found_whatever_the_method() {
    let api = Api::start().await;
    for (method, path, code) in [
        (Method::DELETE, "/api", 405),
        (Method::HEAD, "/version", 405),
        (Method::DELETE, "/api/v2", 404),
        (Method::DELETE, "/apis/apps/v2", 404),
        (Method::DELETE, "/apis/nope/v1", 404),
        (Method::GET, "/api/v1/bindings", 404),
        (Method::GET, "/apis/authentication.k8s.io/v1/tokenreviews/x", 404),
        (Method::GET, "/metrics/", 404),
        (Method::GET, "//api/v1", 404),
        (Method::GET, "/api/v1/namespaces/default/configmaps/a?resourceVersion=x", 500),
    ] {
        assert_eq!(api.ask(method.clone(), path, &[], "").await.code, code, "{method} {path}");
    }
    assert_eq!(api.get("/apis/nope").await.text, "404 page not found\n");
}
