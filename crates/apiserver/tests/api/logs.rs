//! Logs of containers, from a kubelet in this process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::Method;
use serde_json::json;
use setpoint_apiserver::{Config, Features, KubeletConfig};
use tokio::sync::mpsc;

use crate::fake_kubelet::{FakeKubelet, NODE, PODS, streaming, text, websocket_headers};

fn talking() -> FakeKubelet {
    FakeKubelet::new(|_| async { text(200, "text/plain", "line one\nline two\n") })
}

#[tokio::test(start_paused = true)]
async fn only_options_that_are_set_are_passed_on() {
    let kubelet = talking();
    let api = kubelet.start().await;
    for (query, expected) in [
        ("", ""),
        ("?follow=true&previous=1&timestamps=yes", "?follow=true&previous=true&timestamps=true"),
        ("?follow=false&previous=0&container=c&pretty=true", ""),
        ("?tailLines=0&limitBytes=7&sinceSeconds=60", "?limitBytes=7&sinceSeconds=60&tailLines=0"),
        ("?sinceTime=2025-01-01T02:00:00.5%2B01:00", "?sinceTime=2025-01-01T01%3A00%3A00Z"),
        ("?insecureSkipTLSVerifyBackend=true", ""),
    ] {
        let log = api.get_as("application/json, text/plain", &format!("{PODS}/a/log{query}")).await;
        assert_eq!((log.code, &*log.content_type, &*log.text), (200, "text/plain", "line one\nline two\n"));
        assert_eq!(kubelet.take_target(), format!("/containerLogs/default/a/c{expected}"), "{query}");
    }
    assert_eq!(kubelet.take_dialed().first().map(String::as_str), Some(&*format!("{NODE}:10250")));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_accepts_only_text_is_not_served() {
    let api = talking().start().await;
    let refused = api.get_as("text/plain", &format!("{PODS}/a/log")).await;
    let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let why = format!("only the following media types are accepted: {types}");
    assert_eq!(refused.refusal(), (406, "NotAcceptable", &*why));
    let protobuf = api.get_as("application/vnd.kubernetes.protobuf", &format!("{PODS}/a/log")).await;
    assert_eq!((protobuf.code, &*protobuf.content_type), (200, "text/plain"));
}

#[tokio::test(start_paused = true)]
async fn a_feature_gate_lets_clients_choose_between_stdout_and_stderr() {
    let kubelet = talking();
    let split = Features::enabled_by(|name| name == "PodLogsQuerySplitStreams");
    let api = kubelet.start_changed(|config| config.with_features(split)).await;
    api.get(&format!("{PODS}/a/log?stream=Stderr")).await;
    assert_eq!(kubelet.take_target(), "/containerLogs/default/a/c?stream=Stderr");
    api.get(&format!("{PODS}/a/log")).await;
    assert_eq!(kubelet.take_target(), "/containerLogs/default/a/c?stream=All");
    for query in ["stream=Nothing", "stream=Stdout&tailLines=3"] {
        assert_eq!(api.get(&format!("{PODS}/a/log?{query}")).await.code, 422, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_arrives_while_it_is_written() {
    let (lines, source) = mpsc::channel(1);
    let source = parking_lot::Mutex::new(Some(source));
    let kubelet = FakeKubelet::new(move |_| {
        let pieces = source.lock().take().expect("asked once");
        async { streaming(pieces) }
    });
    let api = kubelet.start().await;
    let response = api.send(Method::GET, &format!("{PODS}/a/log?follow=true"), &[], "").await;
    assert_eq!(response.headers()["content-type"], "text/plain");
    let mut log = response.into_body().into_stream();
    for line in ["first\n", "second\n"] {
        lines.send(Ok(Bytes::from(line))).await.unwrap();
        assert_eq!(log.next().await.unwrap(), line);
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    // As in v1.34, a log that breaks off just ends.
    lines.send(Err(std::io::Error::other("broken"))).await.unwrap();
    assert_eq!(log.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_disconnected_client_leaks_no_kubelet_connection() {
    let (lines, source) = mpsc::channel(1);
    let source = parking_lot::Mutex::new(Some(source));
    let kubelet = FakeKubelet::new(move |_| {
        let pieces = source.lock().take().expect("asked once");
        async { streaming(pieces) }
    });
    let api = kubelet.start().await;
    let response = api.send(Method::GET, &format!("{PODS}/a/log?follow=true"), &[], "").await;
    assert_eq!(kubelet.open(), 1);
    drop(response);
    kubelet.closed().await;
    assert!(lines.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_kubelet_is_given_the_clients_timeout() {
    let kubelet = FakeKubelet::new(|_| std::future::pending());
    let api = kubelet.start().await;
    let path = format!("{PODS}/a/log");
    let asking = tokio::time::timeout(Duration::from_secs(3600), api.get(&path));
    assert!(asking.await.is_err());
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_back_the_kubelet() {
    let (lines, source) = mpsc::channel(1);
    let source = parking_lot::Mutex::new(Some(source));
    let kubelet = FakeKubelet::new(move |_| {
        let pieces = source.lock().take().expect("asked once");
        async { streaming(pieces) }
    });
    let api = kubelet.start().await;
    let response = api.send(Method::GET, &format!("{PODS}/a/log?follow=true"), &[], "").await;
    let mut taken = 0;
    while tokio::time::timeout(Duration::from_secs(1), lines.send(Ok(Bytes::from(vec![b'x'; 1024]))))
        .await
        .is_ok()
    {
        taken += 1;
        assert!(taken < 1024, "a client that does not read makes the server hold 1 MiB");
    }
    drop(response);
    kubelet.closed().await;
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_kubelet_become_those_of_the_server() {
    let kubelet = FakeKubelet::new(|request| async move {
        let code = request.uri().query().unwrap().trim_start_matches("tailLines=").parse().unwrap();
        text(code, "text/plain", "kubelet trouble")
    });
    let api = kubelet.start().await;
    for (code, expected) in [
        (400, (400, "BadRequest", "kubelet trouble")),
        (500, (500, "InternalError", "Internal error occurred: kubelet trouble")),
        (404, (404, "NotFound", "the server could not find the requested resource ( pods/log a)")),
        (403, (403, "Forbidden", "kubelet trouble ( pods/log a)")),
        (409, (409, "Conflict", "the server reported a conflict ( pods/log a)")),
        (
            502,
            (
                502,
                "InternalError",
                "an error on the server (\"kubelet trouble\") has prevented the request from succeeding ( pods/log a)",
            ),
        ),
    ] {
        let refused = api.get(&format!("{PODS}/a/log?tailLines={code}")).await;
        assert_eq!(refused.refusal(), expected);
    }
    let details = api.get(&format!("{PODS}/a/log?tailLines=404")).await.body["details"].clone();
    assert_eq!(details, json!({"name": "a", "kind": "pods/log"}));
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_cannot_be_reached_is_named() {
    let kubelet = talking();
    let api = kubelet.start().await;
    kubelet.refuses.store(true, Ordering::SeqCst);
    let refused = api.get(&format!("{PODS}/a/log")).await;
    let url = format!("https://{NODE}:10250/containerLogs/default/a/c");
    let why = format!("Get {url:?}: dial tcp {NODE}:10250: connect: connection refused");
    assert_eq!(refused.refusal(), (500, "", &*why));
    let redirecting = FakeKubelet::new(|_| async {
        let mut response = text(302, "text/plain", "");
        response.headers_mut().insert("location", "https://elsewhere.example/".parse().unwrap());
        response
    });
    let refused = redirecting.start().await.get(&format!("{PODS}/a/log")).await;
    assert!(refused.refusal().2.ends_with(": redirects forbidden"), "{}", refused.text);
}

#[tokio::test(start_paused = true)]
async fn the_settings_select_the_kubelets_address_and_port() {
    let kubelet = talking();
    let kubelets = KubeletConfig {
        address_types: vec!["ExternalIP".into(), "Hostname".into()],
        port: 1234,
        ..KubeletConfig::default()
    };
    let api = kubelet.start_changed(|config| Config { kubelets, ..config }).await;
    let none = api.get(&format!("{PODS}/a/log")).await;
    let why = format!("no preferred addresses found; known addresses: [{{InternalIP {NODE}}}]");
    assert_eq!(none.refusal(), (500, "", &*why));
    let addresses = json!([{"type": "Hostname", "address": "n.example"}, {"type": "ExternalIP", "address": "2001:db8::1"}]);
    let status =
        json!({"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}});
    api.merge("/api/v1/nodes/n/status", status).await.ok();
    api.get(&format!("{PODS}/a/log")).await;
    assert_eq!(kubelet.take_dialed(), ["2001:db8::1:1234"]);
    assert_eq!(kubelet.take_heads()[0].headers["host"], "[2001:db8::1]:1234");
}

#[tokio::test(start_paused = true)]
async fn a_browser_reads_logs_through_a_websocket() {
    let kubelet = talking();
    let api = kubelet.start().await;
    let path = format!("{PODS}/a/log");
    for (protocol, first) in
        [("binary.k8s.io", "line one\nline two\n"), ("base64.binary.k8s.io", "line one\nline two\n")]
    {
        let response = api.send(Method::GET, &path, &websocket_headers(protocol), "").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["sec-websocket-protocol"]),
            (101, &protocol.parse().unwrap())
        );
        let messages: Vec<Bytes> = response.into_body().into_stream().collect().await;
        assert_eq!(messages, ["", first], "an empty message confirms the connection");
    }
    let refused = api.send(Method::GET, &path, &websocket_headers("v5.channel.k8s.io"), "").await;
    assert_eq!(refused.status(), 403, "channels are for exec");
}

#[tokio::test(start_paused = true)]
async fn requests_for_logs_are_counted() {
    let kubelet = talking();
    let api = kubelet.start().await;
    api.get(&format!("{PODS}/a/log")).await;
    api.get(&format!("{PODS}/a/log?insecureSkipTLSVerifyBackend=true")).await;
    let metrics = api.get("/metrics").await.text;
    for line in [
        "kube_apiserver_pod_logs_insecure_backend_total{usage=\"enforce_tls\"} 1",
        "kube_apiserver_pod_logs_insecure_backend_total{usage=\"skip_tls_allowed\"} 1",
        "kube_apiserver_pod_logs_backend_tls_failure_total 0",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}
