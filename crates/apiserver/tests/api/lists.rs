//! Lists: selectors, pages, resource versions.

use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};
use setpoint_store::Store;

use crate::client::{Api, names};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates five ConfigMaps, `a` to `e`.
async fn five(api: &Api) {
    let labels = [
        ("a", json!({"x": "1", "y": "1"})),
        ("b", json!({"x": "2"})),
        ("c", json!({"y": "2"})),
        ("d", json!({})),
        ("e", json!({"x": "1"})),
    ];
    for (name, labels) in labels {
        api.config_map(name, labels).await;
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_and_bad_ones_are_refused() {
    let api = Api::start().await;
    five(&api).await;
    for (query, expected) in [
        ("labelSelector=x%3D1", "a e"),
        ("labelSelector=x!%3D1", "b c d"),
        ("labelSelector=x+in+(1,2)", "a b e"),
        ("labelSelector=x+notin+(1)", "b c d"),
        ("labelSelector=y", "a c"),
        ("labelSelector=!y,x", "b e"),
        ("fieldSelector=metadata.name%3Dc", "c"),
        ("fieldSelector=metadata.name!%3Dc", "a b d e"),
        ("fieldSelector=metadata.namespace%3Ddefault,metadata.name%3Da", "a"),
        ("fieldSelector=metadata.namespace%3Dother", ""),
        ("labelSelector=%zz", "a b c d e"),
    ] {
        let list = api.get(&format!("{MAPS}?{query}")).await.ok();
        assert_eq!(names(&list).join(" "), expected, "{query}");
    }
    for (query, message) in [
        ("labelSelector=x+in", "unable to parse requirement: found '' expected: '('"),
        (
            "fieldSelector=data%3D1",
            "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        ("fieldSelector=nonsense", "invalid selector: 'nonsense'; can't understand 'nonsense'"),
        ("limit=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
    ] {
        let refused = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(refused.refusal(), (400, "BadRequest", message), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn items_of_a_list_do_not_repeat_their_kind() {
    let api = Api::start().await;
    let created = api.config_map("a", json!({})).await;
    let list = api.get(MAPS).await.ok();
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["apiVersion"], "v1");
    let item = &list["items"][0];
    assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null));
    assert_eq!(item["metadata"], created["metadata"]);
}

#[tokio::test(start_paused = true)]
async fn pages_come_from_one_revision() {
    let api = Api::start().await;
    five(&api).await;
    let first = api.get(&format!("{MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = first["metadata"]["continue"].as_str().unwrap();
    for (query, why) in [
        ("continue=bogus&resourceVersion=1", "continue key is not valid"),
        (
            &format!("continue={token}&resourceVersion=1"),
            "resource version is not allowed when using continue",
        ),
    ] {
        let refused = api.get(&format!("{MAPS}?{query}")).await;
        assert!(refused.code == 400 && refused.text.contains(why), "{query}: {}", refused.text);
    }

    api.delete(&format!("{MAPS}/d")).await.ok();
    api.config_map("cc", json!({})).await;
    let rest = api.get(&format!("{MAPS}?limit=9&continue={token}")).await.ok();
    assert_eq!(names(&rest), ["c", "d", "e"], "the state of the first page");
    assert_eq!(rest["metadata"]["continue"], Value::Null);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_selection_is_full_and_does_not_count_the_rest() {
    let api = Api::start().await;
    five(&api).await;
    let first = api.get(&format!("{MAPS}?labelSelector=x&limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], Value::Null);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{MAPS}?labelSelector=x&limit=2&continue={token}")).await.ok();
    assert_eq!(names(&rest), ["e"]);
    assert_eq!(rest["metadata"]["continue"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_returns_an_inconsistent_continue_token() {
    let api = Api::start().await;
    five(&api).await;
    let first = api.get(&format!("{MAPS}?limit=2")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap().to_string();
    api.config_map("cc", json!({})).await;
    api.store.compact(api.server.revision()).await.unwrap();

    let expired = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((expired.code, expired.refusal().1), (410, "Expired"));
    let token = expired.body["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{MAPS}?continue={token}")).await.ok();
    assert_eq!(names(&rest), ["c", "cc", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_honors_its_resource_version() {
    let api = Api::start().await;
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_string();
    let first = version(&api.config_map("a", json!({})).await);
    let second = version(&api.config_map("b", json!({})).await);
    for (query, expected) in [
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), "a"),
        (format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan"), "a b"),
        (format!("resourceVersion={first}"), "a b"),
        (format!("resourceVersion={first}&limit=5"), "a"),
        ("resourceVersion=0&limit=1".into(), "a b"),
        (format!("resourceVersion={second}"), "a b"),
    ] {
        let list = api.get(&format!("{MAPS}?{query}")).await.ok();
        assert_eq!(names(&list).join(" "), expected, "{query}");
    }
    for (query, code, field) in [
        ("resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
        ("resourceVersion=1&resourceVersionMatch=Sideways", 422, "resourceVersionMatch"),
        ("sendInitialEvents=true", 422, "sendInitialEvents"),
    ] {
        let refused = api.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(refused.code, code, "{query}");
        assert_eq!(refused.body["details"]["causes"][0]["field"], field, "{query}");
    }
    let refused = api.get(&format!("{MAPS}?resourceVersion=abc")).await;
    let message = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \
                   \"abc\": invalid syntax";
    assert_eq!(refused.refusal(), (400, "BadRequest", message));
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_awaited_then_rejected() {
    let api = Api::start().await;
    let next = api.server.revision() + 1;
    let start = api.clock.now();
    let refused = api.get(&format!("{MAPS}?resourceVersion={next}")).await;
    assert_eq!((refused.code, refused.refusal().1), (504, "Timeout"));
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(api.clock.now().duration_since(start).as_secs(), 3);

    let (waiting, ()) =
        tokio::join!(async { api.get(&format!("{MAPS}?resourceVersion={next}")).await.ok() }, async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            api.config_map("a", json!({})).await;
        });
    assert_eq!(names(&waiting), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_streamed_completely() {
    let api = Api::start().await;
    let filler = "x".repeat(50_000);
    for index in 0..20 {
        let map = json!({"metadata": {"name": format!("m{index:02}")}, "data": {"k": filler}});
        api.post(MAPS, map).await.created();
    }
    let list = api.get(MAPS).await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 20);
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["data"]["k"] == filler.as_str()));
}

#[tokio::test(start_paused = true)]
async fn records_are_listed_as_the_store_has_them() {
    let api = Api::start().await;
    five(&api).await;
    let maps = setpoint_apiserver::Gvr::new("", "v1", "configmaps");
    let selection = setpoint_apiserver::Selection { labels: Some("x=1".into()), ..Default::default() };
    let (records, revision) = api.server.list_records(&maps, &selection).await.unwrap();
    assert_eq!(revision, api.server.revision());
    let paths: Vec<&str> = records.iter().map(|record| &*record.key.path).collect();
    assert_eq!(paths, ["default/a", "default/e"]);
    let facts = api.server.facts(&maps, &records[0]).unwrap();
    assert_eq!(facts.label("y"), Some("1"));
}

/// A continue token as a client could forge it.
fn token(revision: i64, start: &str, more: &str) -> String {
    let text = format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"{start}"{more}}}"#);
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

#[tokio::test(start_paused = true)]
async fn a_crafted_token_is_rejected_or_continues_below_its_path() {
    let api = Api::start().await;
    five(&api).await;
    api.post("/api/v1/namespaces/kube-system/configmaps", json!({"metadata": {"name": "other"}}))
        .await
        .created();
    let now = i64::try_from(api.server.revision()).unwrap();
    for (token, expected) in [
        (token(now, "c", ""), "c d e"),
        (token(now, "/c", ""), "c d e"),
        (token(-1, "c\\u0000", ""), "d e"),
        (token(i64::MIN, "d", ""), "d e"),
        (token(now, "default/c", ""), "e"),
        (token(now, "c", r#","before":18446744073709551615"#), "c d e"),
    ] {
        let rest = api.get(&format!("{MAPS}?limit=3&continue={token}")).await.ok();
        let rest = names(&rest).into_iter().filter(|name| *name != "kube-root-ca.crt");
        let rest: Vec<_> = rest.collect();
        assert_eq!(rest.join(" "), expected, "{token}");
    }
    for token in [token(now, "../kube-system/a", ""), token(0, "c", ""), token(now, "", ""), "e30=".into()] {
        let refused = api.get(&format!("{MAPS}?limit=1&continue={token}")).await;
        assert_eq!((refused.code, refused.refusal().1), (400, "BadRequest"), "{token}");
        assert!(refused.refusal().2.starts_with("invalid continue token: continue key is not valid"));
    }
    let future = token(i64::MAX, "c", "");
    let refused = api.get(&format!("{MAPS}?continue={future}")).await;
    assert_eq!((refused.code, refused.refusal().1), (504, "Timeout"), "{}", refused.text);
    let huge = token(now, "a", r#","before":18446744073709551615"#);
    let page = api.get(&format!("{MAPS}?limit=1&continue={huge}")).await.ok();
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
}

#[tokio::test(start_paused = true)]
async fn continuing_at_any_version_returns_the_rest_in_one_page() {
    let api = Api::start().await;
    five(&api).await;
    let first = api.get(&format!("{MAPS}?limit=1")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{MAPS}?limit=1&resourceVersion=0&continue={token}")).await.ok();
    assert_eq!((names(&rest).len(), &rest["metadata"]["continue"]), (4, &Value::Null));
    let refused = api.get(&format!("{MAPS}?resourceVersion=1&continue={token}")).await;
    assert_eq!(refused.refusal().2, "specifying resource version is not allowed when using continue");
    let refused =
        api.get(&format!("{MAPS}?resourceVersion=x&resourceVersionMatch=Exact&continue={token}")).await;
    assert_eq!(refused.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_name_in_a_selector_narrows_lists_and_watches() {
    let api = Api::start().await;
    five(&api).await;
    api.config_map("a-1", json!({"x": "1"})).await;
    let by_name = format!("{MAPS}?fieldSelector=metadata.name%3Da");
    assert_eq!(names(&api.get(&by_name).await.ok()), ["a"]);
    assert_eq!(names(&api.get(&format!("{by_name}&labelSelector=x%3D2")).await.ok()), [""; 0]);
    assert_eq!(names(&api.get("/api/v1/configmaps?fieldSelector=metadata.name%3Da").await.ok()), ["a"]);
    assert_eq!(
        names(&api.get("/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault").await.ok()),
        ["default"]
    );
    let mut watch = api.open_watch(&format!("{by_name}&watch=true&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")).await;
    let (first, second) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert_eq!((&first["object"]["metadata"]["name"], &second["type"]), (&json!("a"), &json!("BOOKMARK")));
    api.merge(&format!("{MAPS}/a-1"), json!({"data": {"k": "new"}})).await.ok();
    api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "new"}})).await.ok();
    let third = watch.next().await.unwrap();
    assert_eq!((&third["type"], &third["object"]["data"]["k"]), (&json!("MODIFIED"), &json!("new")));
}

/// Puts ConfigMaps directly into the store, as if they had been written long ago.
async fn fill(api: &Api, count: usize) {
    let maps = setpoint_store::Resource::new("configmaps");
    for index in 0..count {
        let name = format!("m{index:06}");
        let head = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"#;
        let rest = format!(
            r#""labels":{{"odd":"{}"}},"name":"{name}","namespace":"default","uid":"u{index}"}},"data":{{"k":"line\\nline"}}}}"#,
            index % 2
        );
        let payload = setpoint_store::Payload {
            bytes: format!("{head}{rest}").into(),
            stamp_at: Some(head.len()),
            inset_at: None,
            inset: Default::default(),
            facts: None,
        };
        let change = setpoint_store::Change::Put { payload, ttl: None };
        let key = maps.key(format!("default/{name}"));
        let write = setpoint_store::Write { key, expect: setpoint_store::Expect::Absent, change };
        api.store.commit(write).await.unwrap();
    }
}

/// Returns how often another task runs while a request is handled and its body is read.
async fn turns_during(api: &Api, accept: &str, path: &str) -> (usize, bytes::Bytes) {
    let turns = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = turns.clone();
    let other = tokio::spawn(async move {
        loop {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let response = api.send(http::Method::GET, path, &[("accept", accept)], "").await;
    assert_eq!(response.status(), http::StatusCode::OK);
    let body = response.into_body().collect().await;
    other.abort();
    (turns.load(std::sync::atomic::Ordering::Relaxed), body)
}

#[tokio::test(start_paused = true)]
async fn long_lists_yield_to_other_tasks() {
    const COUNT: usize = 6000;
    let api = Api::start().await;
    fill(&api, COUNT).await;
    let plain = "application/json";
    // At most 1024 records are scanned, and at most 64 are decoded, without yielding.
    for (accept, path, least) in [
        (plain, format!("{MAPS}?labelSelector=odd%3D7"), COUNT / 1024),
        (plain, format!("{MAPS}?labelSelector=odd%3D1&limit=2000"), 4000 / 1024),
        (plain, MAPS.to_owned(), COUNT / 64),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", MAPS.to_owned(), COUNT / 64),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", MAPS.to_owned(), COUNT / 64),
        ("application/vnd.kubernetes.protobuf", MAPS.to_owned(), COUNT / 64),
        ("application/yaml", MAPS.to_owned(), COUNT / 64),
    ] {
        let (turns, _) = turns_during(&api, accept, &path).await;
        assert!(turns >= least, "{accept} {path}: {turns}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_the_same_in_every_form() {
    const COUNT: usize = 200;
    let api = Api::start().await;
    fill(&api, COUNT).await;
    let plain = api.get(MAPS).await.ok();
    assert_eq!(plain["items"].as_array().unwrap().len(), COUNT);
    let pretty = api.get(&format!("{MAPS}?pretty=true")).await;
    assert!(pretty.text.contains("\n      \"metadata\": {"), "items are indented");
    assert_eq!(pretty.ok(), plain);
    let (_, yaml) = turns_during(&api, "application/yaml", MAPS).await;
    let yaml: Value = serde_saphyr::from_slice(&yaml).unwrap();
    assert_eq!(yaml, plain);
    let table = api.get_as("application/json;as=Table;v=v1;g=meta.k8s.io", MAPS).await.ok();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[199]["cells"][0]), (COUNT, &json!("m000199")));
    assert_eq!(rows[7]["object"]["metadata"], plain["items"][7]["metadata"]);
    let partial =
        api.get_as("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", MAPS).await.ok();
    assert_eq!(partial["items"].as_array().unwrap().len(), COUNT);
    assert_eq!(partial["items"][199]["metadata"], plain["items"][199]["metadata"]);
    assert_eq!(partial["metadata"], plain["metadata"]);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_to_the_last_object() {
    let api = Api::start().await;
    fill(&api, 100).await;
    let deleted = api.ask(http::Method::DELETE, &format!("{MAPS}?labelSelector=odd%3D1"), &[], "").await.ok();
    assert_eq!(names(&deleted).len(), 50);
    assert_eq!(names(&api.get(MAPS).await.ok()).len(), 50);
}
