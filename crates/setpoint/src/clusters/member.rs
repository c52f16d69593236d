//! A cluster in a fleet: its context, and whether it is reachable.
//!
//! ```text
//!  reachable ─► a reconcile fails because of the network ─► probe ─► unreachable ─► probe, 1, 2, 4, 8 s ─► reachable
//!                                                             └─► it responds: the request was at fault itself
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use crate::backoff::Backoff;
use crate::controller::Caches;
use crate::{ClientError, Context, Informer};

/// How long a probe may take.
const PROBED_WITHIN: Duration = Duration::from_secs(5);
/// The delays between probes of an unreachable cluster.
const PROBES: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(8));

/// A cluster. It ends when it leaves its fleet: one of the same name that joins later is another.
pub(super) struct Member {
    name: Arc<str>,
    context: Context,
    stop: CancellationToken,
    state: Mutex<State>,
    /// A controller has been added.
    extended: Notify,
    /// A request has failed.
    suspected: Notify,
}

#[derive(Default)]
struct State {
    is_unreachable: bool,
    /// One for each controller.
    gates: Vec<(Gate, Caches)>,
}

impl Member {
    pub(super) fn new(context: Context, name: &Arc<str>) -> Self {
        let (state, extended, suspected) = Default::default();
        Self { name: name.clone(), context, stop: CancellationToken::new(), state, extended, suspected }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn is_reachable(&self) -> bool {
        !self.state.lock().is_unreachable
    }

    /// Adds the gate of a controller. It opens when these caches have synced.
    pub(super) fn add(&self, gate: &Gate, caches: &Caches) {
        let mut state = self.state.lock();
        gate.set_reachable(!state.is_unreachable);
        state.gates.push((gate.clone(), caches.clone()));
        self.extended.notify_one();
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Runs until the cluster leaves. `None` if it does.
    pub(super) async fn while_joined<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.stop.run_until_cancelled(work).await
    }

    /// Has the cluster probed, because a request has failed.
    pub(super) fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// Runs the informers, opens the gates, and probes.
    pub(super) async fn run(self: Arc<Self>) {
        let informers = self.context.informers.run(self.stop.clone());
        let member = &self;
        self.while_joined(async move { tokio::join!(informers, member.open_gates(), member.probe()) }).await;
    }

    async fn open_gates(&self) {
        loop {
            let closed: Vec<(Gate, Caches)> =
                self.state.lock().gates.iter().filter(|(gate, _)| !gate.has_synced()).cloned().collect();
            let syncing = closed.iter().map(|(gate, caches)| async move {
                join_all(caches.all().iter().map(Informer::wait_for_sync)).await;
                gate.synced();
            });
            tokio::select! {
                biased;
                () = self.extended.notified() => {}
                _ = join_all(syncing), if !closed.is_empty() => {}
            }
        }
    }

    async fn probe(&self) {
        loop {
            self.suspected.notified().await;
            let mut failures = 0;
            while let Err(why) = self.ask().await {
                if failures == 0 {
                    tracing::warn!(cluster = %self.name, error = why, "a cluster cannot be reached");
                }
                self.set_reachable(false);
                self.context.runtime.clock.sleep(PROBES.delay(failures)).await;
                failures = failures.saturating_add(1);
            }
            if failures > 0 {
                tracing::info!(cluster = %self.name, "a cluster can be reached again");
            }
            self.set_reachable(true);
        }
    }

    /// Reads an object, because a server without its store still reports its version. A server that responds is
    /// reachable, even if it rejects the request.
    async fn ask(&self) -> Result<(), String> {
        let client = self.context.client.clone().with_timeout(PROBED_WITHIN);
        match client.get_path(&["api", "v1", "namespaces", "kube-system"], &[]).await {
            Err(error) if is_of_the_cluster(&error) => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn set_reachable(&self, is_reachable: bool) {
        let mut state = self.state.lock();
        state.is_unreachable = !is_reachable;
        state.gates.iter().for_each(|(gate, _)| gate.set_reachable(is_reachable));
    }
}

/// Whether an error means that the API server is unreachable or unavailable.
fn is_of_the_cluster(error: &ClientError) -> bool {
    error.category() == "network" || error.code().is_some_and(|code| (502..=504).contains(&code))
}
