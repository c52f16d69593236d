//! A controller for the objects of all clusters of a fleet.
//!
//! Invariant: a reconcile sees the cluster that was in the fleet when it began. It is dropped when that cluster leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ClusterKey;
use super::gate::Gate;
use super::member::Member;
use crate::controller::Caches;
use crate::shard::Sharded;
use crate::worker::AnyReconciler;
use crate::{Context, Controller, Key, Outcome, Queue, ReconcileError, Reconciler};

/// Builds the controller for a cluster.
type Build = Box<dyn Fn(&Context) -> Controller + Send + Sync>;

/// What joins the clusters of a fleet to a controller.
pub(super) struct Follower {
    queue: Queue<ClusterKey>,
    build: Build,
    /// One for each cluster.
    parts: Mutex<BTreeMap<Arc<str>, Arc<Part>>>,
}

/// The part of a controller that is in one cluster.
struct Part {
    member: Arc<Member>,
    gate: Gate,
    reconciler: Box<dyn AnyReconciler<Key>>,
    caches: Caches,
}

/// Returns a controller, and what joins clusters to it for as long as the controller exists.
pub(super) fn controller(
    context: &Context,
    name: &'static str,
    build: impl Fn(&Context) -> Controller + Send + Sync + 'static,
) -> (Controller<ClusterKey>, Arc<Follower>) {
    let queue = context.queue(name);
    let follower =
        Arc::new(Follower { queue: queue.clone(), build: Box::new(build), parts: Mutex::default() });
    let reconciler = Across(follower.clone());
    let sharded = {
        // A weak reference: the queue's owner must not keep itself.
        let follower = Arc::downgrade(&follower);
        let all = move || follower.upgrade().map(|follower| follower.keys()).unwrap_or_default();
        Sharded::placed(&context.shards, &queue, ClusterKey::place, all, reconciler)
    };
    (context.controller(name, queue, sharded), follower)
}

impl Follower {
    pub(super) fn joined(&self, member: &Arc<Member>) {
        let gate = Gate::new(member.name(), &self.queue);
        let built = (self.build)(&member.context().through(&gate));
        let Some((reconciler, caches)) = built.into_part() else {
            tracing::error!(
                controller = self.queue.name(),
                cluster = %member.name(),
                "a controller of a fleet must be built with Controller::for_ and the context that it is given"
            );
            return;
        };
        let part = Part { member: member.clone(), gate: gate.clone(), reconciler, caches: caches.clone() };
        self.parts.lock().insert(member.name().clone(), Arc::new(part));
        member.add(&gate, &caches);
    }

    pub(super) fn left(&self, name: &str) {
        self.parts.lock().remove(name);
    }

    fn part(&self, name: &str) -> Option<Arc<Part>> {
        self.parts.lock().get(name).cloned()
    }

    /// Returns the keys of all objects, for a replica that has gained shards. Those behind closed gates wait there.
    fn keys(&self) -> Vec<ClusterKey> {
        let parts: Vec<Arc<Part>> = self.parts.lock().values().cloned().collect();
        parts.iter().flat_map(|part| part.keys()).collect()
    }
}

impl Part {
    fn keys(&self) -> Vec<ClusterKey> {
        // The first cache is that of the objects that the controller reconciles.
        let primary = self.caches.all().into_iter().next();
        let objects = primary.map(|primary| primary.objects().list(None)).unwrap_or_default();
        objects.iter().filter_map(|object| self.gate.admit(object.key().clone())).collect()
    }
}

/// Reconciles the keys of all clusters.
struct Across(Arc<Follower>);

impl Reconciler for Across {
    type Key = ClusterKey;

    async fn reconcile(&self, key: &ClusterKey) -> Result<Outcome, ReconcileError> {
        // A cluster that joins again lists its objects again.
        let Some(part) = self.0.part(&key.cluster) else { return Ok(Outcome::Settled) };
        if part.gate.admit(key.key.clone()).is_none() {
            return Ok(Outcome::Settled);
        }
        let reconciled = part.member.while_joined(part.reconciler.reconcile(&key.key)).await;
        let Some(result) = reconciled else { return Ok(Outcome::Settled) };
        if result.as_ref().is_err_and(|error| matches!(error.category(), "network" | "unavailable")) {
            part.member.suspect();
        }
        result
    }
}
