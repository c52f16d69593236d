//! A cluster whose nodes and pods are simulated by the test itself.

use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::source::Selection;
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Depth, History, Scenario, World, check_at_depth};

/// The number of seeded fault combinations in addition to all single faults. A long search raises it.
fn combinations() -> usize {
    let raised = std::env::var("SETPOINT_SIM_COMBINATIONS").ok();
    raised.and_then(|text| text.parse().ok()).unwrap_or(10)
}

pub(crate) fn parts(controllers: &[&str]) -> Components {
    let controllers = setpoint_controllers::selected(controllers).expect("known controllers");
    Components { controllers, ..Components::default() }
}

/// Crashes between any two writes, hides or delays every event, then tries combinations (see [`Depth`]). The graph and
/// the counts must be the same.
#[track_caller]
pub(crate) fn survives(
    name: &'static str,
    controllers: &[&str],
    script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
) {
    survives_with(name, parts(controllers), script);
}

#[track_caller]
pub(crate) fn survives_with(
    name: &'static str,
    parts: Components,
    script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
) {
    survives_within(name, parts, script, |_| Ok(()));
}

/// The same, with an invariant that is checked after every single change.
#[track_caller]
pub(crate) fn survives_within(
    name: &'static str,
    parts: Components,
    script: for<'a> fn(&'a World) -> LocalBoxFuture<'a, ()>,
    always: fn(&History) -> Result<(), String>,
) {
    let scenario = Scenario { name, parts, start: None, script, always };
    let report = check_at_depth(&scenario, 1, combinations(), Depth::from_env());
    let report = report.unwrap_or_else(|failure| panic!("{failure:?}"));
    println!("{name}: {} plans over {} writes and {} events", report.plans, report.writes, report.events);
}

pub(crate) fn kind(name: &str) -> Kind {
    let (group, plural, namespaced) = match name {
        "CertificateSigningRequest" => ("certificates.k8s.io", "certificatesigningrequests", false),
        "ClusterTrustBundle" => ("certificates.k8s.io", "clustertrustbundles", false),
        "ConfigMap" => ("", "configmaps", true),
        "CSIDriver" => ("storage.k8s.io", "csidrivers", false),
        "ClusterRole" => ("rbac.authorization.k8s.io", "clusterroles", false),
        "DeviceClass" => ("resource.k8s.io", "deviceclasses", false),
        "DeviceTaintRule" => ("resource.k8s.io", "devicetaintrules", false),
        "Endpoints" => ("", "endpoints", true),
        "EndpointSlice" => ("discovery.k8s.io", "endpointslices", true),
        "Event" => ("", "events", true),
        "HorizontalPodAutoscaler" => ("autoscaling", "horizontalpodautoscalers", true),
        "Ingress" => ("networking.k8s.io", "ingresses", true),
        "IngressClass" => ("networking.k8s.io", "ingressclasses", false),
        "Lease" => ("coordination.k8s.io", "leases", true),
        "Namespace" => ("", "namespaces", false),
        "Node" => ("", "nodes", false),
        "PersistentVolume" => ("", "persistentvolumes", false),
        "PersistentVolumeClaim" => ("", "persistentvolumeclaims", true),
        "Pod" => ("", "pods", true),
        "PodCertificateRequest" => ("certificates.k8s.io", "podcertificaterequests", true),
        "PodDisruptionBudget" => ("policy", "poddisruptionbudgets", true),
        "ReplicaSet" => ("apps", "replicasets", true),
        "ResourceClaim" => ("resource.k8s.io", "resourceclaims", true),
        "ResourceClaimTemplate" => ("resource.k8s.io", "resourceclaimtemplates", true),
        "ResourceQuota" => ("", "resourcequotas", true),
        "ResourceSlice" => ("resource.k8s.io", "resourceslices", false),
        "Secret" => ("", "secrets", true),
        "Service" => ("", "services", true),
        "ServiceCIDR" => ("networking.k8s.io", "servicecidrs", false),
        "ServiceAccount" => ("", "serviceaccounts", true),
        "StorageVersion" => ("internal.apiserver.k8s.io", "storageversions", false),
        "StorageVersionMigration" => ("storagemigration.k8s.io", "storageversionmigrations", false),
        "StorageClass" => ("storage.k8s.io", "storageclasses", false),
        "VolumeAttachment" => ("storage.k8s.io", "volumeattachments", false),
        "VolumeAttributesClass" => ("storage.k8s.io", "volumeattributesclasses", false),
        "ValidatingAdmissionPolicy" => ("admissionregistration.k8s.io", "validatingadmissionpolicies", false),
        other => panic!("{other} is no kind of this land"),
    };
    let version = match name {
        "HorizontalPodAutoscaler" => "v2",
        "ClusterTrustBundle" => "v1beta1",
        "DeviceTaintRule" => "v1alpha3",
        "PodCertificateRequest" | "StorageVersion" | "StorageVersionMigration" => "v1alpha1",
        _ => "v1",
    };
    Kind::new(group, version, name, plural, namespaced)
}

