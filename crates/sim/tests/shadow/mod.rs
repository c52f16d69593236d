//! The built-in controllers in shadow mode beside the same controllers, and beside others.

mod guard;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::metrics::Metrics;
use setpoint::{Client, Key, Kind, Manager, Rng, Runtime, client::Subresource};
use setpoint_controllers::{Entry, Options, REGISTRY, selected};
use setpoint_shadow::{Config, Finding, Report, Shadow};
use setpoint_sim::{Running, TestCluster};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const MANAGER: &str = "kube-controller-manager";
/// The time after which everything is decided: the window, and some time to check.
const DECIDED: Duration = Duration::from_secs(45);

/// Controllers in shadow mode, and every write they would have sent.
struct Beside {
    shadow: Shadow,
    writes: Arc<Mutex<Vec<String>>>,
    _running: JoinSet<()>,
}

fn written<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let accesses = entries.into_iter().flat_map(|entry| entry.writes);
    accesses.map(|access| (access.group, access.resource))
}

/// A client that records everything but reads.
fn noting(client: kube::Client, writes: &Arc<Mutex<Vec<String>>>) -> kube::Client {
    let writes = writes.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        if request.method() != Method::GET {
            writes.lock().push(format!("{} {}", request.method(), request.uri()));
        }
        let client = client.clone();
        async move { Ok::<_, Infallible>(client.send(request).await.expect("an answer")) }
    });
    kube::Client::new(service, "default")
}

fn beside(cluster: &Running, controllers: &[&str]) -> Beside {
    let entries = selected(controllers).expect("controllers");
    let runtime = Runtime { clock: cluster.clock().clone(), rng: Rng::seeded(7) };
    let (metrics, writes) = (Metrics::new(), Arc::default());
    let is_absent = |entry: &&Entry| !entries.iter().any(|one| one.name == entry.name);
    let config = Config::default()
        .expecting(written(entries.iter().copied()), written(REGISTRY.iter().filter(is_absent)));
    let shadow = Shadow::new(config, runtime.clone(), metrics.clone());
    let kube = shadow.guard(noting(cluster.kube(), &writes));
    let client = Client::new(kube.clone()).with_user_agent(MANAGER);
    let mut manager = Manager::with_metrics(client.clone(), shadow.source(kube.clone()), runtime, metrics);
    for entry in entries {
        let context = shadow.context(manager.context(), client.clone(), entry.name);
        entry.parts(&context, &Options::default()).into_iter().for_each(|part| manager.add(part));
    }
    manager.add(shadow.verifier(kube));
    let mut running = JoinSet::new();
    running.spawn(async move {
        manager.run(CancellationToken::new()).await;
    });
    Beside { shadow, writes, _running: running }
}

impl Beside {
    /// Returns the report once everything is decided.
    async fn decided(&self, cluster: &Running) -> Report {
        cluster.pass(DECIDED).await;
        assert_eq!(*self.writes.lock(), Vec::<String>::new(), "nothing is written");
        self.shadow.report()
    }

    async fn agrees(&self, cluster: &Running, at_least: u64) {
        let report = self.decided(cluster).await;
        assert!(report.is_clean(), "{}", report.table());
        assert!(report.total().matched >= at_least, "{}", report.table());
    }
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn set(kind: &str, name: &str, more: Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name)});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

fn is_rolled_out(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.ready_replicas == Some(replicas)
        && status.updated_replicas == Some(replicas)
        && status.replicas == Some(replicas)
}

async fn patch(cluster: &Running, name: &str, body: Value) {
    let deployments: Api<Deployment> = Api::namespaced(cluster.kube(), "default");
    deployments.patch(name, &PatchParams::default(), &Patch::Merge(body)).await.expect("a Deployment");
}

fn whole() -> TestCluster {
    TestCluster::new().all_controllers().scheduler().nodes(3)
}

