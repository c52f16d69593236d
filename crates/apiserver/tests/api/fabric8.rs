//! The requests of fabric8's Java client, in the form and order that it sends them.

use std::sync::Arc;

use futures::StreamExt;
use http::Method;
use serde_json::{Value, json};
use setpoint_apiserver::egress::EgressConfig;
use setpoint_apiserver::egress::in_process::{allow, deny};
use setpoint_apiserver::{Config, KubeletConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::extension::{Extension, Reply};
use crate::fake_kubelet::{FakeKubelet, PODS, switched, switching, text, websocket_headers};
use crate::webhooks::{Hooked, MAPS, rule};

/// A WebSocket for a watch: it has an origin and no subprotocol.
const WATCH: [(&str, &str); 5] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-version", "13"),
    ("origin", "https://192.0.2.1:6443"),
];

fn kubelet() -> FakeKubelet {
    FakeKubelet::new(|request| async {
        if request.uri().path().starts_with("/containerLogs") {
            return text(200, "text/plain", "line one\n");
        }
        switching(request, |mut io| async move {
            io.write_all(b"frames").await.unwrap();
            let _ = io.shutdown().await;
        })
    })
}

/// An informer lists, then watches from there with bookmarks. Each message is one event.
#[tokio::test(start_paused = true)]
async fn an_informer_lists_and_watches_over_a_websocket() {
    let api = kubelet().start().await;
    let listed = api.get(&format!("{MAPS}?resourceVersion=0")).await.ok();
    let version = listed["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let query = format!("allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=600&watch=true");
    let response = api.send(Method::GET, &format!("{MAPS}?{query}"), &WATCH, "").await;
    assert_eq!(response.status(), 101);
    assert!(!response.headers().contains_key("sec-websocket-protocol"));
    api.config_map("a", json!({})).await;
    api.delete(&format!("{MAPS}/a")).await.ok();
    let mut messages = response.into_body().into_stream();
    for expected in ["ADDED", "DELETED"] {
        let event: Value = serde_json::from_slice(&messages.next().await.unwrap()).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&expected.into(), &"a".into()));
    }
}

/// It edits with JSON patches and replaces with the version that it read, or without one.
#[tokio::test(start_paused = true)]
async fn objects_are_created_replaced_patched_and_deleted() {
    let api = kubelet().start().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}});
    let created = api.post(&format!("{MAPS}?fieldManager=fabric8"), map.clone()).await.created();
    assert_eq!(api.post(MAPS, map.clone()).await.code, 409);
    let diff = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": created["metadata"]["resourceVersion"]},
                      {"op": "replace", "path": "/data/k", "value": "2"}]);
    let patched = api.patch("json", &format!("{MAPS}/a"), diff).await.ok();
    assert_eq!(patched["data"]["k"], "2");
    assert_eq!(api.put(&format!("{MAPS}/a"), map).await.ok()["data"]["k"], "1");
    assert_eq!(api.put(&format!("{MAPS}/a"), created).await.code, 409);
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    api.delete_with(&format!("{MAPS}/a"), options).await.ok();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn exec_port_forward_and_logs_reach_the_kubelet() {
    let kubelet = kubelet();
    let api = kubelet.start().await;
    let v4 = websocket_headers("v4.channel.k8s.io");
    for (request, expected) in [
        (
            "exec?command=sh&command=-c&command=ls%20%2F&container=c&stdin=true&stdout=true&stderr=true",
            "/exec/default/a/c?command=sh&command=-c&command=ls+%2F&error=1&input=1&output=1",
        ),
        (
            "attach?container=c&stdin=true&stdout=true&stderr=true&tty=true",
            "/attach/default/a/c?error=1&input=1&output=1&tty=1",
        ),
        ("portforward?ports=8080", "/portForward/default/a?port=8080"),
    ] {
        let response = api.send(Method::GET, &format!("{PODS}/a/{request}"), &v4, "").await;
        let mut received = String::new();
        switched(&response).read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "frames", "{request}");
        assert_eq!(kubelet.take_target(), expected, "{request}");
    }
    let log = api.get(&format!("{PODS}/a/log?pretty=false&container=c&tailLines=5&timestamps=true")).await;
    assert_eq!((log.code, &*log.text), (200, "line one\n"));
    assert_eq!(kubelet.take_target(), "/containerLogs/default/a/c?tailLines=5&timestamps=true");
    let followed = api.send(Method::GET, &format!("{PODS}/a/log?pretty=false&follow=true"), &[], "").await;
    let text: Vec<u8> = followed.into_body().into_stream().map(|piece| piece.to_vec()).concat().await;
    assert_eq!(text, b"line one\n");
    assert_eq!(kubelet.take_target(), "/containerLogs/default/a/c?follow=true");
}

/// A server with webhooks that deny red ConfigMaps and every exec.
async fn reviewed(kubelet: &FakeKubelet) -> Hooked {
    let extension = Extension::new(|_, review| {
        let request = &review["request"];
        let is_denied = request["operation"] == "CONNECT" || request["object"]["data"]["color"] == "red";
        Reply::Json(if is_denied { deny(review, "not today") } else { allow(review) })
    });
    let dial = Arc::new(extension.clone());
    let with_both = |config: Config| {
        let kubelets = KubeletConfig { dial: Some(config.egress.dial.clone()), ..config.kubelets.clone() };
        let egress = EgressConfig { dial, ..config.egress.clone() };
        Config { egress, kubelets, ..config }
    };
    Hooked { api: kubelet.start_changed(with_both).await, extension }
}

/// `createOr(update)`: it creates the configuration, and replaces the one that is there.
#[tokio::test(start_paused = true)]
async fn webhooks_review_its_writes_and_its_exec() {
    let kubelet = kubelet();
    let hooked = reviewed(&kubelet).await;
    let rules = json!([rule("", "configmaps", &["CREATE"]), rule("", "pods/exec", &["CONNECT"])]);
    hooked.validating(json!({})).await;
    let webhooks = [hooked.webhook("/v", json!({"rules": rules}))];
    assert_eq!(hooked.configure("validating", "v", &webhooks).await.code, 409);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    let mut found = hooked.api.get(path).await.ok();
    found["webhooks"] = json!(webhooks);
    hooked.api.put(path, found).await.ok();

    let map = |color: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": color}, "data": {"color": color}});
    hooked.api.post(MAPS, map("blue")).await.created();
    let refused = hooked.api.post(MAPS, map("red")).await;
    let expected = "admission webhook \"v.hook.example\" denied the request: not today";
    assert_eq!((refused.code, &refused.body["message"]), (400, &json!(expected)));
    let exec = format!("{PODS}/a/exec?command=ls&container=c&stdout=true");
    let refused = hooked.api.send(Method::GET, &exec, &websocket_headers("v4.channel.k8s.io"), "").await;
    assert_eq!(refused.status(), 400, "no WebSocket is opened");
    let body: Vec<u8> = refused.into_body().into_stream().map(|piece| piece.to_vec()).concat().await;
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status["message"], expected);
    assert!(kubelet.take_heads().is_empty(), "the kubelet is not asked");
}
