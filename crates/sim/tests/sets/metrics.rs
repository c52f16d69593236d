//! Metrics of simulated nodes, and autoscalers that use them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use setpoint::Kind;
use setpoint::client::{Patch, Subresource};
use setpoint_sim::World;

use super::scenarios::{count, create, holds, parts, until};

fn node_metrics() -> Kind {
    Kind::new("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes", false)
}

fn pod_metrics() -> Kind {
    Kind::new("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", true)
}

pub(crate) fn deployment(replicas: u32) -> Value {
    let labels = json!({"app": "web"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"replicas": replicas, "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": {"containers": [container]}}}})
}

/// Makes every pod use this much CPU.
pub(crate) async fn use_cpu(world: &World, amount: &str) {
    let kind = Kind::of::<Pod>();
    for pod in world.list(&kind, Some("default")).await {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let patch = json!({"metadata": {"annotations": {"node.setpoint.dev/cpu-usage": amount}}});
        let key = super::scenarios::key(name);
        world
            .client()
            .patch(&kind, &key, Subresource::None, Patch::merge(&patch))
            .await
            .expect("the user's own call");
    }
}

#[test]
fn pod_and_node_metrics_report_usage() {
    World::simulate(1, parts(&["deployment", "replicaset"]), Vec::new(), async |world| {
        create::<Deployment>(world, "web", deployment(2)).await;
        until::<Deployment>(world, "web", |web| count(web, "readyReplicas") == 2).await;
        use_cpu(world, "250m").await;
        let pods = world.list(&pod_metrics(), Some("default")).await;
        assert_eq!(pods.len(), 2);
        for pod in &pods {
            assert_eq!(pod["containers"][0]["usage"]["cpu"], "250m", "{pod}");
        }
        let nodes = world.list(&node_metrics(), None).await;
        assert_eq!(nodes.len(), 1);
        assert_eq!(nodes[0]["usage"]["cpu"], "600m", "two pods and the node itself: {nodes:?}");
    });
}

#[test]
fn an_autoscaler_follows_the_usage_of_pods() {
    let controllers = ["deployment", "replicaset", "horizontalpodautoscaling"];
    World::simulate(1, parts(&controllers), Vec::new(), async |world| {
        create::<Deployment>(world, "web", deployment(2)).await;
        until::<Deployment>(world, "web", |web| count(web, "readyReplicas") == 2).await;
        use_cpu(world, "900m").await;
        let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}});
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let spec = json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": resource}]});
        create::<HorizontalPodAutoscaler>(world, "web", json!({"spec": spec})).await;
        until::<Deployment>(world, "web", |web| web["spec"]["replicas"] == 3).await;
        until::<HorizontalPodAutoscaler>(world, "web", |hpa| holds(hpa, "ScalingActive")).await;
        use_cpu(world, "100m").await;
        until::<Deployment>(world, "web", |web| web["spec"]["replicas"] == 1).await;
    });
}
