//! Admission webhooks of a test: functions and servers on this machine, and faults in the calls of the API server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{Api, LogParams, PostParams};
use serde_json::{Value, json};
use setpoint::{Key, Kind};
use setpoint_sim::{Callee, Fault, OnReply, Running, TestCluster, webhooks};

fn configuration(kind: &str, host: &str, resource: &str) -> serde_json::Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "test"},
        "webhooks": [{
            "name": "test.hook.example",
            "clientConfig": match host.strip_suffix(".svc").and_then(|host| host.split_once('.')) {
                Some((name, namespace)) => json!({"service": {"name": name, "namespace": namespace, "path": "/"}}),
                None => json!({"url": format!("https://{host}/")}),
            },
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    })
}

#[test]
fn webhooks_of_a_test_review_what_controllers_write() {
    let label = json!([{"op": "add", "path": "/metadata/labels/reviewed", "value": "yes"}]);
    let cluster = TestCluster::new()
        .controllers(&["deployment", "replicaset"])
        .webhook("label.example", "/", move |review| webhooks::patch(&review, &label))
        .webhook("policy.default.svc", "/", |review| {
            match review["request"]["object"]["data"]["k"].as_str() {
                Some("bad") => webhooks::deny(&review, "not this one"),
                _ => webhooks::allow(&review),
            }
        });
    cluster.run(async |cluster| {
        cluster.create(configuration("MutatingWebhookConfiguration", "label.example", "pods")).await;
        cluster
            .create(configuration("ValidatingWebhookConfiguration", "policy.default.svc", "configmaps"))
            .await;
        let template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false}});
        cluster
            .create(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": "default"}}))
            .await;
        cluster
            .create(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}}))
            .await;
        cluster.settled(Duration::from_secs(30)).await;
        let pods = cluster.list(&Kind::of::<Pod>(), Some("default")).await;
        assert_eq!(pods.len(), 2);
        assert!(pods.iter().all(|pod| pod["metadata"]["labels"]["reviewed"] == "yes"));
        let maps: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
        let map = |value: &str| {
            serde_json::from_value(json!({"metadata": {"generateName": "m-"}, "data": {"k": value}})).unwrap()
        };
        maps.create(&PostParams::default(), &map("good")).await.unwrap();
        let refused = maps.create(&PostParams::default(), &map("bad")).await.unwrap_err().to_string();
        assert!(refused.contains("denied the request: not this one"), "{refused}");
    });
}

async fn create_map(cluster: &Running, name: &str) -> Result<ConfigMap, String> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.kube(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": {}})).unwrap();
    maps.create(&PostParams::default(), &map).await.map_err(|why| why.to_string())
}

fn reply(of: Callee, nth: usize, what: OnReply) -> Fault {
    Fault::Reply { of, nth, what }
}

#[test]
fn calls_of_webhooks_are_dropped_failed_and_delayed() {
    let cluster =
        TestCluster::new().webhook("hook.example", "/", |review| webhooks::allow(&review)).faults([
            reply(Callee::Webhook, 0, OnReply::Drop),
            reply(Callee::Webhook, 1, OnReply::Fail(503)),
            reply(Callee::Webhook, 2, OnReply::Delay(Duration::from_secs(20))),
            reply(Callee::Webhook, 3, OnReply::Delay(Duration::from_secs(7))),
        ]);
    cluster.run(async |cluster| {
        cluster.create(configuration("ValidatingWebhookConfiguration", "hook.example", "configmaps")).await;
        for expected in ["EOF", "failed to call webhook", "deadline exceeded"] {
            let refused = create_map(cluster, "m").await.unwrap_err();
            assert!(refused.contains("failed calling webhook \"test.hook.example\""), "{refused}");
            assert!(refused.contains(expected), "{refused}");
        }
        let start = cluster.clock().now();
        create_map(cluster, "m").await.unwrap();
        assert_eq!(cluster.clock().now().duration_since(start).as_secs(), 7);
        create_map(cluster, "other").await.unwrap();
        assert_eq!(cluster.faults().calls(Callee::Webhook), 5);
    });
}

