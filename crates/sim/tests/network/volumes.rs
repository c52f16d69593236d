//! Claims, volumes and their protection.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::Key;
use setpoint::client::Subresource;
use setpoint_cluster::Components;
use setpoint_sim::{Fault, History, OnEvent, World};

use super::scenarios::{
    create, delete, found, kind, list, parts, patch, survives, survives_within, until, until_all,
};

const BINDER: &str = "persistentvolume-binder";
const PROTECTION: [&str; 2] = ["pvc-protection", "pv-protection"];

fn with_protection(more: &[&'static str]) -> Vec<&'static str> {
    PROTECTION.iter().chain(more).copied().collect()
}

async fn volume(world: &World, name: &str, size: &str, policy: &str) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": "s",
        "hostPath": {"path": format!("/tmp/{name}")}, "persistentVolumeReclaimPolicy": policy});
    create(world, "PersistentVolume", name, json!({"spec": spec})).await;
}

fn claim_spec(class: &str) -> Value {
    json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}}})
}

async fn claim(world: &World, name: &str) {
    create(world, "PersistentVolumeClaim", name, json!({"spec": claim_spec("s")})).await;
}

async fn phase(world: &World, kind_name: &str, name: &str, phase: &str) {
    until(world, kind_name, name, |object| object["status"]["phase"] == phase).await;
}

async fn gone(world: &World, kind_name: &str, name: &str) {
    let kind = kind(kind_name);
    let key = if kind.namespaced() { Key::namespaced("default", name) } else { Key::cluster(name) };
    world.until(&kind, &key, |object| object.is_none()).await;
}

/// Two claims get a volume each. One is deleted, and its volume is kept. The other one's volume is deleted with it.
fn bound_and_released(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        volume(world, "kept", "1Gi", "Retain").await;
        phase(world, "PersistentVolume", "kept", "Available").await;
        claim(world, "a").await;
        phase(world, "PersistentVolumeClaim", "a", "Bound").await;
        volume(world, "deleted", "2Gi", "Delete").await;
        phase(world, "PersistentVolume", "deleted", "Available").await;
        claim(world, "b").await;
        phase(world, "PersistentVolumeClaim", "b", "Bound").await;
        delete(world, "PersistentVolumeClaim", "a").await;
        phase(world, "PersistentVolume", "kept", "Released").await;
        delete(world, "PersistentVolumeClaim", "b").await;
        gone(world, "PersistentVolume", "deleted").await;
    }
    .boxed_local()
}

/// No claim ever loses its volume.
fn no_claim_is_lost(history: &History) -> Result<(), String> {
    let mut changes = history.changes();
    let lost = changes.find(|(_, object)| object["status"]["phase"] == "Lost");
    lost.map_or(Ok(()), |(_, claim)| Err(format!("given up: {claim}")))
}

#[test]
fn claims_and_volumes_survive_every_crash_and_every_stale_or_hidden_event() {
    let parts = parts(&with_protection(&[BINDER]));
    survives_within("bound and released", parts, bound_and_released, no_claim_is_lost);
}

/// Another component has bound a volume to a claim that the binder has not seen yet.
#[test]
fn a_volume_whose_claim_is_seen_late_is_not_reclaimed() {
    for nth in 0..8 {
        let late = Fault::Event { nth, what: OnEvent::Delay(Duration::from_secs(60)) };
        World::simulate(1, parts(&[BINDER]), vec![late], async |world| {
            world.pass(Duration::from_secs(5)).await;
            claim(world, "c").await;
            let claims = world.get(&kind("PersistentVolumeClaim"), &Key::namespaced("default", "c")).await;
            let uid = claims.expect("it is there")["metadata"]["uid"].clone();
            let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "storageClassName": "s", "hostPath": {"path": "/tmp/v"}, "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"namespace": "default", "name": "c", "uid": uid}});
            create(world, "PersistentVolume", "v", json!({"spec": spec})).await;
            phase(world, "PersistentVolumeClaim", "c", "Bound").await;
            let history = world.history();
            let released = |object: &Value| object["status"]["phase"] == "Released";
            assert!(!history.changes().any(|(_, object)| released(&object)), "{late:?}");
        });
    }
}

