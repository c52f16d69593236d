//! The operator in a cluster of its own, on a virtual clock: alone with its users, and with things going wrong.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use setpoint::client::{Delete, Part, Patch};
use setpoint::{Key, Kind};
use setpoint_cluster::Parts;
use setpoint_example_application::{Application, DIRECTORY, definition, runnables};
use setpoint_sim::{Scenario, World, check_all};

/// The built-in controllers that an Application needs.
const CONTROLLERS: &[&str] =
    &["deployment", "replicaset", "garbagecollector", "serviceaccount", "nodelifecycle"];

fn parts() -> Parts {
    Parts {
        controllers: setpoint_controllers::selected(CONTROLLERS).expect("known controllers"),
        scheduler: true,
        nodes: 2,
        own: vec![Arc::new(runnables)],
        ..Parts::default()
    }
}

fn key() -> Key {
    Key::namespaced("default", "web")
}

/// Installs the definition and writes an Application of two replicas.
async fn begin(world: &World) {
    let definitions = Kind::of::<CustomResourceDefinition>();
    world.create(&definitions, None, serde_json::to_value(definition()).expect("it encodes")).await;
    world.until(&definitions, &Key::cluster("applications.example.com"), is_established).await;
    let application = json!({
        "apiVersion": "example.com/v1",
        "kind": "Application",
        "metadata": {"name": "web"},
        "spec": {"image": "nginx:1", "replicas": 2, "port": 80},
    });
    world.create(&Kind::of::<Application>(), Some("default"), application).await;
    world.until(&Kind::of::<Application>(), &key(), is_ready(2)).await;
}

fn is_established(definition: Option<&Value>) -> bool {
    let conditions = definition.and_then(|it| it["status"]["conditions"].as_array());
    conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Established" && one["status"] == "True"))
}

fn is_ready(replicas: i32) -> impl Fn(Option<&Value>) -> bool {
    move |application| {
        application.is_some_and(|it| {
            let (status, generation) = (&it["status"], &it["metadata"]["generation"]);
            status["phase"] == "Ready"
                && status["readyReplicas"] == replicas
                && status["observedGeneration"] == *generation
        })
    }
}

#[test]
fn an_application_becomes_a_deployment_a_service_and_an_entry_in_the_directory() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        begin(world).await;
        let deployment = world.get(&Kind::of::<Deployment>(), &key()).await.expect("it is there");
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:1");
        let service = world.get(&Kind::of::<Service>(), &key()).await.expect("it is there");
        assert_eq!(service["spec"]["ports"][0]["port"], 80);
        let directory = Key::namespaced("default", DIRECTORY);
        let directory = world.get(&Kind::of::<ConfigMap>(), &directory).await.expect("it is there");
        assert_eq!(directory["data"]["web"], "web.default.svc:80");
    });
}

#[test]
fn a_changed_spec_is_followed_and_a_settled_world_is_left_alone() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        begin(world).await;
        let patch = Patch::merge(&json!({"spec": {"image": "nginx:2", "replicas": 3}}));
        world
            .client()
            .patch(&Kind::of::<Application>(), &key(), Part::Main, patch)
            .await
            .expect("it is there");
        world.until(&Kind::of::<Application>(), &key(), is_ready(3)).await;
        let deployment = world.get(&Kind::of::<Deployment>(), &key()).await.expect("it is there");
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:2");
        let version = deployment["metadata"]["resourceVersion"].clone();
        world.pass(std::time::Duration::from_secs(600)).await;
        let later = world.get(&Kind::of::<Deployment>(), &key()).await.expect("it is there");
        assert_eq!(later["metadata"]["resourceVersion"], version);
    });
}

#[test]
fn users_can_follow_what_happens_in_events() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        begin(world).await;
        world.pass(std::time::Duration::from_secs(60)).await;
        let events = world.list(&Kind::of::<Event>(), Some("default")).await;
        let reasons: Vec<_> = events
            .iter()
            .filter(|event| event["involvedObject"]["kind"] == "Application")
            .map(|event| event["reason"].as_str().unwrap_or_default())
            .collect();
        assert!(reasons.contains(&"Applied") && reasons.contains(&"Ready"), "{reasons:?}");
    });
}

fn life(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world).await;
        let kind = Kind::of::<Application>();
        world.client().delete(&kind, &key(), &Delete::default()).await.expect("the user's own call succeeds");
        world.until(&kind, &key(), |it| it.is_none()).await;
        world.until(&Kind::of::<Deployment>(), &key(), |it| it.is_none()).await;
        world.until(&Kind::of::<Service>(), &key(), |it| it.is_none()).await;
    }
    .boxed_local()
}

/// Crashed before and after every write, with every event hidden or stale.
#[test]
fn whatever_goes_wrong_a_deleted_application_leaves_nothing_behind() {
    let scenario = Scenario { name: "application", parts: parts(), script: life, always: |_| Ok(()) };
    check_all(&scenario, 1, 5).unwrap_or_else(|failure| panic!("{failure:?}"));
}
