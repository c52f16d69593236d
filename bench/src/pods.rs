//! Pods as a Deployment of a real cluster has them, and an API server that knows nothing else.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;

/// How much of a stream arrives at once: what a connection's buffer holds.
const CHUNK: usize = 8 << 10;
const PAGE: usize = 500;

/// A running pod of 1.8 KB, one of fifty of its ReplicaSet, on one of a hundred nodes.
pub(crate) fn pod(number: usize, version: u64) -> String {
    let set = number / 50;
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2025-01-01T00:00:03Z"});
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": format!("web-{set:03}-7c5ddbdf54-{number:05}"),
            "generateName": format!("web-{set:03}-7c5ddbdf54-"),
            "namespace": format!("team-{}", set % 10),
            "uid": format!("6f1c3c1e-7d0f-4b5c-9f6b-{number:012}"),
            "resourceVersion": version.to_string(),
            "generation": 1,
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"app": format!("web-{set:03}"), "pod-template-hash": "7c5ddbdf54"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{set:03}-7c5ddbdf54"),
                "uid": format!("0b8f2b5e-0d57-4a0e-8a51-{set:012}"), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.27.3",
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "nodeName": format!("node-{:03}", number % 100),
            "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.7", "podIP": "10.244.1.9", "podIPs": [{"ip": "10.244.1.9"}],
            "startTime": "2025-01-01T00:00:00Z", "qosClass": "Burstable",
            "conditions": [condition("Ready"), condition("ContainersReady")],
        },
    })
    .to_string()
}

/// A list of pods, and changes to them that a watch sends as fast as they are taken.
#[derive(Clone)]
pub(crate) struct Server {
    pages: Arc<Vec<Bytes>>,
    changes: Arc<Vec<Bytes>>,
    /// The version of the last change.
    pub(crate) last: u64,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    /// `pods` pods, and `changes` of one after the other, round and round.
    pub(crate) fn new(pods: usize, changes: usize) -> Self {
        let listed = pods as u64;
        let objects: Vec<String> = (0..pods).map(|number| pod(number, number as u64 + 1)).collect();
        let pages = objects.chunks(PAGE).enumerate();
        let pages = pages.map(|(number, items)| {
            let next = if (number + 1) * PAGE < pods { (number + 1).to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": listed.to_string(), "continue": next});
            let items = items.join(",");
            Bytes::from(format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[{items}]}}"#
            ))
        });
        let lines: String = (0..changes)
            .map(|change| {
                let object = pod(change % pods, listed + 1 + change as u64);
                format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
            })
            .collect();
        let lines = Bytes::from(lines);
        let changes_cut =
            (0..lines.len()).step_by(CHUNK).map(|at| lines.slice(at..lines.len().min(at + CHUNK)));
        Self {
            pages: Arc::new(pages.collect()),
            changes: Arc::new(changes_cut.collect()),
            last: listed + changes as u64,
        }
    }

    /// A client that calls this server without a socket.
    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let response = Response::new(server.answer(request.uri().query().unwrap_or_default()));
            async move { Ok::<_, Infallible>(response) }
        });
        kube::Client::new(service, "default")
    }

    fn answer(&self, query: &str) -> Body {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        match value("watch") {
            None => {
                let page = value("continue").and_then(|page| page.parse().ok()).unwrap_or(0);
                body(vec![self.pages.get(page).cloned().unwrap_or_default()], false)
            }
            Some(_) => body(self.changes.to_vec(), true),
        }
    }
}

fn body(chunks: Vec<Bytes>, open: bool) -> Body {
    let frames = stream::iter(chunks).map(|chunk| Ok(http_body::Frame::data(chunk)));
    match open {
        true => StreamBody::new(frames.chain(stream::pending())).boxed_unsync(),
        false => StreamBody::new(frames).boxed_unsync(),
    }
}
