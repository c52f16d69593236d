//! A well-behaved client: reads and writes at a steady pace on its own thread, and records the latency of each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;

use crate::server::{POLITE, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PACE: Duration = Duration::from_millis(5);
/// The maximum latency of any of its requests.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Polite {
    latencies: Arc<Mutex<Vec<Duration>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Polite {
    pub(crate) fn start(server: &'static Server) -> Self {
        let (latencies, stop) = (Arc::<Mutex<Vec<Duration>>>::default(), Arc::<AtomicBool>::default());
        let (seen, stopped) = (latencies.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(work(server, &seen, &stopped));
        });
        Self { latencies, stop, thread: Some(thread) }
    }

    /// Returns the number of requests so far.
    pub(crate) fn mark(&self) -> usize {
        self.latencies.lock().expect("no request panicked").len()
    }

    /// Returns the p99 of the requests since a mark.
    pub(crate) fn since(&self, mark: usize) -> Duration {
        let mut seen = self.latencies.lock().expect("no request panicked")[mark..].to_vec();
        seen.sort();
        assert!(seen.len() >= 20, "only {} requests were answered", seen.len());
        seen[(seen.len() - 1) * 99 / 100]
    }

    pub(crate) async fn observe(&self, time: Duration) -> Duration {
        let mark = self.mark();
        tokio::time::sleep(time).await;
        self.since(mark)
    }

    /// Stops the client. Panics if a request got a wrong response.
    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("it runs").join();
        assert!(ended.is_ok(), "a well-behaved client got no response");
    }
}

/// Reconnects every hundred requests, to check that new clients are served too.
#[allow(clippy::disallowed_methods, reason = "measures real time")]
async fn work(server: &'static Server, latencies: &Mutex<Vec<Duration>>, stop: &AtomicBool) {
    let mut session = server.session().await;
    let mut made = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        if made % 100 == 99 {
            session = server.session().await;
        }
        let request = async {
            match made % 2 {
                0 => {
                    let map = format!("{{\"metadata\": {{\"name\": \"polite-{made}\"}}}}");
                    session.send(Method::POST, MAPS, POLITE, map.into()).await
                }
                _ => session.get(&format!("{MAPS}/polite-{}", made - 1), POLITE).await,
            }
        };
        let (code, text) = tokio::time::timeout(PATIENCE, request).await.expect("a timely response");
        assert!(code == 200 || code == 201, "{code}: {text}");
        latencies.lock().expect("no request panicked").push(began.elapsed());
        made += 1;
        tokio::time::sleep(PACE).await;
    }
}
