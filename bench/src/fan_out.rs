//! Many watchers on one resource, each on its own TLS connection. Every change reaches every watcher.
//!
//! The watchers have their own thread, so that the writer of the changes does not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use http::{Method, Request};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::control_plane::{ControlPlane, block_on, call};
use crate::report::{Report, grouped};

const CHANGES: usize = 1_000;
const CHANGES_A_SECOND: u32 = 200;
const PATH: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn run() {
    block_on(async {
        let columns = ["events", "seconds", "events/s", "server CPU s", "MiB"];
        let title = format!("Watch fan-out: {CHANGES} changes, {CHANGES_A_SECOND} a second");
        let mut report = Report::new(&title, &columns);
        for watchers in [100, 1_000, 5_000] {
            measure(&mut report, watchers).await;
        }
        report.print();
    });
}

async fn measure(report: &mut Report, watchers: usize) {
    let plane = ControlPlane::start(&["--nodes", "0", "--no-scheduler", "--controllers=-*"]).await;
    let client = plane.client().await;
    let received = Arc::new(AtomicU64::new(0));
    let (runtime, watching) = watch(&plane, watchers, &received).await;
    let expected = (watchers * CHANGES) as u64;
    let (span, ()) = plane.during(change_and_await(&client, &received, expected, &watching)).await;
    let (seconds, cpu) = (span.seconds, span.cpu_seconds);
    report.row(
        &format!("{} watchers", grouped(watchers as u64)),
        [
            grouped(expected),
            format!("{seconds:.1}"),
            grouped((expected as f64 / seconds) as u64),
            format!("{cpu:.1}"),
            span.after.mib.to_string(),
        ],
    );
    runtime.shutdown_background();
}

async fn change_and_await(
    client: &kube::Client,
    received: &AtomicU64,
    expected: u64,
    watching: &[JoinHandle<()>],
) {
    let mut pace = tokio::time::interval(Duration::from_secs(1) / CHANGES_A_SECOND);
    for index in 0..CHANGES {
        pace.tick().await;
        let object =
            json!({"metadata": {"name": format!("c-{index}")}, "data": {"payload": "x".repeat(256)}});
        call(client, Method::POST, PATH, object.to_string()).await;
    }
    while received.load(Ordering::Relaxed) < expected {
        assert!(!watching.iter().any(JoinHandle::is_finished), "a watch ended before it had everything");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Opens watches that count what they receive. All are open when this returns.
async fn watch(
    plane: &ControlPlane,
    watchers: usize,
    received: &Arc<AtomicU64>,
) -> (Runtime, Vec<JoinHandle<()>>) {
    const AT_ONCE: usize = 16;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let config = plane.config().await.expect("a ready control plane has written its kubeconfig");
    let received = received.clone();
    let opening = runtime.spawn(async move {
        let client = kube::Client::try_from(config).expect("the kubeconfig is complete");
        let open = async |_| {
            let request =
                Request::get(format!("{PATH}?watch=true")).body(Vec::new()).expect("a constant request");
            client.request_stream(request).await.expect("a watch opens")
        };
        let opened = futures::stream::iter(0..watchers).map(open).buffer_unordered(AT_ONCE);
        opened.map(|events| tokio::spawn(count(events, received.clone()))).collect::<Vec<_>>().await
    });
    let watching = opening.await.expect("the watches open");
    (runtime, watching)
}

/// Counts the events of a watch, one per line.
async fn count(mut events: impl AsyncBufRead + Unpin, received: Arc<AtomicU64>) {
    while let Ok(bytes) = events.fill_buf().await
        && !bytes.is_empty()
    {
        let (length, lines) = (bytes.len(), bytes.iter().filter(|byte| **byte == b'\n').count());
        received.fetch_add(lines as u64, Ordering::Relaxed);
        events.consume_unpin(length);
    }
}
