//! Deletions: immediate, with a grace period, with finalizers, of dependents and of namespaces.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Api, names, summary};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(api: &Api, spec: Value) -> Value {
    api.default_service_account().await;
    let mut pod = json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
    });
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    api.post(PODS, pod).await.created()
}

#[tokio::test(start_paused = true)]
async fn an_object_with_finalizers_waits_for_them() {
    let api = Api::start().await;
    let map = json!({"metadata": {"name": "a", "finalizers": ["example.com/x", "example.com/y"]}});
    api.post(MAPS, map).await.created();
    let marked = api.delete(&format!("{MAPS}/a")).await.ok();
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2025-01-01T00:00:00Z");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(api.delete(&format!("{MAPS}/a")).await.ok(), marked, "a second deletion changes nothing");

    let again = api.post(MAPS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(
        again.refusal(),
        (409, "AlreadyExists", "object is being deleted: configmaps \"a\" already exists")
    );
    let more = json!({"metadata": {"finalizers": ["example.com/x", "example.com/z"]}});
    let refused = api.merge(&format!("{MAPS}/a"), more).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["reason"]),
        (422, &json!("FieldValueForbidden"))
    );

    api.merge(&format!("{MAPS}/a"), json!({"metadata": {"finalizers": ["example.com/x"]}})).await.ok();
    let last = api.merge(&format!("{MAPS}/a"), json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(last["metadata"]["finalizers"], Value::Null);
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn the_propagation_policy_becomes_a_finalizer() {
    let api = Api::start().await;
    for (options, finalizers, code) in [
        (json!({"propagationPolicy": "Foreground"}), json!(["foregroundDeletion"]), 200),
        (json!({"propagationPolicy": "Orphan"}), json!(["orphan"]), 200),
        (json!({"orphanDependents": true}), json!(["orphan"]), 200),
        (json!({"propagationPolicy": "Background"}), Value::Null, 200),
        (json!({"orphanDependents": false}), Value::Null, 200),
    ] {
        api.config_map("a", json!({})).await;
        let answer = api.delete_with(&format!("{MAPS}/a"), options.clone()).await.expect(code);
        assert_eq!(answer["metadata"]["finalizers"], finalizers, "{options}");
        if finalizers == Value::Null {
            assert_eq!(
                (&answer["kind"], &answer["status"]),
                (&json!("Status"), &json!("Success")),
                "{options}"
            );
        } else {
            api.merge(&format!("{MAPS}/a"), json!({"metadata": {"finalizers": null}})).await.ok();
        }
    }
    api.config_map("a", json!({})).await;
    for options in [
        json!({"propagationPolicy": "Sideways"}),
        json!({"propagationPolicy": "Orphan", "orphanDependents": true}),
        json!({"dryRun": ["Some"]}),
    ] {
        assert_eq!(api.delete_with(&format!("{MAPS}/a"), options.clone()).await.code, 422, "{options}");
    }
    api.delete(&format!("{MAPS}/a?propagationPolicy=Foreground")).await.ok();
    let background = json!({"propagationPolicy": "Background"});
    let gone = api.delete_with(&format!("{MAPS}/a"), background).await.ok();
    assert_eq!(gone["kind"], "Status", "a later policy removes the finalizer");
}

#[tokio::test(start_paused = true)]
async fn preconditions_must_hold() {
    let api = Api::start().await;
    let map = api.config_map("a", json!({})).await;
    for (preconditions, words) in [
        (json!({"uid": "00000000-0000-0000-0000-000000000000"}), "the UID in the precondition"),
        (json!({"resourceVersion": "1"}), "the ResourceVersion in the precondition"),
    ] {
        let refused = api.delete_with(&format!("{MAPS}/a"), json!({"preconditions": preconditions})).await;
        let (code, reason, message) = refused.refusal();
        assert_eq!((code, reason), (409, "Conflict"));
        assert!(message.contains(words), "{message}");
    }
    let meta = &map["metadata"];
    let fitting = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
    api.delete_with(&format!("{MAPS}/a"), json!({"preconditions": fitting})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_is_deleted_gracefully() {
    let api = Api::start().await;
    pod(&api, json!({})).await;
    let marked = api.delete(&format!("{PODS}/a")).await.ok();
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2025-01-01T00:00:30Z");
    assert_eq!(marked["metadata"]["generation"], 2);

    tokio::time::sleep(Duration::from_secs(5)).await;
    let longer = api.delete(&format!("{PODS}/a?gracePeriodSeconds=60")).await.ok();
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 30, "a deletion cannot be postponed");
    let shorter = api.delete(&format!("{PODS}/a?gracePeriodSeconds=10")).await.ok();
    assert_eq!(shorter["metadata"]["deletionTimestamp"], "2025-01-01T00:00:10Z");
    let late = api.delete(&format!("{PODS}/a?gracePeriodSeconds=2")).await.ok();
    assert_eq!(late["metadata"]["deletionTimestamp"], "2025-01-01T00:00:05Z", "not into the past");
    assert_eq!(late["metadata"]["deletionGracePeriodSeconds"], 1);

    let from = api.server.revision();
    let gone = api.delete(&format!("{PODS}/a?gracePeriodSeconds=0")).await.ok();
    assert_eq!(gone["kind"], "Pod", "the response is the pod");
    assert_eq!(api.get(&format!("{PODS}/a")).await.code, 404);
    let path = format!("{PODS}?watch=1&resourceVersion={from}&timeoutSeconds=1");
    assert_eq!(summary(&api.watch(&path, 9).await), ["MODIFIED a", "DELETED a"]);
}

#[tokio::test(start_paused = true)]
async fn an_unscheduled_pod_is_deleted_immediately() {
    let api = Api::start().await;
    pod(&api, json!({"nodeName": ""})).await;
    api.delete(&format!("{PODS}/a")).await.ok();
    assert_eq!(api.get(&format!("{PODS}/a")).await.code, 404);
    pod(&api, json!({"terminationGracePeriodSeconds": 0})).await;
    api.delete(&format!("{PODS}/a")).await.ok();
    assert_eq!(api.get(&format!("{PODS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_deletes_nothing() {
    let api = Api::start().await;
    let map = api.config_map("a", json!({})).await;
    assert_eq!(api.delete(&format!("{MAPS}/a?dryRun=All")).await.ok()["status"], "Success");
    let marked = api.delete(&format!("{MAPS}/a?dryRun=All&propagationPolicy=Orphan")).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(api.get(&format!("{MAPS}/a")).await.ok(), map);
}

#[tokio::test(start_paused = true)]
async fn bad_options_are_refused_without_a_reason() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    for body in ["{nope", r#"{"kind":"Pod","apiVersion":"v1"}"#] {
        let refused = api.ask(http::Method::DELETE, &format!("{MAPS}/a"), &[], body).await;
        assert_eq!((refused.code, refused.refusal().1), (500, ""), "{body}");
    }
    let meta = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
    api.delete_with(&format!("{MAPS}/a"), meta).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted_by_selection() {
    let api = Api::start().await;
    api.config_map("a", json!({"g": "1"})).await;
    api.config_map("b", json!({"g": "1"})).await;
    api.config_map("c", json!({"g": "2"})).await;
    let deleted = api.delete(&format!("{MAPS}?labelSelector=g%3D1")).await.ok();
    assert_eq!(names(&deleted), ["a", "b"]);
    assert_eq!(names(&api.get(MAPS).await.ok()), ["c"]);
    let limited = api.delete(&format!("{MAPS}?limit=1&dryRun=All")).await.ok();
    assert_eq!(names(&limited), ["c"]);
    assert_eq!(names(&api.get(MAPS).await.ok()), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_terminated_then_finalized() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await.created();
    let going = api.delete("/api/v1/namespaces/n").await.ok();
    assert_eq!(going["status"]["phase"], "Terminating");
    assert_eq!(going["metadata"]["deletionTimestamp"], "2025-01-01T00:00:00Z");
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], Value::Null);
    assert_eq!(api.delete("/api/v1/namespaces/n").await.ok(), going);

    let late = api.post("/api/v1/namespaces/n/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert_eq!(
        late.refusal(),
        (
            403,
            "Forbidden",
            "configmaps \"a\" is forbidden: unable to create new content in namespace n because it is being terminated"
        )
    );
    assert_eq!(late.body["details"]["causes"][0]["reason"], "NamespaceTerminating");

    let finalized = json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}});
    api.put("/api/v1/namespaces/n/finalize", finalized).await.ok();
    assert_eq!(api.get("/api/v1/namespaces/n").await.code, 404);
    let kept = api.delete("/api/v1/namespaces/kube-system").await;
    assert_eq!(
        kept.refusal(),
        (403, "Forbidden", "namespaces \"kube-system\" is forbidden: this namespace may not be deleted")
    );
}

#[tokio::test(start_paused = true)]
async fn events_expire_and_history_is_forgotten() {
    let api = Api::start().await;
    let stop = tokio_util::sync::CancellationToken::new();
    let server = api.server.clone();
    let maintaining = tokio::spawn({
        let stop = stop.clone();
        async move { server.maintain(stop).await }
    });
    let event = json!({
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
    });
    api.post("/api/v1/namespaces/default/events", event).await.created();
    let then = api.server.revision();
    tokio::time::sleep(Duration::from_secs(3590)).await;
    assert_eq!(names(&api.get("/api/v1/namespaces/default/events").await.ok()), ["e"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(names(&api.get("/api/v1/namespaces/default/events").await.ok()).is_empty());
    tokio::time::sleep(Duration::from_secs(601)).await;
    let old = format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", then - 1);
    assert_eq!(api.get(&old).await.code, 410);
    stop.cancel();
    maintaining.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_priority_class_of_the_system_stays() {
    let api = Api::start().await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let refused = api.delete(&format!("{classes}/system-node-critical")).await;
    let why = "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority \
               class and cannot be deleted";
    assert_eq!(refused.refusal(), (403, "Forbidden", why));
    api.post(classes, json!({"metadata": {"name": "own"}, "value": 1})).await.created();
    api.delete(&format!("{classes}/own")).await.ok();
}
