//! Pods like those of a Deployment in a real cluster, and an API server that serves only those.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use serde_json::json;
use setpoint::{Clock, Instant};
use tokio::sync::watch;

/// How much of a stream arrives at once: the size of a connection's buffer.
const CHUNK: usize = 8 << 10;
const PAGE: usize = 500;

/// A running pod of 1.8 KB, one of fifty in its ReplicaSet, on one of a hundred nodes.
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

/// A list of pods, and changes to them that a watch sends as fast as they are consumed.
#[derive(Clone)]
pub(crate) struct Server {
    pages: Arc<Vec<Bytes>>,
    changes: Arc<Vec<Bytes>>,
    /// The same changes, one event each.
    lines: Arc<Vec<Bytes>>,
    /// The version of the list.
    pub(crate) listed: u64,
    /// The version of the last change.
    pub(crate) last: u64,
}

/// When changes are sent: not before [`start`](Self::start), then all at once or one at a time.
#[derive(Clone)]
pub(crate) struct Pace {
    started: watch::Sender<bool>,
    each: Option<Duration>,
    sent: Arc<Mutex<Vec<Instant>>>,
}

impl Pace {
    pub(crate) fn when_told() -> Self {
        Self { started: watch::Sender::default(), each: None, sent: Arc::default() }
    }

    /// Sends a change every `period`.
    pub(crate) fn each(period: Duration) -> Self {
        Self { each: Some(period), ..Self::when_told() }
    }

    pub(crate) fn start(&self) {
        self.started.send_replace(true);
    }

    /// Returns when a change was sent, if they are sent one at a time.
    pub(crate) fn sent(&self, change: usize) -> Option<Instant> {
        self.sent.lock().get(change).copied()
    }

    async fn started(&self) {
        self.started.subscribe().wait_for(|started| *started).await.expect("the sender is here");
    }

    fn body(&self, server: &Server) -> Body {
        let pace = self.clone();
        let chunks = if self.each.is_some() { server.lines.clone() } else { server.changes.clone() };
        let clock = Clock::system();
        let frames =
            stream::unfold((pace, chunks, clock, None, 0), |(pace, chunks, clock, began, next)| async move {
                pace.started().await;
                let began = began.unwrap_or_else(|| clock.instant());
                let Some(chunk) = chunks.get(next).cloned() else { return std::future::pending().await };
                if let Some(each) = pace.each {
                    clock.sleep_until(began + each * next as u32).await;
                    pace.sent.lock().push(clock.instant());
                }
                Some((Ok(http_body::Frame::data(chunk)), (pace, chunks, clock, Some(began), next + 1)))
            });
        StreamBody::new(frames).boxed_unsync()
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    /// Creates a server with `pods` pods, and `changes` that modify them in turn.
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
        let mut text = String::new();
        let mut ends = vec![0];
        for change in 0..changes {
            let object = pod(change % pods, listed + 1 + change as u64);
            text.push_str(&format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"));
            ends.push(text.len());
        }
        let text = Bytes::from(text);
        let cut = (0..text.len()).step_by(CHUNK).map(|at| text.slice(at..text.len().min(at + CHUNK)));
        Self {
            pages: Arc::new(pages.collect()),
            changes: Arc::new(cut.collect()),
            lines: Arc::new(ends.windows(2).map(|line| text.slice(line[0]..line[1])).collect()),
            listed,
            last: listed + changes as u64,
        }
    }

    /// Creates a client that calls this server without a socket.
    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        client(move |query| server.answer(query, None))
    }

    /// Like [`client`](Self::client), with changes at a pace.
    pub(crate) fn client_at(&self, pace: &Pace) -> kube::Client {
        let (server, pace) = (self.clone(), pace.clone());
        client(move |query| server.answer(query, Some(&pace)))
    }

    fn answer(&self, query: &str, pace: Option<&Pace>) -> Body {
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        match value("watch") {
            None => {
                let page = value("continue").and_then(|page| page.parse().ok()).unwrap_or(0);
                body(vec![self.pages.get(page).cloned().unwrap_or_default()], false)
            }
            Some(_) => match pace {
                Some(pace) => pace.body(self),
                None => body(self.changes.to_vec(), true),
            },
        }
    }
}

fn client(answer: impl Fn(&str) -> Body + Clone + Send + 'static) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let response = Response::new(answer(request.uri().query().unwrap_or_default()));
        async move { Ok::<_, Infallible>(response) }
    });
    kube::Client::new(service, "default")
}

fn body(chunks: Vec<Bytes>, open: bool) -> Body {
    let frames = stream::iter(chunks).map(|chunk| Ok(http_body::Frame::data(chunk)));
    match open {
        true => StreamBody::new(frames.chain(stream::pending())).boxed_unsync(),
        false => StreamBody::new(frames).boxed_unsync(),
    }
}
