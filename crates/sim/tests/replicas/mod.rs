//! Several replicas of one controller, with cut links and paused processes: one of them works, and none works after
//! another has taken over.

mod everything;
mod leader;
mod shards;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::handler::enqueue_self;
use setpoint::reconcile::ErrorContext;
use setpoint::shard::Sharded;
use setpoint::{
    Client, Clock, Controller, Instant, Key, Kind, Lister, Outcome, Queue, ReconcileError, Reconciler,
};
use setpoint_cluster::Components;
use setpoint_sim::World;

const SECOND: Duration = Duration::from_secs(1);

/// Writes its name into every ConfigMap called `mark-…`, again and again.
struct Marker {
    name: &'static str,
    client: Client,
    clock: Clock,
    maps: Lister<ConfigMap>,
    marks: Marks,
}

/// Who worked on what, and when. Shared by all replicas of a test.
#[derive(Clone, Default)]
struct Marks(Arc<Mutex<Vec<Mark>>>);

#[derive(Clone, Debug)]
struct Mark {
    at: Instant,
    who: &'static str,
    key: Key,
}

impl Reconciler for Marker {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        if !key.name().starts_with("mark-") || self.maps.get(key)?.is_none() {
            return Ok(Outcome::Settled);
        }
        let patch = Patch::merge(&json!({"data": {"by": self.name, "at": self.clock.now().to_string()}}));
        self.client
            .patch(&Kind::of::<ConfigMap>(), key, Subresource::None, patch)
            .await
            .attempting(format!("mark {key}"))?;
        // Long enough for a handover to find work in progress.
        self.clock.sleep(SECOND / 2).await;
        self.marks.0.lock().push(Mark { at: self.clock.instant(), who: self.name, key: key.clone() });
        Ok(Outcome::CheckAfter(SECOND))
    }
}

/// Returns the parts of a replica with this name.
fn marker(name: &'static str, marks: &Marks) -> Components {
    let marks = marks.clone();
    let build = move |context: &setpoint::Context| {
        let maps = context.informers.of::<ConfigMap>();
        let queue = Queue::new("marker", &context.runtime);
        maps.add_handler(enqueue_self(&queue));
        let marker = Marker {
            name,
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            maps: maps.lister(),
            marks: marks.clone(),
        };
        let marker = Sharded::new(&context.shards, &queue, &maps, marker);
        let controller = Controller::new("marker", queue, marker).workers(4).waits_for(&maps);
        vec![Box::new(controller) as Box<dyn setpoint::Runnable>]
    };
    Components { own: vec![Arc::new(build)], ..Components::default() }
}

async fn create_maps(world: &World, count: usize) {
    for nth in 0..count {
        let body = json!({"metadata": {"name": format!("mark-{nth}")}});
        world.create(&Kind::of::<ConfigMap>(), Some("default"), body).await;
    }
}

impl Marks {
    /// Returns the first and last time that `who` worked, if it did.
    fn span(&self, who: &str) -> Option<(Instant, Instant)> {
        let marks = self.0.lock();
        let mut own = marks.iter().filter(|mark| mark.who == who).map(|mark| mark.at);
        let first = own.next()?;
        Some((first, own.next_back().unwrap_or(first)))
    }
}
