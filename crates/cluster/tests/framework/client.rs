//! Tests requests of the client against the API server.

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::source::{Selection, Source};
use setpoint::{Client, Key, Object, UpdateBody};
use setpoint_cluster::InProcessSource;

use super::{cluster, config_maps};

fn config(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "shop"}}, "data": data})
}

async fn created(client: &Client, name: &str) -> Object {
    let body = config(name, json!({"a": "1"}));
    client.create(&config_maps(), Some("default"), &body).await.expect("created")
}

fn data(object: &Object) -> Value {
    object.decode::<Value>().expect("JSON")["data"].clone()
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_read_replaced_and_deleted() {
    let client = cluster().await.client();
    let kind = config_maps();
    let first = created(&client, "web").await;
    assert_eq!(client.get(&kind, first.key()).await.expect("found").raw(), first.raw());
    let edit = UpdateBody::of(&first).set(&["data", "b"], &"2");
    let second = client.update(&kind, first.key(), Subresource::None, &edit).await.expect("updated");
    assert_eq!(data(&second), json!({"a": "1", "b": "2"}));
    let stale =
        client.update(&kind, first.key(), Subresource::None, &edit).await.expect_err("it has changed");
    assert!(stale.is_conflict(), "{stale}");
    client.delete(&kind, first.key(), &DeleteOptions::default()).await.expect("deleted");
    assert!(client.get(&kind, first.key()).await.expect_err("gone").is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_is_in_the_reply() {
    let client = cluster().await.client();
    let body = json!({"metadata": {"generateName": "web-"}});
    let one = client.create(&config_maps(), Some("default"), &body).await.expect("created");
    let two = client.create(&config_maps(), Some("default"), &body).await.expect("created");
    assert!(one.key().name().starts_with("web-") && one.key() != two.key());
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_patch_changes_what_it_says() {
    let client = cluster().await.client();
    let key = created(&client, "web").await.key().clone();
    let patches = [
        (Patch::json(&json!([{"op": "add", "path": "/data/b", "value": "2"}])), json!({"a": "1", "b": "2"})),
        (Patch::merge(&json!({"data": {"a": null}})), json!({"b": "2"})),
        (Patch::strategic(&json!({"data": {"c": "3"}})), json!({"b": "2", "c": "3"})),
    ];
    for (patch, expected) in patches {
        let patched = client.patch(&config_maps(), &key, Subresource::None, patch).await.expect("patched");
        assert_eq!(data(&patched), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_hits_only_what_it_was_meant_for() {
    let client = cluster().await.client();
    let (kind, object) = (config_maps(), created(&client, "web").await);
    let another = client
        .delete(&kind, object.key(), &DeleteOptions::of_uid("another"))
        .await
        .expect_err("not this one");
    assert!(another.is_conflict(), "{another}");
    let stale = DeleteOptions { resource_version: Some("1".into()), ..DeleteOptions::default() };
    assert!(client.delete(&kind, object.key(), &stale).await.expect_err("it has changed").is_conflict());
    client.delete(&kind, object.key(), &DeleteOptions::of_uid(&*object.meta().uid)).await.expect("this one");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_has_a_reason() {
    let client = cluster().await.client();
    let kind = config_maps();
    let key = created(&client, "web").await.key().clone();
    let again =
        client.create(&kind, Some("default"), &config("web", json!({}))).await.expect_err("it exists");
    assert!(again.is_already_exists());
    assert_eq!(again.to_string(), r#"configmaps "web" already exists"#);
    let nowhere = client.get(&kind, &Key::namespaced("nowhere", "web")).await.expect_err("no such thing");
    assert_eq!(nowhere.to_string(), r#"configmaps "web" not found"#);
    let odd = client.get(&kind, &Key::namespaced("default", "a/b?c")).await.expect_err("no such name");
    assert_eq!(
        odd.to_string(),
        "the server could not find the requested resource",
        "an escaped slash is one"
    );
    let invalid =
        client.create(&kind, Some("default"), &config("No", json!({}))).await.expect_err("a bad name");
    assert!(invalid.is_invalid());
    assert_eq!(invalid.causes()[0].field, "metadata.name");
    let patch = Patch::json(&json!([{"op": "test", "path": "/data/a", "value": "other"}]));
    let untrue = client.patch(&kind, &key, Subresource::None, patch).await.expect_err("the test fails");
    assert_eq!(untrue.code(), Some(422));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_more_than_a_page_is_whole_and_selected() {
    let client = cluster().await.client();
    let kind = config_maps();
    for number in 0..1_100 {
        let labels = json!({"parity": if number % 2 == 0 { "even" } else { "odd" }});
        let body = json!({"metadata": {"name": format!("c{number:04}"), "labels": labels}});
        client.create(&kind, Some("default"), &body).await.expect("created");
    }
    let selection = |labels: Option<&str>| Selection {
        namespace: Some("default".into()),
        labels: labels.map(str::to_owned),
        ..Selection::default()
    };
    let even = client.list(&kind, &selection(Some("parity in (even)"))).await.expect("listed");
    assert_eq!((even.objects.len(), even.undecodable), (550, 0));
    let all = client.list(&kind, &selection(None)).await.expect("listed");
    let names: Vec<_> =
        all.objects.iter().map(|object| object.key().name()).filter(|name| name.starts_with('c')).collect();
    assert_eq!(names.len(), 1_100);
    assert!(names.is_sorted());
    assert!(!all.resource_version.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_informer_shares_the_bytes_of_the_api_server_and_the_objects_of_other_informers() {
    let cluster = cluster().await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true});
    let metadata = json!({"name": "a", "labels": {"b": "2", "a": "1"}, "finalizers": ["example.com/f"],
        "ownerReferences": [owner]});
    let (client, kind) = (cluster.client(), config_maps());
    client.create(&kind, Some("default"), &json!({"metadata": metadata})).await.expect("created");
    let source = InProcessSource::new(cluster.api().clone(), setpoint_cluster::identity::admin());
    let listed = async || source.list(&config_maps(), &Selection::default()).await.expect("a list").objects;
    let bytes = |objects: &[Object]| -> Vec<_> {
        objects.iter().map(|object| (object.key().clone(), object.raw().as_ptr().addr())).collect()
    };
    let (one, another) = (listed().await, listed().await);
    assert!(one.iter().any(|object| object.key().name() == "a"));
    assert_eq!(bytes(&one), bytes(&another), "both are views of the store's own bytes");
    for (one, another) in one.iter().zip(&another) {
        assert!(std::ptr::eq(one.meta(), another.meta()), "and one object");
        let read = Object::from_json(one.raw().clone()).expect("an object");
        assert_eq!((read.meta(), read.key()), (one.meta(), one.key()), "which is as if it had been read");
    }
}
