//! A deleted namespace is removed with everything in it.

use serde_json::{Value, json};
use setpoint::client::Part;
use setpoint::client::Propagation::Background;

use super::land::{Land, land, owner};

/// Pods need service accounts.
const CONTROLLERS: &[&str] = &["namespace", "garbagecollector", "serviceaccount"];

fn pod() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}})
}

fn condition(namespace: &Value, r#type: &str) -> String {
    let conditions = namespace["status"]["conditions"].as_array().expect("conditions");
    let found = conditions.iter().find(|condition| condition["type"] == r#type).expect("this condition");
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

async fn namespace(land: &Land<'_>, name: &str) -> Value {
    land.get("Namespace", name).await.expect("the namespace is there")
}

#[test]
fn a_namespace_goes_with_its_content_after_a_grace() {
    land(CONTROLLERS, async |land| {
        land.create("Namespace", "old", json!({})).await;
        let a = land.config_map("old/a", &[]).await;
        land.config_map("old/b", &[owner("a", &a, true)]).await;
        land.create("Secret", "old/s", json!({})).await;
        land.delete("Namespace", "old", Background).await;
        land.pass(4).await;
        assert!(land.has("ConfigMap", "old/a").await, "others may not know yet");
        land.pass(2).await;
        assert!(!land.has("Namespace", "old").await);
        assert!(!land.has("ConfigMap", "old/a").await && !land.has("Secret", "old/s").await);
    });
}

#[test]
fn what_is_held_is_reported_and_waited_for() {
    land(CONTROLLERS, async |land| {
        land.create("Namespace", "old", json!({})).await;
        land.create("ConfigMap", "old/a", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
        land.create("ConfigMap", "old/b", json!({})).await;
        land.delete("Namespace", "old", Background).await;
        land.pass(6).await;
        assert!(!land.has("ConfigMap", "old/b").await);
        let held = namespace(land, "old").await;
        assert_eq!(held["status"]["phase"], "Terminating");
        assert_eq!(
            condition(&held, "NamespaceContentRemaining"),
            "True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances"
        );
        assert_eq!(
            condition(&held, "NamespaceFinalizersRemaining"),
            "True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: \
             example.com/hold in 1 resource instances"
        );
        assert_eq!(
            condition(&held, "NamespaceDeletionContentFailure"),
            "False ContentDeleted: All content successfully deleted, may be waiting on finalization"
        );
        land.patch("ConfigMap", "old/a", Part::Main, json!({"metadata": {"finalizers": null}})).await;
        // It is checked again within half of the 15 seconds estimated for finalizers, plus one.
        land.pass(9).await;
        assert!(!land.has("Namespace", "old").await);
    });
}

#[test]
fn pods_end_before_anything_else_is_deleted() {
    land(CONTROLLERS, async |land| {
        land.create("Namespace", "old", json!({})).await;
        land.pass(1).await;
        land.create("Pod", "old/p", pod()).await;
        land.create("ConfigMap", "old/a", json!({})).await;
        land.delete("Namespace", "old", Background).await;
        land.pass(10).await;
        let ending = land.get("Pod", "old/p").await.expect("nobody has ended it");
        assert!(!ending["metadata"]["deletionTimestamp"].is_null());
        assert!(land.has("ConfigMap", "old/a").await, "the pod may use it");
        land.world
            .client()
            .delete(&super::land::kind("Pod"), &setpoint::Key::namespaced("old", "p"), &at_once())
            .await
            .unwrap();
        land.pass(17).await;
        assert!(!land.has("Namespace", "old").await);
    });
}

fn at_once() -> setpoint::client::Delete {
    setpoint::client::Delete { grace_period_seconds: Some(0), ..Default::default() }
}

#[test]
fn a_finalizer_of_others_keeps_the_empty_namespace() {
    land(CONTROLLERS, async |land| {
        land.create("Namespace", "old", json!({"spec": {"finalizers": ["example.com/mine", "kubernetes"]}}))
            .await;
        land.delete("Namespace", "old", Background).await;
        land.pass(10).await;
        let kept = namespace(land, "old").await;
        assert_eq!(kept["spec"]["finalizers"], json!(["example.com/mine"]));
        assert_eq!(
            condition(&kept, "NamespaceContentRemaining"),
            "False ContentRemoved: All content successfully removed"
        );
        let before = land.world.revision();
        land.pass(300).await;
        assert_eq!(land.world.revision(), before, "there is nothing more to say");
    });
}
