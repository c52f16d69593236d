//! Compares the path from a watch event to the reconcile with kube-runtime's `Controller`, on the same bytes: the
//! number of changes per second, and the latency at a thousand changes per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube_runtime::controller::Action;
use kube_runtime::watcher::Config;
use parking_lot::Mutex;
use setpoint::handler::enqueue_self;
use setpoint::source::KubeSource;
use setpoint::{
    Clock, Controller, Informers, Key, Lister, Outcome, Queue, ReconcileError, Reconciler, Rng, Runnable,
    Runtime, View,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pods::{Pace, Server};
use crate::report::{Report, grouped, timed};

const PODS: usize = 10_000;
const CHANGES: usize = 50_000;
const PACED: usize = 5_000;
const PER_SECOND: u64 = 1_000;
const WORKERS: usize = 4;

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

/// What the reconciles of a run have seen.
struct Seen {
    clock: Clock,
    pace: Pace,
    /// The version of the first change, and of the last.
    first: u64,
    last: u64,
    reconciles: AtomicU64,
    listed: Notify,
    finished: Notify,
    latencies: Mutex<Vec<Duration>>,
}

impl Seen {
    fn new(server: &Server, pace: &Pace) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::system(),
            pace: pace.clone(),
            first: server.listed + 1,
            last: server.last,
            reconciles: AtomicU64::new(0),
            listed: Notify::new(),
            finished: Notify::new(),
            latencies: Mutex::default(),
        })
    }

    fn saw(&self, version: u64) {
        let before = self.reconciles.fetch_add(1, Ordering::Relaxed);
        if before + 1 == PODS as u64 {
            self.listed.notify_one();
        }
        if let Some(sent) = version.checked_sub(self.first).and_then(|change| self.pace.sent(change as usize))
        {
            self.latencies.lock().push(self.clock.instant() - sent);
        }
        if version == self.last {
            self.finished.notify_one();
        }
    }

    /// Waits for the list, starts the changes, and waits for the last one. Returns the CPU time.
    fn measure(&self, runtime: &tokio::runtime::Runtime) -> Duration {
        runtime.block_on(self.listed.notified());
        self.pace.start();
        timed(|| runtime.block_on(self.finished.notified())).0
    }

    fn percentile(&self, percent: usize) -> Duration {
        let mut latencies = self.latencies.lock();
        latencies.sort();
        latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default()
    }
}

struct Reader<V> {
    pods: Lister<V>,
    seen: Arc<Seen>,
    read: fn(&V) -> usize,
}

impl<V: View> Reconciler for Reader<V> {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        if let Some(pod) = self.pods.get(key)? {
            std::hint::black_box((self.read)(&pod));
            self.seen.saw(pod.meta().revision());
        }
        Ok(Outcome::Settled)
    }
}

/// Runs a controller against a server at a pace.
type Run = fn(&Server, &Pace) -> (Duration, Arc<Seen>);

pub(crate) fn run() {
    let burst = Server::new(PODS, CHANGES);
    let paced = Server::new(PODS, PACED);
    let title = format!(
        "{} pods; {} changes at once (CPU time of one thread), then {} a second",
        grouped(PODS as u64),
        grouped(CHANGES as u64),
        grouped(PER_SECOND)
    );
    let mut report = Report::new(&title, &["changes/s to reconcile", "p50, µs", "p99, µs"]);
    let rows: [(&str, Run); 3] = [
        ("setpoint, a view of one field", setpoint_view),
        ("setpoint, whole pods", setpoint_whole),
        ("kube-runtime, Controller of Pod", kube_runtime_controller),
    ];
    for (name, measure) in rows {
        let (taken, _) = measure(&burst, &Pace::when_told());
        let (_, seen) = measure(&paced, &Pace::each(Duration::from_secs(1) / PER_SECOND as u32));
        report.row(
            name,
            [
                grouped((CHANGES as f64 / taken.as_secs_f64()) as u64),
                grouped(seen.percentile(50).as_micros() as u64),
                grouped(seen.percentile(99).as_micros() as u64),
            ],
        );
    }
    report.print();
}

fn setpoint_view(server: &Server, pace: &Pace) -> (Duration, Arc<Seen>) {
    setpoint_controller::<Assigned>(server, pace, |pod| pod.spec.node_name.len())
}

fn setpoint_whole(server: &Server, pace: &Pace) -> (Duration, Arc<Seen>) {
    setpoint_controller::<Pod>(server, pace, |pod| pod.spec.as_ref().map_or(0, |spec| spec.containers.len()))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn setpoint_controller<V: View>(
    server: &Server,
    pace: &Pace,
    read: fn(&V) -> usize,
) -> (Duration, Arc<Seen>) {
    let runtime = runtime();
    let _inside = runtime.enter();
    let surroundings = Runtime { clock: Clock::system(), rng: Rng::seeded(1) };
    let source = KubeSource::new(server.client_at(pace), surroundings.clone()).paged();
    let informers = Informers::new(Arc::new(source), surroundings.clone());
    let pods = informers.select(&setpoint::Kind::of::<Pod>(), Default::default());
    let queue = Queue::new("pods", &surroundings);
    pods.add_handler(enqueue_self(&queue));
    let seen = Seen::new(server, pace);
    let reader = Reader { pods: pods.lister::<V>(), seen: seen.clone(), read };
    let controller = Box::new(Controller::new("pods", queue, reader).workers(WORKERS).waits_for(&pods));
    runtime.spawn(async move { informers.run(CancellationToken::new()).await });
    runtime.spawn(controller.run(CancellationToken::new()));
    (seen.measure(&runtime), seen)
}

fn kube_runtime_controller(server: &Server, pace: &Pace) -> (Duration, Arc<Seen>) {
    let runtime = runtime();
    let _inside = runtime.enter();
    let api: Api<Pod> = Api::all(server.client_at(pace));
    let seen = Seen::new(server, pace);
    let reconcile = |pod: Arc<Pod>, seen: Arc<Seen>| async move {
        std::hint::black_box(pod.spec.as_ref().map_or(0, |spec| spec.containers.len()));
        seen.saw(
            pod.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0),
        );
        Ok::<_, std::convert::Infallible>(Action::await_change())
    };
    let controller = kube_runtime::Controller::new(api, Config::default())
        .with_config(kube_runtime::controller::Config::default().concurrency(WORKERS as u16))
        .run(reconcile, |_, _, _| Action::await_change(), seen.clone());
    runtime.spawn(controller.for_each(|_| async {}));
    (seen.measure(&runtime), seen)
}
