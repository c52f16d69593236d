//! ReplicationControllers.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::ReplicationController;
use serde_json::{Value, json};
use setpoint_sim::World;

use super::scenarios::{anything, count, create, patch, survives, until};

fn settled(replicas: u64) -> impl Fn(&Value) -> bool {
    move |object| count(object, "replicas") == replicas && count(object, "readyReplicas") == replicas
}

fn scaled(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let labels = json!({"app": "web"});
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let body =
            json!({"spec": {"replicas": 2, "template": {"metadata": {"labels": labels}, "spec": spec}}});
        create::<ReplicationController>(world, "web", body).await;
        until::<ReplicationController>(world, "web", settled(2)).await;
        patch::<ReplicationController>(world, "web", json!({"spec": {"replicas": 1}})).await;
        until::<ReplicationController>(world, "web", settled(1)).await;
    }
    .boxed_local()
}

#[test]
fn a_replication_controller_survives_every_crash_and_every_stale_or_hidden_event() {
    survives("replicationcontroller", &["replicationcontroller"], scaled, anything);
}
