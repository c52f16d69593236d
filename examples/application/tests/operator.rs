//! Tests the operator in a simulated cluster: in normal use, and with faults.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{ControllerConfig, Key, Kind, Manager, Rng, Runtime};
use setpoint_example_application::{Application, CONTROLLER, DIRECTORY, Phase, controller, definition};
use setpoint_sim::{Scenario, TestCluster, World, check_all};
use tokio_util::sync::CancellationToken;

/// The built-in controllers that an Application needs.
const CONTROLLERS: &[&str] =
    &["deployment", "replicaset", "garbagecollector", "serviceaccount", "nodelifecycle"];

fn cluster() -> TestCluster {
    TestCluster::new().controllers(CONTROLLERS).scheduler().nodes(2).with(controller)
}

fn key() -> Key {
    Key::namespaced("default", "web")
}

/// Installs the CRD and creates an Application with two replicas.
async fn begin(world: &World) {
    let definitions = Kind::of::<CustomResourceDefinition>();
    world.create(&definitions, None, serde_json::to_value(definition()).expect("it encodes")).await;
    world.until(&definitions, &Key::cluster("applications.example.com"), is_established).await;
    create(world).await;
    world.until(&Kind::of::<Application>(), &key(), is_ready(2)).await;
}

async fn create(world: &World) {
    let application = json!({
        "apiVersion": "example.com/v1",
        "kind": "Application",
        "metadata": {"name": "web"},
        "spec": {"image": "nginx:1", "replicas": 2, "port": 80},
    });
    world.create(&Kind::of::<Application>(), Some("default"), application).await;
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
    cluster().run(async |cluster| {
        begin(cluster).await;
        let deployment = cluster.find::<Deployment>(&key()).await.expect("it is there");
        let pod = deployment.spec.and_then(|spec| spec.template.spec).expect("a template");
        assert_eq!(pod.containers[0].image.as_deref(), Some("nginx:1"));
        let service = cluster.find::<Service>(&key()).await.expect("it is there");
        assert_eq!(service.spec.and_then(|spec| spec.ports).expect("ports")[0].port, 80);
        let directory = cluster.find::<ConfigMap>(&Key::namespaced("default", DIRECTORY)).await;
        assert_eq!(directory.and_then(|map| map.data).expect("entries")["web"], "web.default.svc:80");
    });
}

#[test]
fn a_changed_spec_is_followed_and_a_settled_world_is_left_alone() {
    cluster().run(async |cluster| {
        begin(cluster).await;
        let patch = Patch::merge(&json!({"spec": {"image": "nginx:2", "replicas": 3}}));
        let patched =
            cluster.client().patch(&Kind::of::<Application>(), &key(), Subresource::None, patch).await;
        patched.expect("it is there");
        let followed = |it: &Application| {
            let status = it.status.clone().unwrap_or_default();
            status.phase == Phase::Ready
                && status.ready_replicas == 3
                && Some(status.observed_generation) == it.metadata.generation
        };
        cluster.until(&key(), followed).await;
        cluster.settled(std::time::Duration::from_secs(60)).await;
        let version = |it: Option<Deployment>| it.expect("it is there").metadata.resource_version;
        let settled = version(cluster.find(&key()).await);
        cluster.pass(std::time::Duration::from_secs(600)).await;
        assert_eq!(version(cluster.find(&key()).await), settled);
    });
}

#[test]
fn users_can_follow_what_happens_in_events() {
    cluster().run(async |cluster| {
        begin(cluster).await;
        cluster.pass(std::time::Duration::from_secs(60)).await;
        let events = cluster.list(&Kind::of::<Event>(), Some("default")).await;
        let reasons: Vec<_> = events
            .iter()
            .filter(|event| event["involvedObject"]["kind"] == "Application")
            .map(|event| event["reason"].as_str().unwrap_or_default())
            .collect();
        assert!(reasons.contains(&"Applied") && reasons.contains(&"Ready"), "{reasons:?}");
    });
}

/// Two replicas as in `main`, in one cluster: one is active, and when it stops, the other takes over.
#[test]
fn of_two_replicas_one_works_and_the_other_takes_over() {
    TestCluster::new().controllers(CONTROLLERS).scheduler().nodes(1).run(async |cluster| {
        cluster.install(&definition()).await;
        let runtime = |seed| Runtime { clock: cluster.clock().clone(), rng: Rng::seeded(seed) };
        let yaml = "controller: {leaderElection: {leaderElect: true}}";
        let replica = async |seed: u64| {
            let config = ControllerConfig::from_yaml(yaml).expect("valid");
            let manager =
                Manager::configured(CONTROLLER, cluster.kube(), "test", runtime(seed), config).await;
            let manager = manager.expect("made").with(controller);
            let context = manager.context().clone();
            let stop = CancellationToken::new();
            (context.metrics, tokio::spawn(manager.run(stop.clone())), stop)
        };
        let (first, second) = (replica(2).await, replica(3).await);
        let leads = |metrics: &setpoint::metrics::Metrics| {
            metrics.encode().contains("leader_election_master_status{name=\"application-controller\"} 1")
        };
        create(cluster).await;
        let ready = |it: &Application| it.status.as_ref().is_some_and(|status| status.phase == Phase::Ready);
        cluster.until(&key(), ready).await;
        assert!(leads(&first.0) != leads(&second.0), "exactly one leads");
        let (leader, standby) = if leads(&first.0) { (first, second) } else { (second, first) };
        assert!(leader.0.encode().contains("application_rollouts_total{namespace=\"default\"} 1"));
        leader.2.cancel();
        leader.1.await.expect("no panic");
        cluster
            .client()
            .delete(&Kind::of::<Application>(), &key(), &DeleteOptions::default())
            .await
            .expect("deleted");
        cluster.gone::<Application>(&key()).await;
        assert!(leads(&standby.0));
        standby.2.cancel();
    });
}

fn life(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        begin(world).await;
        let kind = Kind::of::<Application>();
        world
            .client()
            .delete(&kind, &key(), &DeleteOptions::default())
            .await
            .expect("the user's own call succeeds");
        world.until(&kind, &key(), |it| it.is_none()).await;
        world.until(&Kind::of::<Deployment>(), &key(), |it| it.is_none()).await;
        world.until(&Kind::of::<Service>(), &key(), |it| it.is_none()).await;
    }
    .boxed_local()
}

/// Crashes before and after every write, with every event hidden or stale.
#[test]
fn a_deleted_application_leaves_nothing_behind_despite_faults() {
    let scenario = Scenario {
        name: "application",
        parts: cluster().parts(),
        start: None,
        script: life,
        always: |_| Ok(()),
    };
    check_all(&scenario, 1, 5).unwrap_or_else(|failure| panic!("{failure:?}"));
}
