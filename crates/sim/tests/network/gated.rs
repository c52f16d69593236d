//! Controllers behind feature gates: their kinds are only served if the feature is enabled.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::Key;
use setpoint::client::Subresource;
use setpoint_cluster::Components;
use setpoint_controllers::{FeatureGates, Options};
use setpoint_sim::World;

use super::certificates::CA;
use super::scenarios::{create, delete, kind, list, parts, patch, survives_with, until};
use super::tokens::create_in;

/// These controllers, with these features enabled.
fn with(features: &[&str], controllers: &[&str]) -> Components {
    let on = |gates: FeatureGates, name: &&str| gates.with(name, true).expect("a feature");
    let gates = features.iter().fold(FeatureGates::default(), on);
    let controller_options = Options { gates, root_ca: Some(CA.to_owned()), ..Options::default() };
    Components { controller_options, ..parts(controllers) }
}

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
const PUBLISHER: &str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";

fn publishing() -> Components {
    with(&["ClusterTrustBundle"], &[PUBLISHER])
}

async fn bundles(world: &World) -> Vec<Value> {
    let bundles = list(world, "ClusterTrustBundle").await;
    bundles.into_iter().filter(|bundle| bundle["spec"]["signerName"] == SIGNER).collect()
}

/// A bundle that a user created for the signer is deleted, and the right one is created.
fn trust(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let spec = json!({"signerName": SIGNER, "trustBundle": CA});
        create(
            world,
            "ClusterTrustBundle",
            "kubernetes.io:kube-apiserver-serving:old",
            json!({"spec": spec}),
        )
        .await;
        create(world, "ClusterTrustBundle", "of-others", json!({"spec": {"trustBundle": CA}})).await;
        let right = |bundles: &[Value]| {
            bundles.len() == 1 && bundles[0]["metadata"]["name"] != "kubernetes.io:kube-apiserver-serving:old"
        };
        for _ in 0..3600 {
            if right(&bundles(world).await) {
                return;
            }
            world.pass(Duration::from_secs(1)).await;
        }
        panic!("the right bundle is not there: {:?}\n{}", bundles(world).await, world.trace().text());
    }
    .boxed_local()
}

#[test]
fn trust_bundles_survive_every_crash_and_every_stale_or_hidden_event() {
    survives_with("trust bundles", publishing(), trust);
}

#[test]
fn a_deleted_bundle_is_recreated_and_foreign_bundles_are_left_alone() {
    World::simulate(1, publishing(), Vec::new(), async |world| {
        trust(world).await;
        let name = bundles(world).await[0]["metadata"]["name"].as_str().expect("a name").to_owned();
        delete(world, "ClusterTrustBundle", &name).await;
        until(world, "ClusterTrustBundle", &name, |bundle| bundle["spec"]["trustBundle"] == CA).await;
        assert!(world.get(&kind("ClusterTrustBundle"), &Key::cluster("of-others")).await.is_some());
    });
}

#[test]
fn without_the_feature_gate_nothing_of_it_is_served_or_run() {
    let parts = with(&[], &[PUBLISHER]);
    World::simulate(1, parts, Vec::new(), async |world| {
        world.pass(Duration::from_secs(60)).await;
        let listed = world.client().list(&kind("ClusterTrustBundle"), &Default::default()).await;
        assert!(listed.is_err_and(|error| error.is_not_found()));
    });
}

fn cleaning() -> Components {
    with(&["PodCertificateRequest"], &["podcertificaterequest-cleaner-controller"])
}

async fn request(world: &World, name: &str) {
    let spec = json!({
        "signerName": "example.com/s", "podName": "p", "podUID": "1", "serviceAccountName": "a",
        "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "pkixPublicKey": "", "proofOfPossession": "",
    });
    create(world, "PodCertificateRequest", name, json!({"spec": spec})).await;
}

/// Requests that no signer answers are deleted.
fn unanswered(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        for name in ["one", "other"] {
            request(world, name).await;
            world.pass(Duration::from_secs(60)).await;
        }
        for name in ["one", "other"] {
            let key = Key::namespaced("default", name);
            world.until(&kind("PodCertificateRequest"), &key, |request| request.is_none()).await;
        }
    }
    .boxed_local()
}

#[test]
fn pod_certificate_requests_are_deleted_once_whatever_happens() {
    survives_with("requests of pods", cleaning(), unanswered);
}

