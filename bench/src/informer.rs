//! Compares an informer with kube-runtime's `watcher` and `reflector`, on the same bytes: the time until the cache
//! shows a list, the number of changes per second, the memory per pod, and the cost of an idle cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube_runtime::watcher::{Config, watcher};
use kube_runtime::{WatchStreamExt, reflector};
use setpoint::source::KubeSource;
use setpoint::{Clock, Event, Informer, Informers, Rng, Runtime};
use tokio_util::sync::CancellationToken;

use crate::pods::Server;
use crate::process;
use crate::report::{Report, grouped, timed};

const CHANGES: usize = 50_000;

/// How long an idle cache is measured.
const IDLE: Duration = Duration::from_secs(5);

/// The measurements of one informer.
struct Numbers {
    list_ms: f64,
    changes_per_second: u64,
    bytes_per_pod: u64,
    /// Idle CPU usage, in percent of one core.
    idle_percent: f64,
}

pub(crate) fn run() {
    for pods in [10_000, 100_000] {
        compare(pods);
    }
}

fn compare(pods: usize) {
    let server = Server::new(pods, CHANGES);
    let title = format!(
        "{} pods listed, then {} changes (CPU time of one thread)",
        grouped(pods as u64),
        grouped(CHANGES as u64)
    );
    let columns = ["list to synced, ms", "changes/s", "bytes a pod", "idle, % of a core"];
    let mut report = Report::new(&title, &columns);
    for (name, measure) in [
        ("setpoint", setpoint_informer as fn(&Server) -> Numbers),
        ("setpoint, two indexes, one through a view", setpoint_indexed),
        ("kube-runtime, watcher + reflector of Pod", kube_runtime_reflector),
    ] {
        let numbers = measure(&server);
        report.row(
            name,
            [
                format!("{:.0}", numbers.list_ms),
                grouped(numbers.changes_per_second),
                grouped(numbers.bytes_per_pod),
                format!("{:.2}", numbers.idle_percent),
            ],
        );
    }
    report.print();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn numbers(server: &Server, list: Duration, changes: Duration, bytes: usize, idle: Duration) -> Numbers {
    Numbers {
        list_ms: list.as_secs_f64() * 1e3,
        changes_per_second: (CHANGES as f64 / changes.as_secs_f64()) as u64,
        bytes_per_pod: bytes as u64 / server.listed,
        idle_percent: 100.0 * idle.as_secs_f64() / IDLE.as_secs_f64(),
    }
}

fn setpoint_informer(server: &Server) -> Numbers {
    measure_setpoint(server, |_| {})
}

#[derive(serde::Deserialize)]
struct Assigned {
    spec: Spec,
}

#[derive(serde::Deserialize)]
struct Spec {
    #[serde(default, rename = "nodeName")]
    node_name: String,
}

setpoint::view!(Assigned of Pod);

fn setpoint_indexed(server: &Server) -> Numbers {
    measure_setpoint(server, |informer| {
        informer.add_index(
            "owner",
            Arc::new(|pod| pod.meta().controller().map(|owner| owner.uid.to_string()).into_iter().collect()),
        );
        informer.add_index(
            "node",
            Arc::new(|pod| {
                pod.view::<Assigned>().map(|pod| vec![pod.spec.node_name.clone()]).unwrap_or_default()
            }),
        );
    })
}

fn measure_setpoint(server: &Server, prepare: impl FnOnce(&Informer)) -> Numbers {
    let runtime = runtime();
    let _inside = runtime.enter();
    let surroundings = Runtime { clock: Clock::system(), rng: Rng::seeded(1) };
    let source = KubeSource::new(server.client(), surroundings.clone()).paged();
    let informers = Informers::new(Arc::new(source), surroundings);
    let pods = informers.of::<Pod>();
    prepare(&pods);
    let told = Arc::new(AtomicU64::new(0));
    let counting = told.clone();
    pods.add_handler(move |_: &Event| _ = counting.fetch_add(1, Ordering::Relaxed));

    let before = process::allocated();
    let running = informers.clone();
    let task = runtime.spawn(async move { running.run(CancellationToken::new()).await });
    let (list, ()) = timed(|| runtime.block_on(pods.wait_for_sync()));
    let (changes, ()) = timed(|| runtime.block_on(pods.wait_for_version(&server.last.to_string())));
    let after = process::allocated();
    assert!(told.load(Ordering::Relaxed) >= server.listed, "handlers were told");
    assert_eq!(pods.objects().len() as u64, server.listed);
    let (idle, ()) = timed(|| runtime.block_on(tokio::time::sleep(IDLE)));
    task.abort();
    numbers(server, list, changes, after.saturating_sub(before), idle)
}

fn kube_runtime_reflector(server: &Server) -> Numbers {
    let runtime = runtime();
    let _inside = runtime.enter();
    let api: Api<Pod> = Api::all(server.client());
    let (store, writer) = reflector::store();
    let before = process::allocated();
    let mut changes = Box::pin(reflector(writer, watcher(api, Config::default())).applied_objects());
    let mut next = |count: usize| {
        timed(|| {
            runtime.block_on(async {
                for _ in 0..count {
                    changes.next().await.expect("the watch goes on").expect("a change");
                }
            });
        })
    };
    let (list, ()) = next(server.listed as usize);
    let (taken, ()) = next(CHANGES);
    let after = process::allocated();
    assert_eq!(store.state().len() as u64, server.listed);
    let idle = async { tokio::time::timeout(IDLE, changes.next()).await.is_err() };
    let (idle, quiet) = timed(|| runtime.block_on(idle));
    assert!(quiet, "nothing happens any more");
    numbers(server, list, taken, after.saturating_sub(before), idle)
}
