//! Tests the operator in a simulated cluster: in normal use, and with faults.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_example_operator_template::{Widget, controller, definition};
use setpoint_sim::{Fault, OnCall, Running, TestCluster};

fn cluster() -> TestCluster {
    TestCluster::new().controllers(&["garbagecollector"]).with(controller)
}

fn key() -> Key {
    Key::namespaced("default", "first")
}

async fn begin(cluster: &Running) {
    cluster.install(&definition()).await;
    let widget = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "first", "namespace": "default"},
        "spec": {"text": "hello"},
    });
    cluster.create(widget).await;
    cluster.until(&key(), |it: &Widget| it.status.as_ref().is_some_and(|status| status.ready)).await;
}

fn holds(text: &str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.data.as_ref().is_some_and(|data| data["text"] == text)
}

#[test]
fn the_text_is_followed() {
    cluster().run(async |cluster| {
        begin(cluster).await;
        cluster.until(&key(), holds("hello")).await;
        let patch = Patch::merge(&json!({"spec": {"text": "goodbye"}}));
        let patched = cluster.client().patch(&Kind::of::<Widget>(), &key(), Subresource::None, patch).await;
        patched.expect("it is there");
        cluster.until(&key(), holds("goodbye")).await;
    });
}

#[test]
fn a_deletion_leaves_nothing_behind() {
    cluster().run(async |cluster| {
        begin(cluster).await;
        let deleted = cluster.client().delete(&Kind::of::<Widget>(), &key(), &DeleteOptions::default()).await;
        deleted.expect("it is there");
        cluster.gone::<ConfigMap>(&key()).await;
    });
}

#[test]
fn crashes_and_lost_answers_change_nothing() {
    for nth in 0..2 {
        for what in [OnCall::CrashBefore, OnCall::CrashAfter, OnCall::DropAfter, OnCall::Fail(500)] {
            let fault = Fault::Call { nth, what };
            cluster().faults([fault]).run(async |cluster| {
                begin(cluster).await;
                cluster.until(&key(), holds("hello")).await;
            });
        }
    }
}
