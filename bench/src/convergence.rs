//! 200 Deployments × 50 replicas: time, CPU and memory until everything has converged.
//!
//! There are no nodes, so that only the control plane is measured: every pod is created and counted in the status.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, block_on, call};
use crate::report::Report;

const DEPLOYMENTS: usize = 200;
const REPLICAS: usize = 50;
const PATH: &str = "/apis/apps/v1/namespaces/bench/deployments";

pub(crate) fn run() {
    block_on(measure());
}

async fn measure() {
    let title = format!("Convergence of {DEPLOYMENTS} Deployments of {REPLICAS} pods");
    let mut report = Report::new(&title, &["seconds", "CPU s", "peak MiB"]);
    for (name, arguments) in
        [("", &["--nodes", "0"][..]), (", no scheduler", &["--nodes", "0", "--no-scheduler"])]
    {
        let plane = ControlPlane::start(arguments).await;
        let client = plane.client().await;
        let namespace = json!({"metadata": {"name": "bench"}}).to_string();
        call(&client, Method::POST, "/api/v1/namespaces", namespace).await;
        phase(&mut report, &format!("created{name}"), &plane, create(&client)).await;
        phase(&mut report, &format!("deleted{name}"), &plane, delete(&client)).await;
    }
    report.print();
}

async fn phase(report: &mut Report, name: &str, plane: &ControlPlane, work: impl Future<Output = ()>) {
    let (span, ()) = plane.during(work).await;
    let (seconds, cpu) = (span.seconds, span.cpu_seconds);
    report.row(name, [format!("{seconds:.1}"), format!("{cpu:.2}"), span.after.peak_mib.to_string()]);
}

async fn create(client: &kube::Client) {
    for index in 0..DEPLOYMENTS {
        call(client, Method::POST, PATH, deployment(index).to_string()).await;
    }
    until(|| all_settled(client)).await;
}

async fn delete(client: &kube::Client) {
    for index in 0..DEPLOYMENTS {
        let options = json!({"propagationPolicy": "Background"}).to_string();
        call(client, Method::DELETE, &format!("{PATH}/web-{index}"), options).await;
    }
    until(|| no_pods(client)).await;
}

async fn until<F: Future<Output = bool>>(holds: impl Fn() -> F) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn all_settled(client: &kube::Client) -> bool {
    let list = get(client, PATH).await;
    let settled = |item: &Value| {
        let status = &item["status"];
        status["updatedReplicas"] == REPLICAS
            && status["observedGeneration"] == item["metadata"]["generation"]
    };
    list["items"].as_array().is_some_and(|items| items.len() == DEPLOYMENTS && items.iter().all(settled))
}

async fn no_pods(client: &kube::Client) -> bool {
    let page = get(client, "/api/v1/namespaces/bench/pods?limit=1").await;
    page["items"].as_array().is_some_and(Vec::is_empty)
}

async fn get(client: &kube::Client, path: &str) -> Value {
    serde_json::from_str(&call(client, Method::GET, path, String::new()).await).expect("answers are JSON")
}

fn deployment(index: usize) -> Value {
    let labels = json!({"app": format!("web-{index}")});
    json!({"metadata": {"name": format!("web-{index}")}, "spec": {
        "replicas": REPLICAS,
        "selector": {"matchLabels": &labels},
        "template": {"metadata": {"labels": &labels}, "spec": {"containers": [
            {"name": "c", "image": "img:1", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}]}},
    }})
}
