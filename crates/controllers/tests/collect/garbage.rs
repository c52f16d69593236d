//! Garbage collection: dependents are deleted with their owners.

use serde_json::json;
use setpoint::client::Part;
use setpoint::client::Propagation::{Background, Foreground, Orphan};

use super::land::{Land, land, owner};

const CONTROLLERS: &[&str] = &["garbagecollector"];

/// `a` owns `b`, which owns `c`.
async fn three_levels(land: &Land<'_>) {
    let a = land.config_map("a", &[]).await;
    let b = land.config_map("b", &[owner("a", &a, true)]).await;
    land.config_map("c", &[owner("b", &b, true)]).await;
    land.pass(1).await;
}

async fn left(land: &Land<'_>, names: &[&str]) -> String {
    let mut left = String::new();
    for name in names {
        if land.has("ConfigMap", name).await {
            left.push_str(name);
        }
    }
    left
}

#[test]
fn all_levels_go_in_the_background_and_in_the_foreground() {
    for propagation in [Background, Foreground] {
        land(CONTROLLERS, async |land| {
            three_levels(land).await;
            land.delete("ConfigMap", "a", propagation).await;
            land.pass(1).await;
            assert_eq!(left(land, &["a", "b", "c"]).await, "");
        });
    }
}

#[test]
fn an_orphan_keeps_what_it_owns() {
    land(CONTROLLERS, async |land| {
        three_levels(land).await;
        land.delete("ConfigMap", "a", Orphan).await;
        land.pass(1).await;
        assert_eq!(left(land, &["a", "b", "c"]).await, "bc");
        let b = land.get("ConfigMap", "b").await.unwrap();
        assert!(b["metadata"]["ownerReferences"].is_null(), "{b}");
    });
}

#[test]
fn an_owner_waits_for_a_dependent_that_somebody_holds() {
    land(CONTROLLERS, async |land| {
        let a = land.config_map("a", &[]).await;
        let owners = json!([owner("a", &a, true)]);
        let held = json!({"metadata": {"ownerReferences": owners, "finalizers": ["example.com/hold"]}});
        land.create("ConfigMap", "b", held).await;
        land.delete("ConfigMap", "a", Foreground).await;
        land.pass(60).await;
        let a = land.get("ConfigMap", "a").await.expect("it waits");
        assert_eq!(a["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        land.patch("ConfigMap", "b", Part::Main, json!({"metadata": {"finalizers": null}})).await;
        land.pass(1).await;
        assert_eq!(left(land, &["a", "b"]).await, "");
    });
}

#[test]
fn one_absent_owner_is_let_go_of_and_the_other_stays() {
    land(CONTROLLERS, async |land| {
        let a = land.config_map("a", &[]).await;
        let absent = owner("nobody", "5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d21", false);
        land.config_map("b", &[absent.clone(), owner("a", &a, false)]).await;
        land.config_map("c", &[absent]).await;
        land.pass(1).await;
        assert_eq!(left(land, &["a", "b", "c"]).await, "ab");
        let b = land.get("ConfigMap", "b").await.unwrap();
        assert_eq!(b["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn an_owner_in_another_namespace_is_reported_and_does_not_count() {
    land(CONTROLLERS, async |land| {
        land.create("Namespace", "other", json!({})).await;
        let a = land.config_map("a", &[]).await;
        land.config_map("other/b", &[owner("a", &a, false)]).await;
        land.pass(1).await;
        assert_eq!(left(land, &["a", "other/b"]).await, "a");
        let expected = format!(
            "ownerRef [v1/ConfigMap, namespace: other, name: a, uid: {a}] does not exist in namespace \"other\""
        );
        assert_eq!(land.events("OwnerRefInvalidNamespace").await, [expected]);
    });
}

/// Anyone who knows a UID can reference it. That must not affect the object with that UID.
#[test]
fn a_reference_to_somebody_elses_uid_deletes_nothing_of_theirs() {
    land(CONTROLLERS, async |land| {
        land.create("Namespace", "other", json!({})).await;
        let a = land.config_map("a", &[]).await;
        land.config_map("b", &[owner("a", &a, true)]).await;
        let mut forged = owner("a", &a, true);
        forged["kind"] = "Secret".into();
        land.config_map("c", &[forged.clone()]).await;
        land.config_map("other/d", &[forged, owner("a", &a, true)]).await;
        land.pass(1).await;
        land.delete("ConfigMap", "c", Foreground).await;
        land.delete("ConfigMap", "other/d", Foreground).await;
        land.pass(120).await;
        assert_eq!(left(land, &["a", "b"]).await, "ab");
    });
}

#[test]
fn a_cluster_scoped_dependent_of_a_namespaced_owner_is_reported_and_kept() {
    land(CONTROLLERS, async |land| {
        let a = land.config_map("a", &[]).await;
        let owners = json!({"metadata": {"ownerReferences": [owner("a", &a, false)]}});
        land.create("Namespace", "owned", owners).await;
        land.pass(1).await;
        let expected = format!(
            "ownerRef [v1/ConfigMap, namespace: , name: a, uid: {a}] does not exist in namespace \"\""
        );
        assert_eq!(land.events("OwnerRefInvalidNamespace").await, [expected]);
        land.delete("ConfigMap", "a", Background).await;
        land.pass(120).await;
        assert!(land.has("Namespace", "owned").await);
    });
}

#[test]
fn a_circle_goes_when_one_of_it_is_deleted() {
    for propagation in [Background, Foreground] {
        land(CONTROLLERS, async |land| {
            let a = land.config_map("a", &[]).await;
            let b = land.config_map("b", &[owner("a", &a, true)]).await;
            let owners = json!({"metadata": {"ownerReferences": [owner("b", &b, true)]}});
            land.patch("ConfigMap", "a", Part::Main, owners).await;
            land.pass(5).await;
            assert_eq!(left(land, &["a", "b"]).await, "ab");
            land.delete("ConfigMap", "a", propagation).await;
            land.pass(5).await;
            assert_eq!(left(land, &["a", "b"]).await, "");
        });
    }
}

#[test]
fn an_owner_that_is_gone_before_anybody_saw_it_takes_its_dependent_along() {
    land(CONTROLLERS, async |land| {
        let a = land.config_map("a", &[]).await;
        land.config_map("b", &[owner("a", &a, false)]).await;
        // No monitor has seen the owner yet.
        land.delete("ConfigMap", "a", Background).await;
        land.pass(1).await;
        assert_eq!(left(land, &["a", "b"]).await, "");
    });
}

#[test]
fn a_settled_world_is_left_alone() {
    land(CONTROLLERS, async |land| {
        three_levels(land).await;
        land.pass(5).await;
        let before = land.world.revision();
        land.pass(600).await;
        assert_eq!(land.world.revision(), before);
    });
}
