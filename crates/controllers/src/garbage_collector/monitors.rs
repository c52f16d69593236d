//! One informer for each collectable kind, started and stopped as kinds appear and disappear.
//!
//! Invariants:
//! - a kind is dropped only if its API group was discovered successfully without it;
//! - new monitors have synced, or timed out, before old ones stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use setpoint::discovery::{Discovered, discover};
use setpoint::informer::Registration;
use setpoint::metrics::Metrics;
use setpoint::{Context, Event, Informer, Informers, Key, Kind, Outcome, Queue, ReconcileError, Reconciler};
use tokio_util::sync::CancellationToken;

use super::shared::CollectorState;

/// How often discovery runs.
const PERIOD: Duration = Duration::from_secs(30);
/// How long a new custom resource definition may take to be served.
const SETTLE: Duration = Duration::from_millis(200);

pub(super) struct Monitors {
    informers: Informers,
    metrics: Metrics,
    /// Has a single key for all served kinds.
    queue: Queue<Key>,
    shared: Arc<CollectorState>,
    running: Mutex<BTreeMap<Kind, Monitor>>,
    /// Cancelled when the graph is filled or the wait has timed out.
    filled: CancellationToken,
}

struct Monitor {
    informer: Informer,
    registration: Registration,
}

impl Monitors {
    pub(super) fn new(context: &Context, queue: Queue<Key>, shared: Arc<CollectorState>) -> Self {
        queue.add(kinds());
        Self {
            informers: context.informers.clone(),
            metrics: context.metrics.clone(),
            queue,
            shared,
            running: Mutex::default(),
            filled: CancellationToken::new(),
        }
    }

    /// Cancelled once the graph can be used.
    pub(super) fn filled(&self) -> CancellationToken {
        self.filled.clone()
    }

    /// Runs discovery and updates the monitors.
    async fn follow(&self) {
        let discovered = match discover(self.shared.client()).await {
            Ok(discovered) => Arc::new(discovered),
            Err(error) => {
                tracing::warn!(%error, "cannot discover the resources to monitor");
                return self.count_error();
            }
        };
        if !discovered.failures().is_empty() {
            tracing::warn!(failures = %discovered.failures(), "cannot discover all resources to monitor");
        }
        let wanted = wanted(&discovered, &self.running.lock().keys().collect());
        if wanted.is_empty() {
            return self.count_error();
        }
        self.shared.serves(discovered);
        self.start(&wanted).await;
        self.end_all_but(&wanted);
        self.filled.cancel();
    }

    async fn start(&self, wanted: &BTreeSet<Kind>) {
        let mut started = Vec::new();
        for kind in wanted {
            if !self.running.lock().contains_key(kind) {
                let monitor = self.monitor(kind);
                self.shared.monitors(&monitor.informer);
                started.push(monitor.informer.clone());
                self.running.lock().insert(kind.clone(), monitor);
            }
        }
        let synced = join_all(started.iter().map(Informer::wait_for_sync));
        if tokio::time::timeout(PERIOD, synced).await.is_err() {
            let late = started.iter().filter(|informer| !informer.has_synced()).map(Informer::kind);
            tracing::warn!(kinds = ?late.collect::<Vec<_>>(), "collecting before all caches have synced");
            self.count_error();
        }
    }

    fn monitor(&self, kind: &Kind) -> Monitor {
        let informer = self.informers.metadata_of(kind);
        let (kind, shared) = (kind.clone(), self.shared.clone());
        let definitions = defines_kinds(&kind).then(|| self.queue.clone());
        let registration = informer.add_handler(move |event: &Event| {
            shared.update(|graph| match event {
                Event::Added { object, .. } | Event::Updated { new: object, .. } => {
                    graph.observed(&kind, object)
                }
                Event::Deleted { last, .. } => graph.removed(&kind, last),
            });
            if let Some(queue) = &definitions {
                queue.add_after(kinds(), SETTLE);
            }
        });
        Monitor { informer, registration }
    }

