//! Simulated nodes send heartbeats, unless they are made to fail.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret, ServiceAccount};
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::World;

fn ready(node: &Value, status: &str) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == status))
}

async fn mark(world: &World, failed: Value) {
    let patch = Patch::merge(&json!({"metadata": {"annotations": {"node.setpoint.dev/failed": failed}}}));
    let patched =
        world.client().patch(&Kind::of::<Node>(), &Key::cluster("node-0"), Subresource::None, patch).await;
    patched.expect("the user's own call succeeds");
}

/// A node stops reporting and is detected. When it recovers, it is as before, and catches up.
#[test]
fn a_failing_node_becomes_unready_and_recovers() {
    let controllers = setpoint_controllers::selected(&["nodelifecycle", "serviceaccount"]);
    let parts = Components {
        controllers: controllers.expect("known controllers"),
        scheduler: true,
        nodes: 1,
        ..Components::default()
    };
    World::simulate(1, parts, Vec::new(), async |world| {
        let (nodes, pods) = (Kind::of::<Node>(), Kind::of::<Pod>());
        let (node, pod) = (Key::cluster("node-0"), Key::namespaced("default", "p"));
        let account = Key::namespaced("default", "default");
        world.until(&Kind::of::<ServiceAccount>(), &account, |account| account.is_some()).await;
        let body = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        world.create(&pods, Some("default"), body).await;
        let runs = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == "Running");
        world.until(&pods, &pod, runs).await;
        mark(world, json!("true")).await;
        world.until(&nodes, &node, |node| node.is_some_and(|node| ready(node, "Unknown"))).await;
        world
            .client()
            .delete(&pods, &pod, &DeleteOptions::default())
            .await
            .expect("the user's own call succeeds");
        world.pass(std::time::Duration::from_secs(120)).await;
        assert!(world.get(&pods, &pod).await.is_some(), "it keeps running");
        mark(world, Value::Null).await;
        world.until(&nodes, &node, |node| node.is_some_and(|node| ready(node, "True"))).await;
        world.until(&pods, &pod, |pod| pod.is_none()).await;
    });
}

#[test]
fn a_node_whose_lease_is_deleted_gets_another_and_renews_it() {
    let parts = Components { nodes: 1, ..Components::default() };
    World::simulate(1, parts, Vec::new(), async |world| {
        let (kind, key) = (Kind::of::<Lease>(), Key::namespaced("kube-node-lease", "node-0"));
        let renewed =
            |lease: Option<&Value>| lease.is_some_and(|lease| lease["spec"]["renewTime"].is_string());
        world.until(&kind, &key, renewed).await;
        let first = world.get(&kind, &key).await.expect("it is there");
        world
            .client()
            .delete(&kind, &key, &DeleteOptions::default())
            .await
            .expect("the user's own call succeeds");
        world.until(&kind, &key, renewed).await;
        let second = world.get(&kind, &key).await.expect("it is back");
        assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
        world.until(&kind, &key, |lease| lease.is_some_and(|lease| lease["spec"] != second["spec"])).await;
    });
}

fn one_node() -> Components {
    let controllers = setpoint_controllers::selected(&["nodelifecycle", "serviceaccount"]);
    Components {
        controllers: controllers.expect("known controllers"),
        scheduler: true,
        nodes: 1,
        ..Components::default()
    }
}

async fn create(world: &World, name: &str, spec: Value) -> Key {
    let account = Key::namespaced("default", "default");
    world.until(&Kind::of::<ServiceAccount>(), &account, |account| account.is_some()).await;
    let body = json!({"metadata": {"name": name}, "spec": spec});
    world.create(&Kind::of::<Pod>(), Some("default"), body).await;
    Key::namespaced("default", name)
}

fn waiting(pod: &Value) -> &str {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default()
}