/// A claim in use stays until its pod is gone.
fn protected(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        volume(world, "v", "1Gi", "Retain").await;
        phase(world, "PersistentVolume", "v", "Available").await;
        claim(world, "c").await;
        phase(world, "PersistentVolumeClaim", "c", "Bound").await;
        let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
        create(world, "Pod", "p", json!({"spec": spec})).await;
        delete(world, "PersistentVolumeClaim", "c").await;
        world.pass(Duration::from_secs(60)).await;
        until(world, "PersistentVolumeClaim", "c", |claim| {
            claim["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
        delete(world, "Pod", "p").await;
        gone(world, "PersistentVolumeClaim", "c").await;
        phase(world, "PersistentVolume", "v", "Released").await;
    }
    .boxed_local()
}

#[test]
fn a_claim_in_use_is_kept_whatever_goes_wrong() {
    survives("a protected claim", &with_protection(&[BINDER]), protected);
}

/// A pod gets its own claim, and an attribute class is removed after its last user.
fn ephemeral(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        let attributes = json!({"driverName": "d", "parameters": {"iops": "1"}});
        create(world, "VolumeAttributesClass", "fast", attributes).await;
        until(world, "VolumeAttributesClass", "fast", |class| class["metadata"]["finalizers"].is_array())
            .await;
        let mut spec = claim_spec("s");
        spec["volumeAttributesClassName"] = json!("fast");
        let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]);
        let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
        create(world, "Pod", "p", json!({"spec": spec})).await;
        phase(world, "PersistentVolumeClaim", "p-scratch", "Pending").await;
        delete(world, "VolumeAttributesClass", "fast").await;
        world.pass(Duration::from_secs(30)).await;
        until(world, "VolumeAttributesClass", "fast", |class| class["metadata"]["finalizers"].is_array())
            .await;
        delete(world, "Pod", "p").await;
        gone(world, "PersistentVolumeClaim", "p-scratch").await;
        gone(world, "VolumeAttributesClass", "fast").await;
    }
    .boxed_local()
}

#[test]
fn claims_of_pods_and_attribute_classes_in_use_survive_crashes_and_stale_events() {
    let more =
        ["ephemeral-volume", "volumeattributesclass-protection-controller", "garbage-collector-controller"];
    survives("ephemeral claims", &with_protection(&more), ephemeral);
}

#[test]
fn settled_volumes_cost_nothing() {
    let controllers =
        with_protection(&[BINDER, "ephemeral-volume", "volumeattributesclass-protection-controller"]);
    World::simulate(1, parts(&controllers), Vec::new(), async |world| {
        protected_and_settled(world).await;
        let (writes, _) = world.faults().seen();
        world.restart().await;
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(world.faults().seen().0, writes, "{}", world.trace().text());
    });
}

async fn protected_and_settled(world: &World) {
    for name in ["a", "b", "c"] {
        volume(world, name, "1Gi", "Retain").await;
    }
    world.pass(Duration::from_secs(5)).await;
    claim(world, "x").await;
    claim(world, "y").await;
    phase(world, "PersistentVolumeClaim", "x", "Bound").await;
    phase(world, "PersistentVolumeClaim", "y", "Bound").await;
    delete(world, "PersistentVolumeClaim", "y").await;
    gone(world, "PersistentVolumeClaim", "y").await;
    world.pass(Duration::from_secs(60)).await;
}

/// A hundred claims that all want the smallest volume need four writes each, and their volumes one more.
#[test]
fn many_claims_at_once_do_not_conflict() {
    World::simulate(1, parts(&[BINDER]), Vec::new(), async |world| {
        for index in 0..100 {
            volume(world, &format!("v{index:03}"), "1Gi", "Retain").await;
        }
        world.pass(Duration::from_secs(20)).await;
        let (before, _) = world.faults().seen();
        for index in 0..100 {
            claim(world, &format!("c{index:03}")).await;
        }
        world.pass(Duration::from_secs(60)).await;
        for index in 0..100 {
            phase(world, "PersistentVolumeClaim", &format!("c{index:03}"), "Bound").await;
        }
        let writes = world.faults().seen().0 - before;
        assert!(writes <= 420, "{writes} writes for 100 claims");
    });
}

