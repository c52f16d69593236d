//! The kinds that quotas limit, each watched once a quota needs it.
//!
//! Invariant: a kind that is not served is looked up again with the next reconcile, and not counted until then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use setpoint::discovery::discover;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, Context, Event, Informer, Informers, Kind, Lister, Object, Queue, ReconcileError,
};
use setpoint_quota::{Evaluator, Item, Resources};

use super::view::ResourceQuota;

/// How long a new informer may take to sync before the count is postponed.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Monitors {
    client: Client,
    clock: Clock,
    informers: Informers,
    quotas: Lister<ResourceQuota>,
    queue: Queue<setpoint::Key>,
    /// By group and plural; at most as many as the API server serves.
    running: Mutex<BTreeMap<KindName, Monitor>>,
}

/// Group and plural.
type KindName = (String, String);

/// A kind whose objects are counted.
#[derive(Clone)]
pub(super) struct Monitor {
    pub(super) evaluator: Evaluator,
    informer: Informer,
}

/// The usage of a pod, cached with the object after the first count.
struct CountedPod(Item);

setpoint::view!(CountedPod of k8s_openapi::api::core::v1::Pod);

impl<'de> Deserialize<'de> for CountedPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Evaluator::Pods.read(deserializer).map(Self)
    }
}

impl Monitors {
    pub(super) fn new(context: &Context, quotas: Lister<ResourceQuota>, queue: Queue<setpoint::Key>) -> Self {
        Self {
            client: context.client.clone(),
            clock: context.runtime.clock.clone(),
            informers: context.informers.clone(),
            quotas,
            queue,
            running: Mutex::default(),
        }
    }

    /// Returns synced monitors of all served kinds that a quota limits.
    pub(super) async fn of(&self, limits: &Resources) -> Result<Vec<Monitor>, ReconcileError> {
        let needed: BTreeSet<KindName> = limits.names().filter_map(Evaluator::kind_of).collect();
        let missing: Vec<KindName> = {
            let running = self.running.lock();
            needed.iter().filter(|name| !running.contains_key(*name)).cloned().collect()
        };
        if !missing.is_empty() {
            self.start(&missing).await?;
        }
        let monitors: Vec<Monitor> = {
            let running = self.running.lock();
            needed.iter().filter_map(|name| running.get(name)).cloned().collect()
        };
        for monitor in &monitors {
            if tokio::time::timeout(PATIENCE, monitor.informer.wait_for_sync()).await.is_err() {
                let kind = monitor.informer.kind().plural();
                return Err(ReconcileError::retry(format!("count {kind}: its cache has not synced yet")));
            }
        }
        Ok(monitors)
    }

    async fn start(&self, missing: &[KindName]) -> Result<(), ReconcileError> {
        let discovered =
            discover(&self.client).await.attempting("discover the resources that quotas limit")?;
        for (group, plural) in missing {
            let served = discovered.preferred().map(|resource| &resource.kind);
            let kind = served.into_iter().find(|kind| kind.group() == group && kind.plural() == plural);
            let evaluator = Evaluator::of(group, plural);
            if let (Some(kind), Some(evaluator)) = (kind.filter(|kind| kind.namespaced()), evaluator) {
                self.monitor((group.clone(), plural.clone()), kind, evaluator);
            }
        }
        Ok(())
    }

    fn monitor(&self, name: KindName, kind: &Kind, evaluator: Evaluator) {
        let mut running = self.running.lock();
        if running.contains_key(&name) {
            return;
        }
        let informer = match evaluator {
            Evaluator::Objects(_) => self.informers.metadata_of(kind),
            _ => self.informers.select(kind, Default::default()),
        };
        let replenish = Replenish {
            evaluator: evaluator.clone(),
            clock: self.clock.clone(),
            quotas: self.quotas.clone(),
            queue: self.queue.clone(),
        };
        informer.add_handler(move |event: &Event| replenish.on(event));
        running.insert(name, Monitor { evaluator, informer });
    }
}

impl Monitor {
    /// Returns the usage of each object in a namespace.
    pub(super) fn items(&self, namespace: Option<&str>) -> Result<Vec<Item>, ReconcileError> {
        let objects = self.informer.objects().list(namespace);
        objects.iter().map(|object| item(&self.evaluator, object)).collect()
    }
}

fn item(evaluator: &Evaluator, object: &Object) -> Result<Item, ReconcileError> {
    match evaluator {
        Evaluator::Pods => Ok(object.view::<CountedPod>()?.0.clone()),
        Evaluator::Objects(names) => Ok(Item::Object(names.clone())),
        other => other.read(&mut serde_json::Deserializer::from_slice(object.raw())).map_err(|error| {
            ReconcileError::Terminal {
                attempted: format!("read {} for its quota", object.key()),
                source: Some(Box::new(error)),
            }
        }),
    }
}

/// Enqueues the quotas of a namespace when usage may have decreased.
struct Replenish {
    evaluator: Evaluator,
    clock: Clock,
    quotas: Lister<ResourceQuota>,
    queue: Queue<setpoint::Key>,
}

impl Replenish {
    fn on(&self, event: &Event) {
        if matches!(event, Event::Added { .. }) {
            return;
        }
        let quotas = self.quotas.list(event.object().key().namespace()).unwrap_or_default();
        let counting =
            quotas.iter().filter(|quota| quota.spec.hard.names().any(|name| self.evaluator.counts(name)));
        let mut counting = counting.peekable();
        if counting.peek().is_none() || !self.changes_usage(event) {
            return;
        }
        counting.for_each(|quota| self.queue.add(quota.key().clone()));
    }

    fn changes_usage(&self, event: &Event) -> bool {
        let Event::Updated { old, new } = event else { return true };
        let (before, after) = (item(&self.evaluator, old), item(&self.evaluator, new));
        let now = self.clock.now();
        match (before, after) {
            (Ok(before), Ok(after)) => before != after || before.usage(now) != after.usage(now),
            _ => true,
        }
    }
}
