//! Controllers that each do one small thing.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use serde_json::json;
use setpoint::client::Subresource;
use setpoint_sim::World;

use super::scenarios::{create, delete, found, kind, parts, patch, survives, until};

/// A role aggregates the rules of another one, which changes.
fn roles(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let rule =
            |verb: &str| json!({"rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]});
        let selectors = json!([{"matchLabels": {"to": "all"}}]);
        create(world, "ClusterRole", "all", json!({"aggregationRule": {"clusterRoleSelectors": selectors}}))
            .await;
        let mut part = rule("get");
        part["metadata"] = json!({"labels": {"to": "all"}});
        create(world, "ClusterRole", "part", part).await;
        until(world, "ClusterRole", "all", |role| role["rules"][0]["verbs"][0] == "get").await;
        patch(world, "ClusterRole", "part", Subresource::None, rule("list")).await;
        until(world, "ClusterRole", "all", |role| role["rules"][0]["verbs"][0] == "list").await;
        delete(world, "ClusterRole", "part").await;
        until(world, "ClusterRole", "all", |role| role["rules"].is_null()).await;
    }
    .boxed_local()
}

#[test]
fn aggregated_roles_survive_every_crash_and_every_stale_or_hidden_event() {
    survives("aggregated roles", &["clusterrole-aggregation"], roles);
}

/// An address range is created and deleted.
fn range(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        create(world, "ServiceCIDR", "more", json!({"spec": {"cidrs": ["10.77.0.0/24"]}})).await;
        until(world, "ServiceCIDR", "more", |range| range["status"]["conditions"][0]["status"] == "True")
            .await;
        delete(world, "ServiceCIDR", "more").await;
        world.until(&kind("ServiceCIDR"), &setpoint::Key::cluster("more"), |range| range.is_none()).await;
    }
    .boxed_local()
}

#[test]
fn ranges_of_service_addresses_survive_crashes_and_stale_events() {
    survives("ranges", &["service-cidr-controller"], range);
}

fn node_ttl(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        found(world).await;
        let annotation = "node.alpha.kubernetes.io/ttl";
        until(world, "Node", "n", |node| node["metadata"]["annotations"][annotation] == "0").await;
    }
    .boxed_local()
}

#[test]
fn the_ttl_annotation_of_nodes_survives_crashes_and_stale_events() {
    survives("node ttl", &["ttl"], node_ttl);
}

/// A policy is checked, and checked again when it changes.
fn policy(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let rule = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        });
        let spec = |expression: &str| {
            json!({"spec": {
                "failurePolicy": "Ignore",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression}],
            }})
        };
        let kind = "ValidatingAdmissionPolicy";
        create(world, kind, "p", spec("object.data.size() < 5")).await;
        until(world, kind, "p", |policy| policy["status"]["observedGeneration"] == 1).await;
        patch(world, kind, "p", Subresource::None, spec("object.dataa.size() < 5")).await;
        let field = "spec.validations[0].expression";
        until(world, kind, "p", |policy| {
            policy["status"]["typeChecking"]["expressionWarnings"][0]["fieldRef"] == field
        })
        .await;
    }
    .boxed_local()
}

#[test]
fn the_checks_of_policies_survive_crashes_and_stale_events() {
    survives("policies", &["validatingadmissionpolicy-status-controller"], policy);
}

/// In a steady state, a new manager has nothing to write.
#[test]
fn a_restart_in_a_steady_state_writes_nothing() {
    let controllers = [
        "clusterrole-aggregation",
        "service-cidr-controller",
        "ttl",
        "nodelifecycle",
        "disruption",
        "resourcequota",
        "taint-eviction-controller",
    ];
    World::simulate(1, parts(&controllers), Vec::new(), async |world| {
        roles(world).await;
        node_ttl(world).await;
        create(world, "ServiceCIDR", "more", json!({"spec": {"cidrs": ["10.77.0.0/24"]}})).await;
        create(world, "ResourceQuota", "q", json!({"spec": {"hard": {"count/secrets": "5"}}})).await;
        create(world, "PodDisruptionBudget", "b", json!({"spec": {"minAvailable": 1, "selector": {}}})).await;
        world.pass(Duration::from_secs(300)).await;
        // A new manager repeats events about what happened before. Nothing else is written.
        let before = world.graph().await;
        let (writes, _) = world.faults().seen();
        world.restart().await;
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(world.faults().seen().0, writes, "{}", world.trace().text());
        assert!(before.difference(&world.graph().await).is_empty());
    });
}