#[test]
fn a_pod_certificate_request_is_deleted_after_fifteen_minutes() {
    World::simulate(1, cleaning(), Vec::new(), async |world| {
        request(world, "r").await;
        world.pass(Duration::from_secs(14 * 60)).await;
        let (kind, key) = (kind("PodCertificateRequest"), Key::namespaced("default", "r"));
        assert!(world.get(&kind, &key).await.is_some());
        world.pass(Duration::from_secs(7 * 60)).await;
        assert!(world.get(&kind, &key).await.is_none());
    });
}

fn recording() -> Components {
    with(&["StorageVersionAPI"], &["storage-version-gc"])
}

async fn lease(world: &World, name: &str) {
    let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    create_in(world, "kube-system", &kind("Lease"), name, json!({"metadata": {"labels": labels}})).await;
}

async fn record(world: &World, name: &str, servers: &[(&str, &str)]) {
    create(world, "StorageVersion", name, json!({"spec": {}})).await;
    let server = |(id, version): &(&str, &str)| json!({"apiServerID": id, "encodingVersion": version, "decodableVersions": [version]});
    let all: Vec<_> = servers.iter().map(server).collect();
    let same = servers.iter().all(|(_, version)| *version == servers[0].1);
    let common = same.then(|| servers[0].1);
    let status = json!({"storageVersions": all, "commonEncodingVersion": common});
    patch(world, "StorageVersion", name, Subresource::Status, json!({"status": status})).await;
}

/// Servers that are gone are removed, immediately or when their lease is. A record without any server is deleted.
fn storage_versions(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        lease(world, "old").await;
        lease(world, "new").await;
        record(world, "apps.deployments", &[("old", "v1"), ("new", "v2")]).await;
        record(world, "apps.replicasets", &[("nobody", "v1")]).await;
        world.until(&kind("StorageVersion"), &Key::cluster("apps.replicasets"), |one| one.is_none()).await;
        let old = Key::namespaced("kube-system", "old");
        let deleted = world.client().delete(&kind("Lease"), &old, &Default::default()).await;
        deleted.expect("a lease can be deleted");
        until(world, "StorageVersion", "apps.deployments", |record| {
            record["status"]["commonEncodingVersion"] == "v2"
                && record["status"]["conditions"][0]["reason"] == "CommonEncodingVersionSet"
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn records_of_storage_versions_survive_every_crash_and_every_stale_or_hidden_event() {
    survives_with("storage versions", recording(), storage_versions);
}

fn migrating() -> Components {
    with(&["StorageVersionMigrator", "InformerResourceVersion"], &["svm"])
}

fn has(migration: &Value, r#type: &str) -> bool {
    let conditions = migration["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == r#type && one["status"] == "True")
}

/// Served resources are migrated. Others fail with a reason.
fn migrations(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        for name in ["a", "b", "c"] {
            create(world, "ConfigMap", name, json!({"data": {"x": "y"}})).await;
        }
        let resource = json!({"version": "v1", "resource": "configmaps"});
        create(world, "StorageVersionMigration", "maps", json!({"spec": {"resource": resource}})).await;
        let unknown = json!({"group": "nobody.example", "version": "v1", "resource": "things"});
        create(world, "StorageVersionMigration", "things", json!({"spec": {"resource": unknown}})).await;
        until(world, "StorageVersionMigration", "maps", |one| has(one, "Succeeded") && !has(one, "Running"))
            .await;
        until(world, "StorageVersionMigration", "things", |one| {
            has(one, "Failed")
                && one["status"]["conditions"][0]["message"] == "resource does not exist in discovery"
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn migrations_survive_every_crash_and_every_stale_or_hidden_event() {
    survives_with("migrations", migrating(), migrations);
}

fn evicting() -> Components {
    with(&["DRADeviceTaints"], &["device-taint-eviction-controller"])
}

/// A pod on a node that has a device of its claim.
async fn with_device(world: &World, name: &str, device: &str, tolerations: Value) {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "x"}}]);
    create(world, "ResourceClaim", name, json!({"spec": {"devices": {"requests": requests}}})).await;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "dev", "resourceClaimName": name}]});
    create(world, "Pod", name, json!({"spec": spec})).await;
    let pod = world.get(&kind("Pod"), &Key::namespaced("default", name)).await.expect("a pod");
    let result = json!({"request": "r", "driver": "d.example", "pool": "p", "device": device, "tolerations": tolerations});
    let consumer = json!({"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]});
    let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]});
    patch(world, "ResourceClaim", name, Subresource::Status, json!({"status": status})).await;
}

