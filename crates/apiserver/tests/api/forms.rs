//! The encodings of objects.

use std::io::Read;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::client::Api;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[tokio::test(start_paused = true)]
async fn yaml_is_read_and_written() {
    let api = Api::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n";
    let created = api.ask(Method::POST, MAPS, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!(created.created()["data"]["k"], "v");
    let read = api.get_as("application/yaml", &format!("{MAPS}/a")).await;
    assert_eq!((read.code, read.content_type.as_str()), (200, "application/yaml"));
    assert!(read.text.contains("kind: ConfigMap"), "{}", read.text);
    let refused = api.get_as("application/yaml", &format!("{MAPS}/none")).await;
    assert_eq!((refused.code, refused.content_type.as_str()), (404, "application/yaml"));
    let list = api.get_as("application/yaml", MAPS).await;
    assert!(list.text.contains("kind: ConfigMapList"), "{}", list.text);
}

#[tokio::test(start_paused = true)]
async fn clients_get_their_preferred_encoding() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    for (accept, code, media) in [
        ("*/*", 200, "application/json"),
        ("application/vnd.kubernetes.protobuf,application/json", 200, PROTOBUF),
        ("application/vnd.kubernetes.protobuf;q=0.1,application/json;q=0.9", 200, "application/json"),
        ("application/json;q=0.1,application/yaml", 200, "application/yaml"),
        ("text/html", 406, "application/json"),
        (";;;", 406, "application/json"),
    ] {
        let answer = api.get_as(accept, &format!("{MAPS}/a")).await;
        assert_eq!((answer.code, answer.content_type.as_str()), (code, media), "{accept}");
    }
    let cbor = api.get_as("application/cbor", MAPS).await;
    assert_eq!(
        cbor.refusal().2,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf, application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
}

#[tokio::test(start_paused = true)]
async fn values_that_are_not_objects_have_no_table() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    assert_eq!(api.get_as(TABLE, &format!("{MAPS}/a")).await.code, 200);
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}).to_string();
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = api.ask(Method::POST, reviews, &[("accept", TABLE)], review).await;
    assert_eq!(asked.refusal().0, 406);
}

/// Returns a response body in protobuf.
async fn protobuf(api: &Api, accept: &str, path: &str) -> Bytes {
    let response = api.send(Method::GET, path, &[("accept", accept)], "").await;
    assert_eq!(response.headers()["content-type"], PROTOBUF, "{path}");
    let body = response.into_body().collect().await;
    assert!(body.starts_with(b"k8s\0"), "{body:?}");
    body
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn protobuf_round_trips() {
    let api = Api::start().await;
    let map = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}, "immutable": true});
    let created = api.post(MAPS, map).await.created();
    let path = format!("{MAPS}/a");
    let read = protobuf(&api, PROTOBUF, &path).await;
    assert!(read.len() < created.to_string().len());
    let written = api.ask(Method::PUT, &path, &[("content-type", PROTOBUF)], read).await.ok();
    assert_eq!(written, created, "an update without a change");
    let copy = [("content-type", PROTOBUF), ("accept", PROTOBUF)];
    let unchanged = protobuf(&api, PROTOBUF, &path).await;
    assert_eq!(api.ask(Method::PUT, &path, &copy, unchanged).await.content_type, PROTOBUF);
}

#[tokio::test(start_paused = true)]
async fn lists_refusals_metadata_and_discovery_have_a_form_in_protobuf() {
    let api = Api::start().await;
    api.config_map("first", json!({})).await;
    api.config_map("second", json!({})).await;
    let list = protobuf(&api, PROTOBUF, MAPS).await;
    for part in ["ConfigMapList", "first", "second"] {
        assert!(contains(&list, part), "{part}");
    }
    let refusal = protobuf(&api, PROTOBUF, &format!("{MAPS}/none")).await;
    assert!(contains(&refusal, "Status") && contains(&refusal, "configmaps \"none\" not found"));
    let partial = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let list = protobuf(&api, &partial, MAPS).await;
    assert!(contains(&list, "PartialObjectMetadataList") && contains(&list, "second"));
    assert!(contains(&protobuf(&api, PROTOBUF, "/apis/apps/v1").await, "deployments"));
    assert!(contains(&protobuf(&api, PROTOBUF, "/apis").await, "APIGroupList"));
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_watch_in_protobuf_have_their_length_before_them() {
    let api = Api::start().await;
    let path = format!("{MAPS}?watch=1&timeoutSeconds=5");
    let response = api.send(Method::GET, &path, &[("accept", PROTOBUF)], "").await;
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    api.config_map("a", json!({})).await;
    api.delete(&format!("{MAPS}/a")).await.ok();
    let mut rest = response.into_body().collect().await;
    for kind in ["ADDED", "DELETED"] {
        let length = u32::from_be_bytes(rest.split_to(4)[..].try_into().unwrap());
        let event = rest.split_to(length as usize);
        assert!(event.starts_with(&[0x0a, kind.len() as u8]) && contains(&event, kind), "{event:?}");
        assert!(contains(&event, "k8s\0") && contains(&event, "ConfigMap"), "{event:?}");
    }
    assert!(rest.is_empty());
}

#[tokio::test(start_paused = true)]
async fn long_responses_are_compressed_if_accepted() {
    let api = Api::start().await;
    for name in ["a", "b"] {
        let map = json!({"metadata": {"name": name}, "data": {"k": "v".repeat(100_000)}});
        api.post(MAPS, map).await.created();
    }
    let zipped = [("accept-encoding", "gzip")];
    let list = api.send(Method::GET, MAPS, &zipped, "").await;
    assert_eq!(
        (&list.headers()["content-encoding"], &list.headers()["vary"]),
        (&"gzip".parse().unwrap(), &"Accept-Encoding".parse().unwrap())
    );
    let mut text = String::new();
    flate2::read::GzDecoder::new(&*list.into_body().collect().await).read_to_string(&mut text).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["items"][1]["metadata"]["name"], "b");
    for (path, headers) in [(format!("{MAPS}/a"), &zipped[..]), (MAPS.into(), &[])] {
        let plain = api.send(Method::GET, &path, headers, "").await;
        assert!(!plain.headers().contains_key("content-encoding"), "{path}");
    }
    let watch = api.send(Method::GET, &format!("{MAPS}?watch=1"), &zipped, "").await;
    assert!(!watch.headers().contains_key("content-encoding"), "a watch has no end to wait for");
}

