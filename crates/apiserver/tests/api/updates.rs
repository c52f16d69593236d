//! Updates and patches: resource versions, conflicts, generations, retries.

use serde_json::{Value, json};

use crate::client::Api;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({
        "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn an_update_must_be_of_the_current_version() {
    let api = Api::start().await;
    let mut map = api.config_map("a", json!({})).await;
    api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "2"}})).await.ok();
    map["data"]["k"] = "3".into();
    let stale = api.put(&format!("{MAPS}/a"), map.clone()).await;
    assert_eq!(
        stale.refusal(),
        (
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
             changes to the latest version and try again"
        )
    );
    let patch =
        json!({"metadata": {"resourceVersion": map["metadata"]["resourceVersion"]}, "data": {"k": "4"}});
    assert_eq!(api.merge(&format!("{MAPS}/a"), patch).await.code, 409);
    map["metadata"]["resourceVersion"] = Value::Null;
    let unconditional = api.put(&format!("{MAPS}/a"), map).await.ok();
    assert_eq!(unconditional["data"]["k"], "3");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_changes_nothing_keeps_the_version() {
    let api = Api::start().await;
    let map = api.config_map("a", json!({"x": "y"})).await;
    let before = api.server.revision();
    let mut bare = map.clone();
    bare["metadata"] = json!({"name": "a", "labels": {"x": "y"}});
    assert_eq!(api.put(&format!("{MAPS}/a"), bare).await.ok(), map);
    assert_eq!(api.merge(&format!("{MAPS}/a"), json!({})).await.ok(), map);
    assert_eq!(api.patch("json", &format!("{MAPS}/a"), json!([])).await.ok(), map);
    assert_eq!(api.server.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn concurrent_patches_all_take_effect() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let patches = (0..20).map(|index| {
        let (key, path) = (format!("k{index}"), format!("{MAPS}/a"));
        let api = &api;
        async move { api.merge(&path, json!({"data": {key: "v"}})).await.ok() }
    });
    futures::future::join_all(patches).await;
    let map = api.get(&format!("{MAPS}/a")).await.ok();
    assert_eq!(map["data"].as_object().unwrap().len(), 21);
}

#[tokio::test(start_paused = true)]
async fn the_name_and_namespace_in_the_body_must_be_those_in_the_path() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    for (meta, message) in [
        (json!({"name": "b"}), "the name of the object (b) does not match the name on the URL (a)"),
        (
            json!({"name": "a", "namespace": "other"}),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (json!({}), "the name of the object (a based on URL) was undeterminable: name must be provided"),
    ] {
        let refused = api.put(&format!("{MAPS}/a"), json!({"metadata": meta})).await;
        assert_eq!(refused.refusal(), (400, "BadRequest", message));
    }
}

#[tokio::test(start_paused = true)]
async fn server_managed_metadata_is_immutable() {
    let api = Api::start().await;
    let map = api.config_map("a", json!({})).await;
    let patch = json!({"metadata": {
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "generation": 7,
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "labels": {"x": "y"},
    }});
    let refused = api.merge(&format!("{MAPS}/a"), patch).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["field"]),
        (422, &json!("metadata.deletionTimestamp"))
    );
    let patch = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "labels": {"x": "y"}}});
    let changed = api.merge(&format!("{MAPS}/a"), patch).await.ok();
    assert_eq!(changed["metadata"]["creationTimestamp"], map["metadata"]["creationTimestamp"]);
    let uid = json!({"metadata": {"uid": "33333333-3333-3333-3333-333333333333"}});
    let refused = api.merge(&format!("{MAPS}/a"), uid).await;
    let causes = refused.body["details"]["causes"].as_array().unwrap();
    assert_eq!((refused.code, causes.len()), (422, 2), "one from the server and one from the kind");
    let other = json!({"metadata": {"name": "a", "uid": "33333333-3333-3333-3333-333333333333"}});
    assert_eq!(api.put(&format!("{MAPS}/a"), other).await.code, 409);
}

#[tokio::test(start_paused = true)]
async fn generations_count_changes_of_the_specification() {
    let api = Api::start().await;
    let created = api.post(DEPLOYMENTS, deployment()).await.created();
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{DEPLOYMENTS}/a");
    for (part, patch, generation) in [
        ("", json!({"metadata": {"labels": {"x": "y"}}}), 1),
        ("", json!({"spec": {"replicas": 3}}), 2),
        ("/status", json!({"status": {"replicas": 2}, "spec": {"replicas": 9}}), 2),
        ("/scale", json!({"spec": {"replicas": 4}}), 3),
    ] {
        api.merge(&format!("{path}{part}"), patch.clone()).await.ok();
        let now = api.get(&path).await.ok();
        assert_eq!(now["metadata"]["generation"], generation, "{part} {patch}");
    }
    let now = api.get(&path).await.ok();
    assert_eq!((&now["status"]["replicas"], &now["spec"]["replicas"]), (&json!(2), &json!(4)));
    let spec_ignored = api.merge(&path, json!({"status": {"replicas": 7}})).await.ok();
    assert_eq!(spec_ignored["status"]["replicas"], 2, "the status is changed only through its endpoint");
}

