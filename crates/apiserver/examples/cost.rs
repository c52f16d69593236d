//! What requests cost in process: `cargo run --release -p setpoint-apiserver --example cost`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use setpoint_apiserver::{ApiServer, Config, User};
use setpoint_clock::{Clock, Rng};
use setpoint_store::MemoryStore;

const COUNT: u32 = 10_000;

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-5d8f7c9b4-","labels":{"app":"web","pod-template-hash":"5d8f7c9b4"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d8f7c9b4","uid":"0f3a1c1e-6a52-4f6e-8b1e-111111111111","controller":true,"blockOwnerDeletion":true}]},"spec":{"containers":[{"name":"web","image":"nginx:1.27","ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Clock::system();
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let api = Api { server: ApiServer::start(Config::new(store, clock, Rng::seeded(1))).await? };
    api.send(
        Method::POST,
        "/api/v1/namespaces/default/serviceaccounts",
        "",
        r#"{"metadata":{"name":"default"}}"#,
    )
    .await;

    let pods = "/api/v1/namespaces/default/pods";
    let mut names = Vec::new();
    let start = Cpu::now();
    for _ in 0..COUNT {
        let body = api.send(Method::POST, pods, "", POD).await;
        let pod: serde_json::Value = serde_json::from_slice(&body)?;
        names.push(pod["metadata"]["name"].as_str().unwrap_or("").to_string());
    }
    report("create a pod (and read the answer)", start.elapsed());

    let start = Cpu::now();
    for name in &names {
        api.send(Method::GET, &format!("{pods}/{name}"), "", "").await;
    }
    report("get", start.elapsed());

    let merge = "application/merge-patch+json";
    let start = Cpu::now();
    for name in &names {
        api.send(Method::PATCH, &format!("{pods}/{name}/status"), merge, r#"{"status":{"phase":"Running"}}"#)
            .await;
    }
    report("patch the status", start.elapsed());

    let start = Cpu::now();
    for name in &names {
        let binding = format!(r#"{{"metadata":{{"name":"{name}"}},"target":{{"name":"node-1"}}}}"#);
        api.send(Method::POST, &format!("{pods}/{name}/binding"), "", binding).await;
    }
    report("bind", start.elapsed());

    let start = Cpu::now();
    for _ in 0..10 {
        api.send(Method::GET, pods, "", "").await;
    }
    println!("list {COUNT} pods: {:?}", start.elapsed() / 10);

    let start = Cpu::now();
    for name in &names {
        api.send(Method::DELETE, &format!("{pods}/{name}?gracePeriodSeconds=0"), "", "").await;
    }
    report("delete", start.elapsed());
    Ok(())
}

fn report(what: &str, took: Duration) {
    println!("{what}: {:?}", took / COUNT);
}

/// Processor time of this thread, which other programs on the machine do not disturb.
struct Cpu(Duration);

impl Cpu {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
        Self(Duration::from_nanos(nanoseconds))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

struct Api {
    server: ApiServer,
}

impl Api {
    async fn send(&self, method: Method, path: &str, media: &str, body: impl Into<Bytes>) -> Bytes {
        let mut request = Request::builder().method(method).uri(path);
        if !media.is_empty() {
            request = request.header("content-type", media);
        }
        let request = request.body(body.into()).expect("well formed");
        let response = self.server.handle(User::system("bench"), request).await;
        let code = response.status();
        let body = response.into_body().collect().await;
        assert!(code.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
        body
    }
}
