//! Custom resources, from definition to removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use setpoint_apiserver::Config;
use setpoint_clock::Clock;
use setpoint_store::{Change, Expect, MemoryStore, Payload, Resource, Store, Write};

use crate::client::{Api, names};
use crate::paced_store::{Call, Pace, Paced};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/e.com/v1/namespaces/default/foos";

/// The CRD of `foos.e.com`, with one version.
pub(crate) fn definition(schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.e.com"},
        "spec": {
            "group": "e.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn foo(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

async fn with(definition: Value) -> Api {
    let api = Api::start().await;
    api.post(DEFINITIONS, definition).await.created();
    api
}

#[tokio::test(start_paused = true)]
async fn numbers_are_written_as_in_v1_34() {
    let api = with(definition(open())).await;
    let spec = json!({"a": 1.0, "b": 1e20, "c": 1e-6, "d": u64::MAX, "e": 1e-7});
    let created = api.post(FOOS, foo("a", spec.clone())).await;
    let shown = r#""spec":{"a":1,"b":100000000000000000000,"c":0.000001,"d":18446744073709552000,"e":1e-7}"#;
    assert!(created.text.contains(shown), "{}", created.text);
    let path = format!("{FOOS}/a");
    let stored = api.get(&path).await;
    assert!(stored.text.contains(shown), "{}", stored.text);
    let mut same = stored.ok();
    same["spec"] = spec;
    let updated = api.put(&path, same.clone()).await.ok();
    assert_eq!(updated["metadata"], same["metadata"], "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_served_when_its_definition_is_answered() {
    let api = Api::start().await;
    assert_eq!(api.get(FOOS).await.text, "404 page not found\n");
    let created = api.post(DEFINITIONS, definition(open())).await.created();
    assert_eq!(created["status"]["conditions"], Value::Null, "its status is reconciled afterwards");
    let stored = api.get(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    assert_eq!(stored["status"]["conditions"][1]["type"], "Established");
    assert_eq!(stored["status"]["acceptedNames"]["listKind"], "FooList");
    let list = api.get(FOOS).await.ok();
    assert_eq!(list["kind"], "FooList");
    let created = api.post(FOOS, foo("a", json!({"x": [1, null, {}]}))).await.created();
    assert_eq!(created["spec"], json!({"x": [1, null, {}]}));
    assert_eq!(api.get("/apis/e.com/v1").await.ok()["resources"][0]["kind"], "Foo");
}

#[tokio::test(start_paused = true)]
async fn kinds_are_served_again_after_a_restart() {
    let api = with(definition(open())).await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    let api = api.restart().await;
    assert_eq!(names(&api.get(FOOS).await.ok()), ["a"]);
}

/// Waits until there is no CRD with this name.
pub(crate) async fn gone(api: &Api, name: &str) {
    for _ in 0..1000 {
        if api.get(&format!("{DEFINITIONS}/{name}")).await.code == 404 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} still exists");
}

/// Returns the reason of a CRD's last condition.
async fn last_reason(api: &Api, name: &str) -> String {
    let definition = api.get(&format!("{DEFINITIONS}/{name}")).await.ok();
    let last = definition["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["type"], "Terminating");
    last["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_deletes_its_objects() {
    let api = with(definition(open())).await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    let deleted = api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    assert_eq!(deleted["metadata"]["finalizers"][0], "customresourcecleanup.apiextensions.k8s.io");
    gone(&api, "foos.e.com").await;
    assert_eq!(api.get(FOOS).await.code, 404);
    api.post(DEFINITIONS, definition(open())).await.created();
    assert_eq!(names(&api.get(FOOS).await.ok()), [""; 0], "a new kind has no objects of the old one");
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_deleted_before_its_objects_are() {
    let api = with(definition(open())).await;
    for at in 0..200 {
        api.post(FOOS, foo(&format!("f-{at}"), json!({}))).await.created();
    }
    let deleted = api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    let terminating = deleted["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&terminating["status"], &terminating["reason"]),
        (&"True".into(), &"InstanceDeletionPending".into())
    );
    assert_eq!(names(&api.get(FOOS).await.ok()).len(), 200, "the response does not wait for objects");
    assert_eq!(api.post(FOOS, foo("late", json!({}))).await.code, 403);
    gone(&api, "foos.e.com").await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_server_resumes_deleting_a_definition() {
    let api = with(definition(open())).await;
    let mut held = foo("held", json!({}));
    held["metadata"]["finalizers"] = json!(["e.com/hold"]);
    for object in [foo("a", json!({})), held] {
        api.post(FOOS, object).await.created();
    }
    api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    // Before the cleanup has started.
    api.server.close_watches();
    let api = api.restart().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&api.get(FOOS).await.ok()), ["held"]);
    assert_eq!(last_reason(&api, "foos.e.com").await, "InstanceDeletionInProgress");
    // In the middle of the cleanup.
    api.server.close_watches();
    let api = api.restart().await;
    api.merge(&format!("{FOOS}/held"), json!({"metadata": {"finalizers": null}})).await.ok();
    gone(&api, "foos.e.com").await;
}

/// Store calls that take up to 31 ms each, in an order that depends on the seed.
struct Uneven(AtomicU64);

impl Pace for Uneven {
    fn step(&self, _: Call<'_>) -> BoxFuture<'_, ()> {
        let seed = self.0.load(Ordering::Relaxed).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0.store(seed, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(seed >> 59)).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_that_are_removed_at_the_same_time_do_not_wait_for_a_retry() {
    for seed in 0..20 {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let pace = Uneven(AtomicU64::new(seed));
        let paced = |config: Config| Config { store: Arc::new(Paced(config.store, pace)), ..config };
        let api = Api::start_configured(store, clock.clone(), paced).await;
        let plurals = ["foos", "gadgets", "widgets", "things"];
        for plural in plurals {
            let mut definition = definition(open());
            definition["metadata"]["name"] = format!("{plural}.e.com").into();
            definition["spec"]["names"] = json!({"plural": plural, "kind": plural.to_uppercase()});
            api.post(DEFINITIONS, definition).await.created();
        }
        api.delete(DEFINITIONS).await.ok();
        let started = clock.instant();
        for plural in plurals {
            gone(&api, &format!("{plural}.e.com")).await;
        }
        let took = clock.instant().saturating_duration_since(started);
        assert!(took < Duration::from_secs(4), "seed {seed}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_stuck_objects_reports_it_and_stops_writing() {
    let api = with(definition(open())).await;
    let mut held = foo("held", json!({}));
    held["metadata"]["finalizers"] = json!(["e.com/hold"]);
    api.post(FOOS, held).await.created();
    api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(last_reason(&api, "foos.e.com").await, "InstanceDeletionInProgress");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(last_reason(&api, "foos.e.com").await, "InstanceDeletionCheck");
    let revision = api.server.revision();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(api.server.revision(), revision);
    api.merge(&format!("{FOOS}/held"), json!({"metadata": {"finalizers": null}})).await.ok();
    gone(&api, "foos.e.com").await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_read_hides_no_other() {
    let api = with(definition(open())).await;
    let broken = Resource::new("apiextensions.k8s.io/customresourcedefinitions").key("bars.e.com");
    let change = Change::Put { payload: Payload::plain("not JSON"), ttl: None };
    api.store.commit(Write { key: broken, expect: Expect::Absent, change }).await.unwrap();
    let api = api.restart().await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    let mut other = definition(open());
    other["metadata"]["name"] = "bazs.e.com".into();
    other["spec"]["names"] =
        json!({"plural": "bazs", "kind": "Baz", "singular": "baz", "listKind": "BazList"});
    api.post(DEFINITIONS, other).await.created();
    api.get("/apis/e.com/v1/namespaces/default/bazs").await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_without_served_versions_deletes_its_objects() {
    let api = with(definition(open())).await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    let path = format!("{DEFINITIONS}/foos.e.com");
    let unserved = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    api.patch("json", &path, unserved).await.ok();
    assert_eq!(api.get(FOOS).await.code, 404);
    api.delete(&path).await.ok();
    gone(&api, "foos.e.com").await;
    api.post(DEFINITIONS, definition(open())).await.created();
    assert_eq!(names(&api.get(FOOS).await.ok()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_of_keyed_items_is_updated_in_reasonable_time() {
    let item = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "x": {"type": "integer"}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item});
    let spec = json!({"type": "object", "properties": {"list": list}});
    let api = with(definition(json!({"type": "object", "properties": {"spec": spec}}))).await;
    let items: Vec<Value> = (0..20_000).map(|at| json!({"name": at.to_string()})).collect();
    api.post(FOOS, foo("a", json!({"list": items}))).await.created();
    let reversed: Vec<Value> = items.into_iter().rev().collect();
    api.merge(&format!("{FOOS}/a"), json!({"spec": {"list": reversed}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_definition_waits_for_objects_with_finalizers() {
    let api = with(definition(open())).await;
    let mut held = foo("a", json!({}));
    held["metadata"]["finalizers"] = json!(["e.com/hold"]);
    api.post(FOOS, held).await.created();
    api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(last_reason(&api, "foos.e.com").await, "InstanceDeletionInProgress");
    let refused = api.post(FOOS, foo("b", json!({}))).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    api.merge(&format!("{FOOS}/a"), json!({"metadata": {"finalizers": null}})).await.ok();
    gone(&api, "foos.e.com").await;
}

#[tokio::test(start_paused = true)]
async fn versions_show_one_object() {
    let mut many = definition(open());
    let other =
        json!({"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": open()}});
    many["spec"]["versions"].as_array_mut().unwrap().push(other);
    let api = with(many).await;
    api.post(FOOS, foo("a", json!({"x": 1}))).await.created();
    let other = "/apis/e.com/v2/namespaces/default/foos";
    assert_eq!(api.get(&format!("{other}/a")).await.ok()["apiVersion"], "e.com/v2");
    let mut second = foo("b", json!({}));
    second["apiVersion"] = "e.com/v2".into();
    api.post(other, second).await.created();
    let list = api.get(FOOS).await.ok();
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["apiVersion"] == "e.com/v1"));
    assert_eq!(api.get("/apis/e.com").await.ok()["preferredVersion"]["version"], "v2");
}

#[tokio::test(start_paused = true)]
async fn a_schema_prunes_and_defaults_on_write_and_on_read() {
    let properties = json!({"x": {"type": "string"}});
    let schema = |properties: &Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let api = with(definition(schema(&properties))).await;
    let answer = api.post(FOOS, foo("a", json!({"x": "1", "y": 2}))).await;
    assert_eq!(answer.warnings, [r#"299 - "unknown field \"spec.y\"""#]);
    assert_eq!(answer.created()["spec"], json!({"x": "1"}));
    let strict = api.post(&format!("{FOOS}?fieldValidation=Strict"), foo("b", json!({"y": 2}))).await;
    assert_eq!(
        strict.refusal().2,
        r#"Foo in version "v1" cannot be handled as a Foo: strict decoding error: unknown field "spec.y""#
    );
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let patch =
        json!([{"op": "replace", "path": path, "value": {"d": {"type": "string", "default": "late"}}}]);
    api.patch("json", &format!("{DEFINITIONS}/foos.e.com"), patch).await.ok();
    assert_eq!(api.get(&format!("{FOOS}/a")).await.ok()["spec"], json!({"d": "late"}));
    assert_eq!(api.get(FOOS).await.ok()["items"][0]["spec"], json!({"d": "late"}));
}

#[tokio::test(start_paused = true)]
async fn a_status_and_a_scale_have_endpoints_of_their_own() {
    let mut scaled = definition(open());
    scaled["spec"]["versions"][0]["subresources"] = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.sel"}});
    let api = with(scaled).await;
    let mut object = foo("a", json!({"n": 1}));
    object["status"] = json!({"n": 9});
    assert!(api.post(FOOS, object).await.created().get("status").is_none());
    let changed = api
        .merge(&format!("{FOOS}/a/status"), json!({"spec": {"n": 5}, "status": {"n": 2, "sel": "a=b"}}))
        .await
        .ok();
    assert_eq!((&changed["spec"]["n"], &changed["status"]["n"]), (&json!(1), &json!(2)));
    assert_eq!(changed["metadata"]["generation"], 1);
    let scale = api.get(&format!("{FOOS}/a/scale")).await.ok();
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=b"}));
    api.merge(&format!("{FOOS}/a/scale"), json!({"spec": {"replicas": 4}})).await.ok();
    let object = api.get(&format!("{FOOS}/a")).await.ok();
    assert_eq!((&object["spec"]["n"], &object["metadata"]["generation"]), (&json!(4), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn the_names_of_the_servers_own_types_stay_its_own() {
    let mut alike = definition(open());
    alike["metadata"] = json!({"name": "foos.apps.api.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}});
    alike["spec"]["group"] = "apps.api.k8s.io".into();
    alike["spec"]["names"]["kind"] = "Deployment".into();
    let api = with(alike).await;
    let document = api.get("/openapi/v2").await;
    assert_eq!(document.text.matches("\"io.k8s.api.apps.v1.Deployment\":").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn definitions_cannot_extend_built_in_versions() {
    let mut own = definition(open());
    own["metadata"] = json!({"name": "foos.networking.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}});
    own["spec"]["group"] = "networking.k8s.io".into();
    let other =
        json!({"name": "v9", "served": true, "storage": false, "schema": {"openAPIV3Schema": open()}});
    own["spec"]["versions"].as_array_mut().unwrap().push(other);
    let api = with(own).await;
    let served = |list: &Value| {
        let resources = list["resources"].as_array().unwrap().clone();
        resources.iter().any(|resource| resource["name"] == "foos")
    };
    assert!(!served(&api.get("/apis/networking.k8s.io/v1").await.ok()));
    assert_eq!(api.get("/apis/networking.k8s.io/v1/foos").await.code, 404);
    assert!(served(&api.get("/apis/networking.k8s.io/v9").await.ok()));
}

#[tokio::test(start_paused = true)]
async fn objects_of_the_cluster_are_scaled_too() {
    let mut scaled = definition(open());
    scaled["spec"]["scope"] = "Cluster".into();
    scaled["spec"]["versions"][0]["subresources"] =
        json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
    let api = with(scaled).await;
    api.post("/apis/e.com/v1/foos", foo("a", json!({"n": 1}))).await.created();
    let scale = api.merge("/apis/e.com/v1/foos/a/scale", json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(scale["spec"]["replicas"], 4);
}

#[tokio::test(start_paused = true)]
async fn objects_of_namespaces_are_only_listed_outside_of_them() {
    let api = with(definition(open())).await;
    let all = "/apis/e.com/v1/foos";
    assert_eq!(api.get(all).await.code, 200);
    for answer in [api.post(all, foo("a", json!({}))).await, api.delete(all).await] {
        assert_eq!((answer.code, answer.text.as_str()), (404, "404 page not found\n"));
    }
}

#[tokio::test(start_paused = true)]
async fn existing_errors_may_stay_only_where_items_can_be_correlated() {
    let items = json!({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]});
    let list = |most: i64| {
        json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": most, "items": items.clone(),
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}})
    };
    let api = with(definition(list(3))).await;
    let object = |keys: [&str; 3]| json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "l": keys.map(|k| json!({"k": k}))});
    api.post(FOOS, object(["a", "b", "c"])).await.created();
    let schema = "/spec/versions/0/schema/openAPIV3Schema";
    let patch = json!([{"op": "replace", "path": schema, "value": list(2)}]);
    api.patch("json", &format!("{DEFINITIONS}/foos.e.com"), patch).await.ok();
    let reordered = api.merge(&format!("{FOOS}/a"), object(["c", "b", "a"])).await;
    assert_eq!(reordered.ok()["l"][0]["k"], "c");
    assert_eq!(api.merge(&format!("{FOOS}/a"), object(["c", "b", "d"])).await.code, 422);

    let patch = json!([{"op": "replace", "path": schema, "value": {
        "type": "object", "properties": {"apiVersion": {"type": "string", "pattern": "^other$"}}}}]);
    api.patch("json", &format!("{DEFINITIONS}/foos.e.com"), patch).await.ok();
    assert_eq!(api.merge(&format!("{FOOS}/a"), json!({"x": 1})).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn columns_show_the_values_at_their_paths() {
    let mut shown = definition(open());
    shown["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
    ]);
    let api = with(shown).await;
    let mut object = foo("a", json!({"size": 3}));
    object["status"] =
        json!({"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]});
    api.post(FOOS, object).await.created();
    let table = api.get_as("application/json;as=Table;v=v1;g=meta.k8s.io", FOOS).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "True"]));
}

#[tokio::test(start_paused = true)]
async fn objects_are_selected_by_the_fields_that_a_definition_names() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"c": {"type": "string"}}}}});
    let mut selectable = definition(schema);
    selectable["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.c"}]);
    let api = with(selectable).await;
    api.post(FOOS, foo("a", json!({"c": "red"}))).await.created();
    api.post(FOOS, foo("b", json!({"c": "blue"}))).await.created();
    assert_eq!(names(&api.get(&format!("{FOOS}?fieldSelector=spec.c=red")).await.ok()), ["a"]);
    let refused = api.get(&format!("{FOOS}?fieldSelector=spec.d=red")).await;
    assert_eq!(refused.refusal().2, "field label not supported: spec.d");
}

#[tokio::test(start_paused = true)]
async fn a_strategic_merge_patch_is_not_for_custom_kinds() {
    let api = with(definition(open())).await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    let answer = api.patch("strategic-merge", &format!("{FOOS}/a"), json!({"spec": {"x": 1}})).await;
    assert_eq!(answer.code, 415, "{}", answer.text);
    assert_eq!(answer.refusal().1, "UnsupportedMediaType");
}

#[tokio::test(start_paused = true)]
async fn applied_lists_merge_by_the_keys_of_the_schema() {
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    let spec = json!({"type": "object", "properties": {"l": list}});
    let api = with(definition(json!({"type": "object", "properties": {"spec": spec}}))).await;
    let apply = async |manager: &str, items: Value| {
        let path = format!("{FOOS}/a?fieldManager={manager}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        api.ask(http::Method::PATCH, &path, &headers, foo("a", json!({"l": items})).to_string()).await
    };
    apply("one", json!([{"k": "a", "v": "1"}])).await.created();
    let both = apply("two", json!([{"k": "b", "v": "2"}])).await.ok();
    assert_eq!(both["spec"]["l"], json!([{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]));
    assert_eq!(apply("two", json!([{"k": "a", "v": "9"}])).await.code, 409);
    let unknown = foo("a", json!({"x": 1})).to_string();
    let path = format!("{FOOS}/a?fieldManager=one");
    let answer = api
        .ask(http::Method::PATCH, &path, &[("content-type", "application/apply-patch+yaml")], unknown)
        .await;
    assert!(answer.refusal().2.ends_with(".spec.x: field not declared in schema"), "{}", answer.text);
}

#[tokio::test(start_paused = true)]
async fn custom_kinds_are_described() {
    let api = with(definition(
        json!({"type": "object", "properties": {"spec": {"type": "string", "nullable": true}}}),
    ))
    .await;
    let v3 = api.get("/openapi/v3/apis/e.com/v1").await.ok();
    let schemas = &v3["components"]["schemas"];
    assert_eq!(schemas["com.e.v1.Foo"]["properties"]["spec"]["type"], "string");
    let metadata = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    assert!(metadata["labels"]["description"].as_str().is_some_and(|text| text.contains("keys and values")));
    let v2 = api.get("/openapi/v2").await.ok();
    assert_eq!(v2["definitions"]["com.e.v1.Foo"]["properties"]["spec"], json!({}));
    assert_eq!(v2["definitions"]["com.e.v1.FooList"]["required"], json!(["items"]));
}

/// A CRD whose spec has these properties and rules.
fn ruled(properties: Value, rules: Value) -> Value {
    let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
    definition(json!({"type": "object", "properties": {"spec": spec}}))
}

#[tokio::test(start_paused = true)]
async fn a_rule_violation_is_rejected_with_the_rules_message() {
    let rules = json!([
        {"rule": "self.n > 5", "message": "too small"},
        {"rule": "self.n < 9", "messageExpression": "'%d is too large'.format([self.n])", "reason": "FieldValueForbidden", "fieldPath": ".n"},
    ]);
    let api = with(ruled(json!({"n": {"type": "integer"}}), rules)).await;
    let causes = async |n: i64| {
        let answer = api.post(FOOS, foo("a", json!({"n": n}))).await;
        let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes
            .iter()
            .map(|cause| {
                format!("{} {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(causes(1).await, [r#"spec Invalid value: "object": too small"#]);
    assert_eq!(causes(9).await, ["spec.n Forbidden: 9 is too large"]);
    assert_eq!(causes(6).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_over_old_and_new_is_for_updates() {
    let rules = json!([{"rule": "self.n >= oldSelf.n", "message": "no shrink"}]);
    let api = with(ruled(json!({"n": {"type": "integer"}}), rules)).await;
    api.post(FOOS, foo("a", json!({"n": 5}))).await.created();
    api.merge(&format!("{FOOS}/a"), json!({"spec": {"n": 6}})).await.ok();
    assert_eq!(api.merge(&format!("{FOOS}/a"), json!({"spec": {"n": 1}})).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_was_broken_before_may_stay_broken_where_nothing_changes() {
    let api = with(ruled(json!({"n": {"type": "integer"}, "m": {"type": "integer"}}), json!([]))).await;
    api.post(FOOS, foo("a", json!({"n": 1, "m": 1}))).await.created();
    let path =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n/x-kubernetes-validations";
    let patch = json!([{"op": "add", "path": path, "value": [{"rule": "self > 5"}]}]);
    api.patch("json", &format!("{DEFINITIONS}/foos.e.com"), patch).await.ok();
    let answer = api.merge(&format!("{FOOS}/a"), json!({"spec": {"m": 2}})).await;
    assert_eq!((answer.code, answer.warnings.len()), (200, 1), "{}", answer.text);
    assert_eq!(api.merge(&format!("{FOOS}/a"), json!({"spec": {"n": 2}})).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_an_invalid_rule_is_rejected() {
    let api = Api::start().await;
    for (rule, why) in [
        ("self.zz == 1", "undefined field 'zz'"),
        ("self.l ==", "Syntax error"),
        ("self.l.size()", "cel expression must evaluate to a bool"),
        (
            "self.l.all(x, self.l.all(y, x.matches(y)))",
            "estimated rule cost exceeds budget by factor of more than 100x",
        ),
    ] {
        let properties = json!({"l": {"type": "array", "items": {"type": "string"}}});
        let answer = api.post(DEFINITIONS, ruled(properties, json!([{"rule": rule}]))).await;
        assert_eq!(answer.code, 422, "{rule}");
        assert!(answer.refusal().2.contains(why), "{rule}: {}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_its_kind_changes() {
    let api = with(definition(open())).await;
    let mut events = api.open_watch(&format!("{FOOS}?watch=1")).await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    assert_eq!(events.next().await.unwrap()["type"], "ADDED");
    api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    let mut rest = Vec::new();
    while let Some(event) = events.next().await {
        rest.push(event["type"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(rest, ["DELETED"]);
}

#[tokio::test(start_paused = true)]
async fn names_go_to_the_oldest_definition_then_to_the_next() {
    let api = with(definition(open())).await;
    let mut other = definition(open());
    other["metadata"]["name"] = "bars.e.com".into();
    other["spec"]["names"] =
        json!({"plural": "bars", "kind": "Foo", "singular": "bar", "listKind": "BarList"});
    api.post(DEFINITIONS, other).await.created();
    let condition = async || {
        let bars = api.get(&format!("{DEFINITIONS}/bars.e.com")).await.ok();
        bars["status"]["conditions"][0]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(condition().await, "KindConflict");
    assert_eq!(api.get("/apis/e.com/v1/namespaces/default/bars").await.code, 404);
    api.delete(&format!("{DEFINITIONS}/foos.e.com")).await.ok();
    gone(&api, "foos.e.com").await;
    assert_eq!(condition().await, "NoConflicts");
    api.get("/apis/e.com/v1/namespaces/default/bars").await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_invalid_definition_is_rejected_with_its_fields() {
    let api = Api::start().await;
    let schemas = [
        (json!({"type": "string"}), "spec.validation.openAPIV3Schema.type"),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            "spec.validation.openAPIV3Schema.properties[a].type",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            "spec.validation.openAPIV3Schema.properties[a].items",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}}}),
            "spec.validation.openAPIV3Schema.properties[a].default",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
            "spec.validation.openAPIV3Schema.properties[a].pattern",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}}}),
            "spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys",
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            "spec.validation.openAPIV3Schema.properties[metadata]",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "spec.validation.openAPIV3Schema.additionalProperties",
        ),
    ];
    for (schema, field) in schemas {
        let answer = api.post(DEFINITIONS, definition(schema.clone())).await;
        assert_eq!(answer.code, 422, "{schema}");
        assert_eq!(answer.body["details"]["causes"][0]["field"], field, "{}", answer.text);
    }
}

#[tokio::test(start_paused = true)]
async fn comparing_numbers_of_a_bounded_list_costs_little() {
    let item = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "s": {"type": "string", "maxLength": 20}}});
    let list = json!({"type": "array", "maxItems": 64, "items": item});
    let rule =
        "self.l.all(a, self.l.exists_one(b, a.n == b.n && (has(a.s) && has(b.s) ? a.s == b.s : true)))";
    let api = with(ruled(json!({"l": list}), json!([{"rule": rule}]))).await;
    api.post(FOOS, foo("a", json!({"l": [{"n": 1}, {"n": 2}]}))).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_list_of_one_kind_never_has_objects_of_another_of_its_group() {
    let api = with(definition(open())).await;
    let mut longer = definition(open());
    longer["metadata"]["name"] = json!("foosballs.e.com");
    longer["spec"]["names"] = json!({"plural": "foosballs", "kind": "Foosball"});
    api.post(DEFINITIONS, longer).await.created();
    let foosballs = "/apis/e.com/v1/namespaces/default/foosballs";
    let mut ball = foo("ball", json!({}));
    ball["kind"] = json!("Foosball");
    api.post(foosballs, ball).await.created();
    api.post(FOOS, foo("a", json!({}))).await.created();
    for all in ["/apis/e.com/v1/foos", FOOS] {
        assert_eq!(names(&api.get(all).await.ok()), ["a"], "{all}");
    }
    assert_eq!(names(&api.get(foosballs).await.ok()), ["ball"]);
    assert_eq!(api.get(&format!("{FOOS}/ball")).await.code, 404);
    api.delete(FOOS).await.ok();
    assert_eq!(names(&api.get(foosballs).await.ok()), ["ball"], "a deletion does not reach them either");
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_could_cost_too_much_is_refused_with_its_definition() {
    let rule = "self.all(a, self.all(b, self.all(c, a == b && b == c)))";
    let checked = |most: Value| {
        let mut list = json!({"type": "array", "items": {"type": "string", "maxLength": 10},
            "x-kubernetes-validations": [{"rule": rule}]});
        if most.is_number() {
            list["maxItems"] = most;
        }
        definition(json!({"type": "object", "properties": {"list": list}}))
    };
    let api = Api::start().await;
    let refused = api.post(DEFINITIONS, checked(Value::Null)).await;
    assert_eq!(refused.code, 422, "{}", refused.text);
    assert!(refused.text.contains("estimated rule cost exceeds budget"), "{}", refused.text);
    api.post(DEFINITIONS, checked(json!(10))).await.created();
}

#[tokio::test(start_paused = true)]
async fn scale_updates_are_validated_against_the_scaled_object() {
    let mut scaled = definition(open());
    scaled["spec"]["versions"][0]["subresources"] =
        json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
    let api = with(scaled).await;
    api.post(FOOS, foo("a", json!({"n": 1}))).await.created();
    let scale = |replicas: i64, more: Value| {
        let mut metadata = json!({"name": "a"});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}})
    };
    let path = format!("{FOOS}/a/scale");
    let refused = api.put(&path, scale(-1, json!({}))).await;
    assert_eq!((refused.code, &refused.body["details"]["kind"]), (422, &json!("Foo")));
    assert_eq!(refused.body["details"]["causes"][0]["field"], ".spec.n");
    assert_eq!(api.put(&path, scale(3, json!({}))).await.ok()["spec"]["replicas"], 3, "without a version");
    let stale = api.put(&path, scale(4, json!({"resourceVersion": "1"}))).await;
    assert_eq!((stale.code, stale.refusal().1), (409, "Conflict"));
    assert_eq!(api.put(&path, scale(4, json!({"uid": "other"}))).await.code, 409);
    assert_eq!(
        api.merge(&path, json!({"metadata": {"uid": "other"}, "spec": {"replicas": 5}})).await.code,
        200
    );
    assert_eq!(api.patch("strategic-merge", &path, json!({"spec": {"replicas": 6}})).await.code, 415);
}

/// CRDs are loaded at every start, so one that overflows the stack would crash every start.
#[tokio::test(start_paused = true)]
async fn a_column_with_a_too_deep_path_is_ignored() {
    let mut nested = definition(open());
    let path = format!(".a{}", "[?(@.b".repeat(100_000));
    nested["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "A", "type": "string", "jsonPath": path}]);
    let api = with(nested).await;
    let api = api.restart().await;
    api.post(FOOS, foo("a", json!({}))).await.created();
    api.get_as("application/json;as=Table;g=meta.k8s.io;v=v1", FOOS).await.ok();
}

/// `self == oldSelf` is the usual rule for immutable fields.
#[tokio::test(start_paused = true)]
async fn long_sets_are_compared_in_reasonable_time() {
    let list = json!({"type": "array", "x-kubernetes-list-type": "set", "maxItems": 100_000, "items": {"type": "string", "maxLength": 10},
        "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    let spec = json!({"type": "object", "properties": {"list": list}});
    let api = with(definition(json!({"type": "object", "properties": {"spec": spec}}))).await;
    let items: Vec<String> = (0..30_000).map(|at| at.to_string()).collect();
    api.post(FOOS, foo("a", json!({"list": items}))).await.created();
    let mut others: Vec<String> = items.into_iter().rev().collect();
    api.merge(&format!("{FOOS}/a"), json!({"spec": {"list": others}})).await.ok();
    others[0] = "x".into();
    assert_eq!(api.merge(&format!("{FOOS}/a"), json!({"spec": {"list": others}})).await.code, 422);
}

/// Managed fields nest deeper than the fields themselves.
#[tokio::test(start_paused = true)]
async fn owners_are_forgotten_where_an_object_would_become_too_deep_with_them() {
    let api = with(definition(open())).await;
    let deep = (0..118).fold(json!(1), |inner, _| json!({ "a": inner }));
    let made = api.post(FOOS, foo("a", deep)).await.created();
    assert_eq!(made["metadata"]["managedFields"], Value::Null);
    api.get_as("application/json;as=Table;g=meta.k8s.io;v=v1", FOOS).await.ok();
    api.delete(&format!("{FOOS}/a")).await.ok();
}