/// A volume follows its pod from one node to another.
fn attached(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceAccount", "default", json!({})).await;
        for node in ["m", "n"] {
            let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
            create(world, "Node", node, json!({"metadata": {"annotations": annotations}})).await;
        }
        drivers_volume(world).await;
        for node in ["m", "n"] {
            user_of_claim(world, node).await;
            until_all(world, "VolumeAttachment", |all| all.len() == 1 && all[0]["spec"]["nodeName"] == node)
                .await;
            let name = list(world, "VolumeAttachment").await[0]["metadata"]["name"].clone();
            let name = name.as_str().expect("a name").to_owned();
            patch(
                world,
                "VolumeAttachment",
                &name,
                Subresource::Status,
                json!({"status": {"attached": true}}),
            )
            .await;
            until(world, "Node", node, |node| node["status"]["volumesAttached"].is_array()).await;
            delete(world, "Pod", node).await;
            gone(world, "VolumeAttachment", &name).await;
            until(world, "Node", node, |node| node["status"]["volumesAttached"].is_null()).await;
        }
    }
    .boxed_local()
}

/// A volume of a driver, and its claim.
async fn drivers_volume(world: &World) {
    let reference = json!({"namespace": "default", "name": "c"});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "s",
        "csi": {"driver": "d", "volumeHandle": "h"}, "claimRef": reference});
    create(world, "PersistentVolume", "v", json!({"spec": spec})).await;
    claim(world, "c").await;
    phase(world, "PersistentVolumeClaim", "c", "Bound").await;
}

/// A pod on a node, named after the node, that uses the claim.
async fn user_of_claim(world: &World, node: &str) {
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
    create(world, "Pod", node, json!({"spec": spec})).await;
}

/// The volume is never attached to two nodes at once.
fn one_node_at_a_time(history: &History) -> Result<(), String> {
    let mut there = std::collections::BTreeSet::new();
    for (change, object) in history.changes() {
        let name = object["metadata"]["name"].to_string();
        if object["kind"] != "VolumeAttachment" {
            continue;
        }
        match change {
            setpoint_store::EventKind::Deleted => there.remove(&name),
            _ => there.insert(name),
        };
        if there.len() > 1 {
            return Err(format!("attached twice: {there:?}"));
        }
    }
    Ok(())
}

#[test]
fn attached_volumes_survive_crashes_and_stale_events_and_are_never_on_two_nodes() {
    let parts = parts(&[BINDER, "attachdetach"]);
    survives_within("attached volumes", parts, attached, one_node_at_a_time);
}

