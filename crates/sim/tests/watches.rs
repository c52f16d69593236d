//! A rollout with watches and calls that misbehave constantly, not just once: the result is the same, and nothing is
//! overloaded in the meantime.

use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Fault, History, OnCall, OnEvent, Scenario, World, check_faults};

const CONTROLLERS: &[&str] =
    &["replicaset", "deployment", "serviceaccount", "endpointslice", "nodelifecycle"];

fn parts() -> Components {
    let controllers = setpoint_controllers::selected(CONTROLLERS).expect("known controllers");
    Components { controllers, scheduler: true, nodes: 2, ..Components::default() }
}

fn key() -> Key {
    Key::namespaced("default", "web")
}

fn deployment(replicas: usize, image: &str) -> Value {
    let labels = json!({"app": "web"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": {"containers": [{"name": "c", "image": image}]}},
    }})
}

fn rolled_out(replicas: u64) -> impl Fn(Option<&Value>) -> bool {
    move |found| {
        found.is_some_and(|found| {
            let count = |field: &str| found["status"][field].as_u64().unwrap_or(0);
            let all = ["replicas", "readyReplicas", "updatedReplicas"].map(count);
            all == [replicas; 3] && found["status"]["observedGeneration"] == found["metadata"]["generation"]
        })
    }
}

/// Two replicas are created and replaced, one after the other.
fn rollout(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        let kind = Kind::of::<Deployment>();
        world.create(&kind, Some("default"), deployment(2, "a")).await;
        world.until(&kind, &key(), rolled_out(2)).await;
        let containers = json!([{"name": "c", "image": "b"}]);
        let patch = Patch::merge(&json!({"spec": {"template": {"spec": {"containers": containers}}}}));
        world
            .client()
            .patch(&kind, &key(), Subresource::None, patch)
            .await
            .expect("the user's own call succeeds");
        world.until(&kind, &key(), rolled_out(2)).await;
    }
    .boxed_local()
}

fn anything(_: &History) -> Result<(), String> {
    Ok(())
}

fn check(plans: impl IntoIterator<Item = Vec<Fault>>) {
    check_scenario(
        &Scenario { name: "rollout", parts: parts(), start: None, script: rollout, always: anything },
        plans,
    );
}

fn check_scenario(scenario: &Scenario, plans: impl IntoIterator<Item = Vec<Fault>>) {
    check_faults(scenario, 1, plans).unwrap_or_else(|failure| panic!("{failure:?}"));
}

/// Returns the number of calls so far with this method and resource.
fn calls(world: &World, method: &str, resource: &str) -> usize {
    let of = |line: &&str| line.contains(&format!(" {method} ")) && line.contains(&format!("/{resource}"));
    world.trace().text().lines().filter(of).count()
}

fn on_events(every: usize, what: OnEvent) -> Vec<Fault> {
    (0..500).step_by(every).map(|nth| Fault::Event { nth, what }).collect()
}

#[test]
fn watches_that_are_closed_every_second_change_nothing() {
    check([vec![Fault::Watches { last: Duration::from_secs(1) }]]);
}

#[test]
fn events_that_come_twice_change_nothing() {
    check([vec![Fault::Events { what: OnEvent::Duplicate }]]);
}

#[test]
fn watches_that_close_before_an_event_change_nothing() {
    check([on_events(2, OnEvent::Close), on_events(5, OnEvent::Close)]);
}

#[test]
fn watches_that_expire_before_an_event_change_nothing() {
    check([on_events(3, OnEvent::Expire), on_events(7, OnEvent::Expire)]);
}

#[test]
fn events_that_come_together_after_a_list_change_nothing() {
    check([on_events(11, OnEvent::Hide), on_events(17, OnEvent::Hide)]);
}

/// Longer than the five minutes after which expectations time out.
const FROZEN: Duration = Duration::from_secs(600);

/// The same, and at the end everything that was frozen is released.
fn long_rollout(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        rollout(world).await;
        world.pass(2 * FROZEN).await;
    }
    .boxed_local()
}

#[test]
fn a_cache_frozen_for_ten_minutes_leads_to_no_extra_pods() {
    let scenario =
        Scenario { name: "frozen", parts: parts(), start: None, script: long_rollout, always: anything };
    let frozen = |nth| vec![Fault::Event { nth, what: OnEvent::Delay(FROZEN) }];
    check_scenario(&scenario, (0..60).step_by(4).map(frozen));
}

#[test]
fn writes_whose_response_is_lost_are_not_repeated() {
    check((0..30).step_by(2).map(|nth| vec![Fault::Call { nth, what: OnCall::DropAfter }]));
}

#[test]
fn failures_of_a_third_of_all_calls_lead_to_the_same_state() {
    for seed in 1..=3 {
        let storm = vec![Fault::Storm { percent: 30, seed }];
        World::simulate(1, parts(), storm, async |world| {
            rollout(world).await;
            world.faults().calm();
            world.pass(Duration::from_secs(1200)).await;
            let pods = world.list(&Kind::of::<Pod>(), Some("default")).await;
            assert_eq!(pods.len(), 2, "seed {seed}");
            assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "b"), "seed {seed}");
        });
    }
}

#[test]
fn a_forbidden_resource_degrades_only_its_controller() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        world.faults().refuse("endpointslices", 403);
        let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
        world.create(&Kind::of::<Service>(), Some("default"), service).await;
        rollout(world).await;
        let before = calls(world, "POST", "endpointslices");
        world.pass(Duration::from_secs(600)).await;
        let tries = calls(world, "POST", "endpointslices") - before;
        assert!((1..20).contains(&tries), "{tries} tries in ten minutes");
        let slices = async || world.list(&Kind::of::<EndpointSlice>(), Some("default")).await;
        let of_web = |slices: Vec<Value>| {
            slices
                .iter()
                .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web")
                .count()
        };
        assert_eq!(of_web(slices().await), 0);
        world.faults().calm();
        world.pass(Duration::from_secs(1200)).await;
        assert_eq!(of_web(slices().await), 1, "it recovers");
    });
}

/// The API server's response if a required webhook does not respond.
#[test]
fn pods_rejected_by_a_webhook_are_not_retried_in_a_hot_loop() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        world.faults().refuse("pods", 500);
        let kind = Kind::of::<Deployment>();
        world.create(&kind, Some("default"), deployment(20, "a")).await;
        world.pass(Duration::from_secs(60)).await;
        let before = calls(world, "POST", "pods");
        world.pass(Duration::from_secs(600)).await;
        let tries = calls(world, "POST", "pods") - before;
        assert!((1..20).contains(&tries), "{tries} tries in ten minutes for 20 replicas");
        world.faults().calm();
        world.until(&kind, &key(), rolled_out(20)).await;
    });
}
