//! Measures the memory that a second list takes, by the allocator's own count.

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cap::Cap;
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use setpoint::source::KubeSource;
use setpoint::{Clock, Event, Informers, Rng, Runtime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const PODS: usize = 6_000;
const PAGE: usize = 500;

/// The number of allocated bytes.
fn allocated() -> usize {
    ALLOCATOR.allocated()
}

fn pod(number: usize, version: usize) -> String {
    let filling = "x".repeat(1_500);
    json!({
        "metadata": {"name": format!("web-{number:05}"), "namespace": "shop", "uid": format!("uid-{number}"),
            "resourceVersion": version.to_string(), "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": filling}]},
    })
    .to_string()
}

/// Builds the pages of a list at `version`, in which every `changed`-th pod has that version.
fn pages(version: usize, changed: usize) -> Vec<Bytes> {
    let of = |number: usize| pod(number, if number.is_multiple_of(changed) { version } else { 1 });
    (0..PODS / PAGE)
        .map(|page| {
            let items: Vec<String> = (page * PAGE..(page + 1) * PAGE).map(of).collect();
            let next = if (page + 1) * PAGE < PODS { (page + 1).to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
            format!(r#"{{"metadata":{metadata},"items":[{}]}}"#, items.join(",")).into()
        })
        .collect()
}

/// A server whose watch expires on request. Records the peak allocation while listing.
#[derive(Clone)]
struct Server {
    /// One list per version, built before anything is measured.
    lists: Arc<Vec<Vec<Bytes>>>,
    version: Arc<AtomicUsize>,
    expired: watch::Sender<u64>,
    peak: Arc<AtomicUsize>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    fn answer(&self, query: &str) -> Body {
        if query.contains("watch=") {
            return self.watch();
        }
        self.peak.fetch_max(allocated(), Ordering::Relaxed);
        let mut pairs = query.split('&').filter_map(|pair| pair.strip_prefix("continue="));
        let page: usize = pairs.next().and_then(|page| page.parse().ok()).unwrap_or(0);
        let page = self.lists[self.version.load(Ordering::Relaxed) - 1][page].clone();
        StreamBody::new(stream::iter([Ok(http_body::Frame::data(page))])).boxed_unsync()
    }

    /// Sends nothing until the version expires.
    fn watch(&self) -> Body {
        let mut expired = self.expired.subscribe();
        expired.mark_unchanged();
        let gone = Bytes::from_static(
            b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n",
        );
        let line = stream::once(async move {
            expired.changed().await.ok();
            Ok(http_body::Frame::data(gone))
        });
        StreamBody::new(line.chain(stream::pending())).boxed_unsync()
    }

    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let response = Response::new(server.answer(request.uri().query().unwrap_or_default()));
            async move { Ok::<_, Infallible>(response) }
        });
        kube::Client::new(service, "default")
    }
}

#[tokio::test(start_paused = true)]
async fn a_relist_peaks_at_less_than_a_third_above_the_settled_memory() {
    let server = Server {
        lists: Arc::new(vec![pages(1, 1), pages(2, PODS), pages(3, 10), pages(4, 1)]),
        version: Arc::new(AtomicUsize::new(1)),
        expired: watch::Sender::default(),
        peak: Arc::default(),
    };
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock, rng: Rng::seeded(1) };
    let before = allocated();
    let informers =
        Informers::new(Arc::new(KubeSource::new(server.client(), runtime.clone()).paged()), runtime);
    let pods = informers.of::<Pod>();
    let running = tokio::spawn({
        let informers = informers.clone();
        async move { informers.run(CancellationToken::new()).await }
    });
    pods.wait_for_sync().await;
    assert_eq!(pods.objects().len(), PODS);
    let settled = allocated() - before;

    let (peak, events) = (server.peak.clone(), AtomicUsize::new(0));
    pods.add_handler(move |_: &Event| {
        if events.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
            peak.fetch_max(allocated(), Ordering::Relaxed);
        }
    });
    pods.wait_for_sync().await;
    for (version, changed) in [(2, PODS), (3, 10), (4, 1)] {
        server.version.store(version, Ordering::Relaxed);
        server.peak.store(0, Ordering::Relaxed);
        server.expired.send_modify(|times| *times += 1);
        pods.wait_for_version(&version.to_string()).await;
        let peak = server.peak.load(Ordering::Relaxed).max(allocated()) - before;
        let ratio = peak as f64 / settled as f64;
        assert!(
            ratio <= 1.3,
            "every {changed}th pod changed: {peak} bytes after {settled}, {ratio:.2} times"
        );
    }
    running.abort();
}
