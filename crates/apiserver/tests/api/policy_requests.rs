//! Which requests policies see, as what, and how much of the server's time they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::client::{Api, names};
use crate::policies::{MAPS, bind_policy, map, with_policy};

fn about(resource: &str, operation: &str) -> Value {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
    json!({"resourceRules": [rule]})
}

#[tokio::test(start_paused = true)]
async fn a_policy_with_many_params_yields_to_other_requests() {
    const PARAMS: usize = 200;
    let api = Api::start().await;
    for at in 0..PARAMS {
        api.config_map(&format!("param-{at}"), json!({"of": "p"})).await;
    }
    let policy = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.data.k == 'v'"}],
    });
    let reference = json!({"selector": {"matchLabels": {"of": "p"}}, "parameterNotFoundAction": "Deny"});
    let api = bind_policy(api, policy, json!({"paramRef": reference})).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let other = tokio::spawn({
        let turns = turns.clone();
        async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    api.post(MAPS, map("a")).await.created();
    let turns = turns.load(Ordering::Relaxed);
    other.abort();
    assert!(turns >= PARAMS, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn the_params_of_a_request_for_a_namespace_are_in_the_namespace() {
    let policy = json!({
        "matchConstraints": about("namespaces", "UPDATE"),
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "namespaceObject != null", "messageExpression":
            "'params of ' + params.metadata.namespace + ' for ' + request.namespace"}],
    });
    let reference = json!({"name": "x", "parameterNotFoundAction": "Deny"});
    let api = with_policy(policy, json!({"paramRef": reference})).await;
    api.post(MAPS, map("x")).await.created();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let refused = api.merge("/api/v1/namespaces/default", labels).await;
    assert!(
        refused.refusal().2.ends_with("denied request: params of default for default"),
        "{}",
        refused.text
    );
}

#[tokio::test(start_paused = true)]
async fn a_binding_is_seen_as_the_resource_that_it_is_posted_to() {
    let message = json!({"expression": "false", "messageExpression":
        "request.resource.resource + (has(request.subResource) ? '/' : ' ') + object.kind + ' ' + request.name"});
    let constraints = about("bindings", "CREATE");
    let api =
        with_policy(json!({"matchConstraints": constraints, "validations": [message]}), json!({})).await;
    let binding = json!({"metadata": {"name": "a"}, "target": {"name": "n"}});
    let refused = api.post("/api/v1/namespaces/default/bindings", binding.clone()).await;
    assert!(refused.refusal().2.ends_with("denied request: bindings Binding a"), "{}", refused.text);
    let other = api.post("/api/v1/namespaces/default/pods/a/binding", binding).await;
    assert_eq!(other.code, 404, "{}", other.text);
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_collection_have_no_names_for_rules() {
    let mut constraints = about("configmaps", "DELETE");
    let mut exempt = constraints["resourceRules"][0].clone();
    exempt["resourceNames"] = json!(["a"]);
    constraints["excludeResourceRules"] = json!([exempt]);
    let policy = json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]});
    let api = with_policy(policy, json!({})).await;
    api.post(MAPS, map("a")).await.created();
    assert_eq!(api.delete(MAPS).await.code, 422);
    api.delete(&format!("{MAPS}/a")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn no_further_objects_of_a_collection_are_deleted_after_a_denial() {
    let validation = json!({"expression": "oldObject.metadata.name != 'b'"});
    let policy = json!({"matchConstraints": about("configmaps", "DELETE"), "validations": [validation]});
    let api = with_policy(policy, json!({})).await;
    for name in ["a", "b", "c", "d"] {
        api.post(MAPS, map(name)).await.created();
    }
    let denied = api.delete(MAPS).await;
    let details = &denied.body["details"];
    assert_eq!((denied.code, &details["name"]), (422, &json!("Unknown")), "no object is named");
    assert_eq!(names(&api.get(MAPS).await.ok()), ["b", "c", "d"]);
}