/// Serves reviews on a free port, and denies every one. Returns its origin.
fn denying_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = BufReader::new(connection.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while connection.read_line(&mut line).is_ok_and(|read| read > 2) {
                let header = line.to_ascii_lowercase();
                length = header.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
                line.clear();
            }
            let mut posted = vec![0; length];
            connection.read_exact(&mut posted).unwrap();
            let review: Value = serde_json::from_slice(&posted).unwrap();
            let body = webhooks::deny(&review, "another process says no").to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            connection.get_mut().write_all((head + &body).as_bytes()).unwrap();
        }
    });
    origin
}

#[test]
fn virtual_time_stands_still_while_a_local_server_responds() {
    let origin = denying_server();
    TestCluster::new().local_server("policy.default.svc", &origin).run(async |cluster| {
        cluster
            .create(configuration("ValidatingWebhookConfiguration", "policy.default.svc", "configmaps"))
            .await;
        let start = cluster.clock().now();
        let refused = create_map(cluster, "m").await.unwrap_err();
        assert!(refused.contains("denied the request: another process says no"), "{refused}");
        assert_eq!(cluster.clock().now(), start);
        assert_eq!(cluster.faults().calls(Callee::Webhook), 1);
        cluster.faults().add(Fault::Replies { of: Callee::Webhook, what: OnReply::Fail(500) });
        let refused = create_map(cluster, "m").await.unwrap_err();
        assert!(refused.contains("failed to call webhook"), "{refused}");
    });
}

#[test]
fn a_local_server_that_is_not_there_fails_the_call() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cluster = TestCluster::new().local_server("hook.example", &format!("http://{free}"));
    cluster.run(async |cluster| {
        cluster.create(configuration("ValidatingWebhookConfiguration", "hook.example", "configmaps")).await;
        let refused = create_map(cluster, "m").await.unwrap_err();
        assert!(refused.contains("failed to call webhook"), "{refused}");
    });
}

#[test]
#[should_panic(expected = "\"127.0.0.1:9443\" is not an origin")]
fn the_origin_of_a_local_server_is_checked() {
    _ = TestCluster::new().local_server("hook.example", "127.0.0.1:9443");
}

#[test]
fn requests_to_kubelets_are_dropped_failed_and_delayed() {
    let cluster = TestCluster::new().controllers(&["serviceaccount", "nodelifecycle"]).scheduler().nodes(1);
    cluster.run(async |cluster| {
        let default = Key::namespaced("default", "default");
        cluster.until(&default, |_: &ServiceAccount| true).await;
        let script =
            json!({"name": "c", "image": "busybox", "command": ["sh", "-c", "echo hello; sleep 3600"]});
        cluster
            .create(
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                "spec": {"containers": [script]}}),
            )
            .await;
        let is_running =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        cluster.until(&Key::namespaced("default", "p"), is_running).await;
        let pods: Api<Pod> = Api::namespaced(cluster.kube(), "default");
        let log = async || pods.logs("p", &LogParams::default()).await.map_err(|why| why.to_string());
        for (what, expected) in [(OnReply::Drop, "EOF"), (OnReply::Fail(503), "the server")] {
            cluster.faults().add(Fault::Replies { of: Callee::Kubelet, what });
            let refused = log().await.unwrap_err();
            assert!(refused.contains(expected), "{refused}");
            cluster.faults().calm();
        }
        let calls = cluster.faults().calls(Callee::Kubelet);
        cluster.faults().add(reply(Callee::Kubelet, calls, OnReply::Delay(Duration::from_secs(7))));
        let start = cluster.clock().now();
        assert_eq!(log().await.unwrap(), "hello\n");
        assert_eq!(cluster.clock().now().duration_since(start).as_secs(), 7);
        assert_eq!(cluster.logs("default/p", "c").await, "hello\n", "not a request to the kubelet");
    });
}