#[test]
fn a_rollout_is_the_same_in_the_shadow() {
    whole().run(async |cluster| {
        let beside = beside(cluster, &["*"]);
        cluster.create(set("Deployment", "web", json!({"replicas": 5}))).await;
        let port = json!([{"port": 80}]);
        let metadata = json!({"name": "web", "namespace": "default"});
        let spec = json!({"selector": {"app": "web"}, "ports": port});
        cluster
            .create(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
            .await;
        cluster.until(&key("web"), |web: &Deployment| is_rolled_out(web, 5)).await;
        let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
        patch(cluster, "web", image).await;
        cluster.pass(Duration::from_secs(5)).await;
        cluster.until(&key("web"), |web: &Deployment| is_rolled_out(web, 5)).await;
        patch(cluster, "web", json!({"spec": {"replicas": 2}})).await;
        cluster.until(&key("web"), |web: &Deployment| is_rolled_out(web, 2)).await;
        beside.agrees(cluster, 20).await;
    });
}

#[test]
fn jobs_sets_and_daemons_are_the_same_in_the_shadow() {
    whole().run(async |cluster| {
        let beside = beside(cluster, &["*"]);
        let mut pod = template("job");
        pod["spec"]["restartPolicy"] = "Never".into();
        pod["spec"]["containers"][0]["command"] = json!(["true"]);
        let job = json!({"completions": 4, "parallelism": 2, "template": pod});
        let metadata = json!({"name": "job", "namespace": "default"});
        cluster
            .create(
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job.clone()}),
            )
            .await;
        let mut failing = job.clone();
        failing["template"]["spec"]["containers"][0]["command"] = json!(["false"]);
        failing["backoffLimit"] = 1.into();
        let metadata = json!({"name": "failing", "namespace": "default"});
        cluster
            .create(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": failing}))
            .await;
        let metadata = json!({"name": "tick", "namespace": "default"});
        let spec = json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}});
        cluster
            .create(json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}))
            .await;
        cluster.create(set("StatefulSet", "db", json!({"replicas": 3, "serviceName": "db"}))).await;
        cluster.create(set("DaemonSet", "agent", json!({}))).await;
        let done = |job: &Job| job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
        cluster.until(&key("job"), done).await;
        cluster.pass(Duration::from_secs(150)).await;
        beside.agrees(cluster, 30).await;
    });
}

#[test]
fn deletions_match_in_shadow_mode() {
    whole().run(async |cluster| {
        let beside = beside(cluster, &["*"]);
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        cluster.create(shop).await;
        let mut web = set("Deployment", "web", json!({"replicas": 3}));
        web["metadata"]["namespace"] = "shop".into();
        cluster.create(web).await;
        cluster.create(set("Deployment", "gone", json!({"replicas": 3}))).await;
        let in_shop = Key::namespaced("shop", "web");
        cluster.until(&in_shop, |web: &Deployment| is_rolled_out(web, 3)).await;
        let deployments: Api<Deployment> = Api::namespaced(cluster.kube(), "default");
        deployments.delete("gone", &DeleteParams::foreground()).await.expect("a Deployment");
        let namespaces: Api<Namespace> = Api::all(cluster.kube());
        namespaces.delete("shop", &DeleteParams::default()).await.expect("a namespace");
        let is_gone = |namespace: Option<&Value>| namespace.is_none();
        let shop = Key::cluster("shop");
        setpoint_sim::World::until(cluster, &Kind::of::<Namespace>(), &shop, is_gone).await;
        beside.agrees(cluster, 20).await;
    });
}

#[test]
fn an_autoscaler_is_the_same_in_the_shadow() {
    whole().run(async |cluster| {
        let beside = beside(cluster, &["*"]);
        let mut web = set("Deployment", "web", json!({"replicas": 1}));
        web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
        web["spec"]["template"]["metadata"]["annotations"] = json!({"node.setpoint.dev/cpu-usage": "90m"});
        cluster.create(web).await;
        let metadata = json!({"name": "web", "namespace": "default"});
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 30}});
        let metrics = json!([{"type": "Resource", "resource": cpu}]);
        let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "metrics": metrics});
        let kind = "HorizontalPodAutoscaler";
        cluster
            .create(json!({"apiVersion": "autoscaling/v2", "kind": kind, "metadata": metadata, "spec": spec}))
            .await;
        cluster.until(&key("web"), |web: &Deployment| is_rolled_out(web, 3)).await;
        beside.agrees(cluster, 10).await;
    });
}

