//! Address allocation for nodes, services and ingresses.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::{Value, json};
use setpoint::Key;
use setpoint_cluster::Components;
use setpoint_controllers::{AddressPool, INGRESS_CONTROLLER, MaskSizes, NodeRanges, Options};
use setpoint_sim::{History, World};
use setpoint_store::EventKind;

use super::scenarios::{create, delete, kind, parts, survives_with, survives_within, until};

/// Nodes come and go. Each has a unique CIDR.
fn nodes(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let has_range = |node: &Value| node["spec"]["podCIDRs"].as_array().is_some_and(|all| all.len() == 1);
        for name in ["a", "b"] {
            create(world, "Node", name, json!({})).await;
        }
        for name in ["a", "b"] {
            until(world, "Node", name, has_range).await;
        }
        delete(world, "Node", "a").await;
        create(world, "Node", "c", json!({})).await;
        until(world, "Node", "c", has_range).await;
    }
    .boxed_local()
}

/// Two nodes that exist at the same time never share a CIDR.
fn no_range_is_shared(history: &History) -> Result<(), String> {
    let mut ranges: BTreeMap<String, String> = BTreeMap::new();
    for (change, node) in history.changes().filter(|(_, object)| object["kind"] == "Node") {
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match node["spec"]["podCIDR"].as_str().filter(|_| change != EventKind::Deleted) {
            Some(range) => _ = ranges.insert(name, range.to_owned()),
            None => _ = ranges.remove(&name),
        }
        let distinct: BTreeSet<&String> = ranges.values().collect();
        if distinct.len() < ranges.len() {
            return Err(format!("a range is given twice: {ranges:?}"));
        }
    }
    Ok(())
}

#[test]
fn ranges_of_nodes_survive_every_crash_and_every_stale_or_hidden_event() {
    let ranges = NodeRanges::new("10.20.0.0/22", "", MaskSizes::default()).expect("ranges");
    let controller_options = Options { node_ranges: Some(ranges), ..Options::default() };
    let parts = Components { controller_options, ..parts(&["nodeipam"]) };
    survives_within("ranges of nodes", parts, nodes, no_range_is_shared);
}

fn pooled(controllers: &[&str]) -> Components {
    let controller_options =
        Options { load_balancer_pool: AddressPool::parse("192.0.2.0/29"), ..Options::default() };
    Components { controller_options, ..parts(controllers) }
}

/// A service gets an address and returns it. Another one gets a different one.
fn balanced(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let spec = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let ip = |service: &Value| service["status"]["loadBalancer"]["ingress"][0]["ip"].clone();
        create(world, "Service", "a", spec.clone()).await;
        until(world, "Service", "a", |service| ip(service) == "192.0.2.2").await;
        create(world, "Service", "b", spec).await;
        until(world, "Service", "b", |service| ip(service) == "192.0.2.3").await;
        delete(world, "Service", "a").await;
        let key = Key::namespaced("default", "a");
        world.until(&kind("Service"), &key, |service| service.is_none()).await;
    }
    .boxed_local()
}

#[test]
fn load_balancers_survive_crashes_and_stale_events() {
    survives_with("load balancers", pooled(&["service-lb-controller"]), balanced);
}

/// An ingress reports its address once its class belongs to this controller.
fn pointed(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        create(world, "Ingress", "i", json!({"spec": {"defaultBackend": backend}})).await;
        let annotations = json!({"ingressclass.kubernetes.io/is-default-class": "true"});
        let class =
            json!({"metadata": {"annotations": annotations}, "spec": {"controller": INGRESS_CONTROLLER}});
        create(world, "IngressClass", "local", class).await;
        until(world, "Ingress", "i", |ingress| {
            ingress["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn ingresses_survive_crashes_and_stale_events() {
    survives_with("ingresses", pooled(&["ingress-controller"]), pointed);
}