#[tokio::test(start_paused = true)]
async fn a_table_has_a_row_for_each_object() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    tokio::time::sleep(std::time::Duration::from_secs(65)).await;
    let table = api.get_as(TABLE, MAPS).await.ok();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1, "65s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let bare = api.get_as(TABLE, &format!("{MAPS}/a?includeObject=None")).await.ok();
    assert_eq!(bare["rows"][0]["object"], Value::Null);
    let whole = api.get_as(TABLE, &format!("{MAPS}/a?includeObject=Object")).await.ok();
    assert_eq!(whole["rows"][0]["object"]["data"]["k"], "v");
    assert_eq!(api.get_as(TABLE, &format!("{MAPS}?includeObject=Bogus")).await.code, 400);
    let page = api.get_as(TABLE, &format!("{MAPS}?limit=1")).await.ok();
    assert_eq!(page["metadata"]["continue"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn the_scale_of_an_object_has_a_table_too() {
    let api = Api::start().await;
    let deployment = json!({"metadata": {"name": "a"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    api.post(deployments, deployment).await.created();
    let table = api.get_as(TABLE, &format!("{deployments}/a/scale")).await.ok();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 2, 0, "0s"]));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_a_status_in_every_requested_form() {
    let api = Api::start().await;
    let refused = api.get_as("application/yaml;as=Table;v=v1;g=meta.k8s.io", &format!("{MAPS}/none")).await;
    assert_eq!((refused.code, refused.content_type.as_str()), (404, "application/json"));
    let refused = api.get_as(&format!("{TABLE},application/yaml"), &format!("{MAPS}/none")).await;
    assert_eq!((refused.code, refused.content_type.as_str()), (404, "application/yaml"));
}

#[tokio::test(start_paused = true)]
async fn metadata_can_be_requested_alone() {
    let api = Api::start().await;
    let map = api.config_map("a", json!({"x": "y"})).await;
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let one = api.get_as(partial, &format!("{MAPS}/a")).await.ok();
    assert_eq!(
        one,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map["metadata"]})
    );
    let all = api.get_as(list, MAPS).await.ok();
    assert_eq!(all["items"], json!([one]));
    assert_eq!(api.get_as(list, &format!("{MAPS}?labelSelector=none")).await.ok()["items"], Value::Null);
    assert_eq!(api.get_as(partial, MAPS).await.code, 406);
    assert_eq!(api.get_as(list, &format!("{MAPS}/a")).await.code, 406);
    let patched = api
        .ask(
            Method::PATCH,
            &format!("{MAPS}/a"),
            &[("content-type", "application/merge-patch+json"), ("accept", partial)],
            "{\"data\":{\"k\":\"2\"}}",
        )
        .await
        .ok();
    assert_eq!((&patched["kind"], &patched["data"]), (&json!("PartialObjectMetadata"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn events_of_both_groups_are_the_same_events() {
    let api = Api::start().await;
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R", "message": "m", "type": "Normal",
    });
    let core = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let created = api.post(core, event).await.created();
    let read = api.get(&format!("{new}/e")).await.ok();
    assert_eq!((&read["apiVersion"], &read["note"]), (&json!("events.k8s.io/v1"), &json!("m")));
    assert_eq!(read["regarding"]["name"], "p");
    assert_eq!(read["metadata"]["uid"], created["metadata"]["uid"]);
    let list = api.get(new).await.ok();
    assert_eq!((&list["kind"], &list["items"][0]["note"]), (&json!("EventList"), &json!("m")));
    for (path, found) in [
        (format!("{core}?fieldSelector=involvedObject.name%3Dp"), 1),
        (format!("{core}?fieldSelector=involvedObject.name%3Dq"), 0),
        (format!("{new}?fieldSelector=regarding.name%3Dp"), 1),
        (format!("{new}?fieldSelector=regarding.name%3Dq"), 0),
    ] {
        assert_eq!(api.get(&path).await.ok()["items"].as_array().unwrap().len(), found, "{path}");
    }
    let events = api.watch(&format!("{new}?watch=1"), 1).await;
    assert_eq!(events[0]["object"]["note"], "m");
    api.delete(&format!("{new}/e")).await.ok();
    assert_eq!(api.get(&format!("{core}/e")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn flow_schemas_are_listed_by_precedence() {
    let api = Api::start().await;
    let table = api.get_as(TABLE, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas").await.ok();
    let rows = table["rows"].as_array().unwrap();
    let precedences: Vec<i64> = rows.iter().map(|row| row["cells"][2].as_i64().unwrap()).collect();
    assert!(precedences.is_sorted(), "{precedences:?}");
    assert_eq!(rows[0]["cells"][0], "exempt");
}
