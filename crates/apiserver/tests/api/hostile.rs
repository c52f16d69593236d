//! What means no good: bodies that blow up, patches that multiply, paths and words that make no sense.

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::kind::Scope;

use crate::client::Api;
use crate::custom::definition;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Ten levels of ten aliases each: ten billion nodes, if somebody wrote them out.
fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\n{text}")
}

#[tokio::test(start_paused = true)]
async fn bodies_that_blow_up_are_refused() {
    let api = Api::start().await;
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let json = ("content-type", "application/json");
    let yaml = ("content-type", "application/yaml");
    for (media, body) in [
        (yaml, alias_bomb()),
        (yaml, deep("[", "]")),
        (yaml, deep("{a: ", "}")),
        (json, deep("[", "]")),
        (json, format!("{{\"metadata\":{}}}", deep("{\"a\":", "}"))),
        (json, format!("{{\"data\":{}", "[".repeat(1 << 20))),
    ] {
        let answer = api.ask(Method::POST, MAPS, &[media], body).await;
        assert!((400..500).contains(&answer.code), "{}: {}", media.1, answer.code);
    }
    let stored = api.get(MAPS).await.ok();
    assert_eq!(stored["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_patch_does_not_multiply() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let many = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
    let refused = api.patch("json", &path, Value::Array(many.clone())).await;
    assert_eq!((refused.code, refused.refusal().1), (413, "RequestEntityTooLarge"));
    api.patch("json", &path, Value::Array(many[1..].to_vec())).await.ok();
    let mut bomb = vec![json!({"op": "add", "path": "/data/x", "value": "x".repeat(100_000)})];
    bomb.extend((0..30).map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/c{at}")})));
    let refused = api.patch("json", &path, Value::Array(bomb)).await;
    assert!((400..500).contains(&refused.code), "{}", refused.code);
    assert_eq!(api.get(&path).await.ok()["data"], json!({"k": "v"}));
}

/// What is of the cluster is in no namespace, whoever says so in a path.
#[tokio::test(start_paused = true)]
async fn nothing_of_the_cluster_is_reached_through_a_namespace() {
    let api = Api::start().await;
    let registry = api.server.registry();
    let of_cluster = registry.all().filter(|served| served.kind.scope == Scope::Cluster);
    let mut tried = 0;
    for served in of_cluster.filter(|served| served.kind.plural != "namespaces") {
        let kind = &served.kind;
        let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
        let collection = format!("{root}/{}/namespaces/default/{}", kind.version, kind.plural);
        for (method, path) in [
            (Method::GET, collection.clone()),
            (Method::POST, collection.clone()),
            (Method::DELETE, collection.clone()),
            (Method::GET, format!("{collection}/x")),
            (Method::PUT, format!("{collection}/x")),
            (Method::DELETE, format!("{collection}/x")),
        ] {
            let body = json!({"metadata": {"name": "x", "namespace": "default"}}).to_string();
            let answer = api.ask(method.clone(), &path, &[], body).await;
            assert_eq!(answer.code, 404, "{method} {path}");
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}

#[tokio::test(start_paused = true)]
async fn the_largest_numbers_are_only_numbers() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let metadata = json!({"name": "a", "generation": i64::MAX, "finalizers": ["e.com/f"]});
    api.post(maps, json!({ "metadata": metadata })).await.created();
    let longest = json!({"gracePeriodSeconds": i64::MAX});
    api.delete_with(&format!("{maps}/a"), longest).await.ok();

    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let annotations = json!({"deprecated.daemonset.template.generation": i64::MAX.to_string()});
    let set = json!({"metadata": {"name": "d", "annotations": annotations},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    api.post(sets, set).await.created();
    let changed = json!({"spec": {"template": {"metadata": {"labels": {"c": "d"}}}}});
    api.merge(&format!("{sets}/d"), changed).await.ok();

    let rules = json!([{"rule": "self.size() > 1 || self == self + self"}]);
    let text = json!({"type": "string", "maxLength": i64::MAX, "x-kubernetes-validations": rules});
    let list = json!({"type": "array", "maxItems": i64::MAX, "items": text});
    let map = json!({"type": "object", "maxProperties": i64::MAX, "additionalProperties": list});
    let definition = definition(json!({"type": "object", "properties": {"spec": map}}));
    let answer = api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    assert_eq!(answer.code, 422, "{}", answer.text);
}
