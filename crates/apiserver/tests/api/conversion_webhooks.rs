//! Conversion webhooks: when they are called, what they may change, and what depends on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::Selection;
use setpoint_apiserver::egress::in_process::{allow, patch};
use setpoint_apiserver::registry::Gvr;

use crate::client::{Answer, Api, names, summary};
use crate::extension::{Extension, Reply};
use crate::webhooks::{Hooked, rule};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const V1: &str = "/apis/e.com/v1/namespaces/default/widgets";
pub(crate) const V2: &str = "/apis/e.com/v2/namespaces/default/widgets";
/// The objects of no calls.
pub(crate) const NO_CALLS: [usize; 0] = [];

/// Converts a widget: v1 has `spec.hostPort`, v2 has `spec.host` and `spec.port`.
fn converted(mut object: Value, to: &str) -> Value {
    let spec = &mut object["spec"];
    if to == "e.com/v2"
        && let Some(both) = spec["hostPort"].as_str().map(str::to_owned)
    {
        let (host, port) = both.split_once(':').unwrap_or((&both, ""));
        (spec["host"], spec["port"]) = (host.into(), port.into());
        spec.as_object_mut().unwrap().remove("hostPort");
    } else if to == "e.com/v1" {
        let text = |field: &str| spec[field].as_str().unwrap_or("").to_owned();
        spec["hostPort"] = format!("{}:{}", text("host"), text("port")).into();
        for field in ["host", "port"] {
            spec.as_object_mut().unwrap().remove(field);
        }
    }
    object["apiVersion"] = to.into();
    object
}

/// Responds to a review with changed objects.
pub(crate) fn answer(review: &Value, change: impl Fn(&mut Vec<Value>)) -> Reply {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap();
    let objects = request["objects"].as_array().unwrap().iter();
    let mut objects = objects.map(|object| converted(object.clone(), to)).collect();
    change(&mut objects);
    let response =
        json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}});
    let kind = &review["kind"];
    Reply::Json(json!({"apiVersion": review["apiVersion"], "kind": kind, "response": response}))
}

/// Returns a definition with three versions. The last one is not served.
pub(crate) fn definition(hooked: &Hooked) -> Value {
    let schema = |spec: Value| {
        let status = json!({"type": "object", "properties": {
            "replicas": {"type": "integer"}, "note": {"type": "string"}}});
        let properties = json!({"spec": {"type": "object", "properties": spec}, "status": status});
        json!({"openAPIV3Schema": {"type": "object", "properties": properties}})
    };
    let version = |name: &str, spec: Value| {
        let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": schema(spec),
            "subresources": {"status": {}, "scale": scale},
            "additionalPrinterColumns": [{"name": "Port", "type": "string", "jsonPath": ".spec.port"}]})
    };
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let port = json!({"type": "string", "default": "80"});
    json!({"metadata": {"name": "widgets.e.com"}, "spec": {
        "group": "e.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            version("v1", json!({"hostPort": text, "replicas": number})),
            version("v2", json!({"host": text, "port": port, "replicas": number})),
        ],
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://ext.example/convert",
                "caBundle": STANDARD.encode(&hooked.extension.authority)}}},
    }})
}

pub(crate) fn v1(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"hostPort": host_port}})
}

pub(crate) fn v2(name: &str, host: &str, port: &str) -> Value {
    json!({"apiVersion": "e.com/v2", "kind": "Widget", "metadata": {"name": name},
        "spec": {"host": host, "port": port}})
}

pub(crate) async fn start_with(extension: Extension) -> Hooked {
    let hooked = Hooked::start_with(extension).await;
    hooked.api.post(DEFINITIONS, definition(&hooked)).await.created();
    hooked
}

/// Starts with a webhook that works.
pub(crate) async fn start() -> Hooked {
    start_with(Extension::new(|_, review| answer(review, |_| ()))).await
}

/// Starts with a webhook that can be made to fail.
pub(crate) async fn start_failing() -> (Hooked, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let seen = fails.clone();
    let extension = Extension::new(move |_, review| match seen.load(Ordering::Relaxed) {
        true => Reply::Code(500, Vec::new(), "no".into()),
        false => answer(review, |_| ()),
    });
    (start_with(extension).await, fails)
}

/// Lets conversions in the background happen, and forgets them.
pub(crate) async fn settle(hooked: &Hooked) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    hooked.extension.take();
}

/// Returns how many objects each call since the last time had.
pub(crate) fn calls(hooked: &Hooked) -> Vec<usize> {
    let objects = |request: &Value| request["objects"].as_array().unwrap().len();
    hooked.reviews().iter().map(objects).collect()
}

pub(crate) fn spec(answer: Answer) -> Value {
    answer.ok()["spec"].clone()
}

async fn apply(api: &Api, path: &str, manager: &str, body: &Value) -> Answer {
    let path = format!("{path}?fieldManager={manager}");
    api.ask(Method::PATCH, &path, &[("content-type", "application/apply-patch+yaml")], body.to_string()).await
}

