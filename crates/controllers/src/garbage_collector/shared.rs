//! State shared by monitors and workers: the graph, the served kinds and the queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use setpoint::client::{DeleteOptions, Optional, Patch, PropagationPolicy, Subresource};
use setpoint::discovery::Discovered;
use setpoint::{Client, ClientError, Context, EventType, Informer, Key, Kind, Object, Queue, Recorder};

use super::ENTRY;
use super::graph::{Graph, Misplaced, Work};
use super::identity::Identity;
use super::patch;
use super::uid::Uid;

/// How often removing a finalizer is retried on conflict.
const ATTEMPTS: usize = 5;

pub(super) struct CollectorState {
    client: Client,
    recorder: Recorder,
    /// Held briefly, never across an await.
    graph: Mutex<Graph>,
    served: Mutex<Arc<Discovered>>,
    /// The informer of each monitored kind.
    monitored: Mutex<BTreeMap<Kind, Informer>>,
    delete: Queue<Uid>,
    orphan: Queue<Uid>,
}

/// The result of a lookup.
pub(super) enum Lookup {
    Object(Object),
    Nothing,
    /// The kind is not served, or not yet.
    KindNotServed,
    /// The kind is namespaced, but the coordinates have no namespace.
    NoNamespace,
}

impl CollectorState {
    pub(super) fn new(context: &Context, delete: Queue<Uid>, orphan: Queue<Uid>) -> Self {
        Self {
            client: context.client.clone(),
            recorder: context.recorder(ENTRY.name),
            graph: Mutex::default(),
            served: Mutex::default(),
            monitored: Mutex::default(),
            delete,
            orphan,
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Graph) -> T) -> T {
        look(&mut self.graph.lock())
    }

    /// Changes the graph and enqueues the resulting work.
    pub(super) fn update(&self, change: impl FnOnce(&mut Graph) -> Work) {
        let work = self.look(change);
        self.attempt_to_delete(work.delete);
        work.delete_later.into_iter().for_each(|uid| self.delete.add_rate_limited(uid));
        work.orphan.into_iter().for_each(|uid| self.orphan.add(uid));
        work.misplaced.iter().for_each(|misplaced| self.report(misplaced));
    }

    pub(super) fn attempt_to_delete(&self, items: Vec<Uid>) {
        items.into_iter().for_each(|uid| self.delete.add(uid));
    }

    fn report(&self, Misplaced { kind, dependent, owner }: &Misplaced) {
        let namespace = dependent.key().namespace().unwrap_or("");
        let message = format!("ownerRef {owner} does not exist in namespace {namespace:?}");
        self.recorder.event(kind, dependent, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }

    /// Sets the served kinds.
    pub(super) fn serves(&self, discovered: Arc<Discovered>) {
        *self.served.lock() = discovered;
    }

    pub(super) fn monitors(&self, informer: &Informer) {
        self.monitored.lock().insert(informer.kind().clone(), informer.clone());
    }

    pub(super) fn stop_monitoring(&self, kind: &Kind) {
        self.monitored.lock().remove(kind);
    }

    /// Returns the kinds whose monitors have not reached a revision.
    pub(super) fn lagging_kinds(&self, revision: u64) -> Vec<Kind> {
        let monitored = self.monitored.lock();
        let lagging = monitored.iter().filter(|(_, informer)| informer.revision() < revision);
        lagging.map(|(kind, _)| kind.clone()).collect()
    }

    /// Returns how often orphaning an owner's dependents has failed.
    pub(super) fn orphan_retries(&self, owner: &Uid) -> u32 {
        self.orphan.retries(owner)
    }

    /// Looks up an object in the API server, not the graph.
    pub(super) async fn look_up(&self, identity: &Identity) -> Result<Lookup, ClientError> {
        let served = self.served.lock().clone();
        let Some(kind) = served.kind(&identity.api_version, &identity.kind) else {
            return Ok(Lookup::KindNotServed);
        };
        let key = match (&identity.namespace, kind.namespaced()) {
            (Some(namespace), true) => Key::namespaced(&**namespace, &*identity.name),
            (None, true) => return Ok(Lookup::NoNamespace),
            (_, false) => Key::cluster(&*identity.name),
        };
        Ok(self.get(kind, &key).await?.map_or(Lookup::Nothing, Lookup::Object))
    }

    async fn get(&self, kind: &Kind, key: &Key) -> Result<Option<Object>, ClientError> {
        self.client.get(kind, key).await.optional()
    }

    /// Reads an object again. `None` if it is gone or was recreated.
    async fn get_again(&self, kind: &Kind, object: &Object) -> Result<Option<Object>, ClientError> {
        let now = self.get(kind, object.key()).await?;
        Ok(now.filter(|now| now.meta().uid == object.meta().uid))
    }

    /// Patches owner references: with a strategic merge if the kind supports it, otherwise by replacing the list.
    pub(super) async fn patch_owners(
        &self,
        kind: &Kind,
        object: &Object,
        merging: bytes::Bytes,
        replacing: impl FnOnce() -> bytes::Bytes,
    ) -> Result<Option<Object>, ClientError> {
        let patch = |patch| self.client.patch(kind, object.key(), Subresource::None, patch);
        let patched = match patch(Patch::Strategic(merging)).await {
            Err(error) if error.code() == Some(415) => patch(Patch::Merge(replacing())).await,
            patched => patched,
        };
        patched.optional()
    }

    /// Removes a finalizer, retrying on conflicts.
    pub(super) async fn remove_finalizer(
        &self,
        kind: &Kind,
        object: &Object,
        finalizer: &str,
    ) -> Result<(), ClientError> {
        let mut object = object.clone();
        for attempt in 1.. {
            let Some(patch) = patch::remove_finalizer(&object, finalizer) else { return Ok(()) };
            let patched = self.client.patch(kind, object.key(), Subresource::None, Patch::Merge(patch)).await;
            match patched.optional() {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                done => return done.map(drop),
            }
            match self.get_again(kind, &object).await? {
                Some(now) => object = now,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Deletes an object. Returns `false` if its owners have changed since the decision.
    pub(super) async fn delete(
        &self,
        kind: &Kind,
        object: &Object,
        propagation: PropagationPolicy,
    ) -> Result<bool, ClientError> {
        let meta = object.meta();
        let by_uid = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::of_uid(&*meta.uid) };
        let delete =
            DeleteOptions { resource_version: Some(meta.resource_version.to_string()), ..by_uid.clone() };
        match self.client.delete(kind, object.key(), &delete).await.optional() {
            Err(error) if error.is_conflict() => {}
            deleted => return deleted.map(|_| true),
        }
        let Some(now) = self.get_again(kind, object).await? else { return Ok(true) };
        if now.meta().owner_references != meta.owner_references {
            return Ok(false);
        }
        // Something else changed. Delete by uid, so that frequent writes cannot keep it alive.
        self.client.delete(kind, object.key(), &by_uid).await.optional().map(|_| true)
    }
}
