//! A cluster without nodes, in which the test itself sets the status of pods.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::source::Selection;
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Fault, World};

pub(crate) const NAMESPACE: &str = "default";

/// Runs `inside` with these controllers and without faults.
pub(crate) fn cluster<T>(controllers: &[&str], inside: impl AsyncFnOnce(&TestCluster<'_>) -> T) -> T {
    cluster_with(controllers, Vec::new(), inside)
}

pub(crate) fn cluster_with<T>(
    controllers: &[&str],
    faults: Vec<Fault>,
    inside: impl AsyncFnOnce(&TestCluster<'_>) -> T,
) -> T {
    let parts = Components {
        controllers: setpoint_controllers::selected(controllers).expect("known controllers"),
        ..Components::default()
    };
    World::simulate(1, parts, faults, async |world| {
        let cluster = TestCluster { world };
        // Pods need a service account.
        cluster.create("ServiceAccount", json!({"metadata": {"name": "default"}})).await;
        inside(&cluster).await
    })
}

pub(crate) struct TestCluster<'a> {
    pub(crate) world: &'a World,
}

pub(crate) fn kind(name: &str) -> Kind {
    match name {
        "Pod" => Kind::of::<k8s_openapi::api::core::v1::Pod>(),
        "ServiceAccount" => Kind::of::<k8s_openapi::api::core::v1::ServiceAccount>(),
        "Event" => Kind::of::<k8s_openapi::api::core::v1::Event>(),
        "ReplicaSet" => Kind::of::<k8s_openapi::api::apps::v1::ReplicaSet>(),
        "Deployment" => Kind::of::<k8s_openapi::api::apps::v1::Deployment>(),
        other => panic!("{other} is not a kind of this test"),
    }
}

fn key(name: &str) -> Key {
    Key::namespaced(NAMESPACE, name)
}

impl TestCluster<'_> {
    /// Waits until everything that happens immediately has happened.
    pub(crate) async fn settle(&self) {
        self.world.pass(Duration::from_secs(2)).await;
    }

    pub(crate) async fn create(&self, kind_name: &str, body: Value) {
        self.world.create(&kind(kind_name), Some(NAMESPACE), body).await;
        self.settle().await;
    }

    pub(crate) async fn get(&self, kind_name: &str, name: &str) -> Value {
        self.world.get(&kind(kind_name), &key(name)).await.unwrap_or(Value::Null)
    }

    pub(crate) async fn patch(&self, kind_name: &str, name: &str, patch: Value) {
        self.patch_part(kind_name, name, Subresource::None, patch).await;
        self.settle().await;
    }

    async fn patch_part(&self, kind_name: &str, name: &str, part: Subresource, patch: Value) {
        let patch = Patch::Strategic(patch.to_string().into());
        let patched = self.world.client().patch(&kind(kind_name), &key(name), part, patch).await;
        patched.unwrap_or_else(|error| panic!("cannot patch {kind_name} {name}: {error}"));
    }

    pub(crate) async fn delete(&self, kind_name: &str, name: &str, propagation: PropagationPolicy) {
        let delete = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        let deleted = self.world.client().delete(&kind(kind_name), &key(name), &delete).await;
        deleted.unwrap_or_else(|error| panic!("cannot delete {kind_name} {name}: {error}"));
        self.settle().await;
    }

    /// Lists all objects of a kind, sorted by name.
    pub(crate) async fn all(&self, kind_name: &str) -> Vec<Value> {
        let selection = Selection { namespace: Some(NAMESPACE.into()), ..Selection::default() };
        let listed = self.world.client().list(&kind(kind_name), &selection).await.expect("a list");
        listed.objects.iter().map(|object| object.decode().expect("JSON")).collect()
    }

    pub(crate) async fn names(&self, kind_name: &str) -> Vec<String> {
        self.all(kind_name).await.iter().map(|object| text(&object["metadata"]["name"])).collect()
    }

    /// Lists the pods of an owner that are not being deleted.
    pub(crate) async fn pods_of(&self, owner: &str) -> Vec<Value> {
        let mut pods = self.all("Pod").await;
        pods.retain(|pod| pod["metadata"]["ownerReferences"][0]["name"] == owner);
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }

    /// Returns the messages of the events with this reason, sorted by the names of their objects.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        // Events are written with a short delay.
        self.settle().await;
        let mut events = self.all("Event").await;
        events.retain(|event| event["reason"] == reason);
        events.iter().map(|event| text(&event["message"])).collect()
    }

    /// Makes all pods run and become ready.
    pub(crate) async fn make_all_ready(&self) {
        for pod in self.all("Pod").await {
            if pod["status"]["phase"] == "Pending" {
                self.set_status(&text(&pod["metadata"]["name"]), "Running", "True").await;
            }
        }
        self.settle().await;
    }

    pub(crate) async fn set_status(&self, pod: &str, phase: &str, ready: &str) {
        let now = self.world.clock().now().as_second();
        let since = jiff::Timestamp::from_second(now).expect("a time").to_string();
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
        let status = json!({"status": {"phase": phase, "conditions": [condition]}});
        self.patch_part("Pod", pod, Subresource::Status, status).await;
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a condition of an object's status, as `status reason`.
pub(crate) fn condition(object: &Value, r#type: &str) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == r#type)?;
    Some(format!("{} {}", text(&found["status"]), text(&found["reason"])))
}