#[tokio::test(start_paused = true)]
async fn an_object_is_read_in_every_served_version() {
    let hooked = start().await;
    let api = &hooked.api;
    let created = api.post(V1, v1("w", "h:1")).await.created();
    assert_eq!(spec(api.get(&format!("{V1}/w")).await), json!({"hostPort": "h:1"}));
    let shown = api.get(&format!("{V2}/w")).await.ok();
    assert_eq!(shown["spec"], json!({"host": "h", "port": "1"}));
    assert_eq!((&shown["apiVersion"], &shown["metadata"]), (&"e.com/v2".into(), &created["metadata"]));
    let list = api.get(V2).await.ok();
    assert_eq!((&list["apiVersion"], names(&list)), (&"e.com/v2".into(), vec!["w"]));
    assert_eq!(list["items"][0], shown);
    let table = api.get_as("application/json;as=Table;v=v1;g=meta.k8s.io", V2).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["w", "1"]));
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert_eq!(names(&api.get_as(partial, V2).await.ok()), ["w"]);
    let yaml = api.get_as("application/yaml", &format!("{V2}/w")).await;
    assert!(yaml.text.contains("host: h"), "{}", yaml.text);
    assert_eq!(api.get(&format!("{V2}/missing")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn the_webhook_gets_a_review_as_in_v1_34() {
    let hooked = start().await;
    hooked.api.post(V1, v1("w", "h:1")).await.created();
    settle(&hooked).await;
    hooked.extension.take_heads();
    hooked.api.post(V2, v2("x", "h", "2")).await.created();
    let heads = hooked.extension.take_heads();
    assert_eq!(heads[0].uri, "/convert?timeout=30s");
    assert_eq!(heads[0].headers["user-agent"], "kube-apiserver-admission");
    assert!(!heads[0].headers.contains_key("authorization"));
    let reviews: Vec<Value> = hooked.extension.take().into_iter().map(|(_, review)| review).collect();
    assert_eq!(reviews[0]["apiVersion"], "apiextensions.k8s.io/v1");
    let empty = json!({"uid": "", "convertedObjects": null, "result": {"metadata": {}}});
    assert_eq!(reviews[0]["response"], empty);
    // To be stored, and back for the response.
    let way = |review: &Value| {
        let (request, object) = (&review["request"], &review["request"]["objects"][0]);
        (object["apiVersion"].clone(), request["desiredAPIVersion"].clone())
    };
    let (one, other): (Value, Value) = ("e.com/v1".into(), "e.com/v2".into());
    let ways: Vec<_> = reviews.iter().map(way).collect();
    assert_eq!(ways, [(other.clone(), one.clone()), (one, other)]);
    let object = &reviews[1]["request"]["objects"][0];
    assert_eq!(object["spec"], json!({"hostPort": "h:2"}));
    assert!(object["metadata"]["managedFields"].is_array() && object["metadata"]["uid"].is_string());
    assert!(object["metadata"]["resourceVersion"].is_null(), "a stored object has no version yet");
}

#[tokio::test(start_paused = true)]
async fn the_first_supported_review_version_is_used() {
    let hooked = Hooked::start_with(Extension::new(|_, review| answer(review, |_| ()))).await;
    let mut definition = definition(&hooked);
    let versions = json!(["v7", "v1beta1", "v1"]);
    definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"] = versions;
    hooked.api.post(DEFINITIONS, definition).await.created();
    hooked.api.post(V2, v2("w", "h", "1")).await.created();
    let (_, review) = hooked.extension.take().remove(0);
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1beta1");
}

#[tokio::test(start_paused = true)]
async fn every_write_works_in_another_version() {
    let hooked = start().await;
    let api = &hooked.api;
    let path = &format!("{V2}/w");
    let stored = async || spec(api.get(&format!("{V1}/w")).await);
    let mut object = api.post(V2, v2("w", "h", "1")).await.created();
    assert_eq!(stored().await, json!({"hostPort": "h:1"}));
    object["spec"]["port"] = "2".into();
    let updated = api.put(path, object.clone()).await.ok();
    assert_eq!((&updated["spec"]["port"], &updated["metadata"]["generation"]), (&"2".into(), &2.into()));
    assert_eq!(stored().await, json!({"hostPort": "h:2"}));
    assert_eq!(api.put(path, object).await.code, 409);
    api.merge(path, json!({"spec": {"port": "3"}})).await.ok();
    let replace = json!([{"op": "replace", "path": "/spec/host", "value": "i"}]);
    api.patch("json", path, replace).await.ok();
    assert_eq!(stored().await, json!({"hostPort": "i:3"}));
    let applied = apply(
        api,
        path,
        "a",
        &json!({"apiVersion": "e.com/v2", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"replicas": 1}}),
    )
    .await
    .ok();
    assert_eq!(applied["spec"], json!({"host": "i", "port": "3", "replicas": 1}));
    let status = json!({"status": {"note": "n", "replicas": 1}});
    assert_eq!(api.merge(&format!("{path}/status"), status).await.ok()["status"]["note"], "n");
    let scale = api.merge(&format!("{path}/scale"), json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&4.into(), &1.into()));
    assert_eq!(api.get(&format!("{path}/scale")).await.ok()["spec"]["replicas"], 4);
    assert_eq!(stored().await, json!({"hostPort": "i:3", "replicas": 4}));
    api.delete(path).await.ok();
    assert_eq!(api.get(&format!("{V1}/w")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_not_stored() {
    let hooked = start().await;
    let created = hooked.api.post(V2, v2("w", "h", "1")).await.created();
    let same = hooked.api.merge(&format!("{V2}/w"), json!({"spec": {"port": "1"}})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_converts_and_stores_nothing() {
    let hooked = start().await;
    let api = &hooked.api;
    let shown = api.post(&format!("{V2}?dryRun=All"), v2("w", "h", "1")).await.created();
    assert_eq!(shown["spec"], json!({"host": "h", "port": "1"}));
    assert_eq!(calls(&hooked), [1, 1]);
    assert_eq!(api.get(&format!("{V2}/w")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_pruned_and_defaults_are_not_added_after_conversion() {
    let set = |objects: &mut Vec<Value>| {
        for object in objects {
            object["spec"]["ghost"] = "boo".into();
            object["spec"].as_object_mut().unwrap().remove("port");
        }
    };
    let hooked = start_with(Extension::new(move |_, review| answer(review, set))).await;
    hooked.api.post(V1, v1("w", "h:1")).await.created();
    assert_eq!(spec(hooked.api.get(&format!("{V2}/w")).await), json!({"host": "h"}));
}

#[tokio::test(start_paused = true)]
async fn a_webhook_may_change_labels_and_selectors_see_them() {
    let label = |objects: &mut Vec<Value>| {
        for object in objects {
            object["metadata"]["labels"] = json!({"shown": object["apiVersion"].as_str().unwrap()[6..]});
            object["metadata"]["generation"] = 9.into();
            object["metadata"]["finalizers"] = json!(["a/b"]);
        }
    };
    let hooked = start_with(Extension::new(move |_, review| answer(review, label))).await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    let shown = api.get(&format!("{V2}/w")).await.ok();
    assert_eq!(shown["metadata"]["labels"], json!({"shown": "v2"}));
    assert_eq!(
        (&shown["metadata"]["generation"], &shown["metadata"]["finalizers"]),
        (&1.into(), &Value::Null)
    );
    assert_eq!(names(&api.get(&format!("{V2}?labelSelector=shown%3Dv2")).await.ok()), ["w"]);
    assert!(names(&api.get(&format!("{V2}?labelSelector=shown%3Dv1")).await.ok()).is_empty());
    assert!(names(&api.get(&format!("{V1}?labelSelector=shown%3Dv2")).await.ok()).is_empty());
    let mut watch = api.open_watch(&format!("{V2}?watch=1&labelSelector=shown%3Dv2")).await;
    assert_eq!(summary(&[watch.next().await.unwrap()]), ["ADDED w"]);
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    assert_eq!(summary(&[watch.next().await.unwrap()]), ["MODIFIED w"]);
}

#[tokio::test(start_paused = true)]
async fn field_ownership_is_tracked_across_versions() {
    let hooked = start().await;
    let api = &hooked.api;
    let path = &format!("{V1}/w");
    let applied = apply(api, path, "one", &v1("w", "h:1")).await.created();
    assert_eq!(applied["metadata"]["managedFields"][0]["apiVersion"], "e.com/v1");
    // Another manager applies the same values in its own version, without conflict.
    let both = apply(api, &format!("{V2}/w"), "two", &v2("w", "h", "1")).await.ok();
    let owners = |object: &Value| -> Vec<(String, String)> {
        let entry = |entry: &Value| (entry["manager"].to_string(), entry["fieldsV1"]["f:spec"].to_string());
        let mut owners: Vec<_> =
            object["metadata"]["managedFields"].as_array().unwrap().iter().map(entry).collect();
        owners.sort();
        owners
    };
    let of_one = ("\"one\"".to_owned(), r#"{"f:hostPort":{}}"#.to_owned());
    let of_two = ("\"two\"".to_owned(), r#"{"f:host":{},"f:port":{}}"#.to_owned());
    assert_eq!(owners(&both), [of_one.clone(), of_two.clone()]);
    // A change in v2 conflicts with the field that it changes in v1.
    let conflict = apply(api, &format!("{V2}/w"), "two", &v2("w", "h", "2")).await;
    let (code, reason, message) = conflict.refusal();
    assert_eq!((code, reason), (409, "Conflict"));
    assert!(message.contains("conflict with \"one\": .spec.hostPort"), "{message}");
    // An update takes the changed fields from both.
    let updated = api.merge(&format!("{V2}/w?fieldManager=three"), json!({"spec": {"port": "3"}})).await.ok();
    let of_two = ("\"two\"".to_owned(), r#"{"f:host":{}}"#.to_owned());
    let of_three = ("\"three\"".to_owned(), r#"{"f:port":{}}"#.to_owned());
    assert_eq!(owners(&updated), [of_three, of_two]);
}

#[tokio::test(start_paused = true)]
async fn applying_in_another_version_replaces_the_managers_earlier_fields() {
    let hooked = start().await;
    let api = &hooked.api;
    let mut first = v1("w", "h:1");
    first["spec"]["replicas"] = 3.into();
    apply(api, &format!("{V1}/w"), "one", &first).await.created();
    let applied = apply(api, &format!("{V2}/w"), "one", &v2("w", "h", "1")).await.ok();
    assert_eq!(applied["spec"], json!({"host": "h", "port": "1"}), "the replicas are no longer applied");
    let entries = applied["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]["apiVersion"]), (1, &"e.com/v2".into()));
}

#[tokio::test(start_paused = true)]
async fn an_object_converted_to_an_invalid_one_cannot_be_applied_to() {
    let replicas = |objects: &mut Vec<Value>| {
        for object in objects.iter_mut().filter(|object| object["apiVersion"] == "e.com/v2") {
            object["spec"]["replicas"] = "many".into();
        }
    };
    let hooked = start_with(Extension::new(move |_, review| answer(review, replicas))).await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    let path = &format!("{V2}/w");
    let applied = json!({"apiVersion": "e.com/v2", "kind": "Widget", "spec": {"host": "i"}});
    let why = ".spec.replicas: expected numeric (int or float), got string";
    let expected = format!("failed to create typed live object (default/w; e.com/v2, Kind=Widget): {why}");
    assert_eq!(apply(api, path, "a", &applied).await.refusal(), (500, "", expected.as_str()));
    api.merge(&format!("{V1}/w"), json!({"metadata": {"managedFields": []}})).await.ok();
    let expected = format!(
        "failed to create manager for existing fields: failed to convert new object \
         (default/w; e.com/v2, Kind=Widget) to smd typed: {why}"
    );
    assert_eq!(apply(api, path, "a", &applied).await.refusal(), (500, "", expected.as_str()));
    assert_eq!(spec(api.get(&format!("{V1}/w")).await), json!({"hostPort": "h:1"}), "nothing was written");
    let applied = json!({"apiVersion": "e.com/v1", "kind": "Widget", "spec": {"hostPort": "h:1"}});
    apply(api, &format!("{V1}/w"), "a", &applied).await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_empty_response_is_described_as_in_v1_34() {
    let hooked = start_with(Extension::new(|_, _| Reply::Code(204, Vec::new(), "".into()))).await;
    hooked.api.post(V1, v1("w", "h:1")).await.created();
    let expected = "conversion webhook for e.com/v1, Kind=Widget failed: 0-length response with status code: 204 and \
                    content type: application/json";
    assert_eq!(hooked.api.get(&format!("{V2}/w")).await.refusal(), (500, "", expected));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_an_error_without_a_reason() {
    let (hooked, fails) = start_failing().await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    fails.store(true, Ordering::Relaxed);
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    settle(&hooked).await;
    let failed = "failed: an error on the server (\"no\") has prevented the request from succeeding";
    let of_v1 = format!("conversion webhook for e.com/v1, Kind=Widget {failed}");
    let path = &format!("{V2}/w");
    for answer in [
        api.get(path).await,
        api.get(V2).await,
        api.merge(path, json!({})).await,
        api.delete(path).await,
        api.delete(V2).await,
        api.get(&format!("{path}/scale")).await,
    ] {
        assert_eq!(answer.refusal(), (500, "", of_v1.as_str()));
    }
    let of_v2 = format!("conversion webhook for e.com/v2, Kind=Widget {failed}");
    assert_eq!(api.post(V2, v2("x", "h", "1")).await.refusal(), (500, "", of_v2.as_str()));
    assert_eq!(names(&api.get(V1).await.ok()), ["w"], "nothing was written or deleted");
    hooked.extension.refuses.store(true, Ordering::Relaxed);
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_described_as_in_v1_34() {
    let hooked = start().await;
    hooked.extension.refuses.store(true, Ordering::Relaxed);
    hooked.api.post(V1, v1("w", "h:1")).await.created();
    let answer = hooked.api.get(&format!("{V2}/w")).await;
    let expected = "conversion webhook for e.com/v1, Kind=Widget failed: Post \"https://ext.example/convert?timeout=30s\": dial tcp ext.example:443: connect: connection refused";
    assert_eq!(answer.refusal(), (500, "", expected));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_10_000_objects_takes_few_calls_and_a_second_one_none() {
    let slow = |_: &str, review: &Value| match answer(review, |_| ()) {
        Reply::Json(response) => Reply::After(Duration::from_secs(1), response),
        other => other,
    };
    let hooked = start_with(Extension::new(slow)).await;
    let api = &hooked.api;
    hooked.extension.refuses.store(true, Ordering::Relaxed);
    for at in 0..10_000 {
        api.post(V1, v1(&format!("w-{at:05}"), "h:1")).await.created();
    }
    settle(&hooked).await;
    hooked.extension.refuses.store(false, Ordering::Relaxed);
    let began = api.clock.instant();
    let list = api.get(V2).await.ok();
    assert_eq!(names(&list).len(), 10_000);
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["spec"]["port"] == "1"));
    let calls_of_list = calls(&hooked);
    assert_eq!(calls_of_list[..9], [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    assert_eq!((calls_of_list.len(), calls_of_list[9..].iter().max()), (28, Some(&500)));
    assert_eq!(began.elapsed().as_secs(), 14, "full batches are converted four at a time");
    api.get(V2).await.ok();
    api.get(&format!("{V2}/w-00007")).await.ok();
    assert_eq!(calls(&hooked), NO_CALLS, "conversions are cached by revision");
    api.merge(&format!("{V1}/w-00007"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    assert_eq!(spec(api.get(&format!("{V2}/w-00007")).await)["port"], "2");
    let page = api.get(&format!("{V2}?limit=5")).await.ok();
    assert_eq!(names(&page).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_batch_is_converted_object_by_object() {
    // The response to several objects has them in the wrong order.
    let hooked = start_with(Extension::new(|_, review| answer(review, |objects| objects.reverse()))).await;
    hooked.extension.refuses.store(true, Ordering::Relaxed);
    for name in ["a", "b", "c", "d"] {
        hooked.api.post(V1, v1(name, "h:1")).await.created();
    }
    settle(&hooked).await;
    hooked.extension.refuses.store(false, Ordering::Relaxed);
    assert_eq!(names(&hooked.api.get(V2).await.ok()), ["a", "b", "c", "d"]);
    assert_eq!(calls(&hooked), [1, 2, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_converted_without_need() {
    let hooked = start().await;
    let api = &hooked.api;
    assert!(names(&api.get(V2).await.ok()).is_empty());
    api.post(V1, v1("w", "h:1")).await.created();
    settle(&hooked).await;
    api.get(V1).await.ok();
    api.get(&format!("{V1}/w")).await.ok();
    api.merge(&format!("{V1}/w/status"), json!({})).await.ok();
    api.get(&format!("{V2}/w")).await.ok();
    assert_eq!(calls(&hooked), NO_CALLS, "a written object is converted once, in the background");
}

#[tokio::test(start_paused = true)]
async fn a_broken_webhook_is_not_called_for_every_write() {
    let (hooked, fails) = start_failing().await;
    fails.store(true, Ordering::Relaxed);
    for at in 0..100 {
        hooked.api.post(V1, v1(&format!("w-{at}"), "h:1")).await.created();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // At the start, and after 1, 3 and 7 seconds.
    assert_eq!(calls(&hooked), [1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_restored_object_has_managed_fields_whatever_versions_it_brings() {
    let hooked = start().await;
    let api = &hooked.api;
    api.post(&format!("{V2}?fieldManager=two"), v2("w", "h", "1")).await.created();
    let saved = api.merge(&format!("{V1}/w?fieldManager=one"), json!({"spec": {"replicas": 2}})).await.ok();
    let metadata = json!({"name": "x", "managedFields": saved["metadata"]["managedFields"]});
    let body =
        json!({"apiVersion": "e.com/v1", "kind": "Widget", "metadata": metadata, "spec": saved["spec"]});
    let restored = api.post(&format!("{V1}?fieldManager=restore"), body).await.created();
    let entries = restored["metadata"]["managedFields"].as_array().unwrap();
    assert!(!entries.is_empty() && entries.iter().all(|entry| entry["manager"] == "restore"), "{entries:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_changes_in_its_version() {
    let hooked = start().await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    let mut watch = api.open_watch(&format!("{V2}?watch=1")).await;
    let mut next = async || {
        let event = watch.next().await.unwrap();
        let object = &event["object"];
        assert_eq!(object["apiVersion"], "e.com/v2");
        format!("{} {}", event["type"].as_str().unwrap(), object["spec"]["port"].as_str().unwrap())
    };
    assert_eq!(next().await, "ADDED 1");
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    assert_eq!(next().await, "MODIFIED 2");
    let revision = api.get(V1).await.ok()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    api.delete(&format!("{V1}/w")).await.ok();
    assert_eq!(next().await, "DELETED 2");
    let resumed = api.watch(&format!("{V2}?watch=1&resourceVersion={revision}"), 1).await;
    assert_eq!(summary(&resumed), ["DELETED w"]);
    assert!(
        resumed[0]["object"]["metadata"]["resourceVersion"] != json!(revision),
        "the revision of the deletion"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_objects_that_cannot_be_converted_yet() {
    let (hooked, fails) = start_failing().await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    settle(&hooked).await;
    fails.store(true, Ordering::Relaxed);
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    let path = format!(
        "{V2}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut watch = api.open_watch(&path).await;
    let mut running =
        api.open_watch(&format!("{V2}?watch=1&resourceVersion={}", api.server.revision())).await;
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:3"}})).await.ok();
    let nothing = async |watch: &mut crate::client::Events| {
        tokio::time::timeout(Duration::from_secs(10), watch.next()).await.is_err()
    };
    assert!(nothing(&mut watch).await, "no bookmark either");
    assert!(nothing(&mut running).await);
    fails.store(false, Ordering::Relaxed);
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["port"], "2");
    assert_eq!(summary(&[watch.next().await.unwrap()]), ["BOOKMARK -"]);
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["port"], "3");
    assert_eq!(running.next().await.unwrap()["object"]["spec"]["port"], "3");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_webhook_delays_only_requests_that_need_it() {
    let hooked = start_with(Extension::new(|_, _| Reply::Hang)).await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    let mut watch = api.open_watch(&format!("{V1}?watch=1")).await;
    let mut waiting = api.open_watch(&format!("{V2}?watch=1")).await;
    let began = api.clock.instant();
    let in_other_version = async {
        let answer = api.get(&format!("{V2}/w")).await;
        (answer, began.elapsed())
    };
    let rest = async {
        api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
        api.get(V1).await.ok();
        api.merge(&format!("{DEFINITIONS}/widgets.e.com"), json!({"metadata": {"labels": {"a": "b"}}}))
            .await
            .ok();
        assert_eq!(
            summary(&[watch.next().await.unwrap(), watch.next().await.unwrap()]),
            ["ADDED w", "MODIFIED w"]
        );
        began.elapsed()
    };
    let ((answer, took), others_took) = futures::join!(in_other_version, rest);
    assert!(others_took < Duration::from_secs(1), "{others_took:?}");
    let expected = "conversion webhook for e.com/v1, Kind=Widget failed: Post \"https://ext.example/convert?timeout=30s\": context deadline exceeded";
    assert_eq!((answer.refusal(), took.as_secs()), ((500, "", expected), 30));
    assert!(tokio::time::timeout(Duration::from_secs(5), waiting.next()).await.is_err());
    // The deadline of the request is shorter.
    let began = api.clock.instant();
    assert_eq!(api.get(&format!("{V2}/w?timeout=5s")).await.code, 504);
    assert_eq!(api.post(&format!("{V2}?timeout=5s"), v2("x", "h", "1")).await.code, 504);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn objects_stored_in_an_older_version_are_converted_until_they_are_rewritten() {
    let hooked = start().await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    let storage = |index: usize, value: bool| json!({"op": "replace", "path": format!("/spec/versions/{index}/storage"), "value": value});
    let swap = json!([storage(0, false), storage(1, true)]);
    let definition = api.patch("json", &format!("{DEFINITIONS}/widgets.e.com"), swap).await.ok();
    assert_eq!(definition["status"]["storedVersions"], json!(["v1", "v2"]));
    settle(&hooked).await;
    assert_eq!(spec(api.get(&format!("{V1}/w")).await), json!({"hostPort": "h:1"}));
    assert_eq!(calls(&hooked), NO_CALLS, "it is still stored in v1");
    assert_eq!(spec(api.get(&format!("{V2}/w")).await), json!({"host": "h", "port": "1"}));
    assert_eq!(calls(&hooked), [1]);
    // An update without changes rewrites it: this is how objects are migrated.
    let before = api.get(&format!("{V1}/w")).await.ok();
    let after = api.put(&format!("{V1}/w"), before.clone()).await.ok();
    assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    settle(&hooked).await;
    api.get(&format!("{V2}/w")).await.ok();
    assert_eq!(calls(&hooked), NO_CALLS, "it is stored in v2");
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_deleted_with_its_objects_though_its_webhook_fails() {
    let (hooked, fails) = start_failing().await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    fails.store(true, Ordering::Relaxed);
    api.delete(&format!("{DEFINITIONS}/widgets.e.com")).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get(&format!("{DEFINITIONS}/widgets.e.com")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_in_another_version() {
    let hooked = start().await;
    let api = &hooked.api;
    for name in ["a", "b", "c"] {
        api.post(V1, v1(name, "h:1")).await.created();
    }
    let mut held = v1("held", "h:1");
    held["metadata"]["finalizers"] = json!(["e.com/hold"]);
    api.post(V1, held).await.created();
    assert_eq!(names(&api.delete(V2).await.ok()), ["a", "b", "c", "held"]);
    let left = api.get(V2).await.ok();
    assert_eq!(names(&left), ["held"]);
    assert!(left["items"][0]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(spec(api.get(&format!("{V1}/held")).await), json!({"hostPort": "h:1"}));
    api.merge(&format!("{V2}/held"), json!({"metadata": {"finalizers": null}})).await.ok();
    assert!(names(&api.get(V1).await.ok()).is_empty());
}

#[tokio::test(start_paused = true)]
async fn admission_webhooks_get_objects_in_the_version_of_their_rules() {
    let extension = Extension::new(|path, review| match path {
        "/convert" => answer(review, |_| ()),
        "/m" => Reply::Json(patch(review, &json!([{"op": "replace", "path": "/spec/port", "value": "9"}]))),
        _ => Reply::Json(allow(review)),
    });
    let hooked = start_with(extension).await;
    let mut rule = rule("e.com", "widgets", &["CREATE", "UPDATE"]);
    rule["apiVersions"] = json!(["v2"]);
    hooked.mutating(json!({"rules": [rule.clone()]})).await;
    hooked.validating(json!({"rules": [rule]})).await;
    let created = hooked.api.post(V1, v1("w", "h:1")).await.created();
    assert_eq!(created["spec"], json!({"hostPort": "h:9"}), "the patch was converted back");
    let seen = hooked.extension.take();
    let review = &seen.iter().find(|(path, _)| path == "/v").unwrap().1["request"];
    assert_eq!(review["object"]["spec"], json!({"host": "h", "port": "9"}));
    assert_eq!((&review["kind"]["version"], &review["requestKind"]["version"]), (&"v2".into(), &"v1".into()));
}

#[tokio::test(start_paused = true)]
async fn an_admission_webhook_is_not_skipped_if_its_object_cannot_be_converted() {
    let (hooked, fails) = start_failing().await;
    let mut rule = rule("e.com", "widgets", &["CREATE"]);
    rule["apiVersions"] = json!(["v2"]);
    let ignoring = json!({"rules": [rule], "failurePolicy": "Ignore"});
    hooked.validating(ignoring.clone()).await;
    fails.store(true, Ordering::Relaxed);
    let internal = "Internal error occurred: ";
    let failed = "conversion webhook for e.com/v1, Kind=Widget failed: an error on the server";
    let refused = async |begin: String| {
        let answer = hooked.api.post(V1, v1("w", "h:1")).await;
        let (code, reason, message) = answer.refusal();
        assert_eq!((code, reason), (500, "InternalError"));
        assert!(message.starts_with(&begin), "{message}");
    };
    refused(format!("{internal}{failed}")).await;
    // As in v1.34, which wraps errors of mutating webhooks once more.
    hooked.mutating(ignoring).await;
    refused(format!("{internal}{internal}{failed}")).await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_only_converted_for_policies_that_are_bound_to_them() {
    let (hooked, fails) = start_failing().await;
    let mut rule = rule("e.com", "widgets", &["CREATE"]);
    rule["apiVersions"] = json!(["v2"]);
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
        "matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}});
    let group = "/apis/admissionregistration.k8s.io/v1";
    hooked.api.post(&format!("{group}/validatingadmissionpolicies"), policy).await.created();
    hooked.api.post(&format!("{group}/validatingadmissionpolicybindings"), binding).await.created();
    fails.store(true, Ordering::Relaxed);
    hooked.api.post(V1, v1("unbound", "h:1")).await.created();
    let mut bound = v1("bound", "h:1");
    bound["metadata"]["labels"] = json!({"a": "b"});
    let denied = hooked.api.post(V1, bound).await;
    let why = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: failed to \
                 convert object version: conversion webhook for e.com/v1, Kind=Widget failed: ";
    assert!(denied.refusal().2.contains(why), "{}", denied.text);
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_cannot_be_converted_back_is_an_error_without_a_reason() {
    let fails = Arc::new(AtomicBool::new(false));
    let seen = fails.clone();
    let extension = Extension::new(move |path, review| match path {
        "/m" => {
            seen.store(true, Ordering::Relaxed);
            Reply::Json(patch(review, &json!([{"op": "replace", "path": "/spec/port", "value": "9"}])))
        }
        _ if seen.load(Ordering::Relaxed) => Reply::Code(500, Vec::new(), "no".into()),
        _ => answer(review, |_| ()),
    });
    let hooked = start_with(extension).await;
    let mut rule = rule("e.com", "widgets", &["CREATE"]);
    rule["apiVersions"] = json!(["v2"]);
    hooked.mutating(json!({"rules": [rule]})).await;
    let answer = hooked.api.post(V1, v1("w", "h:1")).await;
    let (code, reason, message) = answer.refusal();
    assert_eq!((code, reason), (500, ""), "{message}");
    assert!(message.starts_with("conversion webhook for e.com/v2, Kind=Widget failed: "), "{message}");
}

#[tokio::test(start_paused = true)]
async fn informers_in_this_process_see_their_version() {
    let hooked = start().await;
    let (api, server) = (&hooked.api, &hooked.api.server);
    api.post(V1, v1("w", "h:1")).await.created();
    let gvr = Gvr::new("e.com", "v2", "widgets");
    let (records, revision) = server.list_records(&gvr, &Selection::all()).await.unwrap();
    let shown = server.shown(&gvr, &records).unwrap();
    let shown: Value = serde_json::from_slice(&shown[0]).unwrap();
    assert_eq!((&shown["apiVersion"], &shown["spec"]["port"]), (&"e.com/v2".into(), &"1".into()));
    let mut watch = server.watch_records(&gvr, &Selection::all(), revision).await.unwrap();
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    let changes = loop {
        let changes = watch.next().await.unwrap().unwrap();
        if !changes.is_empty() {
            break changes;
        }
    };
    let shown: Value = serde_json::from_slice(&watch.shown(&changes[0].1).unwrap()).unwrap();
    assert_eq!(shown["spec"]["port"], "2");
    assert_eq!(watch.revision(), server.revision());
}

#[tokio::test(start_paused = true)]
async fn a_service_is_resolved_to_an_endpoint() {
    let hooked = Hooked::start_with(Extension::new(|_, review| answer(review, |_| ()))).await;
    let api = &hooked.api;
    let mut definition = definition(&hooked);
    let client = &mut definition["spec"]["conversion"]["webhook"]["clientConfig"];
    client.as_object_mut().unwrap().remove("url");
    client["service"] = json!({"name": "converter", "namespace": "default", "path": "/convert"});
    let created = api.post(DEFINITIONS, definition).await.created();
    let service = &created["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
    assert_eq!(service["port"], 443, "the default");
    let answer = api.post(V2, v2("w", "h", "1")).await;
    let expected = "conversion webhook for e.com/v2, Kind=Widget failed: Post \"https://converter.default.svc:443/convert?timeout=30s\": service \"converter\" not found";
    assert_eq!(answer.refusal(), (500, "", expected));
    let service =
        json!({"metadata": {"name": "converter"}, "spec": {"ports": [{"port": 443, "targetPort": 8443}]}});
    api.post("/api/v1/namespaces/default/services", service).await.created();
    let slice = json!({"metadata": {"name": "converter-1", "labels": {"kubernetes.io/service-name": "converter"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": 8443}]});
    api.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await.created();
    api.post(V2, v2("w", "h", "1")).await.created();
    api.post(V2, v2("x", "h", "1")).await.created();
    assert_eq!(hooked.extension.take_dialed(), ["10.1.2.3:8443"], "connections are reused");
}

#[tokio::test(start_paused = true)]
async fn conversions_are_counted() {
    let (hooked, fails) = start_failing().await;
    hooked.api.post(V2, v2("w", "h", "1")).await.created();
    fails.store(true, Ordering::Relaxed);
    hooked.api.post(V2, v2("x", "h", "1")).await;
    let metrics = hooked.api.get("/metrics").await.text;
    for line in [
        r#"apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="widgets.e.com",from_version="v2",succeeded="true",to_version="v1"} 1"#,
        r#"apiserver_crd_conversion_webhook_duration_seconds_count{crd_name="widgets.e.com",from_version="v2",succeeded="false",to_version="v1"} 1"#,
        r#"apiserver_conversion_webhook_request_total{failure_type="conversion_webhook_call_failure",result="failure"} 1"#,
        r#"apiserver_conversion_webhook_request_total{failure_type="",result="success"} 2"#,
    ] {
        let sorted = |line: &str| {
            let mut parts: Vec<String> = line.split(['{', '}', ',']).map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert!(metrics.lines().any(|found| sorted(found) == sorted(line)), "{line}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_config_of_a_definition_is_validated() {
    let hooked = Hooked::start_with(Extension::new(|_, review| answer(review, |_| ()))).await;
    let check = async |config: Value, expected: &[&str]| {
        let mut definition = definition(&hooked);
        definition["spec"]["conversion"]["webhook"]["clientConfig"] = config;
        let answer = hooked.api.post(DEFINITIONS, definition).await.expect(422);
        let causes = answer["details"]["causes"].as_array().unwrap().iter();
        let found: Vec<&str> = causes.map(|cause| cause["field"].as_str().unwrap()).collect();
        let expected: Vec<String> =
            expected.iter().map(|field| format!("spec.conversion.webhookClientConfig{field}")).collect();
        assert_eq!(found, expected);
    };
    check(json!({}), &[""]).await;
    check(json!({"url": "https://a", "service": {"name": "a", "namespace": "b"}}), &[""]).await;
    check(json!({"url": "http://a"}), &[".url"]).await;
    check(json!({"url": "https://u@a?x"}), &[".url", ".url"]).await;
    check(json!({"service": {"name": "a", "namespace": "b", "port": 70_000}}), &[".service.port"]).await;
    check(json!({"service": {"name": "a", "namespace": "b", "path": "/x//y"}}), &[".service.path"]).await;
}
