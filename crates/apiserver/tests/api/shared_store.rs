//! Several servers on one etcd, each with its own cache of it: what one writes, the others respect.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use setpoint_apiserver::storage::{StorageCodec, StorageMediaType};
use setpoint_apiserver::{ApiServer, Config, User, kinds};
use setpoint_clock::{Clock, Rng};
use setpoint_store::MemoryStore;
use setpoint_store::etcd::{Compare, EtcdClient, EtcdModel, EtcdOptions, EtcdStore, Op, RangeRequest, Txn};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Api;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// An etcd, on which any number of servers can be started.
struct Cluster {
    etcd: EtcdModel,
    clock: Clock,
}

impl Cluster {
    fn new() -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        Self { etcd: EtcdModel::new(clock.clone()), clock }
    }

    async fn server(&self, change: impl FnOnce(Config) -> Config) -> Api {
        let codec = StorageCodec::new(kinds::all(), StorageMediaType::Protobuf).unwrap();
        let client = Arc::new(self.etcd.clone());
        let options = EtcdOptions::default();
        let store =
            EtcdStore::open(client, Arc::new(codec), None, self.clock.clone(), options).await.unwrap();
        let config = Config::new(Arc::new(store), self.clock.clone(), Rng::seeded(1));
        let server = ApiServer::start(change(config)).await.unwrap();
        let user = User::authenticated("admin", "1", vec!["system:masters".into()]);
        // Not used: these servers restart by starting another one.
        let store = Arc::new(MemoryStore::new(self.clock.clone()));
        Api { server, store, clock: self.clock.clone(), user }
    }

    async fn pair(&self, change: impl Fn(Config) -> Config) -> [Api; 2] {
        // Their choices would be the same if their seeds were.
        let other = |config: Config| Config { rng: Rng::seeded(2), ..change(config) };
        [self.server(&change).await, self.server(other).await]
    }

    /// Writes a key as another program would.
    async fn put(&self, key: &str, value: &[u8]) {
        let key = bytes::Bytes::copy_from_slice(key.as_bytes());
        let read = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let revision = self.etcd.range(read).await.unwrap().kvs.first().map_or(0, |kv| kv.modified);
        let value = bytes::Bytes::copy_from_slice(value);
        let put = Txn {
            compare: Compare::Modified { key: key.clone(), revision },
            then: Op::Put { key, value, lease: 0 },
            otherwise: None,
        };
        assert!(self.etcd.txn(put).await.unwrap().succeeded);
    }

    async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let read = RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() };
        self.etcd.range(read).await.unwrap().kvs.first().map(|kv| kv.value.to_vec())
    }
}

/// Maintains a server until the task is aborted, which is like a crash.
fn maintain(api: &Api) -> JoinHandle<()> {
    let server = api.server.clone();
    tokio::spawn(async move { server.maintain(CancellationToken::new()).await })
}

async fn eventually(clock: &Clock, within: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = clock.instant() + within;
    while !holds().await {
        assert!(clock.instant() < deadline, "not within {within:?}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

fn service(name: &str, port: Option<i64>) -> Value {
    let ports = json!([{"port": 80, "nodePort": port}]);
    json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}})
}

/// Returns the addresses and ports of all services but `kubernetes`.
async fn given(api: &Api) -> (Vec<String>, Vec<i64>) {
    let list = api.get(SERVICES).await.ok();
    let services = list["items"].as_array().unwrap().iter();
    let specs: Vec<_> =
        services.map(|service| &service["spec"]).filter(|spec| spec["type"] == "NodePort").collect();
    let addresses = specs.iter().map(|spec| spec["clusterIP"].as_str().unwrap().to_owned());
    let ports = specs.iter().map(|spec| spec["ports"][0]["nodePort"].as_i64().unwrap());
    (addresses.collect(), ports.collect())
}

#[tokio::test(start_paused = true)]
async fn addresses_and_ports_are_given_out_once() {
    let cluster = Cluster::new();
    // Room for 29 services beside `kubernetes`, and 24 ports.
    let small =
        |config: Config| Config { service_cidr: "10.0.0.0/27".into(), node_ports: (30000, 30023), ..config };
    let servers = cluster.pair(small).await;
    for round in 0..2 {
        let creations = (0..24).map(|at| {
            let server = &servers[at % 2];
            async move { server.post(SERVICES, service(&format!("s{at}"), None)).await.created() }
        });
        join_all(creations).await;
        let (addresses, ports) = given(&servers[0]).await;
        assert_eq!((addresses.len(), ports.len()), (24, 24));
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 24, "{round}: {addresses:?}");
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 24, "{round}: {ports:?}");
        let full = servers[1].post(SERVICES, service("full", None)).await;
        assert!(full.refusal().2.contains("failed to allocate a nodePort: range is full"), "{full:?}");
        // All is free again, whichever server frees it.
        let removals = (0..24).map(|at| {
            let server = &servers[(at / 2) % 2];
            async move { server.delete(&format!("{SERVICES}/s{at}")).await.ok() }
        });
        join_all(removals).await;
    }
    let ranges = cluster.get("/registry/ranges/servicenodeports").await.unwrap();
    assert!(ranges.starts_with(b"k8s\0"));
}

