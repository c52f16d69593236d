//! Every part of a control plane stays within the permissions of its own identity.
//!
//! The API server has the roles of every cluster, the Node authorizer and NodeRestriction. There is work for every
//! controller, the scheduler and the nodes, and no part may be denied anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use setpoint::source::Selection;
use setpoint::{Client, Clock, Key, Kind, Rng, Runtime};
use setpoint_apiserver::auth::User;
use setpoint_apiserver::{Config, admission};
use setpoint_cluster::{Cluster, Components, identity};
use setpoint_controllers::{
    AddressPool, CertificateAuthority, FeatureGates, MaskSizes, NodeRanges, Options, REGISTRY, Signers,
    TokenSigner,
};
use setpoint_store::MemoryStore;
use tokio_util::sync::CancellationToken;

/// Enables every feature that some controller needs.
fn gates() -> FeatureGates {
    let needed = REGISTRY.iter().flat_map(|entry| entry.gates);
    needed.fold(FeatureGates::default(), |gates, name| gates.with(name, true).expect("a feature"))
}

/// Options with a CA generated for this test.
fn options(clock: &Clock) -> Options {
    let authority = setpoint_apiserver::tls::Authority::generate(clock.now()).expect("an authority");
    let identity = authority.identity();
    let signer = CertificateAuthority::from_pem(&identity.certificate, &identity.key).expect("an authority");
    let key = TokenSigner::generate_key().expect("a key");
    Options {
        gates: gates(),
        root_ca: Some(identity.certificate.clone()),
        token_signer: Some(TokenSigner::from_pem(&key).expect("a key")),
        signers: Signers::all(signer),
        node_ranges: Some(NodeRanges::new("10.20.0.0/16", "", MaskSizes::default()).expect("ranges")),
        load_balancer_pool: AddressPool::parse("192.0.2.0/24"),
        ..Options::default()
    }
}

struct TestWorld {
    client: Client,
}

impl TestWorld {
    async fn create(&self, api_version: &str, kind: &str, plural: &str, body: Value) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let cluster =
            ["nodes", "persistentvolumes", "certificatesigningrequests", "validatingadmissionpolicies"];
        let namespaced = !cluster.contains(&plural);
        let kind = Kind::new(group, version, kind, plural, namespaced);
        let namespace = namespaced.then_some("default");
        let created = self.client.create(&kind, namespace, &body).await;
        created.unwrap_or_else(|error| panic!("cannot create {body}: {error}"));
    }

    /// Creates work for every controller.
    async fn fill(&self) {
        let named = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let labels = json!({"app": "a"});
        let selector = json!({"matchLabels": labels});
        let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        let set = json!({"replicas": 2, "selector": selector, "template": template});
        self.create("apps/v1", "Deployment", "deployments", named("d", set.clone())).await;
        let mut stateful = set.clone();
        stateful["serviceName"] = json!("s");
        stateful["volumeClaimTemplates"] = json!([{"metadata": {"name": "v"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
        self.create("apps/v1", "StatefulSet", "statefulsets", named("s", stateful)).await;
        let daemons = json!({"selector": selector, "template": template});
        self.create("apps/v1", "DaemonSet", "daemonsets", named("ds", daemons)).await;
        let rc = json!({"replicas": 1, "selector": labels, "template": template});
        self.create("v1", "ReplicationController", "replicationcontrollers", named("rc", rc)).await;
        let mut once = template.clone();
        once["spec"]["restartPolicy"] = json!("Never");
        let job = json!({"ttlSecondsAfterFinished": 1, "template": once});
        self.create("batch/v1", "Job", "jobs", named("j", job.clone())).await;
        let cron = json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}});
        self.create("batch/v1", "CronJob", "cronjobs", named("cj", cron)).await;
        let ports = json!([{"port": 80}]);
        let service = json!({"type": "LoadBalancer", "selector": labels, "ports": ports});
        self.create("v1", "Service", "services", named("s", service)).await;
        self.create("v1", "Service", "services", named("bare", json!({"ports": ports}))).await;
        let subsets = json!([{"addresses": [{"ip": "10.9.9.9"}], "ports": ports}]);
        let endpoints = json!({"metadata": {"name": "bare"}, "subsets": subsets});
        self.create("v1", "Endpoints", "endpoints", endpoints).await;
        let budget = json!({"minAvailable": 1, "selector": selector});
        self.create("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", named("b", budget)).await;
        self.create("v1", "ResourceQuota", "resourcequotas", named("q", json!({"hard": {"pods": "500"}})))
            .await;
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        let metrics = json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]);
        let hpa = json!({"scaleTargetRef": target, "maxReplicas": 3, "metrics": metrics});
        let plural = "horizontalpodautoscalers";
        self.create("autoscaling/v2", "HorizontalPodAutoscaler", plural, named("h", hpa)).await;
        let secret = json!({"metadata": {"name": "t", "annotations":
            {"kubernetes.io/service-account.name": "default"}}, "type": "kubernetes.io/service-account-token"});
        self.create("v1", "Secret", "secrets", secret).await;
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        let policy =
            json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]});
        let (kind, plural) = ("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
        self.create("admissionregistration.k8s.io/v1", kind, plural, named("p", policy)).await;
        let claims =
            json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}}});
        let (kind, plural) = ("ResourceClaimTemplate", "resourceclaimtemplates");
        self.create("resource.k8s.io/v1", kind, plural, named("rct", claims)).await;
        let pod = json!({"containers": containers, "volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate":
            {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}],
            "resourceClaims": [{"name": "dev", "resourceClaimTemplateName": "rct"}]});
        self.create("v1", "Pod", "pods", named("with-claims", pod)).await;
        let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Retain"});
        self.create("v1", "PersistentVolume", "persistentvolumes", named("pv", volume)).await;
        // One that is deleted with its claim.
        let volume = json!({"metadata": {"name": "provisioned", "finalizers": ["kubernetes.io/pv-controller"],
            "annotations": {"pv.kubernetes.io/provisioned-by": "kubernetes.io/host-path"}}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/tmp/x"}, "persistentVolumeReclaimPolicy": "Delete"}});
        self.create("v1", "PersistentVolume", "persistentvolumes", volume).await;
        // A node that is not simulated, so it never reports.
        self.create("v1", "Node", "nodes", json!({"metadata": {"name": "silent"}})).await;
    }

    async fn remove_all(&self) {
        for (group, version, kind, plural) in [
            ("apps", "v1", "Deployment", "deployments"),
            ("apps", "v1", "StatefulSet", "statefulsets"),
            ("", "v1", "Service", "services"),
            ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        ] {
            let kind = Kind::new(group, version, kind, plural, true);
            let selection = Selection { namespace: Some("default".into()), ..Selection::default() };
            for object in self.client.list(&kind, &selection).await.expect("a list").objects {
                let deleted = self.client.delete(&kind, object.key(), &Default::default()).await;
                deleted.unwrap_or_else(|error| panic!("cannot delete {}: {error}", object.key()));
            }
        }
        let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
        let body = json!({"metadata": {"name": "short-lived"}});
        self.client.create(&namespaces, None, &body).await.expect("a namespace");
        let deleted =
            self.client.delete(&namespaces, &Key::cluster("short-lived"), &Default::default()).await;
        deleted.expect("a namespace can be deleted");
    }
}

