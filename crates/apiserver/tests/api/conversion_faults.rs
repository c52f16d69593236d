//! Conversion webhooks that are slow, broken or hostile: what depends on them, and what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use setpoint_apiserver::egress::in_process::{allow, patch};

use crate::client::{Events, names, summary};
use crate::conversion_webhooks::{
    DEFINITIONS, NO_CALLS, V1, V2, answer, calls, definition, settle, spec, start_failing, start_with, v1, v2,
};
use crate::extension::{Extension, Reply};
use crate::webhooks::{Hooked, rule};

const SECOND: Duration = Duration::from_secs(1);

/// Creates objects in v1 that have not been converted in the background.
async fn create_unconverted(hooked: &Hooked, names: &[&str]) {
    hooked.extension.refuses.store(true, Ordering::Relaxed);
    for name in names {
        hooked.api.post(V1, v1(name, "h:1")).await.created();
    }
    settle(hooked).await;
    hooked.extension.refuses.store(false, Ordering::Relaxed);
}

/// Returns whether a watch has no event for a while.
async fn is_silent(watch: &mut Events, time: Duration) -> bool {
    tokio::time::timeout(time, watch.next()).await.is_err()
}

fn objects(review: &Value) -> &Vec<Value> {
    review["request"]["objects"].as_array().unwrap()
}

/// Makes the storage version v2, though objects are stored in v1.
async fn swap_storage(hooked: &Hooked) {
    let storage = |index: usize, value: bool| json!({"op": "replace", "path": format!("/spec/versions/{index}/storage"), "value": value});
    let swap = json!([storage(0, false), storage(1, true)]);
    hooked.api.patch("json", &format!("{DEFINITIONS}/widgets.e.com"), swap).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_so_that_its_client_lists_if_a_revision_cannot_be_converted() {
    let extension = Extension::new(|_, review| match objects(review)[0]["spec"]["hostPort"] == "bad" {
        true => Reply::Code(500, Vec::new(), "no".into()),
        false => answer(review, |_| ()),
    });
    let hooked = start_with(extension).await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    let from = api.server.revision();
    let path = format!("{V2}?watch=1&resourceVersion={from}");
    let mut watch = api.open_watch(&path).await;
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "bad"}})).await.ok();
    assert!(is_silent(&mut watch, 20 * SECOND).await, "it may be repaired soon");
    // It is, but the revision in between never will be.
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:2"}})).await.ok();
    let end = watch.next().await.unwrap();
    let (status, message) = (&end["object"], end["object"]["message"].as_str().unwrap());
    assert_eq!(
        (&end["type"], &status["code"], &status["reason"]),
        (&"ERROR".into(), &410.into(), &"Expired".into())
    );
    let expected =
        format!("too old resource version: {from} ({}): conversion webhook for e.com/v1", from + 1);
    assert!(message.starts_with(&expected), "{message}");
    assert_eq!(watch.next().await, None);
    let list = api.get(V2).await.ok();
    let listed = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = api.open_watch(&format!("{V2}?watch=1&resourceVersion={listed}")).await;
    api.merge(&format!("{V1}/w"), json!({"spec": {"hostPort": "h:3"}})).await.ok();
    assert_eq!(watch.next().await.unwrap()["object"]["spec"]["port"], "3");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_if_existing_objects_cannot_be_converted() {
    let (hooked, fails) = start_failing().await;
    fails.store(true, Ordering::Relaxed);
    hooked.api.post(V1, v1("w", "h:1")).await.created();
    let began = hooked.api.clock.instant();
    let mut watch = hooked.api.open_watch(&format!("{V2}?watch=1")).await;
    let end = watch.next().await.unwrap();
    assert_eq!((&end["type"], &end["object"]["reason"]), (&"ERROR".into(), &"InternalError".into()));
    assert_eq!((watch.next().await, began.elapsed().as_secs()), (None, 30));
}

