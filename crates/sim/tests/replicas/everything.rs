//! All controllers at once: a restart in a steady state writes nothing, and a leader that was paused writes nothing
//! after another one has taken over.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret, Service,
};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::Value;
use setpoint::View;
use setpoint::leader::{ElectionConfig, ExitReason};
use setpoint_controllers::{AddressPool, INGRESS_CONTROLLER, MaskSizes, NodeRanges, Options};
use setpoint_sim::Link;
use tokio_util::sync::CancellationToken;

use super::*;

/// All controllers, including those that are off by default, with all options.
fn everything() -> Components {
    let selection = ["*", "bootstrapsigner", "tokencleaner"];
    let controller_options = Options {
        root_ca: Some("the authority".into()),
        node_ranges: NodeRanges::new("10.20.0.0/16", "", MaskSizes::default()).ok(),
        load_balancer_pool: AddressPool::parse("192.0.2.0/28"),
        ..Options::default()
    };
    let controllers = setpoint_controllers::selected(&selection).expect("known controllers");
    Components { controllers, controller_options, scheduler: true, nodes: 2, ..Components::default() }
}

async fn create<K: View>(world: &World, name: &str, mut body: Value) {
    let kind = Kind::of::<K>();
    body["metadata"]["name"] = json!(name);
    world.create(&kind, kind.namespaced().then_some("default"), body).await;
}

fn template(app: &str, annotations: Value, more: Value) -> Value {
    let resources = json!({"requests": {"cpu": "100m"}});
    let mut template = json!({"metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
    for (field, value) in more.as_object().into_iter().flatten() {
        template["spec"][field] = value.clone();
    }
    template
}

/// Creates work for every controller.
async fn populate(world: &World) {
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let plain = |app: &str| template(app, json!({}), json!({}));
    let web = json!({"spec": {"replicas": 2, "selector": selector("web"), "template": plain("web")}});
    create::<Deployment>(world, "web", web).await;
    let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "s",
        "resources": {"requests": {"storage": "1Gi"}}});
    let data = json!([{"metadata": {"name": "data"}, "spec": claim}]);
    let db = json!({"spec": {"replicas": 2, "serviceName": "db", "selector": selector("db"),
        "template": plain("db"), "volumeClaimTemplates": data}});
    for name in ["a", "b", "c"] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "storageClassName": "s", "hostPath": {"path": "/tmp/v"}});
        create::<PersistentVolume>(world, name, json!({"spec": spec})).await;
    }
    create::<PersistentVolumeClaim>(world, "mine", json!({"spec": claim})).await;
    create::<StatefulSet>(world, "db", db).await;
    let agent = json!({"spec": {"selector": selector("agent"), "template": plain("agent")}});
    create::<DaemonSet>(world, "agent", agent).await;
    let done =
        template("work", json!({"node.setpoint.dev/exit-code": "0"}), json!({"restartPolicy": "Never"}));
    create::<Job>(world, "work", json!({"spec": {"completions": 2, "template": done}})).await;
    // At a time that is never reached.
    let yearly = json!({"schedule": "0 0 29 2 *", "jobTemplate": {"spec": {"template": done}}});
    create::<CronJob>(world, "yearly", json!({"spec": yearly})).await;
    let ports = json!([{"port": 80}]);
    let service = |kind: &str| json!({"spec": {"type": kind, "selector": {"app": "web"}, "ports": ports}});
    create::<Service>(world, "web", service("ClusterIP")).await;
    create::<Service>(world, "outside", service("LoadBalancer")).await;
    create::<IngressClass>(world, "local", json!({"spec": {"controller": INGRESS_CONTROLLER}})).await;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let ingress = json!({"ingressClassName": "local", "defaultBackend": backend});
    create::<Ingress>(world, "web", json!({"spec": ingress})).await;
    let budget = json!({"minAvailable": 1, "selector": selector("web")});
    create::<PodDisruptionBudget>(world, "web", json!({"spec": budget})).await;
    let hard = json!({"hard": {"pods": "50", "count/secrets": "50"}});
    create::<ResourceQuota>(world, "team", json!({"spec": hard})).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    // Exactly the usage of idle pods, so that there is nothing to stabilize after a restart.
    let usage = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 10}});
    let scaler = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 2,
        "metrics": [{"type": "Resource", "resource": usage}]});
    create::<HorizontalPodAutoscaler>(world, "web", json!({"spec": scaler})).await;
    create::<Namespace>(world, "team", json!({})).await;
    create::<Secret>(world, "plain", json!({})).await;
}

