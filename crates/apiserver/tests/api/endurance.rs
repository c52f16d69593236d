//! Many failures of webhooks, extension API servers and kubelets: afterwards no task and no connection is left.
//!
//! `make faults` makes 10,000 calls each and checks memory too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, SinkExt, StreamExt, stream};
use http::{Method, Response};
use serde_json::json;
use setpoint_apiserver::egress::in_process::allow;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::Message;

use crate::extension::{Extension, Reply};
use crate::extension_server::{API_SERVICES, Aggregated, ExtensionServer, GIZMOS, NAME, ok, pieces};
use crate::fake_kubelet::{FakeKubelet, Process, process, switching, websocket};
use crate::webhooks::{Hooked, MAPS, map};

/// Calls that are made at the same time.
const AT_ONCE: usize = 20;
/// How much memory may differ between the first tenth of the calls and the last, if it is checked.
const GROWTH_KIB: usize = 16 << 10;

fn calls() -> usize {
    let calls = std::env::var("SETPOINT_FAULT_CALLS").ok();
    calls.map_or(1000, |calls| calls.parse().expect("SETPOINT_FAULT_CALLS is a number"))
}

/// The memory of this process.
fn resident_kib() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4
}

/// Waits until no more tasks run than before: a connection has at least one.
async fn until_tasks(most: usize) {
    let alive = || Handle::current().metrics().num_alive_tasks();
    for _ in 0..3000 {
        if alive() <= most {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("{} tasks are left, and there were {most}", alive());
}

/// Runs rounds of calls. Returns when tasks are as few as after the first rounds, and memory is too.
async fn endure(name: &str, mut round: impl AsyncFnMut(usize)) {
    let rounds = calls() / AT_ONCE;
    let warm = (rounds / 10).max(5);
    for number in 0..warm {
        round(number).await;
    }
    sleep(Duration::from_secs(300)).await;
    let (tasks, memory) = (Handle::current().metrics().num_alive_tasks(), resident_kib());
    for number in warm..rounds {
        round(number).await;
    }
    until_tasks(tasks).await;
    let now = resident_kib();
    eprintln!(
        "{name}: {} calls, {tasks} tasks before and after, {memory} KiB before, {now} KiB after",
        calls()
    );
    if std::env::var_os("SETPOINT_FAULT_CALLS").is_some() {
        assert!(now < memory + GROWTH_KIB, "{name}: {memory} KiB have become {now} KiB");
    }
}

#[tokio::test(start_paused = true)]
async fn failing_webhooks_leak_nothing() {
    let turn = AtomicUsize::new(0);
    let extension = Extension::new(move |_, review| match turn.fetch_add(1, Ordering::SeqCst) % 6 {
        0 => Reply::Hang,
        1 => Reply::Close,
        2 => Reply::Code(200, Vec::new(), "\u{0}garbage".into()),
        3 => Reply::Code(500, Vec::new(), vec![b'x'; 64 << 10].into()),
        4 => Reply::Json(json!({"response": {"uid": 7}})),
        _ => Reply::Json(allow(review)),
    });
    let hooked = Hooked::start_with(extension).await;
    let (api, path) = (&hooked.api, format!("{MAPS}?dryRun=All"));
    let configuration = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v";
    endure("webhooks", async |round| {
        hooked.extension.refuses.store(round % 7 == 3, Ordering::Relaxed);
        hooked
            .validating(
                json!({"timeoutSeconds": 1, "failurePolicy": if round % 2 == 0 { "Fail" } else { "Ignore" }}),
            )
            .await;
        let calling = (0..AT_ONCE).map(|number| {
            let patience = Duration::from_millis(300 + 100 * number as u64);
            timeout(patience, api.post(&path, map("a")))
        });
        let deleting = async {
            sleep(Duration::from_millis(500)).await;
            api.delete(configuration).await.ok();
        };
        tokio::join!(futures::future::join_all(calling), deleting);
        drop((hooked.extension.take(), hooked.extension.take_heads(), hooked.extension.take_dialed()));
    })
    .await;
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404, "they were dry runs");
}

#[tokio::test(start_paused = true)]
async fn a_flapping_extension_server_leaks_nothing() {
    let turn = Arc::<AtomicUsize>::default();
    let aggregated = Aggregated::start(move |_, _| match turn.fetch_add(1, Ordering::SeqCst) % 4 {
        0 => std::future::pending().boxed(),
        1 => std::future::ready(Err(io::Error::other("closed"))).boxed(),
        2 => {
            let first = stream::iter([Ok(Bytes::from_static(b"{")), Err(io::Error::other("reset"))]);
            std::future::ready(Ok(Response::new(pieces(first)))).boxed()
        }
        _ => ok(&json!({"fine": true})),
    })
    .await;
    let path = &*format!("{GIZMOS}?timeout=1s");
    let aggregated = &aggregated;
    endure("aggregation", async |round| {
        ExtensionServer::set(&aggregated.extension.refuses, round % 5 == 2);
        ExtensionServer::set(&aggregated.extension.is_silent, round % 5 == 4);
        if round % 10 == 0 {
            // The controller looks at it again at once.
            let changed = json!({"spec": {"versionPriority": 10 + round % 100}});
            aggregated.api.merge(&format!("{API_SERVICES}/{NAME}"), changed).await.ok();
        }
        let asking = (0..AT_ONCE).map(|number| async move {
            let asking = aggregated.api.send(Method::GET, path, &[], "");
            let patience = Duration::from_millis(500 + 50 * number as u64);
            if let Ok(response) = timeout(patience, asking).await {
                _ = timeout(patience, response.into_body().into_stream().next()).await;
            }
        });
        futures::future::join_all(asking).await;
        drop((aggregated.extension.take_all(), std::mem::take(&mut *aggregated.extension.dialed.lock())));
    })
    .await;
    ExtensionServer::set(&aggregated.extension.refuses, false);
    ExtensionServer::set(&aggregated.extension.is_silent, false);
    aggregated.until(NAME, "True").await;
}

/// A kubelet that fails in another way each time.
async fn die(turn: usize, process: Process) {
    let Process { stdout: Some(mut stdout), stdin, mut error, connection, .. } = process else { return };
    let _ = stdout.write_all(b"half").await;
    match turn % 3 {
        // Dies in the middle: the streams are cut off.
        0 => drop((stdout, stdin, error, connection)),
        // Hangs, until the server gives up.
        1 => connection.ended().await,
        _ => {
            let _ = stdout.shutdown().await;
            let _ = error.write_all(br#"{"status":"Success"}"#).await;
            let _ = error.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dying_kubelets_leak_nothing() {
    let turn = AtomicUsize::new(0);
    let kubelet = FakeKubelet::new(move |request| {
        let turn = turn.fetch_add(1, Ordering::SeqCst);
        async move {
            match turn % 5 {
                0 => switching(request, |_| async {}),
                1 => switching(request, |mut io| async move {
                    let _ = io.write_all(&[0xff; 4096]).await;
                }),
                _ => process(request, move |process| die(turn, process)),
            }
        }
    });
    let api = kubelet.start().await;
    let path = "/api/v1/namespaces/default/pods/a/exec?command=x&stdin=1&stdout=1";
    endure("exec", async |round| {
        kubelet.refuses.store(round % 7 == 3, Ordering::SeqCst);
        let talking = (0..AT_ONCE).map(|number| {
            let api = &api;
            async move {
                let (mut socket, _) = websocket(api, path, "v5.channel.k8s.io").await;
                let _ = socket.send(Message::binary(vec![0; 64])).await;
                let reading = async { while let Some(Ok(_)) = socket.next().await {} };
                // Some clients hang up before the end.
                let _ = timeout(Duration::from_secs(1 + 3 * number as u64), reading).await;
            }
        });
        futures::future::join_all(talking).await;
        drop((kubelet.take_heads(), kubelet.take_dialed()));
    })
    .await;
    kubelet.closed().await;
}