#[tokio::test(start_paused = true)]
async fn all_watches_of_a_version_share_one_call_for_a_change() {
    let slow = |_: &str, review: &Value| match answer(review, |_| ()) {
        Reply::Json(response) => Reply::After(SECOND, response),
        other => other,
    };
    let hooked = start_with(Extension::new(slow)).await;
    let api = &hooked.api;
    let mut watches = Vec::new();
    for _ in 0..20 {
        watches
            .push(api.open_watch(&format!("{V2}?watch=1&resourceVersion={}", api.server.revision())).await);
    }
    create_unconverted(&hooked, &["w"]).await;
    let get = format!("{V2}/w");
    let seen = futures::future::join_all(watches.iter_mut().map(Events::next));
    let (seen, got) = futures::join!(seen, api.get(&get));
    let got = got.ok();
    assert!(seen.iter().all(|event| event.as_ref().unwrap()["object"] == got));
    assert_eq!(calls(&hooked), [1]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_shares_a_call_does_not_share_the_failure_of_another() {
    let bad = |object: &Value| object["metadata"]["name"] == "d";
    let extension = Extension::new(move |_, review| match objects(review).iter().any(bad) {
        true => Reply::After(SECOND, json!({"kind": "ConversionReview"})),
        false => match answer(review, |_| ()) {
            Reply::Json(response) => Reply::After(SECOND, response),
            other => other,
        },
    });
    let hooked = start_with(extension).await;
    create_unconverted(&hooked, &["a", "b", "c", "d", "e"]).await;
    let list = hooked.api.get(V2);
    let gets = async {
        // The list is converting the batch of d now.
        tokio::time::sleep(3 * SECOND + SECOND / 2).await;
        let (d, e) = (format!("{V2}/d"), format!("{V2}/e"));
        futures::join!(hooked.api.get(&d), hooked.api.get(&e))
    };
    let (list, (d, e)) = futures::join!(list, gets);
    assert_eq!((list.code, d.code, e.code), (500, 500, 200));
}

#[tokio::test(start_paused = true)]
async fn a_conversion_goes_on_while_the_client_of_its_watch_does_not_read() {
    let slow = |_: &str, review: &Value| match answer(review, |_| ()) {
        Reply::Json(response) => Reply::After(5 * SECOND, response),
        other => other,
    };
    let hooked = start_with(Extension::new(slow)).await;
    create_unconverted(&hooked, &["w"]).await;
    let mut watch = hooked.api.open_watch(&format!("{V2}?watch=1")).await;
    assert!(is_silent(&mut watch, SECOND).await);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(calls(&hooked), [1]);
    assert_eq!(spec(hooked.api.get(&format!("{V2}/w")).await)["port"], "1");
    assert_eq!(calls(&hooked), NO_CALLS, "the call of the watch has ended");
    assert_eq!(summary(&[watch.next().await.unwrap()]), ["ADDED w"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_when_nothing_waits_for_it() {
    let hooked = start_with(Extension::new(|_, _| Reply::Hang)).await;
    create_unconverted(&hooked, &["w"]).await;
    for _ in 0..3 {
        let path = format!("{V2}/w");
        assert!(tokio::time::timeout(SECOND, hooked.api.get(&path)).await.is_err());
    }
    assert_eq!(calls(&hooked), [1, 1, 1], "each began its own");
}

#[tokio::test(start_paused = true)]
async fn a_response_that_would_take_too_much_memory_is_refused() {
    let bomb: Value = json!(vec![json!({"": 0}); 200_000]);
    let extension = Extension::new(move |_, review| {
        answer(review, |objects| objects.iter_mut().for_each(|object| object["spec"]["bomb"] = bomb.clone()))
    });
    let hooked = start_with(extension).await;
    create_unconverted(&hooked, &["w"]).await;
    let answer = hooked.api.get(&format!("{V2}/w")).await;
    let (code, _, message) = answer.refusal();
    assert_eq!(code, 500);
    assert!(message.contains("decoded, it would take more than 67108864 bytes"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_webhook_do_not_hold_up_others_to_it() {
    let hangs = |object: &Value| object["metadata"]["name"] != "free";
    let extension = Extension::new(move |_, review| match objects(review).iter().any(hangs) {
        true => Reply::Hang,
        false => answer(review, |_| ()),
    });
    let hooked = start_with(extension).await;
    let api = &hooked.api;
    let held: Vec<String> = (0..50).map(|at| format!("w-{at}")).collect();
    let mut all: Vec<&str> = held.iter().map(String::as_str).collect();
    all.push("free");
    create_unconverted(&hooked, &all).await;
    let paths: Vec<String> = held.iter().map(|name| format!("{V2}/{name}?timeout=10s")).collect();
    let waiting = futures::future::join_all(paths.iter().map(|path| api.get(path)));
    let free = async {
        // As if the webhook asked for it while it converts the others.
        tokio::time::sleep(SECOND).await;
        let began = api.clock.instant();
        api.get(&format!("{V2}/free")).await.ok();
        began.elapsed()
    };
    let (waiting, took) = futures::join!(waiting, free);
    assert!(waiting.iter().all(|answer| answer.code == 504) && took < SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_refused_is_split() {
    for code in [413, 500] {
        let extension = Extension::new(move |_, review| match objects(review).len() > 3 {
            true => Reply::Code(code, Vec::new(), "too many".into()),
            false => answer(review, |_| ()),
        });
        let hooked = start_with(extension).await;
        let all: Vec<String> = (10..30).map(|at| format!("w-{at}")).collect();
        create_unconverted(&hooked, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(names(&hooked.api.get(V2).await.ok()), all);
        let mut made = calls(&hooked);
        assert_eq!(made[..5], [1, 2, 4, 2, 2], "what is not refused is the limit from then on");
        made.sort_unstable();
        assert_eq!(made.last(), Some(&4));
        assert_eq!(made.iter().sum::<usize>(), 20 + 4);
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_converted_fails_a_list_and_no_other_object() {
    let bad = |object: &Value| object["metadata"]["name"] == "w-17";
    let extension = Extension::new(move |_, review| match objects(review).iter().any(bad) {
        true => Reply::Code(500, Vec::new(), "no".into()),
        false => answer(review, |_| ()),
    });
    let hooked = start_with(extension).await;
    let all: Vec<String> = (10..30).map(|at| format!("w-{at}")).collect();
    create_unconverted(&hooked, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(hooked.api.get(V2).await.code, 500);
    assert!(calls(&hooked).len() <= 3 + 1 + 2 * 3, "a bad object is found by halves");
    for name in ["w-16", "w-18"] {
        hooked.api.get(&format!("{V2}/{name}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_down_is_not_called_for_parts_of_a_batch() {
    let (hooked, fails) = start_failing().await;
    create_unconverted(&hooked, &["a", "b", "c", "d"]).await;
    hooked.api.get(&format!("{V2}/a")).await.ok();
    hooked.extension.take();
    fails.store(true, Ordering::Relaxed);
    hooked.extension.refuses.store(true, Ordering::Relaxed);
    assert_eq!(hooked.api.get(V2).await.code, 500);
    assert!(calls(&hooked).len() <= 1);
}

#[tokio::test(start_paused = true)]
async fn malformed_metadata_of_embedded_objects_is_an_error() {
    let embed = |objects: &mut Vec<Value>| {
        for object in objects {
            object["spec"]["embedded"] =
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": 1}});
        }
    };
    let hooked = Hooked::start_with(Extension::new(move |_, review| answer(review, embed))).await;
    let mut definition = definition(&hooked);
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["embedded"] = json!({
            "type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
    }
    let api = &hooked.api;
    api.post(DEFINITIONS, definition).await.created();
    api.post(V1, v1("w", "h:1")).await.created();
    for answer in
        [api.get(&format!("{V2}/w")).await, api.get(V2).await, api.post(V2, v2("x", "h", "1")).await]
    {
        let (code, reason, message) = answer.refusal();
        assert_eq!((code, reason), (500, ""));
        assert!(message.starts_with("spec.embedded.metadata: Invalid value: "), "{message}");
    }
    assert_eq!(names(&api.get(V1).await.ok()), ["w"]);
}

#[tokio::test(start_paused = true)]
async fn empty_labels_and_annotations_are_dropped() {
    let empty = |objects: &mut Vec<Value>| {
        for object in objects {
            (object["metadata"]["labels"], object["metadata"]["annotations"]) = (json!({}), json!({}));
        }
    };
    let hooked = start_with(Extension::new(move |_, review| answer(review, empty))).await;
    let api = &hooked.api;
    let mut labelled = v1("w", "h:1");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    api.post(V1, labelled).await.created();
    api.post(V2, v2("x", "h", "1")).await.created();
    for path in [format!("{V2}/w"), format!("{V1}/x")] {
        let shown = api.get(&path).await.ok();
        assert!(shown["metadata"].get("labels").is_none() && shown["metadata"].get("annotations").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_conversion_takes_effect_at_once_and_one_of_the_webhook_within_a_minute() {
    let is_new = Arc::new(AtomicBool::new(false));
    let build = is_new.clone();
    let extension = Extension::new(move |path, review| {
        let mark = format!("{path} {}", if build.load(Ordering::Relaxed) { "new" } else { "old" });
        answer(review, |objects| {
            objects.iter_mut().for_each(|object| object["spec"]["host"] = mark.clone().into())
        })
    });
    let hooked = start_with(extension).await;
    let api = &hooked.api;
    let host = async || spec(api.get(&format!("{V2}/w")).await)["host"].clone();
    api.post(V1, v1("w", "h:1")).await.created();
    assert_eq!(host().await, "/convert old");
    let url =
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": "https://ext.example/other"}}}}});
    api.merge(&format!("{DEFINITIONS}/widgets.e.com"), url).await.ok();
    assert_eq!(host().await, "/other old");
    is_new.store(true, Ordering::Relaxed);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(host().await, "/other new");
}

#[tokio::test(start_paused = true)]
async fn what_a_webhook_says_is_cut_wherever_it_is_shown() {
    let result = json!({"status": "Failure", "message": "long ".repeat(1 << 18)});
    let extension = Extension::new(move |_, review| {
        let Reply::Json(mut response) = answer(review, |_| ()) else { return Reply::Close };
        response["response"]["result"] = result.clone();
        Reply::Json(response)
    });
    let hooked = start_with(extension).await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    assert!(api.get(&format!("{V2}/w")).await.refusal().2.len() < 5_000);
    swap_storage(&hooked).await;
    api.delete(&format!("{DEFINITIONS}/widgets.e.com")).await.ok();
    tokio::time::sleep(SECOND).await;
    let left = api.get(&format!("{DEFINITIONS}/widgets.e.com")).await.ok();
    let conditions = left["status"]["conditions"].as_array().unwrap();
    let terminating = conditions.iter().find(|one| one["type"] == "Terminating").unwrap();
    assert_eq!(terminating["reason"], "InstanceDeletionFailed");
    assert!(terminating["message"].as_str().unwrap().len() < 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_does_not_delay_the_deletion_of_another_definition() {
    let hooked = start_with(Extension::new(|_, _| Reply::Hang)).await;
    let api = &hooked.api;
    api.post(V1, v1("w", "h:1")).await.created();
    swap_storage(&hooked).await;
    api.delete(&format!("{DEFINITIONS}/widgets.e.com")).await.ok();
    tokio::time::sleep(SECOND).await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let other = json!({"metadata": {"name": "gadgets.e.com"}, "spec": {
        "group": "e.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    api.post(DEFINITIONS, other).await.created();
    let gadgets = "/apis/e.com/v1/namespaces/default/gadgets";
    let metadata = json!({"name": "g", "finalizers": ["e.com/hold"]});
    let gadget = json!({"apiVersion": "e.com/v1", "kind": "Gadget", "metadata": metadata});
    api.post(gadgets, gadget).await.created();
    api.delete(&format!("{DEFINITIONS}/gadgets.e.com")).await.ok();
    tokio::time::sleep(SECOND).await;
    api.merge(&format!("{gadgets}/g"), json!({"metadata": {"finalizers": null}})).await.ok();
    tokio::time::sleep(SECOND).await;
    assert_eq!(api.get(&format!("{DEFINITIONS}/gadgets.e.com")).await.code, 404);
    assert_eq!(api.get(&format!("{DEFINITIONS}/widgets.e.com")).await.code, 200, "its webhook hangs");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_converted_once_for_all_admission_webhooks_of_a_version() {
    let extension = Extension::new(|path, review| match path {
        "/convert" => answer(review, |_| ()),
        _ => Reply::Json(allow(review)),
    });
    let hooked = start_with(extension).await;
    let mut rule = rule("e.com", "widgets", &["CREATE"]);
    rule["apiVersions"] = json!(["v2"]);
    let several = |path: &str| -> Vec<Value> {
        let one = |at: usize| hooked.webhook(&format!("{path}{at}"), json!({"rules": [rule.clone()]}));
        (0..5).map(one).collect()
    };
    hooked.configure("mutating", "m", &several("/m")).await.created();
    hooked.configure("validating", "v", &several("/v")).await.created();
    let dry = hooked.api.post(&format!("{V1}?dryRun=All"), v1("w", "h:1")).await;
    assert_eq!(dry.code, 201);
    let conversions = hooked.extension.take().iter().filter(|(path, _)| path == "/convert").count();
    assert_eq!(conversions, 2, "once for mutation, and once for what is validated");
}

#[tokio::test(start_paused = true)]
async fn a_lossy_conversion_does_not_bring_back_the_old_object() {
    let lossy = |objects: &mut Vec<Value>| {
        objects.iter_mut().for_each(|object| object["metadata"]["annotations"] = Value::Null);
    };
    let extension = Extension::new(move |path, review| match path {
        "/convert" => answer(review, lossy),
        // The result looks like the old object in v2.
        _ => Reply::Json(patch(
            review,
            &json!([{"op": "replace", "path": "/metadata/labels/a", "value": "1"}]),
        )),
    });
    let hooked = start_with(extension).await;
    let widget = |value: &str| {
        let mut widget = v1("w", "h:1");
        (widget["metadata"]["labels"], widget["metadata"]["annotations"]) =
            (json!({"a": value}), json!({"only": value}));
        widget
    };
    hooked.api.post(V1, widget("1")).await.created();
    let mut rule = rule("e.com", "widgets", &["UPDATE"]);
    rule["apiVersions"] = json!(["v2"]);
    hooked.configure("mutating", "m", &[hooked.webhook("/m", json!({"rules": [rule]}))]).await.created();
    let metadata = widget("2")["metadata"].clone();
    let updated = hooked.api.merge(&format!("{V1}/w"), json!({"metadata": metadata})).await.ok();
    assert_eq!(updated["metadata"]["labels"], json!({"a": "1"}));
    assert_eq!(updated["metadata"]["annotations"], Value::Null, "the conversion drops annotations");
}
