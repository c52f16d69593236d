//! Widget: in normal use, and with faults.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_sim::{Fault, OnCall, Running};

use crate::{cluster, install};
use setpoint_example_operator_template::widget::Widget;

/// The Widget of these tests.
fn key() -> Key {
    Key::namespaced("default", "first")
}

/// Its ConfigMap.
fn config_map() -> Key {
    Key::namespaced("default", "first")
}

/// Creates a Widget, and waits until it is ready.
async fn begin(cluster: &Running) {
    let object = json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "first", "namespace": "default"},
        "spec": {"text": "hello"},
    });
    cluster.create(object).await;
    cluster.until(&key(), |it: &Widget| it.status.as_ref().is_some_and(|status| status.ready)).await;
}

async fn change(cluster: &Running) {
    let patch = Patch::merge(&json!({"spec": {"text": "goodbye"}}));
    let patched = cluster.client().patch(&Kind::of::<Widget>(), &key(), Subresource::None, patch).await;
    patched.expect("it is there");
    cluster.until(&config_map(), holds("goodbye")).await;
}

async fn end(cluster: &Running) {
    let options = DeleteOptions::default();
    let deleted = cluster.client().delete(&Kind::of::<Widget>(), &key(), &options).await;
    deleted.expect("it is there");
    cluster.gone::<ConfigMap>(&config_map()).await;
}

fn holds(text: &str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.data.as_ref().is_some_and(|data| data["text"] == text)
}

/// The whole life of a Widget: every request that the controller makes.
pub(crate) async fn life(cluster: &Running) {
    begin(cluster).await;
    change(cluster).await;
    end(cluster).await;
}

#[test]
fn the_text_is_followed() {
    cluster().run(async |cluster| {
        install(cluster).await;
        begin(cluster).await;
        cluster.until(&config_map(), holds("hello")).await;
        change(cluster).await;
    });
}

#[test]
fn a_deletion_leaves_nothing_behind() {
    cluster().run(async |cluster| {
        install(cluster).await;
        begin(cluster).await;
        end(cluster).await;
    });
}

#[test]
fn crashes_and_lost_answers_change_nothing() {
    for nth in 0..2 {
        for what in [OnCall::CrashBefore, OnCall::CrashAfter, OnCall::DropAfter, OnCall::Fail(500)] {
            let fault = Fault::Call { nth, what };
            cluster().faults([fault]).run(async |cluster| {
                install(cluster).await;
                begin(cluster).await;
                cluster.until(&config_map(), holds("hello")).await;
            });
        }
    }
}