/// A rule taints a device, and a driver taints another one. Pods that do not tolerate it are evicted.
fn device_taints(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceAccount", "default", json!({})).await;
        create(world, "Node", "n", json!({})).await;
        let class = json!({"selectors": [{"cel": {"expression": "device.attributes['d.example'].old"}}]});
        create(world, "DeviceClass", "old", json!({"spec": class})).await;
        let slice = |taints: Value| {
            json!({"driver": "d.example", "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a"}, {"name": "b", "taints": taints}, {"name": "c"},
                    {"name": "e", "attributes": {"old": {"bool": true}}}]})
        };
        create(world, "ResourceSlice", "s", json!({"spec": slice(json!([]))})).await;
        let always = json!([{"operator": "Exists", "effect": "NoExecute"}]);
        with_device(world, "by-rule", "a", json!([])).await;
        with_device(world, "by-driver", "b", json!([])).await;
        with_device(world, "tolerant", "a", always).await;
        with_device(world, "elsewhere", "c", json!([])).await;
        with_device(world, "by-class", "e", json!([])).await;
        let taint = json!({"key": "broken", "effect": "NoExecute"});
        let rule = json!({"deviceSelector": {"driver": "d.example", "device": "a"}, "taint": taint});
        create(world, "DeviceTaintRule", "broken", json!({"spec": rule})).await;
        let rule = json!({"deviceSelector": {"deviceClassName": "old"}, "taint": taint});
        create(world, "DeviceTaintRule", "old", json!({"spec": rule})).await;
        patch(world, "ResourceSlice", "s", Subresource::None, json!({"spec": slice(json!([taint]))})).await;
        for (name, stays) in [("by-rule", false), ("by-driver", false), ("by-class", false)] {
            let key = Key::namespaced("default", name);
            world
                .until(&kind("Pod"), &key, |pod| {
                    pod.is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()) != stays
                })
                .await;
        }
    }
    .boxed_local()
}

#[test]
fn device_taints_survive_every_crash_and_every_stale_or_hidden_event() {
    survives_with("device taints", evicting(), device_taints);
}

#[test]
fn pods_are_evicted_from_tainted_devices_unless_they_tolerate_the_taint() {
    World::simulate(1, evicting(), Vec::new(), async |world| {
        device_taints(world).await;
        world.pass(Duration::from_secs(30)).await;
        for name in ["tolerant", "elsewhere"] {
            let pod = world.get(&kind("Pod"), &Key::namespaced("default", name)).await.expect("a pod");
            assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{name} stays");
        }
        let key = Key::namespaced("default", "by-rule");
        if let Some(pod) = world.get(&kind("Pod"), &key).await {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let condition =
                conditions.iter().find(|one| one["type"] == "DisruptionTarget").expect("a condition");
            assert_eq!(condition["reason"], "DeletionByDeviceTaintManager");
        }
    });
}

#[test]
fn a_pod_is_evicted_from_a_tainted_device_after_its_toleration_seconds() {
    World::simulate(1, evicting(), Vec::new(), async |world| {
        create(world, "ServiceAccount", "default", json!({})).await;
        create(world, "Node", "n", json!({})).await;
        let devices = json!([{"name": "a"}]);
        let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "d.example", "nodeName": "n", "pool": pool, "devices": devices});
        create(world, "ResourceSlice", "s", json!({"spec": spec})).await;
        let a_minute = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
        with_device(world, "patient", "a", a_minute).await;
        let taint = json!({"key": "broken", "effect": "NoExecute"});
        let rule = |device: &str| json!({"spec": {"deviceSelector": {"device": device}, "taint": taint}});
        create(world, "DeviceTaintRule", "broken", rule("a")).await;
        world.pass(Duration::from_secs(50)).await;
        let going = async |name: &str| {
            let pod = world.get(&kind("Pod"), &Key::namespaced("default", name)).await;
            pod.is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string())
        };
        assert!(!going("patient").await);
        world.pass(Duration::from_secs(20)).await;
        assert!(going("patient").await);
    });
}
