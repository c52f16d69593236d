//! Malicious requests: bodies that blow up, patches that multiply, nonsensical paths and values.

use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::kind::Scope;

use crate::client::Api;
use crate::custom::definition;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// A PodTemplate is validated like a pod, without a controller around it.
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates?dryRun=All";

/// Ten levels of ten aliases each: ten billion nodes if they were expanded.
fn alias_bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\n{text}")
}

#[tokio::test(start_paused = true)]
async fn bodies_that_expand_without_bound_are_rejected() {
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
async fn a_patch_cannot_grow_without_bound() {
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

/// Cluster-scoped objects are in no namespace, whatever the path says.
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

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod_with(spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Each error would contain the whole list, so the response to a body of a megabyte would have gigabytes.
#[tokio::test(start_paused = true)]
async fn only_the_first_of_many_errors_are_returned() {
    let api = Api::start().await;
    let owner = |at: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": at.to_string(), "controller": true});
    let owners: Vec<Value> = (0..20_000).map(owner).collect();
    let labels: serde_json::Map<String, Value> =
        (0..50_000).map(|at| (format!(" {at}"), json!(""))).collect();
    let claims = |prefix: &str| -> Vec<Value> {
        (0..20_000).map(|at| json!({"name": format!("{prefix}{at}")})).collect()
    };
    let claiming = json!([{"name": "c", "image": "i", "resources": {"claims": claims("a")}}]);
    for (path, object) in [
        (MAPS, json!({"metadata": {"name": "a", "ownerReferences": owners}})),
        (MAPS, json!({"metadata": {"name": "a", "labels": labels}})),
        (PODS, pod_with(json!({"containers": claiming, "resourceClaims": claims("b")}))),
    ] {
        api.default_service_account().await;
        let refused = api.post(path, object).await;
        assert_eq!(refused.code, 422, "{}", &refused.text[..200]);
        let causes = refused.body["details"]["causes"].as_array().unwrap().len();
        assert!((1..=1_000).contains(&causes), "{causes}");
        assert!(refused.text.len() < 32 << 20, "{}", refused.text.len());
    }
    let control = "%01".repeat(10_000);
    let refused =
        api.post(&format!("{MAPS}?fieldManager={control}"), json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.code, 422);
    assert!(refused.text.len() < 64 << 20, "{}", refused.text.len());
}

#[tokio::test(start_paused = true)]
async fn owners_are_deduplicated_however_many_there_are() {
    let api = Api::start().await;
    let owner = |at: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": at.to_string()});
    let owners: Vec<Value> = (0..40_000).map(|at| owner(at % 20_000)).collect();
    let made = api.post(MAPS, json!({"metadata": {"name": "a", "ownerReferences": owners}})).await;
    assert_eq!(made.warnings.len(), 1, "the first hundred are named: {:?}", made.warnings);
    assert_eq!(made.created()["metadata"]["ownerReferences"].as_array().unwrap().len(), 20_000);
}

/// Duplicate file names only cause warnings, one for each pair.
#[tokio::test(start_paused = true)]
async fn a_volume_of_many_files_is_not_warned_of_pair_by_pair() {
    let api = Api::start().await;
    api.default_service_account().await;
    let items = vec![json!({"key": "k", "path": "p"}); 40_000];
    let pod = pod_with(json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]}));
    let made = api.post(PODS, pod).await;
    assert!(!made.warnings.is_empty() && made.warnings.len() <= 100, "{}", made.warnings.len());
    made.created();
}

#[tokio::test(start_paused = true)]
async fn bodies_with_too_many_objects_are_rejected() {
    let api = Api::start().await;
    let body = format!(
        "{{\"metadata\":{{\"name\":\"p\"}},\"spec\":{{\"containers\":[{}{{}}]}}}}",
        "{},".repeat(400_000)
    );
    let refused = api.ask(Method::POST, PODS, &[("content-type", "application/json")], body).await;
    assert_eq!(refused.code, 400);
    assert!(refused.text.contains("more than 100000 objects"), "{}", refused.text);
}