fn key(kind: &Kind, name: &str) -> Key {
    if kind.namespaced() { Key::namespaced("default", name) } else { Key::cluster(name) }
}

pub(crate) async fn create(world: &World, kind_name: &str, name: &str, mut body: Value) {
    let kind = kind(kind_name);
    body["metadata"]["name"] = json!(name);
    world.create(&kind, key(&kind, name).namespace(), body).await;
}

pub(crate) async fn patch(world: &World, kind_name: &str, name: &str, part: Subresource, body: Value) {
    let kind = kind(kind_name);
    let patch = Patch::Merge(body.to_string().into());
    let patched = world.client().patch(&kind, &key(&kind, name), part, patch).await;
    patched.unwrap_or_else(|error| panic!("cannot patch {kind_name} {name}: {error}"));
}

pub(crate) async fn delete(world: &World, kind_name: &str, name: &str) {
    let kind = kind(kind_name);
    let delete = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let deleted = world.client().delete(&kind, &key(&kind, name), &delete).await;
    deleted.unwrap_or_else(|error| panic!("cannot delete {kind_name} {name}: {error}"));
}

/// Waits until `settled` holds for an object.
pub(crate) async fn until(world: &World, kind_name: &str, name: &str, settled: impl Fn(&Value) -> bool) {
    let kind = kind(kind_name);
    world.until(&kind, &key(&kind, name), |object| object.is_some_and(&settled)).await;
}

/// Lists all objects of a kind.
pub(crate) async fn list(world: &World, kind_name: &str) -> Vec<Value> {
    let listed = world.client().list(&kind(kind_name), &Selection::default()).await.expect("a list");
    listed.objects.iter().map(|object| object.decode().expect("JSON")).collect()
}

/// Waits until `settled` holds for all objects of a kind.
pub(crate) async fn until_all(world: &World, kind_name: &str, settled: impl Fn(&[Value]) -> bool) {
    for _ in 0..3600 {
        if settled(&list(world, kind_name).await) {
            return;
        }
        world.pass(std::time::Duration::from_secs(1)).await;
    }
    panic!("{kind_name} never got there: {:?}\n{}", list(world, kind_name).await, world.trace().text());
}

/// Creates a pod on a node, with an existing service account.
pub(crate) async fn pod(world: &World, name: &str, app: &str) {
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    create(world, "Pod", name, json!({"metadata": {"labels": {"app": app}}, "spec": spec})).await;
}

/// Writes a pod's status, as its node would.
pub(crate) async fn running(world: &World, name: &str, ip: &str, ready: bool) {
    let ready = if ready { "True" } else { "False" };
    let conditions =
        json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2025-01-01T00:00:00Z"}]);
    let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions});
    patch(world, "Pod", name, Subresource::Status, json!({"status": status})).await;
}

/// Creates a node, and a service account for pods.
pub(crate) async fn found(world: &World) {
    create(world, "ServiceAccount", "default", json!({})).await;
    create(world, "Node", "n", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}})).await;
}
