//! Where requests to simulated nodes and pods go: those of proxies, of webhooks and for extension API servers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{Clock, Rng, Runtime};
use setpoint_apiserver::Config;
use setpoint_apiserver::egress::{Dial, Dialed};
use setpoint_apiserver::tls::Authority;
use setpoint_cluster::{Cluster, Components, PodBackends, identity, in_process_client};
use setpoint_store::MemoryStore;
use tokio_util::sync::CancellationToken;

/// Accepts and ends every connection, and records where it went.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<Vec<String>>>);

impl Dial for Outside {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        self.0.lock().push(format!("{host}:{port}"));
        let (near, _) = tokio::io::duplex(1);
        std::future::ready(Ok(Box::new(near) as Dialed)).boxed()
    }
}

/// A cluster with one node, and a pod `a` that a local process stands in for.
struct World {
    outside: Outside,
    client: kube::Client,
    stop: CancellationToken,
}

impl World {
    async fn start(backends: PodBackends, process: &str) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
        let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let mut config = Config::new(store, clock, runtime.rng.fork()).with_roles();
        let outside = Outside::default();
        config.egress.dial = Arc::new(outside.clone());
        config.secure_port = 6443;
        let cluster = Cluster::with_pod_backends(config, runtime, backends).await.expect("a cluster");
        let stop = CancellationToken::new();
        let manager = cluster.manager(&Components { nodes: 1, ..Components::default() });
        tokio::spawn(manager.run(stop.clone()));
        let world = Self { outside, client: in_process_client(cluster.api(), identity::admin()), stop };
        tokio::time::sleep(Duration::from_secs(5)).await;
        let account = json!({"metadata": {"name": "default"}});
        // It may exist already.
        _ = world.post("/api/v1/namespaces/default/serviceaccounts", &account).await;
        let pod = json!({
            "metadata": {"name": "a", "annotations": {"node.setpoint.dev/backend": process}},
            "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "i"}]},
        });
        world.post("/api/v1/namespaces/default/pods", &pod).await.expect("a pod");
        tokio::time::sleep(Duration::from_secs(30)).await;
        world
    }

    async fn post(&self, path: &str, body: &Value) -> Result<String, kube::Error> {
        let request = http::Request::post(path).header("content-type", "application/json");
        self.client.request_text(request.body(body.to_string().into_bytes()).expect("a request")).await
    }

    async fn get(&self, path: &str) -> Result<String, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        self.client.request_text(request).await
    }

    /// Sends a request through a proxy. Returns where it went, and the error.
    async fn proxied(&self, path: &str) -> (Vec<String>, String) {
        self.outside.0.lock().clear();
        let error = self.get(path).await.expect_err("no one answers").to_string();
        (self.outside.0.lock().clone(), error)
    }

    /// Makes the pod the only endpoint of a Service that a webhook for ConfigMaps names, and creates a ConfigMap.
    /// Returns where the call went, and the error.
    async fn reviewed(&self) -> (Vec<String>, String) {
        let pod: Value = serde_json::from_str(&self.get(POD).await.expect("a pod")).expect("JSON");
        let ports = json!([{"name": "https", "port": 443}]);
        let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": ports}});
        self.post("/api/v1/namespaces/default/services", &service).await.expect("a Service");
        let target = json!({"kind": "Pod", "name": "a", "namespace": "default"});
        let slice = json!({
            "metadata": {"name": "hook", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [pod["status"]["podIP"]], "targetRef": target}], "ports": ports,
        });
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        self.post(slices, &slice).await.expect("a slice");
        let authority =
            Authority::generate("2025-01-01T00:00:00Z".parse().expect("a time")).expect("an authority");
        let authority = ByteString(authority.identity().certificate.clone().into());
        let configuration = json!({"metadata": {"name": "v"}, "webhooks": [{
            "name": "v.hook.example", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "hook"}, "caBundle": authority},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        }]});
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        self.post(path, &configuration).await.expect("a configuration");
        self.outside.0.lock().clear();
        let map = json!({"metadata": {"name": "m"}});
        let refused = self.post("/api/v1/namespaces/default/configmaps", &map).await;
        (self.outside.0.lock().clone(), refused.expect_err("no one answers").to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

const POD: &str = "/api/v1/namespaces/default/pods/a";
const PROXY: &str = "/api/v1/namespaces/default/pods/a:80/proxy/x";

#[tokio::test(start_paused = true)]
async fn a_request_to_another_port_of_a_simulated_node_goes_nowhere() {
    let world = World::start(PodBackends::Loopback, "127.0.0.1:8443").await;
    let (dialed, error) = world.proxied("/api/v1/nodes/node-0:8080/proxy/x").await;
    assert_eq!(dialed, [""; 0]);
    assert!(error.contains("connection refused"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_represented_by_a_local_process_if_that_is_allowed() {
    let world = World::start(PodBackends::Loopback, "127.0.0.1:8443").await;
    let mut dialed = world.proxied(PROXY).await.0;
    // A get whose connection ends at once is sent again.
    dialed.dedup();
    assert_eq!(dialed, ["127.0.0.1:8443"]);
    let world = World::start(PodBackends::None, "127.0.0.1:8443").await;
    let (dialed, error) = world.proxied(PROXY).await;
    assert_eq!(dialed, [""; 0]);
    assert!(error.contains("--pod-backends=loopback"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_api_server_never_stands_in_for_a_pod() {
    let world = World::start(PodBackends::Loopback, "127.0.0.1:6443").await;
    let (dialed, error) = world.proxied(PROXY).await;
    assert_eq!(dialed, [""; 0]);
    assert!(error.contains("the API server itself"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_webhooks_reach_only_the_processes_that_are_allowed() {
    let (mut dialed, _) = World::start(PodBackends::Loopback, "127.0.0.1:8443").await.reviewed().await;
    dialed.dedup();
    assert_eq!(dialed, ["127.0.0.1:8443"]);
    for (backends, process, why) in [
        (PodBackends::None, "127.0.0.1:8443", "--pod-backends=loopback"),
        (PodBackends::Loopback, "127.0.0.1:6443", "the API server itself"),
        (PodBackends::Loopback, "10.9.9.9:8443", "expected a loopback address"),
    ] {
        let (dialed, error) = World::start(backends, process).await.reviewed().await;
        assert_eq!(dialed, [""; 0], "{process}");
        assert!(error.contains(why), "{error}");
    }
}
