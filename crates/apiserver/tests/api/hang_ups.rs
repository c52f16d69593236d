//! Clients that disconnect. A request is polled a number of times and dropped, for every number of polls up to its
//! response. Whatever the store then contains, the server's bookkeeping must match.

use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::Config;
use setpoint_clock::Clock;
use setpoint_store::MemoryStore;

use crate::client::{Api, names};
use crate::custom::{DEFINITIONS, definition, gone};
use crate::paced_store::{Call, Pace, Paced};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const PODS: &str = "/api/v1/namespaces/default/pods";
const FOOS: &str = "/apis/e.com/v1/namespaces/default/foos";

/// More polls than any request here needs.
const MAX_POLLS: usize = 500;

/// Requires several polls for every store call, which gives as many points at which to disconnect.
struct Polls;

impl Pace for Polls {
    fn step(&self, _: Call<'_>) -> BoxFuture<'_, ()> {
        tokio::task::yield_now().boxed()
    }
}

/// Starts a server with a slow store and four node ports.
async fn start() -> Api {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let slow = |config: Config| Config {
        store: Arc::new(Paced(config.store, Polls)),
        node_ports: (30000, 30003),
        ..config
    };
    Api::start_configured(store, clock, slow).await
}

/// Polls a request and drops it, then lets the server finish its work. Returns whether the request was answered before
/// that.
async fn hang_up_after(polls: usize, request: impl Future) -> bool {
    let mut answered = false;
    {
        let mut request = pin!(request);
        for _ in 0..polls {
            if request.as_mut().now_or_never().is_some() {
                answered = true;
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    for _ in 0..MAX_POLLS {
        tokio::task::yield_now().await;
    }
    answered
}

fn service(name: &str, port: u16) -> Value {
    let port = if port == 0 { json!({"port": 80}) } else { json!({"port": 80, "nodePort": port}) };
    json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {"type": "NodePort", "ports": [port]}})
}

fn port_of(service: &Value) -> u16 {
    service["spec"]["ports"][0]["nodePort"].as_u64().unwrap() as u16
}

/// Checks that another service gets each of these ports or is rejected, depending on the services in the store.
async fn check_ports(api: &Api) {
    let list = api.get(&format!("{SERVICES}?labelSelector=app=a")).await.ok();
    let held: Vec<u16> = list["items"].as_array().unwrap().iter().map(port_of).collect();
    for port in 30000..=30003 {
        let answer = api.post(&format!("{SERVICES}?dryRun=All"), service("probe", port)).await;
        let expected = if held.contains(&port) { 422 } else { 201 };
        assert_eq!(answer.code, expected, "{port} of {held:?}: {}", answer.text);
    }
    for item in list["items"].as_array().unwrap() {
        let address = item["spec"]["clusterIP"].as_str().unwrap();
        let record = api.get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}")).await;
        assert_eq!(record.code, 200, "{address} is not recorded");
        let mut thief = service("thief", 0);
        thief["spec"]["clusterIP"] = json!(address);
        assert_eq!(api.post(&format!("{SERVICES}?dryRun=All"), thief).await.code, 422, "{address}");
    }
}

async fn delete_services(api: &Api) {
    api.delete(&format!("{SERVICES}?labelSelector=app=a")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_create_keeps_its_port_and_address() {
    let api = start().await;
    for polls in 0..MAX_POLLS {
        let answered = hang_up_after(polls, api.post(SERVICES, service("a", 0))).await;
        check_ports(&api).await;
        delete_services(&api).await;
        if answered {
            return;
        }
    }
    panic!("a create takes more than {MAX_POLLS} polls");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_update_keeps_exactly_one_port() {
    let api = start().await;
    for polls in 0..MAX_POLLS {
        api.post(SERVICES, service("a", 30000)).await.created();
        let moved = json!({"spec": {"ports": [{"port": 80, "nodePort": 30001}]}});
        let answered = hang_up_after(polls, api.merge(&format!("{SERVICES}/a"), moved)).await;
        check_ports(&api).await;
        delete_services(&api).await;
        if answered {
            return;
        }
    }
    panic!("an update takes more than {MAX_POLLS} polls");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_delete_releases_its_allocations() {
    let api = start().await;
    for path in [format!("{SERVICES}/a"), format!("{SERVICES}?labelSelector=app=a")] {
        let mut polls = 0;
        loop {
            for name in ["a", "b"] {
                api.post(SERVICES, service(name, 0)).await.created();
            }
            let answered = hang_up_after(polls, api.delete(&path)).await;
            check_ports(&api).await;
            delete_services(&api).await;
            if answered {
                break;
            }
            polls += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_an_abandoned_deletion_exists_or_is_gone() {
    let api = start().await;
    api.default_service_account().await;
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for path in [format!("{PODS}/a"), PODS.to_owned()] {
        let mut polls = 0;
        loop {
            let created = hang_up_after(polls, api.post(PODS, pod.clone())).await;
            api.post(PODS, pod.clone()).await;
            let deleted = hang_up_after(polls, api.delete(&path)).await;
            let left = api.get(PODS).await.ok();
            let is_marked = |pod: &Value| pod["metadata"].get("deletionTimestamp").is_some();
            assert!(!left["items"].as_array().unwrap().iter().any(is_marked), "{left}");
            api.delete(PODS).await.ok();
            if created && deleted {
                break;
            }
            polls += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_definition_is_served_once_it_is_stored() {
    let api = start().await;
    let this = format!("{DEFINITIONS}/foos.e.com");
    let definition = definition(json!({"type": "object"}));
    let foo = json!({"apiVersion": "e.com/v1", "kind": "Foo", "metadata": {"name": "f"}});
    for (method, path) in
        [(Method::POST, DEFINITIONS), (Method::DELETE, &this), (Method::DELETE, DEFINITIONS)]
    {
        let mut polls = 0;
        loop {
            let creates = method == Method::POST;
            if !creates {
                api.post(DEFINITIONS, definition.clone()).await.created();
                api.post(FOOS, foo.clone()).await.created();
            }
            let body = if creates { definition.to_string() } else { String::new() };
            let answered = hang_up_after(polls, api.ask(method.clone(), path, &[], body)).await;
            let stored = names(&api.get(DEFINITIONS).await.ok()).len();
            let served = api.get(FOOS).await.code;
            assert_eq!(served == 200, stored == 1, "{method} {path} after {polls} polls: {served}");
            api.delete(DEFINITIONS).await.ok();
            gone(&api, "foos.e.com").await;
            if answered {
                break;
            }
            polls += 1;
        }
    }
}
