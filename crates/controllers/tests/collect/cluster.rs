//! A cluster of ConfigMaps, namespaces, pods and nodes that a test creates itself.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Optional, Patch, PropagationPolicy, Subresource};
use setpoint::source::Selection;
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_controllers::Options;
use setpoint_sim::World;

/// Runs `inside` with these controllers.
pub(crate) fn cluster<T>(controllers: &[&str], inside: impl AsyncFnOnce(&TestCluster<'_>) -> T) -> T {
    cluster_with(controllers, Options::default(), inside)
}

pub(crate) fn cluster_with<T>(
    controllers: &[&str],
    controller_options: Options,
    inside: impl AsyncFnOnce(&TestCluster<'_>) -> T,
) -> T {
    let controllers = setpoint_controllers::selected(controllers).expect("known controllers");
    let parts = Components { controllers, controller_options, ..Components::default() };
    World::simulate(1, parts, Vec::new(), async |world| {
        let cluster = TestCluster { world };
        cluster.pass(1).await;
        inside(&cluster).await
    })
}

pub(crate) struct TestCluster<'a> {
    pub(crate) world: &'a World,
}

pub(crate) fn kind(name: &str) -> Kind {
    let (group, plural, namespaced) = match name {
        "ConfigMap" => ("", "configmaps", true),
        "Event" => ("", "events", true),
        "Namespace" => ("", "namespaces", false),
        "Node" => ("", "nodes", false),
        "Pod" => ("", "pods", true),
        "ReplicaSet" => ("apps", "replicasets", true),
        "Secret" => ("", "secrets", true),
        "ServiceAccount" => ("", "serviceaccounts", true),
        other => panic!("{other} is not a kind of this test"),
    };
    Kind::new(group, "v1", name, plural, namespaced)
}

/// `default/name`, or `namespace/name` if the name contains a namespace.
fn key(kind: &Kind, name: &str) -> Key {
    match (kind.namespaced(), name.split_once('/')) {
        (false, _) => Key::cluster(name),
        (true, None) => Key::namespaced("default", name),
        (true, Some((namespace, name))) => Key::namespaced(namespace, name),
    }
}

impl TestCluster<'_> {
    pub(crate) async fn pass(&self, seconds: u64) {
        self.world.pass(Duration::from_secs(seconds)).await;
    }

    /// Creates an object and returns its UID.
    pub(crate) async fn create(&self, kind_name: &str, name: &str, mut body: Value) -> String {
        let kind = kind(kind_name);
        let key = key(&kind, name);
        body["metadata"]["name"] = json!(key.name());
        self.world.create(&kind, key.namespace(), body).await.meta().uid.to_string()
    }

    pub(crate) async fn config_map(&self, name: &str, owners: &[Value]) -> String {
        self.create("ConfigMap", name, json!({"metadata": {"ownerReferences": owners}})).await
    }

    pub(crate) async fn get(&self, kind_name: &str, name: &str) -> Option<Value> {
        let kind = kind(kind_name);
        self.world.get(&kind, &key(&kind, name)).await
    }

    pub(crate) async fn has(&self, kind_name: &str, name: &str) -> bool {
        self.get(kind_name, name).await.is_some()
    }

    pub(crate) async fn patch(&self, kind_name: &str, name: &str, part: Subresource, patch: Value) {
        let kind = kind(kind_name);
        let patch = Patch::Merge(patch.to_string().into());
        let patched = self.world.client().patch(&kind, &key(&kind, name), part, patch).await;
        patched.unwrap_or_else(|error| panic!("cannot patch {kind_name} {name}: {error}"));
    }

    pub(crate) async fn delete(&self, kind_name: &str, name: &str, propagation: PropagationPolicy) {
        let kind = kind(kind_name);
        let delete = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let deleted = self.world.client().delete(&kind, &key(&kind, name), &delete).await;
        deleted.optional().unwrap_or_else(|error| panic!("cannot delete {kind_name} {name}: {error}"));
    }

    /// Returns the messages of all events with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        self.pass(2).await;
        let listed = self.world.client().list(&kind("Event"), &Selection::default()).await.expect("a list");
        let events = listed.objects.iter().map(|event| event.decode::<Value>().expect("JSON"));
        let summary = events.filter(|event| event["reason"] == reason);
        summary.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// An owner reference to a ConfigMap.
pub(crate) fn owner(name: &str, uid: &str, block: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": block})
}
