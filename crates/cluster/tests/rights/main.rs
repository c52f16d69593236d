//! Every controller stays within the role that its service account has.
//!
//! A controller that asks for more than its role allows works in tests, where it may do anything, and fails in a
//! cluster where each acts in its own name. So here each does, on an API server with the roles of every cluster, and
//! nobody may be refused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::source::Selection;
use setpoint::{Client, Clock, Key, Kind, Manager, Rng, Runtime};
use setpoint_apiserver::auth::{User, service_account_groups, service_account_name};
use setpoint_apiserver::{ApiServer, Body, Config};
use setpoint_cluster::{Cluster, InProcessSource, in_process_client};
use setpoint_controllers::{
    AddressPool, CertificateAuthority, Entry, FeatureGates, MaskSizes, NodeRanges, Options, REGISTRY,
    Signers, TokenSigner,
};
use setpoint_store::MemoryStore;
use tokio_util::sync::CancellationToken;

/// What was refused, and to whom.
type Refused = Arc<Mutex<BTreeSet<String>>>;

fn account_of(entry: &Entry) -> User {
    match entry.account() {
        Some(account) => {
            let name = service_account_name("kube-system", account);
            User::authenticated(name, "", service_account_groups("kube-system"))
        }
        None => User::authenticated("system:kube-controller-manager", "", Vec::new()),
    }
}

/// A client that acts as somebody and writes down what they are refused for want of rights.
fn watched_client(api: &ApiServer, user: User, refused: &Refused) -> Client {
    let (api, refused) = (api.clone(), refused.clone());
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (api, user, refused) = (api.clone(), user.clone(), refused.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let line = format!("{}: {} {}", user.name, head.method, head.uri.path());
            let answer = api.handle(user, Request::from_parts(head, body)).await;
            if answer.status() != http::StatusCode::FORBIDDEN {
                return Ok::<_, std::convert::Infallible>(answer);
            }
            let (head, body) = answer.into_parts();
            let body = body.collect().await;
            // A namespace that goes refuses everybody.
            if !String::from_utf8_lossy(&body).contains("being terminated") {
                refused.lock().insert(line);
            }
            Ok(http::Response::from_parts(head, Body::full(body)))
        }
    });
    Client::new(kube::Client::new(service, "default"))
}

/// Every feature on that some controller needs.
fn gates() -> FeatureGates {
    let needed = REGISTRY.iter().flat_map(|entry| entry.gates);
    needed.fold(FeatureGates::default(), |gates, name| gates.with(name, true).expect("a feature"))
}

/// An authority made for this test.
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

struct Town {
    client: Client,
}

impl Town {
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

    /// Something for every controller to do.
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
        // One that nobody plays: it falls silent.
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

#[tokio::test(start_paused = true)]
async fn no_controller_is_refused_what_it_asks_for() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let config = Config::new(store, clock.clone(), runtime.rng.fork()).with_roles();
    let config = Cluster::with_gates(config, &gates());
    let cluster = Cluster::with_config(config, runtime.clone()).await.expect("a cluster");
    let refused = Refused::default();

    // Informers, the scheduler and nodes act for the whole manager: they are not what is tested.
    let source = Arc::new(InProcessSource::new(cluster.api().clone()));
    let mut manager = Manager::new(cluster.client(), source, runtime);
    let options = options(&clock);
    for entry in REGISTRY {
        let mut context = manager.context().clone();
        context.client = watched_client(cluster.api(), account_of(entry), &refused);
        for part in entry.parts(&context, &options) {
            manager.add(part);
        }
    }
    let stop = CancellationToken::new();
    let script = async {
        let town =
            Town { client: Client::new(in_process_client(cluster.api(), User::system("system:admin"))) };
        tokio::time::sleep(Duration::from_secs(5)).await;
        town.fill().await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        town.remove_all().await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        stop.cancel();
    };
    tokio::join!(manager.run(stop.clone()), script);
    let refused = refused.lock();
    assert!(refused.is_empty(), "refused:\n{}", refused.iter().cloned().collect::<Vec<_>>().join("\n"));
}

/// Whether a user may do something to a resource, anywhere or where and to what their role says.
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
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let config = Config::new(store, clock.clone(), runtime.rng.fork()).with_roles();
    let config = Cluster::with_gates(config, &gates());
    let cluster = Cluster::with_config(config, runtime).await.expect("a cluster");
    let client = cluster.client();
    let mut beyond = Vec::new();
    for entry in REGISTRY.iter().filter(|entry| entry.account().is_some()) {
        let user = account_of(entry);
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