/// Creates a cluster with roles.
async fn cluster() -> Cluster {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let config = Config::new(store, clock, runtime.rng.fork()).with_roles();
    let mut config = Config {
        admission: admission::default_plugins_and_node_restriction(),
        ..Cluster::with_gates(config, &gates())
    };
    Cluster::serve_metrics(&mut config);
    Cluster::with_config(config, runtime).await.expect("a cluster")
}

/// All parts, with all options.
fn everything(cluster: &Cluster) -> Components {
    Components {
        controllers: REGISTRY.iter().collect(),
        controller_options: options(&cluster.runtime().clock),
        controller_accounts: true,
        scheduler: true,
        nodes: 3,
        node_events: true,
        ..Components::default()
    }
}

/// Creates work for every part, and waits for it to be done.
async fn live(world: &TestWorld) {
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.fill().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
}

/// Runs a script in a cluster with a manager of these parts.
async fn run(cluster: &Cluster, parts: &Components, script: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    let script = async {
        script.await;
        stop.cancel();
    };
    tokio::join!(cluster.manager(parts).run(stop.clone()), script);
}

#[tokio::test(start_paused = true)]
async fn no_part_is_refused_what_it_asks_for() {
    let cluster = cluster().await;
    let world = TestWorld { client: cluster.client() };
    let script = async {
        live(&world).await;
        world.remove_all().await;
        tokio::time::sleep(Duration::from_secs(120)).await;
    };
    run(&cluster, &everything(&cluster), script).await;
    cluster.denials().assert_none();
    let volumes = world.client.get_path(&["api", "v1", "persistentvolumes"], &[]).await.expect("a list");
    assert!(
        !String::from_utf8_lossy(&volumes).contains("\"provisioned\""),
        "a volume is deleted with its claim"
    );
}

/// Returns the field managers of all objects of a resource, with the subresource they wrote.
async fn managers(client: &Client, path: &[&str]) -> BTreeSet<String> {
    let list = client.get_path(path, &[]).await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let list: Value = serde_json::from_slice(&list).expect("JSON");
    let entries = list["items"].as_array().into_iter().flatten();
    let entries = entries.flat_map(|object| object["metadata"]["managedFields"].as_array().cloned());
    let named = |entry: Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        match text("subresource").as_str() {
            "" => text("manager"),
            subresource => format!("{}/{subresource}", text("manager")),
        }
    };
    entries.flatten().map(named).collect()
}