/// A pod whose volume and environment are missing waits, reports the reason, and starts once they exist.
#[test]
fn a_pod_waits_for_its_volumes_and_config() {
    World::simulate(1, one_node(), Vec::new(), async |world| {
        let from = json!([{"secretRef": {"name": "env"}}]);
        let volumes = json!([{"name": "v", "configMap": {"name": "files"}}]);
        let container = json!({"name": "c", "image": "i", "envFrom": from});
        let key = create(world, "p", json!({"containers": [container], "volumes": volumes})).await;
        let pods = Kind::of::<Pod>();
        let waits =
            |reason: &'static str| move |pod: Option<&Value>| pod.is_some_and(|pod| waiting(pod) == reason);
        world.until(&pods, &key, waits("ContainerCreating")).await;
        let events = world.list(&Kind::of::<Event>(), Some("default")).await;
        let expected = "MountVolume.SetUp failed for volume \"v\" : configmap \"files\" not found";
        assert!(events.iter().any(|event| event["reason"] == "FailedMount" && event["message"] == expected));
        let named = |name: &str| json!({"metadata": {"name": name}});
        world.create(&Kind::of::<ConfigMap>(), Some("default"), named("files")).await;
        world.until(&pods, &key, waits("CreateContainerConfigError")).await;
        world.create(&Kind::of::<Secret>(), Some("default"), named("env")).await;
        world.until(&pods, &key, |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Running")).await;
    });
}

/// A pod assigned to a node by name is checked there: a port can be used once.
#[test]
fn a_pod_that_does_not_fit_on_its_node_is_rejected() {
    World::simulate(1, one_node(), Vec::new(), async |world| {
        let container = json!({"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]});
        let spec = json!({"containers": [container], "nodeName": "node-0"});
        let pods = Kind::of::<Pod>();
        let first = create(world, "first", spec.clone()).await;
        world.until(&pods, &first, |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Running")).await;
        let second = create(world, "second", spec).await;
        world.until(&pods, &second, |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")).await;
        let second = world.get(&pods, &second).await.expect("it stays");
        assert_eq!(second["status"]["reason"], "NodePorts");
        let why = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        assert_eq!(second["status"]["message"], why);
    });
}

/// A node rejects a pod that is bound to it but does not fit.
#[test]
fn a_pod_that_is_bound_to_a_node_that_is_too_small_is_rejected() {
    World::simulate(1, one_node(), Vec::new(), async |world| {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000"}}});
        let key = create(world, "huge", json!({"containers": [container], "schedulerName": "mine"})).await;
        let binding = json!({"metadata": {"name": "huge"}, "target": {"kind": "Node", "name": "node-0"}});
        let pods = Kind::of::<Pod>();
        world.client().post(&pods, &key, Subresource::Binding, &binding).await.expect("it is bound");
        world.until(&pods, &key, |pod| pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")).await;
        let refused = world.get(&pods, &key).await.expect("it stays");
        assert_eq!(refused["status"]["reason"], "OutOfcpu");
    });
}

/// A resource added to a node's capacity becomes available to pods.
#[test]
fn a_resource_added_to_the_capacity_of_a_node_can_be_requested() {
    World::simulate(1, one_node(), Vec::new(), async |world| {
        let node = Key::cluster("node-0");
        world.until(&Kind::of::<Node>(), &node, |node| node.is_some_and(|node| ready(node, "True"))).await;
        let patch = json!({"status": {"capacity": {"example.com/gpu": "2"}}});
        let patch = Patch::Merge(patch.to_string().into());
        world
            .client()
            .patch(&Kind::of::<Node>(), &node, Subresource::Status, patch)
            .await
            .expect("it is there");
        let amount = json!({"limits": {"example.com/gpu": 2}, "requests": {"example.com/gpu": 2}});
        let container = json!({"name": "c", "image": "i", "resources": amount});
        let key = create(world, "p", json!({"containers": [container]})).await;
        let runs = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == "Running");
        world.until(&Kind::of::<Pod>(), &key, runs).await;
    });
}

/// A container that crashes repeatedly is restarted, with a growing delay.
#[test]
fn a_crashing_container_is_restarted_with_growing_back_off() {
    World::simulate(1, one_node(), Vec::new(), async |world| {
        let account = Key::namespaced("default", "default");
        world.until(&Kind::of::<ServiceAccount>(), &account, |account| account.is_some()).await;
        let annotations = json!({"node.setpoint.dev/exit-code": "1", "node.setpoint.dev/run-for": "1s"});
        let body = json!({"metadata": {"name": "p", "annotations": annotations},
                          "spec": {"containers": [{"name": "c", "image": "i"}]}});
        world.create(&Kind::of::<Pod>(), Some("default"), body).await;
        let (pods, key) = (Kind::of::<Pod>(), Key::namespaced("default", "p"));
        let restarts =
            |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or(0);
        world.until(&pods, &key, |pod| pod.is_some_and(|pod| waiting(pod) == "CrashLoopBackOff")).await;
        world.until(&pods, &key, |pod| pod.is_some_and(|pod| restarts(pod) == 4)).await;
        world.pass(std::time::Duration::from_secs(10)).await;
        let pod = world.get(&pods, &key).await.expect("it stays");
        assert_eq!((waiting(&pod), restarts(&pod)), ("CrashLoopBackOff", 4));
        let message = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
        assert!(
            message
                .as_str()
                .is_some_and(|text| text.starts_with("back-off 1m20s restarting failed container=c"))
        );
    });
}

/// Under memory pressure, pods without memory requests are evicted, and the node reports the condition.
#[test]
fn a_node_short_of_memory_reports_pressure_and_evicts_pods() {
    World::simulate(1, one_node(), Vec::new(), async |world| {
        let (nodes, pods) = (Kind::of::<Node>(), Kind::of::<Pod>());
        let requests = json!({"requests": {"memory": "1Gi"}});
        let container = |resources: &Value| json!({"name": "c", "image": "i", "resources": resources});
        let stays = create(world, "stays", json!({"containers": [container(&requests)]})).await;
        let goes = create(world, "goes", json!({"containers": [container(&json!({}))]})).await;
        let is = |phase: &'static str| {
            move |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == phase)
        };
        world.until(&pods, &stays, is("Running")).await;
        world.until(&pods, &goes, is("Running")).await;
        let press = async |pressure: Value| {
            let patch =
                Patch::merge(&json!({"metadata": {"annotations": {"node.setpoint.dev/pressure": pressure}}}));
            let patched =
                world.client().patch(&nodes, &Key::cluster("node-0"), Subresource::None, patch).await;
            patched.expect("the user's own call succeeds");
        };
        let shows = |status: &'static str| {
            move |node: Option<&Value>| {
                let conditions = node.and_then(|node| node["status"]["conditions"].as_array());
                let mut all = conditions.into_iter().flatten();
                all.any(|one| one["type"] == "MemoryPressure" && one["status"] == status)
            }
        };
        press(json!("memory")).await;
        world.until(&pods, &goes, is("Failed")).await;
        world.until(&nodes, &Key::cluster("node-0"), shows("True")).await;
        let gone = world.get(&pods, &goes).await.expect("it is there");
        assert_eq!(gone["status"]["reason"], "Evicted");
        let conditions = gone["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let target = conditions
            .iter()
            .find(|one| one["type"] == "DisruptionTarget")
            .expect("a DisruptionTarget condition");
        assert_eq!(target["reason"], "TerminationByKubelet");
        press(Value::Null).await;
        world.until(&nodes, &Key::cluster("node-0"), shows("False")).await;
        assert!(is("Running")(world.get(&pods, &stays).await.as_ref()), "it was promised memory");
    });
}
