//! Attempt to orphan: removes the owner references of all dependents before their owner is deleted.
//!
//! A dependent that is missed would be garbage collected once its owner is gone. So the graph is only trusted for kinds
//! whose monitors have caught up with the owner's deletion; objects of other kinds are listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{ClientError, Kind, Object, Outcome, ReconcileError, Reconciler};

use super::graph::ORPHAN;
use super::observe::orphaning;
use super::patch;
use super::shared::CollectorState;
use super::uid::Uid;

/// Concurrent patches per worker.
const CONCURRENCY: usize = 20;

pub(super) struct Orphaner(pub(super) Arc<CollectorState>);

/// How often listing a kind is retried before the collector continues without it, about five seconds in total. A broken
/// API must not block the deletion of all owners.
const PATIENCE: u32 = 10;

impl Reconciler for Orphaner {
    type Key = Uid;

    async fn reconcile(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let Some((kind, owner)) = self.0.look(|graph| orphaning(graph, uid)) else {
            return Ok(Outcome::Settled);
        };
        let attempted = format!("release the dependents of {kind} {}", owner.key());
        self.orphan(uid, &kind, &owner).await.attempting(attempted)?;
        Ok(Outcome::Settled)
    }
}

impl Orphaner {
    async fn orphan(&self, uid: &Uid, kind: &Kind, owner: &Object) -> Result<(), ClientError> {
        let dependents = self.dependents(uid, owner).await?;
        let owner_uid = &*owner.meta().uid;
        let releases =
            dependents.into_values().map(|(kind, dependent)| self.release(kind, dependent, owner_uid));
        let released = stream::iter(releases).buffer_unordered(CONCURRENCY);
        let failures: Vec<ClientError> = released.filter_map(|result| async { result.err() }).collect().await;
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => self.0.remove_finalizer(kind, owner, ORPHAN).await,
        }
    }

    async fn dependents(
        &self,
        uid: &Uid,
        owner: &Object,
    ) -> Result<BTreeMap<Uid, (Kind, Object)>, ClientError> {
        // Check this before reading the graph, which is then at least as new.
        let lagging = self.0.lagging_kinds(owner.meta().revision());
        let mut dependents: BTreeMap<_, _> = self.0.look(|graph| {
            let known = graph.dependents(uid);
            known.map(|(uid, kind, object)| (uid.clone(), (kind.clone(), object.clone()))).collect()
        });
        for kind in lagging {
            for object in self.list(uid, &kind, owner).await? {
                dependents.insert(Uid::from(&*object.meta().uid), (kind.clone(), object));
            }
        }
        Ok(dependents)
    }

    /// Lists the dependents of a kind from the API server.
    async fn list(&self, uid: &Uid, kind: &Kind, owner: &Object) -> Result<Vec<Object>, ClientError> {
        let namespace = owner.key().namespace().map(str::to_owned);
        if namespace.is_some() && !kind.namespaced() {
            return Ok(Vec::new());
        }
        let selection = Selection { namespace, metadata_only: true, ..Selection::default() };
        let mut objects = match self.0.client().list(kind, &selection).await {
            Ok(listed) => listed.objects,
            Err(error) if matches!(error.code(), Some(404 | 405)) => Vec::new(),
            Err(error) if self.0.orphan_retries(uid) < PATIENCE => return Err(error),
            Err(error) => {
                tracing::warn!(%kind, %error, owner = %owner.key(), "releasing dependents while caches lag");
                Vec::new()
            }
        };
        let is_dependent = |object: &Object| {
            object.meta().owner_references.iter().any(|reference| reference.uid == owner.meta().uid)
        };
        objects.retain(is_dependent);
        Ok(objects)
    }

    async fn release(&self, kind: Kind, dependent: Object, owner: &str) -> Result<(), ClientError> {
        let merging = patch::drop_owners(&dependent, &[owner]);
        let replacing = || patch::drop_owners_replacing(&dependent, &[owner]);
        self.0.patch_owners(&kind, &dependent, merging, replacing).await.map(drop)
    }
}
