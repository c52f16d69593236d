//! A deleted namespace is removed with everything in it.

use serde_json::{Value, json};
use setpoint::client::PropagationPolicy::Background;
use setpoint::client::Subresource;

use super::cluster::{TestCluster, cluster, owner};

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

async fn namespace(cluster: &TestCluster<'_>, name: &str) -> Value {
    cluster.get("Namespace", name).await.expect("the namespace is there")
}

#[test]
fn a_namespace_goes_with_its_content_after_a_grace() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Namespace", "old", json!({})).await;
        let a = cluster.config_map("old/a", &[]).await;
        cluster.config_map("old/b", &[owner("a", &a, true)]).await;
        cluster.create("Secret", "old/s", json!({})).await;
        cluster.delete("Namespace", "old", Background).await;
        cluster.pass(4).await;
        assert!(cluster.has("ConfigMap", "old/a").await, "others may not know yet");
        cluster.pass(2).await;
        assert!(!cluster.has("Namespace", "old").await);
        assert!(!cluster.has("ConfigMap", "old/a").await && !cluster.has("Secret", "old/s").await);
    });
}

#[test]
fn objects_with_finalizers_are_reported_and_waited_for() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Namespace", "old", json!({})).await;
        cluster.create("ConfigMap", "old/a", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
        cluster.create("ConfigMap", "old/b", json!({})).await;
        cluster.delete("Namespace", "old", Background).await;
        cluster.pass(6).await;
        assert!(!cluster.has("ConfigMap", "old/b").await);
        let held = namespace(cluster, "old").await;
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
        cluster
            .patch("ConfigMap", "old/a", Subresource::None, json!({"metadata": {"finalizers": null}}))
            .await;
        // It is checked again within half of the 15 seconds estimated for finalizers, plus one.
        cluster.pass(9).await;
        assert!(!cluster.has("Namespace", "old").await);
    });
}

#[test]
fn pods_end_before_anything_else_is_deleted() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Namespace", "old", json!({})).await;
        cluster.pass(1).await;
        cluster.create("Pod", "old/p", pod()).await;
        cluster.create("ConfigMap", "old/a", json!({})).await;
        cluster.delete("Namespace", "old", Background).await;
        cluster.pass(10).await;
        let ending = cluster.get("Pod", "old/p").await.expect("it has not ended");
        assert!(!ending["metadata"]["deletionTimestamp"].is_null());
        assert!(cluster.has("ConfigMap", "old/a").await, "the pod may use it");
        cluster
            .world
            .client()
            .delete(&super::cluster::kind("Pod"), &setpoint::Key::namespaced("old", "p"), &at_once())
            .await
            .unwrap();
        cluster.pass(17).await;
        assert!(!cluster.has("Namespace", "old").await);
    });
}

fn at_once() -> setpoint::client::DeleteOptions {
    setpoint::client::DeleteOptions { grace_period_seconds: Some(0), ..Default::default() }
}

#[test]
fn another_finalizer_keeps_the_empty_namespace() {
    cluster(CONTROLLERS, async |cluster| {
        cluster
            .create("Namespace", "old", json!({"spec": {"finalizers": ["example.com/mine", "kubernetes"]}}))
            .await;
        cluster.delete("Namespace", "old", Background).await;
        cluster.pass(10).await;
        let kept = namespace(cluster, "old").await;
        assert_eq!(kept["spec"]["finalizers"], json!(["example.com/mine"]));
        assert_eq!(
            condition(&kept, "NamespaceContentRemaining"),
            "False ContentRemoved: All content successfully removed"
        );
        let before = cluster.world.revision();
        cluster.pass(300).await;
        assert_eq!(cluster.world.revision(), before, "there is nothing more to say");
    });
}