/// An inline disk follows its pods, under its driver's name.
fn attached_inline(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceAccount", "default", json!({})).await;
        for node in ["m", "n"] {
            let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
            create(world, "Node", node, json!({"metadata": {"annotations": annotations}})).await;
            let volumes = json!([{"name": "d", "awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}]);
            let containers = json!([{"name": "c", "image": "i"}]);
            let spec = json!({"nodeName": node, "containers": containers, "volumes": volumes});
            create(world, "Pod", node, json!({"spec": spec})).await;
            until_all(world, "VolumeAttachment", |all| all.len() == 1 && all[0]["spec"]["nodeName"] == node)
                .await;
            let attachment = list(world, "VolumeAttachment").await[0].clone();
            let csi = &attachment["spec"]["source"]["inlineVolumeSpec"]["csi"];
            assert_eq!((&csi["driver"], &csi["volumeHandle"]), (&json!("ebs.csi.aws.com"), &json!("vol-1")));
            let name = attachment["metadata"]["name"].as_str().expect("a name").to_owned();
            patch(
                world,
                "VolumeAttachment",
                &name,
                Subresource::Status,
                json!({"status": {"attached": true}}),
            )
            .await;
            let attached_to = json!([{"name": "kubernetes.io/csi/ebs.csi.aws.com^vol-1", "devicePath": ""}]);
            until(world, "Node", node, |node| node["status"]["volumesAttached"] == attached_to).await;
            delete(world, "Pod", node).await;
            gone(world, "VolumeAttachment", &name).await;
            until(world, "Node", node, |node| node["status"]["volumesAttached"].is_null()).await;
        }
    }
    .boxed_local()
}

#[test]
fn inline_disks_are_attached_and_never_to_two_nodes() {
    survives_within("attached disks", parts(&["attachdetach"]), attached_inline, one_node_at_a_time);
}

/// A network disk cannot be attached. Its node is notified that it may use it, and another node only after that one is
/// done.
fn found_on_network(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceAccount", "default", json!({})).await;
        let reference = json!({"namespace": "default", "name": "c"});
        let iscsi = json!({"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2025-01.example:x", "lun": 1});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "storageClassName": "s", "iscsi": iscsi, "claimRef": reference});
        create(world, "PersistentVolume", "v", json!({"spec": spec})).await;
        claim(world, "c").await;
        phase(world, "PersistentVolumeClaim", "c", "Bound").await;
        let name = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2025-01.example:x:1";
        let attached_to = json!([{"name": name, "devicePath": ""}]);
        for node in ["m", "n"] {
            let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
            create(world, "Node", node, json!({"metadata": {"annotations": annotations}})).await;
            user_of_claim(world, node).await;
        }
        until(world, "Node", "m", |node| node["status"]["volumesAttached"] == attached_to).await;
        patch(world, "Node", "m", Subresource::Status, json!({"status": {"volumesInUse": [name]}})).await;
        delete(world, "Pod", "m").await;
        world.pass(Duration::from_secs(30)).await;
        until(world, "Node", "n", |node| node["status"]["volumesAttached"].is_null()).await;
        patch(world, "Node", "m", Subresource::Status, json!({"status": {"volumesInUse": null}})).await;
        until(world, "Node", "m", |node| node["status"]["volumesAttached"].is_null()).await;
        until(world, "Node", "n", |node| node["status"]["volumesAttached"] == attached_to).await;
    }
    .boxed_local()
}

/// Two nodes are never notified at the same time that they may use the disk.
fn attached_to_one_node(history: &History) -> Result<(), String> {
    let mut attached_to = std::collections::BTreeSet::new();
    for (_, node) in history.changes().filter(|(_, object)| object["kind"] == "Node") {
        let name = node["metadata"]["name"].to_string();
        match node["status"]["volumesAttached"].is_array() {
            true => attached_to.insert(name),
            false => attached_to.remove(&name),
        };
        if attached_to.len() > 1 {
            return Err(format!("attached to {attached_to:?}"));
        }
    }
    Ok(())
}

#[test]
fn network_disks_are_attached_to_one_node_after_the_other_whatever_goes_wrong() {
    let parts = parts(&[BINDER, "attachdetach"]);
    survives_within("disks on the network", parts, found_on_network, attached_to_one_node);
}

/// A node that does not respond keeps its volume for six minutes. A node that is out of service loses it immediately.
#[test]
fn a_volume_is_detached_from_a_node_out_of_service() {
    World::simulate(1, parts(&[BINDER, "attachdetach"]), Vec::new(), async |world| {
        attach_in_use(world).await;
        delete(world, "Pod", "n").await;
        world.pass(Duration::from_secs(350)).await;
        assert_eq!(list(world, "VolumeAttachment").await.len(), 1, "the node may yet come back");
        world.pass(Duration::from_secs(20)).await;
        assert_eq!(list(world, "VolumeAttachment").await.len(), 0);
    });
    World::simulate(1, parts(&[BINDER, "attachdetach"]), Vec::new(), async |world| {
        attach_in_use(world).await;
        let taints = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
        patch(world, "Node", "n", Subresource::None, json!({"spec": {"taints": taints}})).await;
        delete(world, "Pod", "n").await;
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(list(world, "VolumeAttachment").await.len(), 0);
    });
}

