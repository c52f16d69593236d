//! Objects that are being deleted and do not go.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint_sim::Running;

use crate::situation::{cluster, delete, deployment, global, merge, object, pass, patch, pod, situation};

fn held(name: &str, finalizer: &str) -> Value {
    object("v1", "ConfigMap", name, json!({"metadata": {"finalizers": [finalizer]}}))
}

situation!(
    a_finalizer_without_a_controller,
    cluster(),
    "configmap/held",
    ["ConfigMap default/held", "finalizer backup.example.com/hold", "no controller for it was found"],
    async |c| {
        c.create(held("held", "backup.example.com/hold")).await;
        delete(c, &Kind::of::<ConfigMap>(), "held", false).await;
    }
);

situation!(
    a_finalizer_whose_controller_is_not_running,
    cluster(),
    "configmap/held",
    [
        "ConfigMap default/held",
        "finalizer backup.example.com/hold",
        "Deployment default/backup",
        "not running"
    ],
    async |c| {
        c.create(deployment("backup", 0, pod("p", json!({})))).await;
        c.create(held("held", "backup.example.com/hold")).await;
        delete(c, &Kind::of::<ConfigMap>(), "held", false).await;
    }
);

situation!(
    a_finalizer_whose_controller_is_running,
    cluster(),
    "configmap/held",
    ["ConfigMap default/held", "finalizer backup.example.com/hold", "is running", "log of Deployment backup"],
    async |c| {
        c.create(deployment("backup", 1, pod("p", json!({})))).await;
        c.create(held("held", "backup.example.com/hold")).await;
        delete(c, &Kind::of::<ConfigMap>(), "held", false).await;
    }
);

async fn doomed(cluster: &Running) {
    cluster.create(global("v1", "Namespace", "doomed", json!({}))).await;
    pass(cluster, 20).await;
}

situation!(
    a_namespace_with_a_finalizer_in_it,
    cluster(),
    "namespace/doomed",
    ["ConfigMap doomed/held", "finalizer example.com/hold"],
    async |c| {
        doomed(c).await;
        let mut map = held("held", "example.com/hold");
        merge(&mut map, json!({"metadata": {"namespace": "doomed"}}));
        c.create(map).await;
        delete(c, &Kind::of::<Namespace>(), "doomed", false).await;
    }
);

situation!(
    a_foreground_deletion_that_waits,
    cluster(),
    "deployment/web",
    ["Pod default/web-", "finalizer example.com/drain"],
    async |c| {
        let mut web = deployment("web", 1, pod("p", json!({})));
        merge(&mut web, json!({"spec": {"template": {"metadata": {"finalizers": ["example.com/drain"]}}}}));
        c.create(web).await;
        pass(c, 30).await;
        delete(c, &Kind::of::<Deployment>(), "web", true).await;
    }
);

situation!(
    a_pod_that_terminates_on_a_lost_node,
    cluster(),
    "pod/p",
    ["Node node-0", "NotReady"],
    async |c| {
        c.create(pod("p", json!({"nodeName": "node-0"}))).await;
        pass(c, 20).await;
        patch(
            c,
            &Kind::of::<Node>(),
            "node-0",
            json!({"metadata": {"annotations": {"node.setpoint.dev/failed": "true"}}}),
        )
        .await;
        pass(c, 60).await;
        delete(c, &Kind::of::<Pod>(), "p", false).await;
    }
);

situation!(
    a_pod_with_a_finalizer,
    cluster(),
    "pod/p",
    ["Pod default/p", "finalizer example.com/drain"],
    async |c| {
        let mut held = pod("p", json!({}));
        merge(&mut held, json!({"metadata": {"finalizers": ["example.com/drain"]}}));
        c.create(held).await;
        pass(c, 20).await;
        delete(c, &Kind::of::<Pod>(), "p", false).await;
    }
);
