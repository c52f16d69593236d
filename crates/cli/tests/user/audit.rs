//! The audit log of the real binary: what survives a kill, and what is delivered on shutdown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::Value;

use crate::binary::Up;
use crate::kube_rs::client;

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
        std::fs::write(directory.path().join("policy.yaml"), policy).expect("it is written");
        Self { directory }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    /// Starts a control plane without controllers that records everything.
    fn start(&self, more: &[&str]) -> Up {
        let path = |name: &str| self.directory.path().join(name).to_string_lossy().into_owned();
        let flags = [
            format!("--audit-policy-file={}", path("policy.yaml")),
            format!("--audit-log-path={}", path("audit.log")),
        ];
        let flags = flags.iter().map(String::as_str);
        let bare = ["--nodes", "0", "--controllers=-*", "--no-scheduler"];
        Up::start(&flags.chain(bare).chain(more.iter().copied()).collect::<Vec<_>>())
    }
}

/// Returns the names of the ConfigMaps whose creation is complete in the log. The last line may be cut off.
fn created(log: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(log).expect("the log exists");
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_created = |event: &Value| {
        event["stage"] == "ResponseComplete"
            && event["verb"] == "create"
            && event["objectRef"]["resource"] == "configmaps"
            && event["responseStatus"]["code"] == 201
    };
    let names = events.filter(is_created).map(|event| event["objectRef"]["name"].as_str().map(Into::into));
    names.flatten().collect()
}

/// Creates ConfigMaps until the server is gone, and records which were acknowledged.
async fn write(maps: Api<ConfigMap>, writer: usize, acknowledged: Arc<Mutex<BTreeSet<String>>>) {
    for number in 0.. {
        let name = format!("w{writer}-{number}");
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        if maps.create(&PostParams::default(), &map).await.is_err() {
            return;
        }
        acknowledged.lock().expect("no writer panics").insert(name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_acknowledged_before_a_kill_is_in_the_audit_log() {
    for enough in [23, 170] {
        let files = Files::new();
        let mut up = files.start(&["--audit-log-mode=blocking-strict"]);
        let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
        let mut writers = Vec::new();
        for writer in 0..8 {
            let maps = Api::namespaced(client(&up).await, "default");
            writers.push(tokio::spawn(write(maps, writer, acknowledged.clone())));
        }
        while acknowledged.lock().expect("no writer panics").len() < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        up.kill();
        for writer in writers {
            // The client may keep retrying for a while after the server is gone.
            let _ = tokio::time::timeout(Duration::from_secs(10), writer).await;
        }
        let acknowledged = acknowledged.lock().expect("no writer panics");
        let recorded = created(&files.log());
        let missing: Vec<_> = acknowledged.difference(&recorded).collect();
        assert!(missing.is_empty(), "{missing:?} of {} are not in the audit log", acknowledged.len());
    }
}

#[test]
fn a_stop_delivers_the_events_that_are_buffered() {
    let files = Files::new();
    let batch = ["batch-max-size=1000", "batch-max-wait=1h"].map(|flag| format!("--audit-log-{flag}"));
    let up = files.start(&["--audit-log-mode=batch", &batch[0], &batch[1]]);
    up.kubectl(&["create", "configmap", "buffered"]);
    assert!(!created(&files.log()).contains("buffered"), "it has not been sent yet");
    assert!(up.stop(), "SIGTERM drains and exits 0");
    assert!(created(&files.log()).contains("buffered"));
}
