//! Garbage collection: dependents are deleted with their owners.

use serde_json::json;
use setpoint::client::PropagationPolicy::{Background, Foreground, Orphan};
use setpoint::client::Subresource;

use super::cluster::{TestCluster, cluster, owner};

const CONTROLLERS: &[&str] = &["garbagecollector"];

/// `a` owns `b`, which owns `c`.
async fn three_levels(cluster: &TestCluster<'_>) {
    let a = cluster.config_map("a", &[]).await;
    let b = cluster.config_map("b", &[owner("a", &a, true)]).await;
    cluster.config_map("c", &[owner("b", &b, true)]).await;
    cluster.pass(1).await;
}

async fn left(cluster: &TestCluster<'_>, names: &[&str]) -> String {
    let mut left = String::new();
    for name in names {
        if cluster.has("ConfigMap", name).await {
            left.push_str(name);
        }
    }
    left
}

#[test]
fn all_levels_go_in_the_background_and_in_the_foreground() {
    for propagation in [Background, Foreground] {
        cluster(CONTROLLERS, async |cluster| {
            three_levels(cluster).await;
            cluster.delete("ConfigMap", "a", propagation).await;
            cluster.pass(1).await;
            assert_eq!(left(cluster, &["a", "b", "c"]).await, "");
        });
    }
}

#[test]
fn an_orphan_keeps_what_it_owns() {
    cluster(CONTROLLERS, async |cluster| {
        three_levels(cluster).await;
        cluster.delete("ConfigMap", "a", Orphan).await;
        cluster.pass(1).await;
        assert_eq!(left(cluster, &["a", "b", "c"]).await, "bc");
        let b = cluster.get("ConfigMap", "b").await.unwrap();
        assert!(b["metadata"]["ownerReferences"].is_null(), "{b}");
    });
}

#[test]
fn an_owner_waits_for_a_dependent_with_a_finalizer() {
    cluster(CONTROLLERS, async |cluster| {
        let a = cluster.config_map("a", &[]).await;
        let owners = json!([owner("a", &a, true)]);
        let held = json!({"metadata": {"ownerReferences": owners, "finalizers": ["example.com/hold"]}});
        cluster.create("ConfigMap", "b", held).await;
        cluster.delete("ConfigMap", "a", Foreground).await;
        cluster.pass(60).await;
        let a = cluster.get("ConfigMap", "a").await.expect("it waits");
        assert_eq!(a["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        cluster.patch("ConfigMap", "b", Subresource::None, json!({"metadata": {"finalizers": null}})).await;
        cluster.pass(1).await;
        assert_eq!(left(cluster, &["a", "b"]).await, "");
    });
}

#[test]
fn a_reference_to_an_absent_owner_is_removed_and_the_other_is_kept() {
    cluster(CONTROLLERS, async |cluster| {
        let a = cluster.config_map("a", &[]).await;
        let absent = owner("nobody", "5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d21", false);
        cluster.config_map("b", &[absent.clone(), owner("a", &a, false)]).await;
        cluster.config_map("c", &[absent]).await;
        cluster.pass(1).await;
        assert_eq!(left(cluster, &["a", "b", "c"]).await, "ab");
        let b = cluster.get("ConfigMap", "b").await.unwrap();
        assert_eq!(b["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn an_owner_in_another_namespace_is_reported_and_does_not_count() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Namespace", "other", json!({})).await;
        let a = cluster.config_map("a", &[]).await;
        cluster.config_map("other/b", &[owner("a", &a, false)]).await;
        cluster.pass(1).await;
        assert_eq!(left(cluster, &["a", "other/b"]).await, "a");
        let expected = format!(
            "ownerRef [v1/ConfigMap, namespace: other, name: a, uid: {a}] does not exist in namespace \"other\""
        );
        assert_eq!(cluster.events("OwnerRefInvalidNamespace").await, [expected]);
    });
}

/// Anyone who knows a UID can reference it. That must not affect the object with that UID.
#[test]
fn a_forged_owner_reference_deletes_nothing_of_the_real_owner() {
    cluster(CONTROLLERS, async |cluster| {
        cluster.create("Namespace", "other", json!({})).await;
        let a = cluster.config_map("a", &[]).await;
        cluster.config_map("b", &[owner("a", &a, true)]).await;
        let mut forged = owner("a", &a, true);
        forged["kind"] = "Secret".into();
        cluster.config_map("c", &[forged.clone()]).await;
        cluster.config_map("other/d", &[forged, owner("a", &a, true)]).await;
        cluster.pass(1).await;
        cluster.delete("ConfigMap", "c", Foreground).await;
        cluster.delete("ConfigMap", "other/d", Foreground).await;
        cluster.pass(120).await;
        assert_eq!(left(cluster, &["a", "b"]).await, "ab");
    });
}

#[test]
fn a_cluster_scoped_dependent_of_a_namespaced_owner_is_reported_and_kept() {
    cluster(CONTROLLERS, async |cluster| {
        let a = cluster.config_map("a", &[]).await;
        let owners = json!({"metadata": {"ownerReferences": [owner("a", &a, false)]}});
        cluster.create("Namespace", "owned", owners).await;
        cluster.pass(1).await;
        let expected = format!(
            "ownerRef [v1/ConfigMap, namespace: , name: a, uid: {a}] does not exist in namespace \"\""
        );
        assert_eq!(cluster.events("OwnerRefInvalidNamespace").await, [expected]);
        cluster.delete("ConfigMap", "a", Background).await;
        cluster.pass(120).await;
        assert!(cluster.has("Namespace", "owned").await);
    });
}

#[test]
fn a_cycle_is_deleted_when_one_of_it_is_deleted() {
    for propagation in [Background, Foreground] {
        cluster(CONTROLLERS, async |cluster| {
            let a = cluster.config_map("a", &[]).await;
            let b = cluster.config_map("b", &[owner("a", &a, true)]).await;
            let owners = json!({"metadata": {"ownerReferences": [owner("b", &b, true)]}});
            cluster.patch("ConfigMap", "a", Subresource::None, owners).await;
            cluster.pass(5).await;
            assert_eq!(left(cluster, &["a", "b"]).await, "ab");
            cluster.delete("ConfigMap", "a", propagation).await;
            cluster.pass(5).await;
            assert_eq!(left(cluster, &["a", "b"]).await, "");
        });
    }
}

#[test]
fn a_dependent_of_an_owner_that_was_never_observed_is_deleted() {
    cluster(CONTROLLERS, async |cluster| {
        let a = cluster.config_map("a", &[]).await;
        cluster.config_map("b", &[owner("a", &a, false)]).await;
        // No monitor has seen the owner yet.
        cluster.delete("ConfigMap", "a", Background).await;
        cluster.pass(1).await;
        assert_eq!(left(cluster, &["a", "b"]).await, "");
    });
}

#[test]
fn a_settled_cluster_gets_no_writes() {
    cluster(CONTROLLERS, async |cluster| {
        three_levels(cluster).await;
        cluster.pass(5).await;
        let before = cluster.world.revision();
        cluster.pass(600).await;
        assert_eq!(cluster.world.revision(), before);
    });
}
