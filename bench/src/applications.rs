//! Applications with two components and two traits each, on simulated nodes: time, CPU and memory until all of them
//! run, and the cost of holding more of them.
//!
//! `APPLICATIONS` and `HELD` set the numbers (3,000 and 12,000).

use std::time::Duration;

use futures::stream::{self, StreamExt};
use http::Method;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, block_on, call};
use crate::report::Report;

/// Concurrent requests.
const CONCURRENT: usize = 16;
/// The pod capacity of a simulated node.
const PODS_PER_NODE: usize = 100;
/// How long the idle control plane is observed.
const IDLE: Duration = Duration::from_secs(30);
const PATH: &str = "/apis/core.oam.dev/v1beta1/namespaces/bench/applications";

pub(crate) fn run() {
    block_on(measure());
}

fn number(variable: &str, usual: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

async fn measure() {
    let (created, held) = (number("APPLICATIONS", 3_000), number("HELD", 12_000));
    let nodes = (held.max(created) * 2 / PODS_PER_NODE + 3).to_string();
    let plane = ControlPlane::start(&["--applications", "--nodes", &nodes]).await;
    let client = plane.client().await;
    let namespace = json!({"metadata": {"name": "bench"}}).to_string();
    call(&client, Method::POST, "/api/v1/namespaces", namespace).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let baseline = plane.usage().mib;

    let title = format!("Applications of two components and two traits, on {nodes} simulated nodes");
    let columns = ["seconds", "CPU s", "MiB", "MiB above baseline", "peak MiB", "idle CPU %"];
    let mut report = Report::new(&title, &columns);
    let mut done = 0;
    for target in [created, held.max(created)] {
        if target == done && done > 0 {
            continue;
        }
        let (span, ()) = plane.during(make(&client, done, target)).await;
        let idle = idle(&plane).await;
        let now = plane.usage();
        let figures = [
            format!("{:.1}", span.seconds),
            format!("{:.1}", span.cpu_seconds),
            now.mib.to_string(),
            now.mib.saturating_sub(baseline).to_string(),
            now.peak_mib.to_string(),
            format!("{idle:.1}"),
        ];
        report.row(&format!("{} more, {target} in all", target - done), figures);
        done = target;
    }
    report.print();
}

/// Returns the share of a core that a settled control plane uses.
async fn idle(plane: &ControlPlane) -> f64 {
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (span, ()) = plane.during(tokio::time::sleep(IDLE)).await;
    span.cpu_seconds / span.seconds * 100.0
}

/// Creates applications and waits until they run.
async fn make(client: &kube::Client, from: usize, to: usize) {
    let create = |index: usize| call(client, Method::POST, PATH, application(index).to_string());
    stream::iter(from..to).map(create).buffer_unordered(CONCURRENT).for_each(|_| async {}).await;
    let mut waiting: Vec<usize> = (from..to).collect();
    while !waiting.is_empty() {
        let check = |index: usize| async move { (index, is_running(client, index).await) };
        let checked = stream::iter(waiting).map(check).buffer_unordered(CONCURRENT);
        let left = checked.filter_map(|(index, running)| async move { (!running).then_some(index) });
        waiting = left.collect().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn is_running(client: &kube::Client, index: usize) -> bool {
    let app = call(client, Method::GET, &format!("{PATH}/app-{index}"), String::new()).await;
    let app: Value = serde_json::from_str(&app).expect("answers are JSON");
    app["status"]["status"] == "running"
}

fn application(index: usize) -> Value {
    let component = |name: &str| {
        json!({
            "name": format!("{name}-{index}"), "type": "worker",
            "properties": {"image": "img:1", "cpu": "1m", "memory": "1Mi"},
            "traits": [
                {"type": "scaler", "properties": {"replicas": 1}},
                {"type": "labels", "properties": {"team": "bench"}},
            ],
        })
    };
    json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": {"name": format!("app-{index}")},
        "spec": {"components": [component("front"), component("back")]},
    })
}
