//! Tests of `TestCluster`, used as by a controller author.

use std::time::Duration;

use futures::TryStreamExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use setpoint::handler::enqueue_self;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Context, Controller, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
};
use setpoint_sim::{Fault, OnCall, OnEvent, Scenario, TestCluster, World, check_all};

/// For every ConfigMap called `source`, maintains one called `copy` next to it.
struct Copier {
    client: Client,
    maps: Lister<ConfigMap>,
}

impl Reconciler for Copier {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let copy = key.sibling("copy");
        if key.name() == "source" && self.maps.get(key)?.is_some() && self.maps.get(&copy)?.is_none() {
            let body = json!({"metadata": {"name": "copy"}});
            match self.client.create(&Kind::of::<ConfigMap>(), key.namespace(), &body).await {
                Err(error) if error.is_already_exists() => {}
                created => created.map(drop).attempting("create the copy")?,
            }
        }
        Ok(Outcome::Settled)
    }
}

fn copier(context: &Context) -> Vec<Box<dyn Runnable>> {
    let maps = context.informers.of::<ConfigMap>();
    let queue = context.queue("copier");
    maps.add_handler(enqueue_self(&queue));
    let copier = Copier { client: context.client.clone(), maps: maps.lister() };
    vec![Box::new(Controller::new("copier", queue, copier).waits_for(&maps))]
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn source() -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "source", "namespace": "default"}})
}

#[test]
fn permissions_are_what_controllers_did() {
    let used = TestCluster::new().all_controllers().with(copier).run(async |cluster| {
        cluster.create(source()).await;
        cluster.until(&key("copy"), |_: &ConfigMap| true).await;
        cluster.permissions()
    });
    assert_eq!(
        used.to_string(),
        "- {apiGroups: [\"\"], resources: [configmaps], verbs: [get, list, watch, create]}\n",
        "what built-in controllers do does not count"
    );
}

#[test]
fn a_custom_controller_works_beside_the_built_in_ones_and_through_every_fault() {
    let call = |what| vec![Fault::Call { nth: 0, what }];
    let event = |what| vec![Fault::Event { nth: 0, what }];
    let wrong = [
        vec![],
        call(OnCall::CrashBefore),
        call(OnCall::CrashAfter),
        call(OnCall::DropAfter),
        call(OnCall::Fail(503)),
        event(OnEvent::Hide),
        event(OnEvent::Duplicate),
        event(OnEvent::Delay(Duration::from_secs(60))),
    ];
    for faults in wrong {
        TestCluster::new().with(copier).faults(faults).run(async |cluster| {
            cluster.create(source()).await;
            cluster.until(&key("copy"), |_: &ConfigMap| true).await;
        });
    }
}

#[test]
fn an_author_can_search_all_faults_with_one_scenario() {
    fn script(world: &World) -> LocalBoxFuture<'_, ()> {
        Box::pin(async move {
            world.create(&Kind::of::<ConfigMap>(), Some("default"), source()).await;
            world.until(&Kind::of::<ConfigMap>(), &key("copy"), |copy| copy.is_some()).await;
        })
    }
    let parts = TestCluster::new().with(copier).parts();
    let scenario = Scenario { name: "copier", parts, start: None, script, always: |_| Ok(()) };
    let report = check_all(&scenario, 1, 3).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(report.plans > 4, "{report:?}");
}

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx"}]}}},
    }))
    .expect("a deployment")
}

/// What a plain test API server lacks: controllers that create, schedule, run, own and garbage collect.
#[tokio::test(start_paused = true)]
async fn a_plain_kube_client_finds_a_cluster_where_things_happen() {
    let cluster = TestCluster::new().all_controllers().scheduler().nodes(1).start().await;
    let client = cluster.kube();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    deployments.create(&PostParams::default(), &deployment()).await.expect("created");
    let ready = |it: &Deployment| it.status.as_ref().and_then(|status| status.ready_replicas) == Some(2);
    cluster.until(&key("web"), ready).await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    assert_eq!(pods.list(&ListParams::default().labels("app=web")).await.expect("listed").items.len(), 2);
    deployments.delete("web", &Default::default()).await.expect("deleted");
    cluster.gone::<Deployment>(&key("web")).await;
    cluster.settled(Duration::from_secs(120)).await;
    assert!(pods.list(&ListParams::default()).await.expect("listed").items.is_empty(), "collected");
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_plain_client_work_too() {
    let cluster = TestCluster::new().start().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let mut watch = Box::pin(maps.watch(&Default::default(), "0").await.expect("watched"));
    cluster.create(source()).await;
    let seen = watch.try_next().await.expect("no error").expect("an event");
    assert!(
        matches!(seen, kube::api::WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("source"))
    );
}

#[test]
fn clusters_share_nothing_and_time_is_free() {
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                TestCluster::new().run(async |cluster| {
                    assert!(cluster.find::<ConfigMap>(&key("source")).await.is_none());
                    cluster.create(source()).await;
                    cluster.pass(Duration::from_secs(3600)).await;
                    cluster.clock().now().to_string()
                })
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), "2025-01-01T01:00:00Z");
    }
}

#[test]
#[should_panic(expected = "\"deploymnt\" is not in the list of known controllers")]
fn a_controller_that_does_not_exist_is_named() {
    let _ = TestCluster::new().controllers(&["deploymnt"]);
}

#[test]
fn a_definition_is_installed_and_its_objects_can_be_created() {
    let definition = serde_json::from_value(json!({
        "metadata": {"name": "greetings.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "greetings", "singular": "greeting", "kind": "Greeting"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    }))
    .expect("a definition");
    TestCluster::new().run(async |cluster| {
        cluster.install(&definition).await;
        let greeting = json!({"apiVersion": "example.com/v1", "kind": "Greeting",
            "metadata": {"name": "hello", "namespace": "default"}});
        let created = cluster.create(greeting).await;
        assert_eq!(created.key(), &key("hello"));
    });
}

/// The CRD of `foos.e.com`.
fn foos() -> CustomResourceDefinition {
    let schema = json!({"type": "object"});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "foos", "kind": "Foo"});
    let spec = json!({"group": "e.com", "scope": "Namespaced", "names": names, "versions": [version]});
    serde_json::from_value(json!({"metadata": {"name": "foos.e.com"}, "spec": spec})).unwrap()
}

#[test]
fn a_deleted_definition_goes_after_its_objects_in_virtual_time() {
    TestCluster::new().run(async |cluster| {
        cluster.install(&foos()).await;
        for name in ["a", "b"] {
            let metadata = json!({"name": name, "namespace": "default"});
            cluster.create(json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": metadata})).await;
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(cluster.kube());
        let deleted = definitions.delete("foos.e.com", &DeleteParams::default()).await.unwrap();
        let waiting = deleted.left().expect("the definition, not a status");
        assert!(waiting.metadata.deletion_timestamp.is_some());
        cluster.gone::<CustomResourceDefinition>(&Key::cluster("foos.e.com")).await;
        cluster.install(&foos()).await;
        let request = http::Request::get("/apis/e.com/v1/foos").body(Vec::new()).unwrap();
        let found: serde_json::Value = cluster.kube().request(request).await.unwrap();
        assert_eq!(found["items"], json!([]));
    });
}
