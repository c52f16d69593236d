//! Mutating webhooks: patches and call order.

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::egress::in_process::{allow, patch};

use crate::conversion_webhooks::DEFINITIONS;
use crate::webhooks::{Hooked, MAPS, PODS, map, pod, rule, widgets};

fn add(path: &str, value: Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[tokio::test(start_paused = true)]
async fn a_patch_is_applied_defaulted_pruned_and_validated() {
    let container = json!({"name": "side", "image": "s", "ports": [{"containerPort": 80}], "nonsense": 1});
    let hooked = Hooked::start(move |path, review| match path {
        "/m" => patch(review, &add("/spec/containers/-", container.clone())),
        _ => allow(review),
    })
    .await;
    hooked.api.default_service_account().await;
    hooked.mutating(json!({"rules": [rule("", "pods", &["CREATE"])]})).await;
    hooked.validating(json!({"rules": [rule("", "pods", &["CREATE"])]})).await;
    let created = hooked.api.post(&format!("{PODS}?fieldValidation=Strict"), pod("a")).await.created();
    let side = &created["spec"]["containers"][1];
    assert_eq!(side["ports"][0]["protocol"], "TCP");
    assert_eq!(side["imagePullPolicy"], "Always");
    assert_eq!(side.get("nonsense"), None);
    let [first, second] = hooked.reviews().try_into().unwrap();
    assert_eq!(first["object"]["metadata"].get("uid"), None);
    assert_eq!(second["object"]["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(second["object"]["spec"]["containers"][1]["name"], "side");
    // The first container would be duplicated.
    let mut twice = pod("b");
    twice["spec"]["containers"][0]["name"] = "side".into();
    let refused = hooked.api.post(PODS, twice).await;
    assert_eq!(refused.refusal().0, 422);
}

#[tokio::test(start_paused = true)]
async fn fields_that_a_webhook_sets_have_no_manager() {
    let hooked = Hooked::start(|_, review| patch(review, &add("/data/x", json!("y")))).await;
    hooked.mutating(json!({})).await;
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{MAPS}/a?fieldManager=me");
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
            .to_string();
    let applied = hooked.api.ask(Method::PATCH, &path, &headers, body).await.created();
    assert_eq!(applied["data"], json!({"k": "v", "x": "y"}));
    let managed = applied["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managed.len(), 1);
    assert_eq!(managed[0]["fieldsV1"], json!({"f:data": {"f:k": {}}}));
    let request = hooked.review();
    assert_eq!(
        (&request["operation"], &request["options"]["kind"]),
        (&json!("CREATE"), &json!("CreateOptions"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_webhook_may_change_managed_fields_only_to_valid_ones() {
    let hooked = Hooked::start(|_, review| match review["request"]["name"].as_str() {
        Some("other") => {
            let manager = "/metadata/managedFields/0/manager";
            patch(review, &json!([{"op": "replace", "path": manager, "value": "hook"}]))
        }
        _ => {
            let fields = "/metadata/managedFields/0/operation";
            patch(review, &json!([{"op": "replace", "path": fields, "value": "Guess"}]))
        }
    })
    .await;
    hooked.mutating(json!({})).await;
    let path = format!("{MAPS}?fieldManager=me");
    let other = hooked.api.post(&path, map("other")).await.created();
    assert_eq!(other["metadata"]["managedFields"][0]["manager"], "hook");
    let nonsense = hooked.api.post(&path, map("nonsense")).await;
    assert!(nonsense.warnings[0].contains("managedFields was in an invalid state after admission"));
    assert_eq!(nonsense.created()["metadata"]["managedFields"][0]["manager"], "me");
}

#[tokio::test(start_paused = true)]
async fn forbidden_patches_are_rejected() {
    let cases = [
        (
            "namespace",
            json!([{"op": "replace", "path": "/metadata/namespace", "value": "other"}]),
            400,
            "BadRequest",
        ),
        ("missing", json!([{"op": "remove", "path": "/data/none"}]), 500, "InternalError"),
        ("type", add("/data/x", json!(5)), 500, "InternalError"),
        ("kind", json!([{"op": "replace", "path": "/kind", "value": "Secret"}]), 500, "InternalError"),
        ("operation", json!([{"op": "sing", "path": "/data"}]), 500, "InternalError"),
    ];
    let patches = cases.clone();
    let hooked = Hooked::start(move |_, review| {
        let name = review["request"]["name"].as_str().unwrap();
        let (_, operations, ..) = patches.iter().find(|(case, ..)| *case == name).unwrap();
        patch(review, operations)
    })
    .await;
    // A patch that does not apply is not a failed call.
    hooked.mutating(json!({"failurePolicy": "Ignore"})).await;
    for (name, _, code, reason) in cases {
        let refused = hooked.api.post(MAPS, map(name)).await;
        assert_eq!((refused.refusal().0, refused.refusal().1), (code, reason), "{}", refused.text);
    }
}

#[tokio::test(start_paused = true)]
async fn mutating_webhooks_are_called_in_order_and_see_each_others_changes() {
    let hooked = Hooked::start(|path, review| {
        let seen = review["request"]["object"]["data"]["k"].as_str().unwrap().to_owned();
        patch(review, &json!([{"op": "replace", "path": "/data/k", "value": seen + path}]))
    })
    .await;
    let of = |paths: [&str; 2]| paths.map(|path| hooked.webhook(path, json!({})));
    hooked.configure("mutating", "b", &of(["/3", "/4"])).await.created();
    hooked.configure("mutating", "a", &of(["/2", "/1"])).await.created();
    let created = hooked.api.post(MAPS, map("a")).await.created();
    assert_eq!(created["data"]["k"], "v/2/1/3/4");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_asks_for_it_is_called_once_more_after_a_change() {
    let hooked = Hooked::start(|path, review| {
        let data = &review["request"]["object"]["data"];
        match (path, data.get("a"), data.get("b")) {
            ("/a", None, _) => patch(review, &add("/data/a", json!("1"))),
            ("/a", _, Some(_)) => patch(review, &add("/data/a", json!("2"))),
            ("/b", _, None) => patch(review, &add("/data/b", json!("1"))),
            _ => allow(review),
        }
    })
    .await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let webhooks =
        [hooked.webhook("/a", again.clone()), hooked.webhook("/b", json!({})), hooked.webhook("/c", again)];
    hooked.configure("mutating", "m", &webhooks).await.created();
    let created = hooked.api.post(MAPS, map("x")).await.created();
    assert_eq!(created["data"], json!({"a": "2", "b": "1", "k": "v"}));
    assert_eq!(hooked.called(), ["/a", "/b", "/c", "/a", "/c"]);
}

/// Unlike objects of built-in kinds, which are decoded after each patch.
#[tokio::test(start_paused = true)]
async fn a_patched_custom_resource_is_pruned_after_all_webhooks() {
    let hooked = Hooked::start(|path, review| match path {
        "/b" => {
            let operations = [("/spec/unknown", json!(1)), ("/metadata/labels", json!({}))];
            let operations =
                operations.map(|(path, value)| json!({"op": "add", "path": path, "value": value}));
            patch(review, &json!(operations))
        }
        _ => allow(review),
    })
    .await;
    hooked.api.post(DEFINITIONS, widgets()).await.created();
    let rules = json!([rule("example.com", "widgets", &["*"])]);
    let again = json!({"rules": rules, "reinvocationPolicy": "IfNeeded"});
    let once = json!({"rules": rules});
    let webhooks =
        [hooked.webhook("/a", again), hooked.webhook("/b", once.clone()), hooked.webhook("/c", once.clone())];
    hooked.configure("mutating", "m", &webhooks).await.created();
    hooked.validating(once).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"size": 1}});
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let created = hooked.api.post(path, widget).await.created();
    assert_eq!((&created["spec"], created["metadata"].get("labels")), (&json!({"size": 1}), None));
    let seen = hooked.extension.take();
    let called: Vec<&str> = seen.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(called, ["/a", "/b", "/c", "/a", "/v"], "empty labels are a change");
    let object = |index: usize| &seen[index].1["request"]["object"];
    let unpruned = json!({"size": 1, "unknown": 1});
    assert_eq!((&object(2)["spec"], &object(2)["metadata"]["labels"]), (&unpruned, &json!({})));
    assert_eq!(object(4)["spec"], json!({"size": 1}));
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_leaves_no_custom_resource_is_an_error() {
    let hooked = Hooked::start(|_, review| match review["request"]["name"].as_str() {
        Some("kind") => patch(review, &json!([{"op": "remove", "path": "/kind"}])),
        _ => patch(review, &add("/metadata/labels", json!(1))),
    })
    .await;
    hooked.api.post(DEFINITIONS, widgets()).await.created();
    hooked.mutating(json!({"rules": [rule("example.com", "widgets", &["*"])]})).await;
    let refused = async |name: &str| {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        hooked.api.post("/apis/example.com/v1/namespaces/default/widgets", widget).await
    };
    let kind = refused("kind").await;
    let (code, reason, message) = kind.refusal();
    assert_eq!((code, reason), (500, "InternalError"));
    assert!(message.starts_with("Internal error occurred: Object 'Kind' is missing in '{"), "{message}");
    let labels = refused("labels").await;
    let (code, reason, message) = labels.refusal();
    assert_eq!((code, reason), (500, ""), "{message}");
    assert!(
        message.starts_with("json: cannot unmarshal number into Go struct field ObjectMeta.labels"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_older_review_is_answered_leniently() {
    let hooked = Hooked::start(|_, review| {
        assert_eq!(review["apiVersion"], "admission.k8s.io/v1beta1");
        let mut answer = patch(review, &add("/data/x", json!("y")));
        let response = answer["response"].as_object_mut().unwrap();
        response.remove("uid");
        response.remove("patchType");
        answer
    })
    .await;
    hooked.mutating(json!({"admissionReviewVersions": ["v1beta1", "v1"]})).await;
    assert_eq!(hooked.api.post(MAPS, map("a")).await.created()["data"]["x"], "y");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_passed_to_the_webhook_and_stores_nothing() {
    let hooked = Hooked::start(|_, review| patch(review, &add("/data/x", json!("y")))).await;
    hooked.mutating(json!({"sideEffects": "NoneOnDryRun"})).await;
    let created = hooked.api.post(&format!("{MAPS}?dryRun=All"), map("a")).await.created();
    assert_eq!(created["data"]["x"], "y");
    assert_eq!(hooked.review()["dryRun"], true);
    assert_eq!(hooked.api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn an_update_shows_the_old_object_and_the_webhook_cannot_move_it() {
    let hooked = Hooked::start(|path, review| match path {
        "/m" => patch(review, &json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
        _ => allow(review),
    })
    .await;
    hooked.api.config_map("a", json!({})).await;
    hooked.validating(json!({})).await;
    hooked.api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "w"}})).await.ok();
    let review = hooked.review();
    assert_eq!(
        (&review["oldObject"]["data"]["k"], &review["object"]["data"]["k"]),
        (&json!("v"), &json!("w"))
    );
    assert_eq!(review["options"]["kind"], "UpdateOptions");
    hooked.mutating(json!({})).await;
    let moved = hooked.api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "x"}})).await;
    assert_eq!(moved.refusal().0, 422, "{}", moved.text);
}