/// An object that cannot be read back could not be deleted either.
#[tokio::test(start_paused = true)]
async fn an_object_is_never_stored_deeper_than_it_can_be_read() {
    let api = Api::start().await;
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let revision = |levels: usize| json!({"metadata": {"name": "a"}, "revision": 1, "data": deep(levels)});
    let refused = api.post(revisions, revision(124)).await.expect(400);
    let message = "the object is nested 125 levels deep, expected at most 120";
    assert_eq!(refused["message"], message);
    api.post(revisions, revision(119)).await.created();
    for path in [format!("{revisions}/a"), revisions.to_owned()] {
        api.get_as("application/json;as=Table;g=meta.k8s.io;v=v1", &path).await.ok();
    }
    api.delete(&format!("{revisions}/a")).await.ok();
}

/// Each operation adds something deep to the end of the previous one. The stack would overflow before the depth limit
/// applies.
#[tokio::test(start_paused = true)]
async fn a_patch_cannot_nest_without_bound() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
    for op in ["add", "replace"] {
        let at =
            |step: usize| json!({"op": op, "path": format!("/x{}", "/a".repeat(100 * step)), "value": deep});
        let refused = api.patch("json", &format!("{MAPS}/a"), (0..100).map(at).collect()).await;
        assert_eq!(refused.code, 422, "{op}: {}", refused.text);
    }
}

/// The path of everything inside a field contains the field's name.
#[tokio::test(start_paused = true)]
async fn a_long_name_is_not_repeated_for_all_that_is_below_it() {
    let api = Api::start().await;
    let map = |of: Value| json!({"type": "object", "additionalProperties": of});
    let known = json!({"type": "object", "properties": {"known": {"type": "integer"}}});
    let spec = json!({"type": "object", "properties": {"numbers": map(map(json!({"type": "integer"}))), "things": map(known)}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(schema)).await.created();
    let fields: serde_json::Map<String, Value> = (0..100_000).map(|at| (at.to_string(), json!(1))).collect();
    let name = "n".repeat(1_000_000);
    for field in ["numbers", "things"] {
        let spec = json!({(field): {(name.as_str()): fields}});
        let foo = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": field}, "spec": spec});
        for validation in ["Strict", "Warn"] {
            let path =
                format!("/apis/e.com/v1/namespaces/default/foos?dryRun=All&fieldValidation={validation}");
            let answer = api.post(&path, foo.clone()).await;
            let is_unknown = field == "things" && validation == "Strict";
            assert_eq!(answer.code, if is_unknown { 400 } else { 201 }, "{field} {validation}");
            assert!(answer.text.len() < 10_000_000, "{field} {validation}: {} bytes", answer.text.len());
        }
    }
}

/// Every port conflicts with all previous ones, which would cause a warning each.
#[tokio::test(start_paused = true)]
async fn a_pod_with_many_ports_does_not_take_all_memory_for_warnings() {
    let api = Api::start().await;
    let ports = |port: fn(usize) -> Value| -> Vec<Value> { (0..40_000).map(port).collect() };
    let template = |ports: Vec<Value>| {
        let container = json!({"name": "c", "image": "i", "ports": ports});
        json!({"metadata": {"name": "a"}, "template": {"spec": {"containers": [container]}}})
    };
    let same = api.post(TEMPLATES, template(ports(|_| json!({"containerPort": 1})))).await;
    assert_eq!(same.code, 201);
    assert!((1..256).contains(&same.warnings.len()), "{} warnings", same.warnings.len());
    let hosts =
        api.post(TEMPLATES, template(ports(|at| json!({"containerPort": 1, "hostPort": at + 1})))).await;
    assert_eq!((hosts.code, hosts.warnings), (201, vec![]));
}

#[tokio::test(start_paused = true)]
async fn long_lists_are_checked_in_reasonable_time() {
    let api = Api::start().await;
    let words = |prefix: &str| -> Vec<String> { (0..40_000).map(|at| format!("{prefix}{at}")).collect() };
    let expressions = |prefix: &str| -> Vec<Value> {
        words(prefix).iter().map(|key| json!({"key": key, "operator": "Exists"})).collect()
    };
    let selector = |prefix: &str| json!({"matchExpressions": expressions(prefix)});
    let constraint = |key: &str, keys: Value, selector: Value| {
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": keys,
               "labelSelector": selector})
    };
    let template = |constraints: Vec<Value>| {
        let spec =
            json!({"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": constraints});
        json!({"metadata": {"name": "a"}, "template": {"spec": spec}})
    };
    let keys = template(vec![constraint("k", json!(words("a")), selector("b"))]);
    api.post(TEMPLATES, keys).await.created();
    let many = words("k").iter().map(|key| constraint(key, json!(null), json!({}))).collect();
    api.post(TEMPLATES, template(many)).await.created();
}