async fn is_populated(world: &World) {
    let (deployments, key) = (Kind::of::<Deployment>(), Key::namespaced("default", "web"));
    world.until(&deployments, &key, |web| web.is_some_and(|web| web["status"]["readyReplicas"] == 2)).await;
    let (sets, key) = (Kind::of::<StatefulSet>(), Key::namespaced("default", "db"));
    world.until(&sets, &key, |db| db.is_some_and(|db| db["status"]["readyReplicas"] == 2)).await;
}

/// Ignores what simulated nodes write about themselves when they restart.
fn is_a_nodes(write: &str) -> bool {
    write.contains(" /api/v1/nodes")
}

#[test]
fn with_every_controller_a_restart_in_a_steady_state_writes_nothing() {
    World::simulate(1, everything(), Vec::new(), async |world| {
        world.pass(10 * SECOND).await;
        populate(world).await;
        is_populated(world).await;
        world.pass(1200 * SECOND).await;
        let (before, graph) = (world.trace().writes().len(), world.graph().await);
        world.restart().await;
        world.pass(600 * SECOND).await;
        let made: Vec<String> = world.trace().writes().split_off(before);
        let made: Vec<&String> = made.iter().filter(|write| !is_a_nodes(write)).collect();
        assert!(made.is_empty(), "{made:#?}");
        assert!(graph.difference(&world.graph().await).is_empty());
    });
}

struct Replica {
    link: Link,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<ExitReason>,
}

fn start(world: &World, name: &'static str) -> Replica {
    let link = Link::new(world.clock());
    // Nodes and the scheduler are not part of a controller manager. They run separately.
    let parts = Components { scheduler: false, nodes: 0, ..everything() };
    let mut manager = world.replica(&link, &parts);
    let election = ElectionConfig::new("kube-system", "kube-controller-manager", name);
    manager.elect(election, "kube-controller-manager").expect("a valid configuration");
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    Replica { link, stop, running }
}

/// A leader is paused in the middle of a rollout of everything, for longer than its lease, and resumes.
#[test]
fn with_every_controller_a_paused_leader_writes_nothing_after_the_takeover() {
    let beside = Components { scheduler: true, nodes: 2, ..Components::default() };
    for pause in [12, 16, 40] {
        World::simulate(1, beside.clone(), Vec::new(), async |world| {
            let first = start(world, "a");
            world.pass(5 * SECOND).await;
            let second = start(world, "b");
            world.pass(10 * SECOND).await;
            populate(world).await;
            world.pass(SECOND / 4).await;
            first.link.pause();
            world.pass(pause * SECOND).await;
            let moved = world.clock().now();
            first.link.mend();
            is_populated(world).await;
            world.pass(120 * SECOND).await;
            let of = |replica: &Replica| {
                let writes = replica.link.writes();
                writes.into_iter().filter(|write| !write.path.contains("/leases")).collect::<Vec<_>>()
            };
            let (theirs, ours) = (of(&first), of(&second));
            assert!(!theirs.is_empty() && !ours.is_empty(), "both worked");
            let late = theirs.iter().find(|write| write.at >= moved);
            assert!(late.is_none(), "after {pause} s: {late:?}");
            let pods = world.list(&Kind::of::<Pod>(), Some("default")).await;
            assert_eq!(pods.len(), 2 + 2 + 2 + 2, "web, db, agents, and what the job left");
            first.stop.cancel();
            second.stop.cancel();
            let _ = futures::join!(first.running, second.running);
        });
    }
}