#[tokio::test(start_paused = true)]
async fn every_part_is_the_manager_of_what_it_writes() {
    let cluster = cluster().await;
    let world = TestWorld { client: cluster.client() };
    let rows: [(&[&str], &[&str]); 6] = [
        (&["api", "v1", "pods"], &["kube-controller-manager", "kubelet/status"]),
        (&["api", "v1", "nodes"], &["kubelet", "kubelet/status"]),
        (&["apis", "apps", "v1", "deployments"], &["kube-controller-manager/status"]),
        (&["apis", "coordination.k8s.io", "v1", "leases"], &["kubelet"]),
        (
            &["apis", "flowcontrol.apiserver.k8s.io", "v1", "flowschemas"],
            &[
                "api-priority-and-fairness-config-consumer-v1/status",
                "api-priority-and-fairness-config-producer-v1",
            ],
        ),
        (
            &["apis", "networking.k8s.io", "v1", "servicecidrs"],
            &["kube-apiserver", "kubernetes-service-cidr-controller/status"],
        ),
    ];
    let script = async {
        live(&world).await;
        for (path, expected) in rows {
            let found = managers(&world.client, path).await;
            for name in expected {
                assert!(found.contains(*name), "{path:?}: {name} is not among {found:?}");
            }
        }
    };
    run(&cluster, &everything(&cluster), script).await;
}

#[tokio::test(start_paused = true)]
async fn the_accounts_of_controllers_are_made_once() {
    let cluster = cluster().await;
    let client = cluster.client();
    let parts = Components {
        controllers: setpoint_controllers::selected(&["deployment", "replicaset"]).expect("controllers"),
        controller_accounts: true,
        ..Components::default()
    };
    let kind = Kind::new("", "v1", "ServiceAccount", "serviceaccounts", true);
    let accounts = async || {
        let selection = Selection { namespace: Some("kube-system".into()), ..Selection::default() };
        let list = client.list(&kind, &selection).await.expect("a list");
        let found = list.objects.iter().map(|object| object.key().name().to_owned());
        (found.collect::<Vec<_>>(), cluster.api().revision())
    };
    run(&cluster, &parts, tokio::time::sleep(Duration::from_secs(5))).await;
    let (names, revision) = accounts().await;
    assert_eq!(names, ["deployment-controller", "replicaset-controller"]);
    run(&cluster, &parts, tokio::time::sleep(Duration::from_secs(5))).await;
    assert_eq!(accounts().await, (names, revision), "a second start writes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_component_without_a_needed_permission_is_reported() {
    let cluster = cluster().await;
    let client = cluster.client();
    let bindings =
        Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false);
    for binding in ["system:controller:deployment-controller", "system:kube-scheduler"] {
        let deleted = client.delete(&bindings, &Key::cluster(binding), &Default::default()).await;
        deleted.expect("a binding can be deleted");
    }
    let controllers = setpoint_controllers::selected(&["deployment", "serviceaccount"]).expect("controllers");
    let parts = Components { controllers, scheduler: true, ..Components::default() };
    let world = TestWorld { client };
    let script = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.fill().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    run(&cluster, &parts, script).await;
    let denials = cluster.denials().all();
    for denied in [
        "system:serviceaccount:kube-system:deployment-controller: POST /apis/apps/v1/namespaces/default/replicasets",
        "system:kube-scheduler: list Pod.v1",
    ] {
        assert!(denials.iter().any(|line| line.starts_with(denied)), "{denied} is not among {denials:?}");
    }
}

/// Returns whether a user may do something to a resource, cluster-wide or in the scope of its role.
async fn may(client: &Client, user: &User, verb: &str, group: &str, resource: &str) -> bool {
    let reviews =
        Kind::new("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", false);
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let named = "kube-apiserver-legacy-service-account-token-tracking";
    for (namespace, name) in [
        ("", ""),
        ("kube-system", ""),
        ("kube-public", ""),
        ("kube-system", named),
        ("", "kubernetes.io/legacy-unknown"),
        ("", "kubernetes.io/kube-apiserver-client-kubelet"),
        ("kube-public", "cluster-info"),
    ] {
        let attributes = json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource,
            "namespace": namespace, "name": name});
        let spec = json!({"user": user.name, "groups": user.groups, "resourceAttributes": attributes});
        let review = client.create(&reviews, None, &json!({"spec": spec})).await.expect("a review");
        let review: Value = review.decode().expect("JSON");
        if review["status"]["allowed"] == true {
            return true;
        }
    }
    false
}

#[tokio::test(start_paused = true)]
async fn the_roles_of_controllers_allow_what_they_declare() {
    let cluster = cluster().await;
    let client = cluster.client();
    let mut beyond = Vec::new();
    for entry in REGISTRY.iter().filter(|entry| entry.account().is_some()) {
        let user = identity::controller(entry);
        for access in entry.writes.iter().filter(|access| !access.resource.contains('*')) {
            for verb in access.verbs {
                if !may(&client, &user, verb, access.group, access.resource).await {
                    beyond.push(format!("{}: {verb} {}/{}", user.name, access.group, access.resource));
                }
            }
        }
    }
    assert!(beyond.is_empty(), "declared and not allowed:\n{}", beyond.join("\n"));
}