async fn attach_in_use(world: &World) {
    found(world).await;
    let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
    patch(world, "Node", "n", Subresource::None, json!({"metadata": {"annotations": annotations}})).await;
    drivers_volume(world).await;
    user_of_claim(world, "n").await;
    until_all(world, "VolumeAttachment", |all| all.len() == 1).await;
    let conditions =
        json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2025-01-01T00:00:00Z"}]);
    let status = json!({"volumesInUse": ["kubernetes.io/csi/d^h"], "conditions": conditions});
    patch(world, "Node", "n", Subresource::Status, json!({"status": status})).await;
}

/// Pods wait for their volumes, and volumes for their pods. One volume exists already, and the script creates the other
/// one in the role of a driver.
fn scheduled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceAccount", "default", json!({})).await;
        for (class, provisioner) in [("s", "kubernetes.io/no-provisioner"), ("made", "d")] {
            let body = json!({"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"});
            create(world, "StorageClass", class, body).await;
        }
        volume(world, "there", "1Gi", "Retain").await;
        phase(world, "PersistentVolume", "there", "Available").await;
        create(world, "PersistentVolumeClaim", "made", json!({"spec": claim_spec("made")})).await;
        claim(world, "there").await;
        for name in ["there", "made"] {
            let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": name}}]);
            let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": volumes});
            create(world, "Pod", name, json!({"spec": spec})).await;
        }
        phase(world, "Pod", "there", "Running").await;
        let asked = "volume.kubernetes.io/storage-provisioner";
        until(world, "PersistentVolumeClaim", "made", |claim| claim["metadata"]["annotations"][asked] == "d").await;
        let reference = json!({"namespace": "default", "name": "made"});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": reference,
            "storageClassName": "made", "csi": {"driver": "d", "volumeHandle": "h"}});
        create(world, "PersistentVolume", "made", json!({"spec": spec})).await;
        phase(world, "PersistentVolumeClaim", "made", "Bound").await;
        phase(world, "Pod", "made", "Running").await;
    }
    .boxed_local()
}

/// No pod is on a node before its claim is bound.
fn volumes_first(history: &History) -> Result<(), String> {
    let mut bound = std::collections::BTreeSet::new();
    for (_, object) in history.changes() {
        let name = object["metadata"]["name"].to_string();
        if object["kind"] == "PersistentVolumeClaim" && object["spec"]["volumeName"].is_string() {
            bound.insert(name);
        } else if object["kind"] == "Pod" && object["spec"]["nodeName"].is_string() && !bound.contains(&name)
        {
            return Err(format!("{name} is on a node without its volume"));
        }
    }
    Ok(())
}

#[test]
fn pods_and_their_volumes_are_matched_whatever_goes_wrong() {
    let parts = Components { scheduler: true, nodes: 1, ..parts(&[BINDER, "nodelifecycle"]) };
    survives_within("scheduled volumes", parts, scheduled, volumes_first);
}

/// A claim requests more space on a disk whose in-tree plugin has been migrated to a CSI driver.
fn expanded(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let class = json!({"provisioner": "kubernetes.io/gce-pd", "allowVolumeExpansion": true});
        create(world, "StorageClass", "s", class).await;
        let reference = json!({"namespace": "default", "name": "c"});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "s",
            "gcePersistentDisk": {"pdName": "d"}, "claimRef": reference});
        create(world, "PersistentVolume", "v", json!({"spec": spec})).await;
        // A binder that has not seen the volume correctly requests another one.
        phase(world, "PersistentVolume", "v", "Available").await;
        claim(world, "c").await;
        phase(world, "PersistentVolumeClaim", "c", "Bound").await;
        let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        patch(world, "PersistentVolumeClaim", "c", Subresource::None, more).await;
        let resizer = "volume.kubernetes.io/storage-resizer";
        until(world, "PersistentVolumeClaim", "c", |claim| {
            claim["metadata"]["annotations"][resizer] == "pd.csi.storage.gke.io"
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn claim_expansion_survives_crashes_and_stale_events() {
    survives("expanded claims", &[BINDER, "persistentvolume-expander"], expanded);
}
