//! Makes a situation in a simulated cluster and asks why.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::discovery::discover;
use setpoint::{Key, Kind};
use setpoint_explain::gather::{self, ClusterSource};
use setpoint_explain::kinds::GroupKind;
use setpoint_explain::model::{Explanation, ObjectRef};
use setpoint_explain::render;
use setpoint_sim::{Running, TestCluster};

/// How long a situation gets to unfold.
const UNFOLDS: Duration = Duration::from_secs(150);

/// Every controller, the scheduler and two nodes with 8 CPUs each.
pub(crate) fn cluster() -> TestCluster {
    TestCluster::new().all_controllers().scheduler().nodes(2)
}

/// Makes a situation, and expects the first line of the explanation to say all of this.
pub(crate) fn check(
    cluster: TestCluster,
    target: &str,
    says: &[&str],
    make: impl AsyncFnOnce(&Running),
) -> Explanation {
    let (explanation, text) = explained(cluster, target, make);
    let missing: Vec<&&str> = says.iter().filter(|said| !explanation.headline.contains(**said)).collect();
    assert!(missing.is_empty(), "the first line does not say {missing:?}:\n{text}");
    assert!(explanation.cause.is_some(), "it has not converged:\n{text}");
    explanation
}

/// Makes a situation and asks why. Returns the explanation and its text.
pub(crate) fn explained(
    cluster: TestCluster,
    target: &str,
    make: impl AsyncFnOnce(&Running),
) -> (Explanation, String) {
    cluster.run(async |cluster| {
        ready(cluster).await;
        make(cluster).await;
        cluster.pass(UNFOLDS).await;
        why(cluster, target).await
    })
}

/// Waits until pods can be created.
async fn ready(cluster: &Running) {
    let account = Key::namespaced("default", "default");
    cluster.until(&account, |_: &k8s_openapi::api::core::v1::ServiceAccount| true).await;
    cluster.pass(Duration::from_secs(10)).await;
}

/// Asks why. The target is `KIND/NAME`, in the namespace `default`, or `KIND/NAMESPACE/NAME`.
pub(crate) async fn why(cluster: &Running, target: &str) -> (Explanation, String) {
    let parts: Vec<&str> = target.split('/').collect();
    let (kind, namespace, name) = match parts.as_slice() {
        [kind, name] => (*kind, "default", *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => panic!("{target} is not a target"),
    };
    let discovered = discover(&cluster.client()).await.expect("discovery works");
    let resource = discovered.named(kind).unwrap_or_else(|| panic!("{kind} is not served"));
    let namespace = resource.kind.namespaced().then_some(namespace);
    let kind = GroupKind::named(resource.kind.group(), resource.kind.kind());
    let target = ObjectRef::new(&kind, namespace, name);
    let source = ClusterSource::new(cluster.client(), discovered);
    let now = || cluster.clock().now();
    let explanation = gather::explain(&source, &target, now).await;
    let text = render::tree(&explanation, now(), |text, _| text.to_owned());
    (explanation, text)
}

pub(crate) fn object(api_version: &str, kind: &str, name: &str, fields: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    merge(&mut object, fields);
    object
}

/// Without a namespace.
pub(crate) fn global(api_version: &str, kind: &str, name: &str, fields: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    merge(&mut object, fields);
    object
}

pub(crate) fn merge(into: &mut Value, fields: Value) {
    match (into, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, value) in fields {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value,
    }
}

/// A container with some fields.
pub(crate) fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "nginx"});
    merge(&mut container, fields);
    container
}

pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [container(json!({}))]});
    merge(&mut whole, spec);
    object("v1", "Pod", name, json!({"spec": whole}))
}

/// A pod with annotations for the simulated node.
pub(crate) fn behaving(name: &str, annotations: Value, spec: Value) -> Value {
    let mut pod = pod(name, spec);
    merge(&mut pod, json!({"metadata": {"annotations": annotations}}));
    pod
}

/// A Deployment, StatefulSet or the like of such pods.
pub(crate) fn workload(kind: &str, name: &str, spec: Value, pod: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": name}, "annotations": pod["metadata"]["annotations"]},
        "spec": pod["spec"]});
    let mut whole = json!({"selector": {"matchLabels": {"app": name}}, "template": template});
    merge(&mut whole, spec);
    object("apps/v1", kind, name, json!({"spec": whole}))
}

pub(crate) fn deployment(name: &str, replicas: usize, pod: Value) -> Value {
    workload("Deployment", name, json!({"replicas": replicas}), pod)
}

/// Changes an object with a merge patch.
pub(crate) async fn patch(cluster: &Running, kind: &Kind, name: &str, change: Value) {
    let key = if kind.namespaced() { Key::namespaced("default", name) } else { Key::cluster(name) };
    let patched = cluster.client().patch(kind, &key, Subresource::None, Patch::merge(&change)).await;
    patched.unwrap_or_else(|error| panic!("cannot patch {name}: {error}"));
}

/// Writes the status of an object as its controller would.
pub(crate) async fn patch_status(cluster: &Running, kind: &Kind, name: &str, change: Value) {
    let key = if kind.namespaced() { Key::namespaced("default", name) } else { Key::cluster(name) };
    let patched = cluster.client().patch(kind, &key, Subresource::Status, Patch::merge(&change)).await;
    patched.unwrap_or_else(|error| panic!("cannot patch the status of {name}: {error}"));
}

pub(crate) async fn delete(cluster: &Running, kind: &Kind, name: &str, foreground: bool) {
    let key = if kind.namespaced() { Key::namespaced("default", name) } else { Key::cluster(name) };
    let propagation = foreground.then_some(PropagationPolicy::Foreground);
    let options = DeleteOptions { propagation, ..DeleteOptions::default() };
    cluster
        .client()
        .delete(kind, &key, &options)
        .await
        .unwrap_or_else(|error| panic!("cannot delete {name}: {error}"));
}

pub(crate) async fn pass(cluster: &Running, seconds: u64) {
    cluster.pass(Duration::from_secs(seconds)).await;
}

/// A situation as a test: its name, the cluster, the target, and what the first line says.
macro_rules! situation {
    ($name:ident, $cluster:expr, $target:literal, [$($says:literal),+ $(,)?], $make:expr) => {
        #[test]
        fn $name() {
            crate::situation::check($cluster, $target, &[$($says),+], $make);
        }
    };
}
pub(crate) use situation;