    fn end_all_but(&self, wanted: &BTreeSet<Kind>) {
        let ended: BTreeMap<Kind, Monitor> = {
            let running = &mut *self.running.lock();
            let (kept, ended) =
                std::mem::take(running).into_iter().partition(|(kind, _)| wanted.contains(kind));
            *running = kept;
            ended
        };
        for (kind, monitor) in ended {
            self.shared.stop_monitoring(&kind);
            monitor.registration.remove();
            self.informers.remove_if_unused(&monitor.informer);
            self.shared.update(|graph| graph.forget_kind(&kind));
        }
    }

    fn count_error(&self) {
        let help = "Failed attempts to find out which resources to collect";
        self.metrics.count("garbagecollector_controller_resources_sync_error", help, &[], 1);
    }
}

impl Reconciler for Monitors {
    type Key = Key;

    async fn reconcile(&self, _: &Key) -> Result<Outcome, ReconcileError> {
        self.follow().await;
        Ok(Outcome::CheckAfter(PERIOD))
    }
}

/// The only key of the monitors' queue.
fn kinds() -> Key {
    Key::cluster("kinds")
}

/// Returns the kinds to monitor: collectable kinds in the server's preferred version, and already monitored kinds that
/// may still exist.
fn wanted(discovered: &Discovered, current: &BTreeSet<&Kind>) -> BTreeSet<Kind> {
    let collectable =
        discovered.preferred().filter(|resource| resource.supports(&["delete", "list", "watch"]));
    let found = collectable.map(|resource| &resource.kind).filter(|kind| !is_event(kind));
    let unclear = current.iter().copied().filter(|kind| discovered.failed(kind));
    found.chain(unclear).cloned().collect()
}

/// Events have no dependents and no owners, and there are many.
fn is_event(kind: &Kind) -> bool {
    kind.plural() == "events" && matches!(kind.group(), "" | "events.k8s.io")
}

/// Whether objects of this kind define other kinds.
fn defines_kinds(kind: &Kind) -> bool {
    kind.group() == "apiextensions.k8s.io" && kind.plural() == "customresourcedefinitions"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovered(resources: &[(&str, &str, &[&str])], failed: &[&str]) -> Discovered {
        let resources = resources.iter().map(|(group, plural, verbs)| {
            let kind = Kind::new(group, "v1", plural, plural, true);
            (kind, verbs.iter().map(|verb| (*verb).to_owned()).collect())
        });
        Discovered::of(resources, failed.iter().map(|api_version| (*api_version, "down")))
    }

    const ALL: &[&str] = &["delete", "list", "watch", "get"];

    #[track_caller]
    fn check(discovered: &Discovered, current: &[(&str, &str)], expected: &[&str]) {
        let current: Vec<Kind> =
            current.iter().map(|(group, plural)| Kind::new(group, "v1", plural, plural, true)).collect();
        let wanted = wanted(discovered, &current.iter().collect());
        assert_eq!(wanted.iter().map(Kind::plural).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn everything_that_can_be_collected_is_monitored() {
        let some = discovered(
            &[
                ("", "pods", ALL),
                ("", "events", ALL),
                ("events.k8s.io", "events", ALL),
                ("apps", "sets", ALL),
                ("", "bindings", &["create"]),
                ("", "componentstatuses", &["get", "list"]),
            ],
            &[],
        );
        check(&some, &[], &["pods", "sets"]);
        check(&some, &[("gone.example.com", "gones")], &["pods", "sets"]);
    }

    #[test]
    fn kinds_that_cannot_be_discovered_stay_monitored() {
        let partly = discovered(&[("", "pods", ALL)], &["down.example.com/v1"]);
        check(&partly, &[("down.example.com", "downs"), ("gone.example.com", "gones")], &["pods", "downs"]);
    }
}
