//! Table tests of Endpoints.

use serde_json::{Value, json};
use setpoint::Cached;

use super::capacity::MAX_ADDRESSES;
use super::plan::{Content, plan};
use crate::discovery::backend::Backend;
use crate::discovery::service::Service;
use crate::discovery::subset::Endpoints;
use crate::workload::fixtures::{at, cached};

fn service(spec: Value) -> Cached<Service> {
    let mut spec = spec;
    spec["selector"] = json!({"app": "w"});
    cached(json!({"metadata": {"name": "s", "namespace": "ns", "labels": {"team": "a"}}, "spec": spec}))
}

fn pod(name: &str, ip: &str, ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "w"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]},
        "status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    })
}

fn changed(mut pod: Value, pointer: &str, value: Value) -> Cached<Backend> {
    if let Some((parent, field)) = pointer.rsplit_once('/') {
        pod.pointer_mut(parent).expect("a path of the fixture")[field] = value;
    }
    cached(pod)
}

/// Formats each subset as `ready|not ready|ports`.
fn words(content: Option<Content>) -> Vec<String> {
    let list = |items: Vec<String>| items.join(",");
    let subsets = content.into_iter().flat_map(|content| content.subsets);
    let words = subsets.map(|subset| {
        let ips = |addresses: Vec<crate::discovery::subset::Address>| {
            list(addresses.into_iter().map(|address| address.ip).collect())
        };
        let ports = subset.ports.iter().map(|port| format!("{}:{}", port.name, port.port)).collect();
        format!("{}|{}|{}", ips(subset.addresses), ips(subset.not_ready_addresses), list(ports))
    });
    words.collect()
}

#[track_caller]
fn check(spec: Value, pods: &[Cached<Backend>], expected: &[&str]) {
    assert_eq!(words(plan(&service(spec.clone()), pods, None, None)), expected, "{spec}");
}

fn http() -> Value {
    json!({"clusterIP": "10.0.0.1", "ports": [{"name": "http", "protocol": "TCP", "targetPort": 80}]})
}

#[test]
fn ready_and_not_ready_pods_are_listed_apart() {
    let pods = [cached(pod("a", "10.1.0.2", true)), cached(pod("b", "10.1.0.1", false))];
    check(http(), &pods, &["10.1.0.2|10.1.0.1|http:80"]);
    let mut unready = http();
    unready["publishNotReadyAddresses"] = json!(true);
    check(unready, &pods, &["10.1.0.1,10.1.0.2||http:80"]);
}

#[test]
fn finished_pods_and_pods_without_an_address_are_not_listed() {
    let ended = changed(pod("a", "10.1.0.1", true), "/status/phase", json!("Succeeded"));
    let ending = changed(pod("b", "10.1.0.2", true), "/metadata/deletionTimestamp", json!(at(0)));
    let mut homeless = pod("c", "", true);
    homeless["status"]["podIPs"] = json!([]);
    check(http(), &[ended.clone(), ending.clone(), cached(homeless)], &[]);
    let mut unready = http();
    unready["publishNotReadyAddresses"] = json!(true);
    check(unready, &[ended, ending], &["10.1.0.2||http:80"]);
}

#[test]
fn a_named_port_is_each_pods_own() {
    let mut spec = http();
    spec["ports"][0]["targetPort"] = json!("web");
    let other = json!([{"name": "c", "ports": [{"name": "web", "containerPort": 9090}]}]);
    let pods = [
        cached(pod("a", "10.1.0.1", true)),
        changed(pod("b", "10.1.0.2", true), "/spec/containers", other),
        changed(pod("c", "10.1.0.3", true), "/spec/containers", json!([])),
    ];
    check(spec, &pods, &["10.1.0.1||http:8080", "10.1.0.2||http:9090"]);
}

#[test]
fn a_headless_service_needs_no_ports_and_knows_the_family() {
    let dual =
        changed(pod("a", "10.1.0.1", true), "/status/podIPs", json!([{"ip": "10.1.0.1"}, {"ip": "FD00::1"}]));
    check(json!({"clusterIP": "None", "ipFamilies": ["IPv4"]}), std::slice::from_ref(&dual), &["10.1.0.1||"]);
    check(json!({"clusterIP": "None", "ipFamilies": ["IPv6", "IPv4"]}), &[dual], &["fd00::1||"]);
    check(json!({"clusterIP": "10.0.0.1"}), &[cached(pod("a", "10.1.0.1", true))], &[]);
}

fn stored(content: &Content) -> Cached<Endpoints> {
    let metadata =
        json!({"name": "s", "namespace": "ns", "labels": content.labels, "annotations": content.annotations});
    cached(json!({"metadata": metadata, "subsets": content.subsets}))
}

#[test]
fn correct_endpoints_are_not_rewritten() {
    let (service, pods) = (service(http()), [cached(pod("a", "10.1.0.1", true))]);
    let content = plan(&service, &pods, None, Some(at(0))).expect("there is nothing yet");
    assert_eq!(content.annotations["endpoints.kubernetes.io/last-change-trigger-time"], at(0).to_string());
    assert_eq!(content.labels["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
    assert_eq!(content.labels["team"], "a");
    assert_eq!(plan(&service, &pods, Some(&stored(&content)), None), None);
    let relabelled = Content { labels: [("team".into(), "b".into())].into(), ..content };
    assert!(plan(&service, &pods, Some(&stored(&relabelled)), None).is_some());
}

#[test]
fn excess_addresses_are_truncated_and_annotated() {
    let many = |ready: usize, not_ready: usize| -> Vec<Cached<Backend>> {
        let ip = |n: usize| format!("10.1.{}.{}", n / 250, n % 250);
        (0..ready + not_ready).map(|n| cached(pod(&format!("p{n}"), &ip(n), n < ready))).collect()
    };
    let service = service(http());
    let counts = |content: &Content| {
        let subset = &content.subsets[0];
        (subset.addresses.len(), subset.not_ready_addresses.len())
    };
    for (ready, not_ready, expected) in [
        (MAX_ADDRESSES + 5, 10, (MAX_ADDRESSES, 0)),
        (990, 30, (990, 10)),
        (990, 10, (990, 10)),
        (0, MAX_ADDRESSES + 1, (0, MAX_ADDRESSES)),
    ] {
        let pods = many(ready, not_ready);
        let content = plan(&service, &pods, None, None).expect("there is nothing yet");
        assert_eq!(counts(&content), expected, "{ready} ready and {not_ready} not");
        let cut = ready + not_ready > MAX_ADDRESSES;
        assert_eq!(content.annotations.contains_key("endpoints.kubernetes.io/over-capacity"), cut);
        assert_eq!(plan(&service, &pods, Some(&stored(&content)), None), None, "and it stays so");
    }
}
