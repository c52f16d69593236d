//! Autoscalers.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::json;
use setpoint::Kind;
use setpoint_sim::{History, World};

use super::{ready, runs};
use crate::sets::metrics::{deployment, use_cpu};
use crate::sets::scenarios::{anything, create, holds, key, until};

const AUTOSCALED: &[&str] = &["deployment", "replicaset", "horizontalpodautoscaling"];

/// A Deployment of two pods with an autoscaler that targets 600m of cpu each.
async fn autoscaled(world: &World, most: u32) {
    create::<Deployment>(world, "web", deployment(2)).await;
    until::<Deployment>(world, "web", ready(2)).await;
    use_cpu(world, "600m").await;
    let resource = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": resource}]});
    create::<HorizontalPodAutoscaler>(world, "web", json!({"spec": spec})).await;
    until::<HorizontalPodAutoscaler>(world, "web", |hpa| holds(hpa, "ScalingActive")).await;
}

/// When the load drops, pods stay for five minutes.
fn less_to_do(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        autoscaled(world, 5).await;
        world.pass(Duration::from_secs(30)).await;
        use_cpu(world, "100m").await;
        world.pass(Duration::from_secs(60)).await;
        let web = world.get(&Kind::of::<Deployment>(), &key("web")).await;
        assert_eq!(web.expect("it is there")["spec"]["replicas"], 2, "deleted too soon");
    }
    .boxed_local()
}

#[test]
fn an_autoscaler_waits_five_minutes_before_it_scales_down() {
    runs(AUTOSCALED, less_to_do, anything);
}

/// The load needs eight pods, and the rate limit allows four.
fn overloaded(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        autoscaled(world, 3).await;
        use_cpu(world, "2400m").await;
        until::<Deployment>(world, "web", |web| web["spec"]["replicas"] != 2).await;
        world.pass(Duration::from_secs(60)).await;
    }
    .boxed_local()
}

fn three_at_most(history: &History) -> Result<(), String> {
    let mut changes = history.changes().filter(|(_, object)| object["kind"] == "Deployment");
    match changes.find(|(_, web)| web["spec"]["replicas"].as_u64() > Some(3)) {
        Some((_, web)) => Err(format!("scaled to {}", web["spec"]["replicas"])),
        None => Ok(()),
    }
}

#[test]
fn an_autoscaler_stays_below_its_maximum() {
    runs(AUTOSCALED, overloaded, three_at_most);
}