#[test]
fn a_controller_that_only_the_shadow_has_differs() {
    TestCluster::new().controllers(&["*", "-deployment"]).run(async |cluster| {
        let beside = beside(cluster, &["*"]);
        cluster.create(set("Deployment", "web", json!({"replicas": 2}))).await;
        let report = beside.decided(cluster).await;
        let counts = report.controllers["deployment-controller"];
        assert!(counts.differences > 0, "{}", report.table());
        let created = report.differences.iter().find(|one| one.verb == "create").expect("a difference");
        assert_eq!(created.controller, "deployment-controller");
        assert!(created.object().starts_with("replicasets.apps default/web-"), "{}", created.object());
        assert_eq!(created.message, "the object was not created");
        assert!(!report.is_clean());
    });
}

#[test]
fn another_status_is_reported_with_its_field() {
    TestCluster::new().run(async |cluster| {
        let beside = beside(cluster, &["replicaset"]);
        cluster.create(set("ReplicaSet", "web", json!({"replicas": 0}))).await;
        let status = json!({"status": {"replicas": 7, "observedGeneration": 1}});
        let kind = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
        let patch = setpoint::client::Patch::merge(&status);
        cluster.client().patch(&kind, &key("web"), Subresource::Status, patch).await.expect("a ReplicaSet");
        let report = beside.decided(cluster).await;
        let [found] = &report.differences[..] else { panic!("{}", report.table()) };
        assert_eq!(
            (found.finding, found.object().as_str()),
            (Finding::Difference, "replicasets.apps/status default/web")
        );
        let [field] = &found.fields[..] else { panic!("{}", report.table()) };
        assert_eq!(field.path, "status.replicas");
        assert_eq!((&field.intended, &field.live), (&Some(json!(0)), &Some(json!(7))));
    });
}

#[test]
fn a_live_write_that_the_shadow_does_not_make_is_missing() {
    whole().run(async |cluster| {
        let beside = beside(cluster, &["*"]);
        cluster.create(set("Deployment", "web", json!({"replicas": 1}))).await;
        cluster.until(&key("web"), |web: &Deployment| is_rolled_out(web, 1)).await;
        cluster.pass(Duration::from_secs(60)).await;
        let patch = setpoint::client::Patch::merge(&json!({"metadata": {"labels": {"strange": "yes"}}}));
        let live = cluster.client().with_user_agent(MANAGER);
        live.patch(&Kind::of::<Deployment>(), &key("web"), Subresource::None, patch)
            .await
            .expect("a Deployment");
        let report = beside.decided(cluster).await;
        let [found] = &report.differences[..] else { panic!("{}", report.table()) };
        assert_eq!(
            (found.finding, found.object().as_str()),
            (Finding::Missing, "deployments.apps default/web")
        );
        assert_eq!(report.missing, 1);
    });
}

#[test]
fn a_storm_of_intentions_is_bounded_and_ends() {
    TestCluster::new().run(async |cluster| {
        let beside = beside(cluster, &["replicaset"]);
        cluster.create(set("ReplicaSet", "web", json!({"replicas": 500}))).await;
        cluster.pass(Duration::from_secs(10)).await;
        assert!(beside.shadow.pending() <= 501, "{} intentions", beside.shadow.pending());
        let report = beside.decided(cluster).await;
        let counts = report.controllers["replicaset-controller"];
        assert!((500..=501).contains(&counts.intended), "{}", report.table());
        let pods = report.differences.iter().find(|one| one.resource == "pods").expect("a difference");
        assert_eq!((pods.count, pods.name.as_str()), (500, "web-*"));
        assert!(report.differences.len() <= 2 && beside.shadow.pending() <= 1, "{}", report.table());
    });
}