#[tokio::test(start_paused = true)]
async fn some_kinds_are_created_by_an_update() {
    let api = Api::start().await;
    let lease = json!({"metadata": {"name": "new"}, "spec": {"holderIdentity": "h"}});
    let created = api.put(&format!("{LEASES}/new"), lease.clone()).await.created();
    assert_eq!(created["spec"]["holderIdentity"], "h");
    let blind = api.put(&format!("{LEASES}/new"), lease.clone()).await;
    assert_eq!(blind.code, 422, "of a lease the version must be known: {}", blind.text);
    let mut known = lease;
    known["metadata"] = json!({"name": "other", "uid": "33333333-3333-3333-3333-333333333333"});
    assert_eq!(api.put(&format!("{LEASES}/other"), known).await.code, 409);
    assert_eq!(api.put(&format!("{MAPS}/none"), json!({"metadata": {"name": "none"}})).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_result_and_stores_nothing() {
    let api = Api::start().await;
    let map = api.config_map("a", json!({})).await;
    let before = api.server.revision();
    let changed = api.merge(&format!("{MAPS}/a?dryRun=All"), json!({"data": {"k": "9"}})).await.ok();
    assert_eq!(changed["data"]["k"], "9");
    assert_eq!(changed["metadata"]["resourceVersion"], map["metadata"]["resourceVersion"]);
    let created = api.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "b"}})).await.created();
    assert_eq!(created["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(api.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await.code, 409);
    assert_eq!(api.post(&format!("{MAPS}?dryRun=Some"), json!({"metadata": {"name": "b"}})).await.code, 422);
    assert_eq!(api.server.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_warned_of_or_refused() {
    let api = Api::start().await;
    let map = json!({"metadata": {"name": "a"}, "surprise": 1});
    let warned = api.post(MAPS, map.clone()).await;
    assert_eq!(
        (warned.code, warned.warnings),
        (201, vec!["299 - \"unknown field \\\"surprise\\\"\"".to_string()])
    );
    let quiet = api.put(&format!("{MAPS}/a?fieldValidation=Ignore"), map.clone()).await;
    assert_eq!((quiet.code, quiet.warnings.len()), (200, 0));
    let strict = api.put(&format!("{MAPS}/a?fieldValidation=Strict"), map).await;
    assert_eq!((strict.code, strict.refusal().1), (400, "BadRequest"));
    let refused = api.merge(&format!("{MAPS}/a?fieldValidation=Strict"), json!({"surprise": 1})).await;
    assert_eq!(refused.code, 422);
    assert_eq!(api.get(&format!("{MAPS}/a?fieldValidation=Odd")).await.code, 200);
    assert_eq!(api.put(&format!("{MAPS}/a?fieldValidation=Odd"), json!({})).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn duplicate_owner_references_are_removed() {
    let api = Api::start().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"});
    let map = json!({"metadata": {"name": "a", "ownerReferences": [owner, owner]}});
    let created = api.post(MAPS, map).await;
    assert_eq!(created.body["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert!(created.warnings[0].contains("duplicate UID(s) observed: u"), "{:?}", created.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_change_of_a_pod_is_shown_as_a_diff_of_its_go_type() {
    let api = Api::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let account = json!({"metadata": {"name": "default"}});
    api.post("/api/v1/namespaces/default/serviceaccounts", account).await.created();
    let spec = json!({
        "containers": [{"name": "c", "image": "i"}], "nodeName": "n1", "hostNetwork": true,
        "automountServiceAccountToken": false,
    });
    api.post(pods, json!({"metadata": {"name": "a"}, "spec": spec})).await.created();
    let moved = api.merge(&format!("{pods}/a"), json!({"spec": {"nodeName": "n2"}})).await;
    let (code, _, message) = moved.refusal();
    let expected = "(allow it to be set to 1 if it was previously negative)\n@@ -42,7 +42,7 @@\n  \"NodeSelector\": \
                    null,\n  \"ServiceAccountName\": \"default\",\n  \"AutomountServiceAccountToken\": false,\n- \
                    \"NodeName\": \"n1\",\n+ \"NodeName\": \"n2\",\n  \"SecurityContext\": {\n   \"HostNetwork\": \
                    true,\n   \"HostPID\": false,\n";
    assert!(code == 422 && message.ends_with(expected), "{message}");
}