#[tokio::test(start_paused = true)]
async fn long_lists_are_patched_and_applied_in_reasonable_time() {
    let api = Api::start().await;
    api.config_map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let finalizers: Vec<String> = (0..50_000).map(|at| format!("e.com/{at}")).collect();
    let made =
        api.patch("strategic-merge", &path, json!({"metadata": {"finalizers": finalizers}})).await.ok();
    assert_eq!(made["metadata"]["finalizers"].as_array().unwrap().len(), 50_000);
    let reversed: Vec<&String> = finalizers.iter().rev().collect();
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": reversed}});
    let made = api.patch("strategic-merge", &path, patch).await.ok();
    assert_eq!(made["metadata"]["finalizers"], Value::Null);
    let kept = json!({"metadata": {"finalizers": ["e.com/kept"]}});
    api.merge(&path, kept).await.ok();
    let mut all = finalizers[..10_000].to_vec();
    all.push("e.com/kept".into());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": all}});
    let media = ("content-type", "application/apply-patch+yaml");
    let applied = api.ask(Method::PATCH, &format!("{path}?fieldManager=m"), &[media], map.to_string()).await;
    assert_eq!(applied.expect(200)["metadata"]["finalizers"].as_array().unwrap().len(), 10_001);
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_patch_is_bounded() {
    let api = Api::start().await;
    let data: serde_json::Map<String, Value> = (0..20_000).map(|at| (at.to_string(), json!("v"))).collect();
    api.post(MAPS, json!({"metadata": {"name": "a"}, "data": data})).await.created();
    let moves: Vec<Value> = (0..5_000)
        .flat_map(|_| [("/data", "/other"), ("/other", "/data")])
        .map(|(from, path)| json!({"op": "move", "from": from, "path": path}))
        .collect();
    let path = format!("{MAPS}/a");
    assert_eq!(api.patch("json", &path, json!(moves)).await.code, 422);
    api.patch("json", &path, json!(moves[..100])).await.ok();
}

#[tokio::test(start_paused = true)]
async fn allocating_many_ports_does_not_block_other_services() {
    let api = Api::start().await;
    let services = "/api/v1/namespaces/default/services";
    let ports: Vec<Value> = (0..30_000).map(|at| json!({"name": format!("p{at}"), "port": at + 1, "protocol": format!("P{at}"), "nodePort": 30000})).collect();
    let service = |ports: &[Value], families: &[String]| json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": ports, "ipFamilies": families}});
    assert_eq!(api.post(services, service(&ports, &[])).await.code, 422);
    let families: Vec<String> = (0..60_000).map(|at| format!("IPv{at}")).collect();
    assert_eq!(api.post(services, service(&ports[..1], &families)).await.code, 422);
    api.post(services, service(&[json!({"port": 1})], &[])).await.created();
    assert!(api.put(&format!("{services}/a"), service(&ports, &[])).await.code >= 400);
}