#[tokio::test(start_paused = true)]
async fn what_one_server_gives_out_the_other_refuses() {
    let cluster = Cluster::new();
    let [one, other] = cluster.pair(|config| config).await;
    for round in 0..5 {
        let name = format!("a{round}");
        let mut wanted = service(&name, Some(30500));
        wanted["spec"]["clusterIP"] = "10.0.7.7".into();
        one.post(SERVICES, wanted.clone()).await.created();
        wanted["metadata"]["name"] = "b".into();
        let refused = other.post(SERVICES, wanted.clone()).await;
        assert!(refused.refusal().2.contains("provided IP is already allocated"), "{refused:?}");
        wanted["spec"]["clusterIP"] = Value::Null;
        let refused = other.post(SERVICES, wanted).await;
        assert!(refused.refusal().2.contains("provided port is already allocated"), "{refused:?}");
        other.delete(&format!("{SERVICES}/{name}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn a_port_that_kube_apiserver_has_given_out_is_taken() {
    let cluster = Cluster::new();
    // Its server has initialized the range, and is about to store a service with the port 30001.
    let allocation = br#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{"creationTimestamp":null},"range":"30000-32767","data":"Ag=="}"#;
    cluster.put("/registry/ranges/servicenodeports", allocation).await;
    let api = cluster.server(|config| config).await;
    let refused = api.post(SERVICES, service("a", Some(30001))).await;
    assert!(refused.refusal().2.contains("provided port is already allocated"), "{refused:?}");
    api.post(SERVICES, service("a", Some(30002))).await.created();
    // The service never comes. The third repair frees the port: one was at the start, the others follow every 3 minutes.
    let _task = maintain(&api);
    api.clock.sleep(Duration::from_secs(190)).await;
    assert_eq!(api.post(SERVICES, service("b", Some(30001))).await.code, 422);
    api.clock.sleep(Duration::from_secs(180)).await;
    api.post(SERVICES, service("b", Some(30001))).await.created();
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_served_by_the_other_server_at_once() {
    let cluster = Cluster::new();
    let [one, other] = cluster.pair(|config| config).await;
    let _task = maintain(&other);
    let definition = json!({
        "metadata": {"name": "pandas.bears.example"},
        "spec": {
            "group": "bears.example",
            "names": {"plural": "pandas", "singular": "panda", "kind": "Panda", "listKind": "PandaList"},
            "scope": "Cluster",
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    one.post(definitions, definition).await.created();
    let pandas = "/apis/bears.example/v1/pandas";
    let at_once = Duration::from_millis(500);
    eventually(&other.clock, at_once, async || other.get(pandas).await.code == 200).await;
    other
        .post(pandas, json!({"apiVersion": "bears.example/v1", "kind": "Panda", "metadata": {"name": "po"}}))
        .await
        .created();
    assert_eq!(one.get(&format!("{pandas}/po")).await.code, 200);
    one.delete(&format!("{definitions}/pandas.bears.example")).await.ok();
    let soon = Duration::from_secs(30);
    eventually(&other.clock, soon, async || other.get(pandas).await.code == 404).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_admits_no_more_than_it_allows_on_all_servers_together() {
    let cluster = Cluster::new();
    let servers = cluster.pair(|config| config).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"count/configmaps": "5"});
    servers[0].post(quotas, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.created();
    let status = json!({"status": {"hard": hard, "used": {"count/configmaps": "0"}}});
    servers[0].merge(&format!("{quotas}/q/status"), status).await.ok();
    // A read of the latest state: until then, the quota does not exist for the other server.
    servers[1].get(&format!("{quotas}/q")).await.ok();
    let creations = (0..20).map(|at| {
        let server = &servers[at % 2];
        async move { server.post(MAPS, json!({"metadata": {"name": format!("m{at}")}})).await.code }
    });
    let codes = join_all(creations).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 5, "{codes:?}");
    let quota = servers[1].get(&format!("{quotas}/q")).await.ok();
    assert_eq!(quota["status"]["used"], json!({"count/configmaps": "5"}));
}

#[tokio::test(start_paused = true)]
async fn rights_that_one_server_takes_away_are_gone_on_the_other() {
    let cluster = Cluster::new();
    let [one, mut other] = cluster.pair(Config::with_roles).await;
    other.user = User::authenticated("alice", "", Vec::new());
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let binding = json!({
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-view"},
        "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let at_once = Duration::from_millis(500);
    assert_eq!(other.get(MAPS).await.code, 403);
    one.post(bindings, binding).await.created();
    eventually(&one.clock, at_once, async || other.get(MAPS).await.code == 200).await;
    one.delete(&format!("{bindings}/alice")).await.ok();
    eventually(&one.clock, at_once, async || other.get(MAPS).await.code == 403).await;
}

async fn endpoints(api: &Api) -> Value {
    let endpoints = api.get(ENDPOINTS).await.body;
    let listed = endpoints["subsets"][0]["addresses"].as_array().into_iter().flatten();
    let ips: Vec<_> = listed.map(|address| address["ip"].clone()).collect();
    let slice = api.get(SLICE).await.body;
    let listed = slice["endpoints"].as_array().into_iter().flatten();
    let in_slice: Vec<_> = listed.map(|endpoint| endpoint["addresses"][0].clone()).collect();
    // The two are written one after the other.
    if ips == in_slice { json!(ips) } else { Value::Null }
}

#[tokio::test(start_paused = true)]
async fn the_kubernetes_service_has_the_addresses_of_the_servers_that_are_alive() {
    let cluster = Cluster::new();
    let at = |address: &str| {
        let address: IpAddr = address.parse().unwrap();
        move |config: Config| Config { advertise_address: Some(address), ..config }
    };
    let mut servers = Vec::new();
    for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3"] {
        let api = cluster.server(at(address)).await;
        let task = maintain(&api);
        servers.push((api, task));
    }
    let clock = &cluster.clock;
    let is = async |wanted: Value, within: u64| {
        let first = &servers[0].0;
        eventually(clock, Duration::from_secs(within), async || endpoints(first).await == wanted).await;
    };
    is(json!(["192.0.2.1", "192.0.2.2", "192.0.2.3"]), 11).await;
    let before = servers[0].0.get(ENDPOINTS).await.ok()["metadata"]["resourceVersion"].clone();
    clock.sleep(Duration::from_secs(60)).await;
    let after = servers[0].0.get(ENDPOINTS).await.ok()["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after, "nothing changes while all are alive");
    // One stops in order, the other is gone.
    servers[1].0.server.begin_shutdown();
    is(json!(["192.0.2.1", "192.0.2.3"]), 1).await;
    servers[2].1.abort();
    is(json!(["192.0.2.1"]), 26).await;
}

#[tokio::test(start_paused = true)]
async fn every_server_has_an_identity() {
    let cluster = Cluster::new();
    let named =
        |name: &'static str| move |config: Config| Config { hostname: Some(name.to_owned()), ..config };
    let [one, other] = [cluster.server(named("one")).await, cluster.server(named("two")).await];
    let (_task, task) = (maintain(&one), maintain(&other));
    let hosts = async || {
        let list = one
            .get(&format!("{LEASES}?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver"))
            .await
            .ok();
        let items = list["items"].as_array().unwrap().iter();
        let host = |lease: &Value| lease["metadata"]["labels"]["kubernetes.io/hostname"].clone();
        items.map(host).collect::<Vec<_>>()
    };
    let clock = &cluster.clock;
    eventually(clock, Duration::from_secs(1), async || hosts().await.len() == 2).await;
    task.abort();
    clock.sleep(Duration::from_secs(3600)).await;
    // The other one's Lease has ended, and is removed within the next hour.
    eventually(clock, Duration::from_secs(3700), async || hosts().await == ["one"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_an_object_that_cannot_be_read() {
    let cluster = Cluster::new();
    let api = cluster.server(|config| config).await;
    let made = api.config_map("a", json!({"x": "y"})).await;
    let from = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&resourceVersion={from}");
    let mut watch = api.open_watch(&path).await;
    let mut selected = api.open_watch(&format!("{path}&labelSelector=x%3Dy")).await;
    cluster.put("/registry/configmaps/default/a", b"garbage").await;
    for watch in [&mut watch, &mut selected] {
        let event = watch.next().await.unwrap();
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
        assert_eq!(watch.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_cannot_be_read_lets_nothing_pass() {
    let cluster = Cluster::new();
    let api = cluster.server(|config| config).await;
    let webhook = json!({
        "name": "no.hook.example",
        "clientConfig": {"url": "https://nowhere.example/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    });
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    api.post(hooks, json!({"metadata": {"name": "no"}, "webhooks": [webhook]})).await.created();
    // It does not apply to this one, but is known from now on.
    let secret = json!({"metadata": {"name": "a"}});
    api.post("/api/v1/namespaces/default/secrets", secret).await.created();
    cluster.put("/registry/validatingwebhookconfigurations/no", b"garbage").await;
    // The server has to see it first.
    api.clock.sleep(Duration::from_millis(10)).await;
    for _ in 0..3 {
        let refused = api.post(MAPS, json!({"metadata": {"name": "a"}})).await;
        assert!(refused.refusal().2.contains("neither protobuf nor JSON"), "{refused:?}");
    }
}
