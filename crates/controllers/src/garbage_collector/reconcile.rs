//! Attempt to delete: every attempt decides again whether an item must go.

use std::sync::Arc;

use setpoint::reconcile::ErrorContext;
use setpoint::{ClientError, Object, Outcome, OwnerRef, ReconcileError, Reconciler};

use super::graph::FOREGROUND;
use super::identity::Identity;
use super::observe::{Observed, Owned, Waiting, observe};
use super::patch;
use super::plan::{self, OwnerState, Plan, plan};
use super::shared::{CollectorState, Lookup};
use super::uid::Uid;

pub(super) struct Collector(pub(super) Arc<CollectorState>);

impl Reconciler for Collector {
    type Key = Uid;

    async fn reconcile(&self, uid: &Uid) -> Result<Outcome, ReconcileError> {
        let attempted = self.0.look(|graph| observe(graph, uid));
        match attempted {
            Observed::Done => Ok(Outcome::Settled),
            Observed::Virtual(identity) => {
                self.verify(&identity).await.attempting(format!("look up {identity}"))
            }
            Observed::Waiting(waiting) => {
                let attempted = format!("finish the deletion of {} {}", waiting.kind, waiting.object.key());
                self.finish(waiting).await.attempting(attempted)
            }
            Observed::Owned(owned) => {
                let attempted = format!("collect {} {}", owned.kind, owned.object.key());
                self.collect(owned).await.attempting(attempted)
            }
        }
    }
}

impl Collector {
    /// Looks up whether a virtual node's object exists.
    async fn verify(&self, identity: &Identity) -> Result<Outcome, ClientError> {
        match self.0.look_up(identity).await? {
            // Its kind may be served later.
            Lookup::KindNotServed => return Ok(Outcome::Requeue),
            // It exists. Retry until its monitor has seen it; its deletion could go unnoticed before.
            Lookup::Object(object) if Uid::from(&*object.meta().uid) == identity.uid => {
                return Ok(Outcome::Requeue);
            }
            Lookup::NoNamespace => {}
            Lookup::Object(_) | Lookup::Nothing => self.0.update(|graph| graph.found_absent(identity)),
        }
        Ok(Outcome::Settled)
    }

    /// Removes the foreground finalizer once no dependent blocks the owner.
    async fn finish(&self, waiting: Waiting) -> Result<Outcome, ClientError> {
        if waiting.blocked {
            self.0.attempt_to_delete(waiting.untouched);
        } else {
            self.0.remove_finalizer(&waiting.kind, &waiting.object, FOREGROUND).await?;
        }
        Ok(Outcome::Settled)
    }

    async fn collect(&self, owned: Owned) -> Result<Outcome, ClientError> {
        let owner_states = match self.owner_states(&owned).await? {
            Ok(owner_states) => owner_states,
            Err(outcome) => return Ok(outcome),
        };
        let plan = plan(owned.object.meta(), &owner_states, owned.dependents);
        self.apply(&owned, plan).await
    }

    /// Returns the owners' states, or the outcome if they cannot be determined.
    async fn owner_states(&self, owned: &Owned) -> Result<Result<Vec<OwnerState>, Outcome>, ClientError> {
        let mut owner_states = Vec::with_capacity(owned.owner_states.len());
        for (reference, known) in owned.object.meta().owner_references.iter().zip(&owned.owner_states) {
            let owner_state = match known {
                Some(owner_state) => *owner_state,
                None => match self.ask(reference, &owned.object).await? {
                    Ok(owner_state) => owner_state,
                    Err(outcome) => return Ok(Err(outcome)),
                },
            };
            owner_states.push(owner_state);
        }
        Ok(Ok(owner_states))
    }

    async fn ask(
        &self,
        reference: &OwnerRef,
        dependent: &Object,
    ) -> Result<Result<OwnerState, Outcome>, ClientError> {
        let owner = Identity::of_owner(reference, dependent.key().namespace());
        let found = match self.0.look_up(&owner).await? {
            // Its kind may be served later; until then its state is unknown.
            Lookup::KindNotServed => return Ok(Err(Outcome::Requeue)),
            // A namespaced owner cannot exist without a namespace. The reference is a mistake, and nothing is deleted
            // for that.
            Lookup::NoNamespace => return Ok(Err(Outcome::Settled)),
            Lookup::Object(object) => Some(object),
            Lookup::Nothing => None,
        };
        let owner_state = plan::owner_state(reference, found.as_ref());
        if owner_state == OwnerState::Dangling {
            self.0.look(|graph| graph.remember_absent(owner));
        }
        Ok(Ok(owner_state))
    }

    async fn apply(&self, Owned { kind, object, .. }: &Owned, plan: Plan) -> Result<Outcome, ClientError> {
        match plan {
            Plan::Keep => {}
            Plan::DropOwners(positions) => {
                let owners = &object.meta().owner_references;
                let uids: Vec<&str> = positions.into_iter().map(|position| &*owners[position].uid).collect();
                let merging = patch::drop_owners(object, &uids);
                let replacing = || patch::drop_owners_replacing(object, &uids);
                self.0.patch_owners(kind, object, merging, replacing).await?;
            }
            Plan::Delete { propagation, unblock_owners } => {
                let unblocked = match unblock_owners {
                    true => {
                        let replacing = || patch::unblock_owners_replacing(object);
                        self.0.patch_owners(kind, object, patch::unblock_owners(object), replacing).await?
                    }
                    false => Some(object.clone()),
                };
                let Some(object) = unblocked else { return Ok(Outcome::Settled) };
                if !self.0.delete(kind, &object, propagation).await? {
                    return Ok(Outcome::Requeue);
                }
            }
        }
        Ok(Outcome::Settled)
    }
}
