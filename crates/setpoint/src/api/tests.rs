use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::{Value, json};

use super::*;
use crate::Cached;
use crate::client::fake;
use crate::reconcile::ErrorContext;

fn api() -> (Api, fake::Log) {
    let (client, log) = fake::client(fake::echo);
    (Api::new(client, "test"), log)
}

fn settings(version: Option<&str>) -> ConfigMap {
    let mut map =
        ConfigMap { metadata: Key::namespaced("shop", "settings").metadata(), ..ConfigMap::default() };
    map.metadata.resource_version = version.map(str::to_owned);
    map.metadata.uid = version.map(|_| "7f3e".to_owned());
    map.data = Some([("colour".to_owned(), "red".to_owned())].into());
    map
}

/// A hand-written view with its own encoding.
#[derive(Debug, PartialEq, serde::Deserialize, Serialize)]
struct Labels {
    metadata: Value,
}
crate::view!(Labels of Namespace);

#[tokio::test]
async fn kind_namespace_and_name_come_from_the_value() {
    let (api, log) = api();
    assert_eq!(api.create(&settings(None)).await.expect("created"), settings(None));
    api.apply(&settings(None)).await.expect("applied");
    api.update(&settings(Some("7"))).await.expect("updated");
    api.update_status(&settings(Some("7"))).await.expect("updated");
    api.delete(&settings(Some("7"))).await.expect("deleted");
    api.apply(&Labels { metadata: json!({"name": "shop"}) }).await.expect("applied");
    let maps = "/api/v1/namespaces/shop/configmaps";
    let expected = [
        format!("POST {maps}"),
        format!("PATCH {maps}/settings?fieldManager=test&force=true"),
        format!("PUT {maps}/settings"),
        format!("PUT {maps}/settings/status"),
        format!("DELETE {maps}/settings"),
        "PATCH /api/v1/namespaces/shop?fieldManager=test&force=true".into(),
    ];
    assert_eq!(log.lines(), expected);
    let bodies: Vec<Value> = log.all().iter().map(|received| received.json()).collect();
    assert_eq!(bodies[2]["metadata"]["resourceVersion"], "7");
    assert_eq!(bodies[4]["preconditions"], json!({"uid": "7f3e"}));
    assert_eq!((&bodies[5]["apiVersion"], &bodies[5]["kind"]), (&json!("v1"), &json!("Namespace")));
}

#[tokio::test]
async fn a_write_without_its_precondition_is_not_sent() {
    let (api, log) = api();
    let nameless = ConfigMap::default();
    let mut homeless = settings(None);
    homeless.metadata.namespace = None;
    let errors = [
        api.update(&settings(None)).await.map(drop),
        api.delete(&settings(None)).await,
        api.apply(&nameless).await.map(drop),
        api.apply(&homeless).await.map(drop),
    ]
    .map(|result| result.expect_err("rejected").to_string());
    assert_eq!(
        errors,
        [
            "metadata.resourceVersion: ConfigMap shop/settings has none, so it cannot be updated safely: read it first",
            "metadata.uid: ConfigMap shop/settings has none, so it cannot be deleted safely: read it first",
            "metadata.name: a ConfigMap that is applied needs one",
            "metadata.namespace: a ConfigMap that is applied needs one",
        ]
    );
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test]
async fn an_applied_object_has_neither_status_nor_managed_fields() {
    let (api, log) = api();
    let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
    let widget = json!({
        "metadata": {"name": "a", "namespace": "shop", "managedFields": [{"manager": "x"}]},
        "spec": {"size": 1},
        "status": {"ready": true},
    });
    api.of_kind(&widgets).apply(&widget).await.expect("applied");
    let expected = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"size": 1},
    });
    assert_eq!(log.all()[0].json(), expected);
}

fn with_status(status: Value) -> Cached<Namespace> {
    let raw = json!({"metadata": {"name": "shop", "uid": "7f3e", "resourceVersion": "7"}, "status": status});
    Cached::new(Object::from_json(raw.to_string().into()).expect("an object")).expect("a namespace")
}

#[tokio::test]
async fn a_status_is_written_only_if_it_differs() {
    let check = async |before: Value, after: Value, sent: Option<Value>| {
        let (api, log) = api();
        let written = api.patch_status(&with_status(before), &after).await.expect("patched");
        assert_eq!(written, sent.is_some());
        let patch = sent.map(|status| json!({"metadata": {"uid": "7f3e"}, "status": status}));
        assert_eq!(log.all().first().map(fake::Received::json), patch);
    };
    check(json!({"phase": "Active"}), json!({"phase": "Active"}), None).await;
    check(json!({"phase": "Active"}), json!({"phase": "Active", "conditions": null}), None).await;
    check(Value::Null, json!({}), None).await;
    check(Value::Null, json!({"phase": "Active"}), Some(json!({"phase": "Active"}))).await;
    let gone = json!({"phase": "Active", "conditions": null});
    check(json!({"phase": "Terminating", "conditions": []}), json!({"phase": "Active"}), Some(gone)).await;
}

#[tokio::test]
async fn objects_of_any_kind_are_read_by_key() {
    let (client, log) = fake::client(|received| match received.target.contains("missing") {
        true => Some((404, json!({"kind": "Status", "reason": "NotFound", "code": 404}))),
        false => {
            Some((200, json!({"metadata": {"name": "settings"}, "items": [{"metadata": {"name": "a"}}]})))
        }
    });
    let api = Api::new(client, "test");
    let key = Key::namespaced("shop", "settings");
    let map: ConfigMap = api.get(&key).await.expect("read");
    assert_eq!(map.metadata.name.as_deref(), Some("settings"));
    assert!(api.get_opt::<ConfigMap>(&key.sibling("missing")).await.expect("answered").is_none());
    assert_eq!(api.list::<ConfigMap>(Some("shop")).await.expect("listed").len(), 1);
    let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
    assert_eq!(api.of_kind(&widgets).get(&key).await.expect("read").key().name(), "settings");
    let error = api.get::<ConfigMap>(&key.sibling("missing")).await.attempting(|| "read it").map(drop);
    assert_eq!(error.expect_err("missing").class(), "terminal");
    assert_eq!(log.lines().len(), 5);
}

#[tokio::test]
async fn what_is_observed_is_applied_once_and_again_when_it_changes() {
    let (api, log) = api();
    let raw = json!({"metadata": {"name": "settings", "namespace": "shop", "resourceVersion": "7"},
        "data": {"colour": "red", "size": "big"}});
    let observed = Object::from_json(raw.to_string().into()).expect("an object");
    let kind = Kind::of::<ConfigMap>();
    let mut sizes = Vec::new();
    let both = Some([("colour".to_owned(), "red".to_owned()), ("size".to_owned(), "big".to_owned())].into());
    for data in [both.clone(), both.clone(), settings(None).data, settings(None).data, both] {
        let map = ConfigMap { data, ..settings(None) };
        api.of_kind(&kind).apply_unless(&map, |_| Some(observed.clone())).await.expect("applied");
        sizes.push(log.lines().len());
    }
    assert_eq!(sizes, [1, 1, 2, 2, 3], "requests so far");
}
