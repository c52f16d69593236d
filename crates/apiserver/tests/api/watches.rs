//! Watches: events, selectors, bookmarks, ends.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint_store::Store;

use crate::client::{Api, summary};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn version(api: &Api) -> String {
    let list = api.get(MAPS).await.ok();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_string()
}

#[tokio::test(start_paused = true)]
async fn an_object_that_starts_or_stops_matching_is_added_or_deleted() {
    let api = Api::start().await;
    let from = version(&api).await;
    api.config_map("a", json!({"x": "0"})).await;
    api.merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"x": "1"}}})).await.ok();
    api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "2"}})).await.ok();
    let last = api.merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"x": "2"}}})).await.ok();
    api.delete(&format!("{MAPS}/a")).await.ok();
    let path = format!("{MAPS}?watch=1&resourceVersion={from}&labelSelector=x%3D1&timeoutSeconds=1");
    let events = api.watch(&path, 9).await;
    assert_eq!(summary(&events), ["ADDED a", "MODIFIED a", "DELETED a"]);
    let gone = &events[2]["object"]["metadata"];
    assert_eq!(gone["labels"]["x"], "1", "the last selected state");
    assert_eq!(
        gone["resourceVersion"], last["metadata"]["resourceVersion"],
        "at the version it stopped matching"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_version_starts_with_existing_objects() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    for query in ["watch=1", "watch=1&resourceVersion=0"] {
        let mut events = api.open_watch(&format!("{MAPS}?{query}")).await;
        assert_eq!(summary(&[events.next().await.unwrap()]), ["ADDED a"], "{query}");
        let name = format!("new-{}", query.len());
        api.config_map(&name, json!({})).await;
        let seen = events.next().await.unwrap();
        assert_eq!(seen["type"], "ADDED");
        api.delete(&format!("{MAPS}/{name}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    let api = Api::start().await;
    api.config_map("a", json!({"x": "1"})).await;
    api.config_map("b", json!({})).await;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true\
         &labelSelector=x"
    );
    let events = api.watch(&path, 2).await;
    assert_eq!(summary(&events), ["ADDED a", "BOOKMARK -"]);
    let bookmark = &events[1]["object"];
    assert_eq!(bookmark["kind"], "ConfigMap");
    assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark["metadata"]["resourceVersion"], api.server.revision().to_string());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_before_the_end() {
    let api = Api::start().await;
    let from = version(&api).await;
    let query = format!("watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=150");
    let mut events = api.open_watch(&format!("{MAPS}?{query}")).await;
    let start = api.clock.now();
    let mut seconds = Vec::new();
    while let Some(event) = events.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        seconds.push(api.clock.now().duration_since(start).as_secs());
    }
    assert_eq!(seconds, [60, 120, 148]);
    assert_eq!(api.clock.now().duration_since(start).as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_timeout() {
    let api = Api::start().await;
    let from = version(&api).await;
    let events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=1"), 5).await;
    assert_eq!(events, Vec::<Value>::new());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_has_events_ends_after_its_timeout() {
    let api = Api::start().await;
    let from = version(&api).await;
    let mut events = api.open_watch(&format!("{MAPS}?watch=1&resourceVersion={from}&timeoutSeconds=3")).await;
    let mut seen = 0;
    for number in 0..10 {
        api.config_map(&format!("m{number}"), json!({})).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        seen += usize::from(events.next().await.is_some());
    }
    assert_eq!(seen, 2, "the third event is read when the time is up");
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_compacted_history_expires() {
    let api = Api::start().await;
    let from = version(&api).await;
    api.config_map("a", json!({})).await;
    api.config_map("b", json!({})).await;
    api.store.compact(api.server.revision()).await.unwrap();
    let events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={from}"), 5).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!(
        (&events[0]["object"]["code"], &events[0]["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_bad_watch_is_refused_before_it_starts() {
    let api = Api::start().await;
    for (query, code) in [
        ("watch=1&resourceVersion=abc", 500),
        ("watch=1&fieldSelector=data%3D1", 400),
        ("watch=1&timeoutSeconds=x", 400),
        ("watch=1&sendInitialEvents=true", 422),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422),
    ] {
        assert_eq!(api.get(&format!("{MAPS}?{query}")).await.code, code, "{query}");
    }
    let html = api.get_as("text/html", &format!("{MAPS}?watch=1")).await;
    assert_eq!((html.code, &html.body["details"]), (406, &json!({})));
}

#[tokio::test(start_paused = true)]
async fn a_table_watch_names_its_columns_once() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    api.config_map("b", json!({})).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let events = api.open_watch_as(accept, &format!("{MAPS}?watch=1")).await.take(2).await;
    assert_eq!(events[0]["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "b");
    assert_eq!(events[1]["object"]["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_the_server_closes_them() {
    let api = Api::start().await;
    let mut events = api.open_watch(&format!("{MAPS}?watch=1")).await;
    let (end, ()) = tokio::join!(events.next(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        api.server.close_watches();
    });
    assert_eq!(end, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_by_path_is_a_watch() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    api.config_map("b", json!({})).await;
    let events = api.watch("/api/v1/watch/namespaces/default/configmaps/b", 1).await;
    assert_eq!(summary(&events), ["ADDED b"]);
}

#[tokio::test(start_paused = true)]
async fn records_are_watched_as_the_store_has_them() {
    use setpoint_apiserver::{ChangeKind, Gvr, Selection};
    let api = Api::start().await;
    let maps = Gvr::new("", "v1", "configmaps");
    let from = api.server.revision();
    let mut watch = api.server.watch_records(&maps, &Selection::in_namespace("default"), from).await.unwrap();
    api.config_map("a", json!({})).await;
    api.delete(&format!("{MAPS}/a")).await.ok();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap().unwrap());
    }
    let kinds: Vec<ChangeKind> = seen.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [ChangeKind::Added, ChangeKind::Deleted]);
    assert_eq!(watch.revision(), api.server.revision());
}

#[tokio::test(start_paused = true)]
async fn the_first_versions_of_a_cluster_are_too_old() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let events = api.watch(&format!("{maps}?watch=1&resourceVersion=1"), 5).await;
    assert_eq!(events.len(), 1);
    let status = &events[0]["object"];
    assert_eq!(
        (&events[0]["type"], &status["code"], &status["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert!(status["message"].as_str().unwrap().starts_with("too old resource version: 1 ("), "{status}");
    let list = api.get(&format!("{maps}?resourceVersion=1&resourceVersionMatch=Exact")).await;
    assert_eq!((list.code, list.refusal().1), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_waits_for_its_revision() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let future = api.server.revision() + 2;
    let open = api.open_watch(&format!("{maps}?watch=1&resourceVersion={future}&timeoutSeconds=60")).await;
    for name in ["a", "b", "c"] {
        api.config_map(name, json!({})).await;
    }
    assert_eq!(summary(&open.take(1).await), ["ADDED c"]);
    let never = api.server.revision() + 1000;
    let query =
        format!("watch=1&resourceVersion={never}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    let events = api.watch(&format!("{maps}?{query}"), 5).await;
    assert_eq!(
        (events.len(), &events[0]["type"], &events[0]["object"]["code"]),
        (1, &json!("ERROR"), &json!(504))
    );
}
