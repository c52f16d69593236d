//! Attempt to orphan: an owner that is deleted without its dependents lets go of them first.

use std::sync::Arc;

use futures::{StreamExt, stream};
use setpoint::reconcile::Attempting;
use setpoint::{ClientError, Kind, Object, Outcome, ReconcileError, Reconciler};

use super::graph::{Graph, Node, ORPHAN, is_deleted_with};
use super::patch;
use super::shared::Shared;
use super::uid::Uid;

/// Dependents released at once: one request each, under way beside those of the other workers.
const CONCURRENCY: usize = 20;

pub(super) struct Orphaner(pub(super) Arc<Shared>);

struct Owner {
    kind: Kind,
    object: Object,
    dependents: Vec<(Kind, Object)>,
}

impl Reconciler for Orphaner {
    type Key = Uid;

    async fn reconcile(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let Some(owner) = self.0.look(|graph| observe(graph, uid)) else { return Ok(Outcome::Settled) };
        let attempted = format!("release the dependents of {} {}", owner.kind, owner.object.key());
        self.orphan(owner).await.attempting(attempted)?;
        Ok(Outcome::Settled)
    }
}

fn observe(graph: &Graph, uid: &Uid) -> Option<Owner> {
    let Some(Node::Observed { kind, object }) = graph.node(uid) else { return None };
    if !is_deleted_with(object.meta(), ORPHAN) {
        return None;
    }
    let dependents = graph.dependents(uid).map(|(_, kind, object)| (kind.clone(), object.clone()));
    Some(Owner { kind: kind.clone(), object: object.clone(), dependents: dependents.collect() })
}

impl Orphaner {
    async fn orphan(&self, Owner { kind, object, dependents }: Owner) -> Result<(), ClientError> {
        let uid = &*object.meta().uid;
        let releases = dependents.into_iter().map(|(kind, dependent)| self.release(kind, dependent, uid));
        let released = stream::iter(releases).buffer_unordered(CONCURRENCY);
        let failures: Vec<ClientError> = released.filter_map(|result| async { result.err() }).collect().await;
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => self.0.remove_finalizer(&kind, &object, ORPHAN).await,
        }
    }

    async fn release(&self, kind: Kind, dependent: Object, owner: &str) -> Result<(), ClientError> {
        let merging = patch::drop_owners(&dependent, &[owner]);
        let replacing = || patch::drop_owners_replacing(&dependent, &[owner]);
        self.0.patch_owners(&kind, &dependent, merging, replacing).await.map(drop)
    }
}
