//! An operator whose hook is one Python process: parents with five children each. Measures hook calls per second and
//! our CPU, and checks that settled parents cause no calls.
//!
//! `PARENTS` sets the number (2,000).

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::control_plane::{ControlPlane, binary, block_on, call};
use crate::process;
use crate::report::Report;

/// Concurrent requests.
const CONCURRENT: usize = 16;
const CHILDREN: usize = 5;
const PATH: &str = "/apis/example.com/v1/namespaces/bench/sets";
const ADDRESS: &str = "127.0.0.1:18086";

const HOOK: &str = r#"
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    parent, children = call["request"]["parent"], call["request"]["children"]
    name = parent["metadata"]["name"]
    child = lambda n: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{n}"},
                       "data": {"value": str(parent["spec"]["value"])}}
    response = {"status": {"children": len(children["ConfigMap.v1"])}, "children": [child(n) for n in range(5)]}
    print(json.dumps({"id": call["id"], "response": response}), flush=True)
"#;

/// An operator beside the control plane, ended when it is dropped.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        _ = Command::new("kill").args(["-TERM", &pid]).status();
        _ = self.0.wait();
    }
}

pub(crate) fn run() {
    block_on(measure());
}

async fn measure() {
    let parents = std::env::var("PARENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let plane = ControlPlane::start(&["--nodes", "0", "--no-scheduler"]).await;
    let client = plane.client().await;
    let namespace = json!({"metadata": {"name": "bench"}}).to_string();
    call(&client, Method::POST, "/api/v1/namespaces", namespace).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    write_operator(directory.path());
    let operator = start(&plane, directory.path());
    until(async || has_controller(&client).await).await;

    let title = format!("{parents} parents with {CHILDREN} children each, one Python hook");
    let columns = ["seconds", "hook calls", "calls a second", "our CPU s", "our MiB", "API server CPU s"];
    let mut report = Report::new(&title, &columns);
    let phases: [(&str, &str, Duration); 3] = [
        ("created", "1", Duration::ZERO),
        ("changed", "2", Duration::ZERO),
        ("at rest", "2", Duration::from_secs(30)),
    ];
    for (name, value, pause) in phases {
        // The hook is called once more for children that have changed. That does not count as rest.
        settle().await;
        let before = Usage::of(&operator).await;
        let (span, ()) = plane
            .during(async {
                match pause.is_zero() {
                    true => write(&client, parents, value).await,
                    false => tokio::time::sleep(pause).await,
                }
            })
            .await;
        let (seconds, after) = (span.seconds, Usage::of(&operator).await);
        let calls = after.calls - before.calls;
        assert!(calls >= parents as u64 || !pause.is_zero(), "{calls} calls for {parents} parents");
        let figures = [
            format!("{seconds:.1}"),
            calls.to_string(),
            format!("{:.0}", calls as f64 / seconds),
            format!("{:.1}", (after.cpu - before.cpu).as_secs_f64()),
            (process::memory_of(&operator.0.id().to_string(), "VmRSS:") >> 20).to_string(),
            format!("{:.1}", span.cpu_seconds),
        ];
        report.row(name, figures);
    }
    report.print();
}

fn write_operator(directory: &Path) {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Set", "plural": "sets", "singular": "set"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}}}]},
    });
    let controller = json!({
        "apiVersion": "metacontroller.k8s.io/v1alpha1", "kind": "CompositeController", "metadata": {"name": "sets"},
        "spec": {
            "generateSelector": true,
            "parentResource": {"apiVersion": "example.com/v1", "resource": "sets"},
            "childResources": [{"apiVersion": "v1", "resource": "configmaps", "updateStrategy": {"method": "InPlace"}}],
            "hooks": {"sync": {"webhook": {"url": "exec://sets/sync"}}},
        },
    });
    let operator = json!({
        "apiVersion": "setpoint.dev/v1alpha1", "kind": "Operator",
        "commands": [{"name": "sets", "command": ["python3", "hook.py"]}],
    });
    for (name, text) in [
        ("definition.json", definition.to_string()),
        ("controller.json", controller.to_string()),
        ("operator.json", operator.to_string()),
        ("hook.py", HOOK.to_owned()),
    ] {
        fs::write(directory.join(name), text).expect("a file can be written");
    }
}

fn start(plane: &ControlPlane, directory: &Path) -> Operator {
    let mut command = Command::new(binary());
    command
        .args(["operator", "run", "-f"])
        .arg(directory)
        .arg("--kubeconfig")
        .arg(plane.directory().join("kubeconfig"));
    command.args(["--bind-address", ADDRESS, "--kube-api-qps=100000", "--kube-api-burst=100000"]);
    Operator(command.stderr(Stdio::null()).spawn().expect("`make bench` builds the binary first"))
}

/// The resources that the operator has used so far.
struct Usage {
    calls: u64,
    cpu: Duration,
}

impl Usage {
    async fn of(operator: &Operator) -> Self {
        Self { calls: calls().await, cpu: process::cpu_of(&operator.0.id().to_string()) }
    }
}

/// Waits until the hook has not been called for two seconds.
async fn settle() {
    let mut before = calls().await;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = calls().await;
        if now == before {
            return;
        }
        before = now;
    }
}

/// Returns the number of hook calls, by the operator's own metrics.
async fn calls() -> u64 {
    let mut stream = TcpStream::connect(ADDRESS).await.expect("the operator serves its metrics");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("a request can be sent");
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).await.expect("the operator serves its metrics");
    let lines = metrics.lines().filter(|line| line.starts_with("metacontroller_sync_requests_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

async fn has_controller(client: &kube::Client) -> bool {
    let path = "/apis/metacontroller.k8s.io/v1alpha1/compositecontrollers/sets";
    let request = http::Request::get(path).body(Vec::new()).expect("a well-formed request");
    let found: Result<Value, _> = client.request(request).await;
    let conditions = found.ok().and_then(|found| found["status"]["conditions"].as_array().cloned());
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        // Looking costs the API server something too.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Creates or changes all parents, and waits until their children have the value.
async fn write(client: &kube::Client, parents: usize, value: &str) {
    let write = |index: usize| async move {
        let set = json!({
            "apiVersion": "example.com/v1", "kind": "Set", "metadata": {"name": format!("set-{index}")},
            "spec": {"value": value},
        });
        let path = format!("{PATH}/set-{index}?fieldManager=bench&force=true");
        let request = http::Request::patch(path).header("content-type", "application/apply-patch+yaml");
        let request = request.body(set.to_string().into_bytes()).expect("a well-formed request");
        client.request_text(request).await.expect("an apply succeeds");
    };
    stream::iter(0..parents).map(write).buffer_unordered(CONCURRENT).for_each(|()| async {}).await;
    until(async || has_value(client, parents, value).await).await;
}

async fn has_value(client: &kube::Client, parents: usize, value: &str) -> bool {
    let path = "/api/v1/namespaces/bench/configmaps";
    let maps: Value =
        serde_json::from_str(&call(client, Method::GET, path, String::new()).await).expect("JSON");
    let items = maps["items"].as_array().expect("a list");
    items.iter().filter(|map| map["data"]["value"] == value).count() == parents * CHILDREN
}
