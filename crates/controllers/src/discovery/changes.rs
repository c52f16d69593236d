//! Plans and applies creates, updates and deletes of slices.
//!
//! Invariants:
//! - every update carries the resource version it is based on, every delete a uid;
//! - the name of a new slice is chosen before the create, so that a create with a lost response is recognized;
//! - nothing is created for an owner that is being deleted: the garbage collector deletes its slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, Context, Key, Kind, OwnerRef, ReconcileError, Rng, UpdateBody};

use super::address::Family;
use super::metrics::SliceMetrics;
use super::slice::{Endpoint, Port, Slice};
use crate::workload::pod_control::{generated_name, name_prefix, namespace_is_terminating, retry_unanswered};
use setpoint::write_tracker::WriteTracker;

/// The desired state of a slice.
#[derive(Clone)]
pub(crate) struct Draft {
    /// The existing slice to update, or `None` to create one.
    pub(crate) origin: Option<Cached<Slice>>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) family: Family,
    pub(crate) ports: Vec<Port>,
    pub(crate) endpoints: Vec<Endpoint>,
}

/// The changes to an owner's slices.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) create: Vec<Draft>,
    pub(crate) update: Vec<Draft>,
    pub(crate) delete: Vec<Cached<Slice>>,
    /// Slices without changes.
    pub(crate) unchanged: Vec<Cached<Slice>>,
}

impl Changes {
    pub(crate) fn extend(&mut self, other: Self) {
        let Self { create, update, delete, unchanged } = other;
        self.create.extend(create);
        self.update.extend(update);
        self.delete.extend(delete);
        self.unchanged.extend(unchanged);
    }

    /// Lists the drafts that can still be modified.
    pub(crate) fn drafts(&mut self) -> impl Iterator<Item = &mut Draft> {
        self.create.iter_mut().chain(&mut self.update)
    }

    /// Turns a delete and a create into one update where `may_become` allows it.
    pub(crate) fn recycle(&mut self, may_become: impl Fn(&Cached<Slice>, &Draft) -> bool) {
        let mut left = Vec::new();
        for slice in std::mem::take(&mut self.delete) {
            match self.create.pop_if(|draft| may_become(&slice, draft)) {
                Some(draft) => self.update.push(Draft { origin: Some(slice), ..draft }),
                None => left.push(slice),
            }
        }
        self.delete = left;
    }
}

/// The owner of the slices.
pub(crate) struct SliceOwner<'a> {
    /// The key of the Service.
    pub(crate) key: &'a Key,
    pub(crate) reference: OwnerRef,
    pub(crate) being_deleted: bool,
}

/// Writes slices for a controller.
pub(crate) struct SliceWriter {
    client: Client,
    rng: Rng,
    kind: Kind,
    writes: Arc<WriteTracker<Key>>,
    metrics: Arc<SliceMetrics>,
}

impl SliceWriter {
    pub(crate) fn new(context: &Context, writes: Arc<WriteTracker<Key>>, metrics: Arc<SliceMetrics>) -> Self {
        Self {
            metrics,
            client: context.client.clone(),
            rng: context.runtime.rng.clone(),
            kind: Kind::of::<Slice>(),
            writes,
        }
    }

    pub(crate) async fn apply(
        &self,
        owner: &SliceOwner<'_>,
        changes: &Changes,
    ) -> Result<(), ReconcileError> {
        if !owner.being_deleted {
            for draft in &changes.create {
                if !self.create(owner, draft).await? {
                    return Ok(());
                }
            }
        }
        for draft in &changes.update {
            if let Some(origin) = &draft.origin {
                self.update(owner, origin, draft).await?;
            }
        }
        for slice in &changes.delete {
            self.delete(owner.key, slice).await?;
        }
        Ok(())
    }

    /// Creates a slice. Returns `false` if the namespace is terminating and nothing can be created.
    async fn create(&self, owner: &SliceOwner<'_>, draft: &Draft) -> Result<bool, ReconcileError> {
        let prefix = name_prefix(owner.key.name());
        let name = generated_name(&prefix, &self.rng);
        let metadata = json!({
            "name": name,
            "generateName": prefix,
            "namespace": owner.key.namespace(),
            "labels": draft.labels,
            "annotations": draft.annotations,
            "ownerReferences": [owner.reference],
        });
        let body = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": draft.family,
            "ports": draft.ports,
            "endpoints": draft.endpoints,
        });
        let namespace = owner.key.namespace();
        let (created, repeated) = retry_unanswered(|| self.client.create(&self.kind, namespace, &body)).await;
        let created = match created {
            // The name is unique to this call, so an earlier attempt with a lost response created the slice.
            Err(error) if repeated && error.is_already_exists() => {
                self.client.get(&self.kind, &owner.key.sibling(&*name)).await
            }
            created => created,
        };
        match created {
            Ok(created) => {
                self.writes.record_write(owner.key, &created);
                self.metrics.count_write("create");
            }
            Err(error) if namespace_is_terminating(&error) => return Ok(false),
            Err(error) => {
                let attempted = format!("failed to create EndpointSlice for Service {}", owner.key);
                return Err(error.into_reconcile_error(attempted));
            }
        }
        Ok(true)
    }

    async fn update(
        &self,
        owner: &SliceOwner<'_>,
        origin: &Cached<Slice>,
        draft: &Draft,
    ) -> Result<(), ReconcileError> {
        let body = UpdateBody::of(origin.object())
            .set(&["metadata", "labels"], &draft.labels)
            .set(&["metadata", "annotations"], &draft.annotations)
            .set(&["metadata", "ownerReferences"], &[&owner.reference])
            .set(&["ports"], &draft.ports)
            .set(&["endpoints"], &draft.endpoints);
        let updated = self.client.update(&self.kind, origin.key(), Subresource::None, &body).await;
        let name = origin.key().name();
        let updated =
            updated.attempting(format!("failed to update {name} EndpointSlice for Service {}", owner.key))?;
        self.writes.record_write(owner.key, &updated);
        self.metrics.count_write("update");
        Ok(())
    }

    pub(crate) async fn delete(&self, owner: &Key, slice: &Cached<Slice>) -> Result<(), ReconcileError> {
        let uid = &slice.meta().uid;
        let deleted =
            self.client.delete(&self.kind, slice.key(), &DeleteOptions::of_uid(&**uid)).await.optional();
        let name = slice.key().name();
        deleted.attempting(format!("failed to delete {name} EndpointSlice for Service {owner}"))?;
        self.writes.record_delete(owner, uid);
        self.metrics.count_write("delete");
        Ok(())
    }
}
