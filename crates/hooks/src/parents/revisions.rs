//! ControllerRevisions of a parent: the hook is called for each, and they are written before any child is.

use futures::future::try_join_all;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, IgnoreErrors, Optional, Patch, Subresource};
use setpoint::owner::controller_ref;
use setpoint::reconcile::ErrorContext;
use setpoint::{Informer, Key, LabelSelector, Object};

use super::desired::{Desired, desired, identify};
use super::reconcile::{Failure, Parents, Pass};
use crate::apply::{ApplyMode, apply_body, fingerprint, includes, is_settled, same};
use crate::names::{CONTROLLER_UID, PARENT_GROUP, PARENT_RESOURCE, revision_kind};
use crate::rollout::{
    Claims, Revision, Rollout, Settled, merged_children, patch_of, patched, progress, revision_name,
};
use crate::wire::{Objects, SyncAnswer};

/// The maximum number of revisions: each costs a call of the hook, and a rollout superseded this often has gone wrong.
const MAX_REVISIONS: usize = 100;

impl Parents {
    /// Calls the hook for the latest and all earlier revisions, and advances the rollout.
    pub(super) async fn roll_out(
        &self,
        pass: &mut Pass,
        revisions: &Informer,
        selector: &LabelSelector,
        observed: &Objects,
    ) -> Result<(SyncAnswer, Desired), Failure> {
        let stored = self.stored_revisions(pass, revisions, selector).await?;
        let mut all = self.known_revisions(pass, &stored);
        if all.len() > MAX_REVISIONS {
            return Err(Failure::of(format!("there are more than {MAX_REVISIONS} ControllerRevisions")));
        }
        let this = &*pass;
        let answers = all.iter().map(async |revision| {
            let parent = patched(this.parent_value(), &revision.patch, &self.setup.field_paths);
            let related = self.related(this, &parent).await?;
            self.call_hook(this, &parent, observed, &related).await
        });
        let answers: Vec<SyncAnswer> = try_join_all(answers).await?;
        let mut problems = Vec::new();
        for (revision, answer) in all.iter_mut().zip(answers) {
            let read = desired(&self.setup, pass.parent.meta(), selector, &answer.children);
            let read = read.map_err(Failure::of)?;
            problems.extend(read.problems);
            (revision.answer, revision.desired) = (answer, read.objects);
        }
        let settled = self.settled(pass, &all[0].desired, observed).await?;
        let meta = pass.parent.meta();
        let rollout = Rollout {
            namespace: pass.at.key.namespace(),
            observed,
            strategy: &|kind| self.setup.strategy(kind),
            identify: &|child| identify(&self.setup, meta, child).ok(),
            settled: &settled,
        };
        let updated = progress(&mut all, &rollout);
        let objects = merged_children(&all, pass.at.key.namespace());
        self.write_revisions(pass, &stored, &all).await?;
        let mut answer = combined(&all);
        updated.set_in(answer.status.get_or_insert_default());
        Ok((answer, Desired { objects, problems }))
    }

    /// Returns the children of rolling kinds that already match the latest revision.
    async fn settled(&self, pass: &Pass, desired: &Objects, observed: &Objects) -> Result<Settled, Failure> {
        let owner = controller_ref(&pass.at.kind, pass.parent.meta());
        let mut settled = Settled::new();
        for (kind, key, wanted) in desired.iter().filter(|(kind, ..)| self.setup.method(kind).is_rolling()) {
            let Some(child) = observed.get(kind, key) else { continue };
            let is_settled = match self.setup.apply {
                ApplyMode::Dynamic => is_settled(child, wanted),
                ApplyMode::ServerSide => {
                    let body = apply_body(wanted, &owner);
                    let is_known = self.wiring.ledger.shows(kind, key, fingerprint(&body), child);
                    is_known || includes(child, &body) && self.is_applied(kind, key, body, child).await?
                }
            };
            if is_settled {
                settled.insert((kind.clone(), key.clone()));
            }
        }
        Ok(settled)
    }

    /// Returns the ControllerRevisions of a parent, and adopts orphans.
    async fn stored_revisions(
        &self,
        pass: &mut Pass,
        revisions: &Informer,
        selector: &LabelSelector,
    ) -> Result<Vec<Object>, Failure> {
        let mut labels: Vec<(&str, &str)> = selector.match_labels.iter().collect();
        labels.extend([(PARENT_GROUP, pass.at.kind.group()), (PARENT_RESOURCE, pass.at.kind.plural())]);
        let adoptable = LabelSelector {
            match_labels: labels.into_iter().collect(),
            match_expressions: selector.match_expressions.clone(),
        };
        let owned = revisions.objects().indexed(super::claim::BY_OWNER, &pass.parent.meta().uid);
        // Owned revisions count regardless of their labels: for a parent without spec.template they have none.
        let claimed = match owned.is_empty() {
            true => self.claim(pass, &revision_kind(), revisions, &adoptable).await?,
            false => owned,
        };
        Ok(claimed)
    }

    /// Returns the latest revision, then the others.
    fn known_revisions(&self, pass: &Pass, stored: &[Object]) -> Vec<Revision> {
        let patch = patch_of(pass.parent_value(), &self.setup.field_paths);
        let name = revision_name(&pass.at.kind, &pass.parent.meta().uid, &patch);
        let mut all = vec![revision(name, patch, Claims::default())];
        for object in stored {
            let value: Value = object.decode().unwrap_or_default();
            let claims = serde_json::from_value(value["children"].clone()).unwrap_or_default();
            let patch = value["parentPatch"].clone();
            match same(&patch, &all[0].patch) {
                true => (all[0].name, all[0].claims) = (object.key().name().to_owned(), claims),
                false => all.push(revision(object.key().name().to_owned(), patch, claims)),
            }
        }
        all
    }

    async fn write_revisions(
        &self,
        pass: &mut Pass,
        stored: &[Object],
        wanted: &[Revision],
    ) -> Result<(), Failure> {
        let (kind, client) = (revision_kind(), &self.wiring.client);
        for object in stored.iter().filter(|object| wanted.iter().all(|one| one.name != object.key().name()))
        {
            let options = DeleteOptions::of_uid(&*object.meta().uid);
            let deleted = client.delete(&kind, object.key(), &options).await.ignore_not_found();
            deleted.attempting(|| format!("delete ControllerRevision {}", object.key()))?;
            pass.wrote("deleted", &kind, object.key(), None, None);
        }
        for revision in wanted {
            match stored.iter().find(|object| object.key().name() == revision.name) {
                Some(object) => self.update_revision(pass, object, revision).await?,
                None => self.create_revision(pass, revision).await?,
            }
        }
        Ok(())
    }

    async fn update_revision(
        &self,
        pass: &mut Pass,
        object: &Object,
        revision: &Revision,
    ) -> Result<(), Failure> {
        let known: Value = object.decode().unwrap_or_default();
        let children = json!(revision.claims);
        let before = Some(&known["children"]).filter(|children| !children.is_null());
        if before.cloned().unwrap_or_else(|| json!([])) == children {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"uid": object.meta().uid, "resourceVersion": object.meta().resource_version},
            "children": children,
        });
        let (kind, key) = (revision_kind(), object.key());
        let patched = self.wiring.client.patch(&kind, key, Subresource::None, Patch::merge(&patch)).await;
        let patched = patched.attempting(|| format!("update ControllerRevision {key}"))?;
        pass.wrote("updated", &kind, key, Some(object), Some(&patched));
        Ok(())
    }

    async fn create_revision(&self, pass: &mut Pass, revision: &Revision) -> Result<(), Failure> {
        self.check_alive(pass).await?;
        let kind = revision_kind();
        let body = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind(),
            "metadata": {
                "name": revision.name,
                "namespace": pass.at.key.namespace(),
                "labels": self.revision_labels(pass),
                "ownerReferences": [controller_ref(&pass.at.kind, pass.parent.meta())],
            },
            "parentPatch": revision.patch,
            "children": revision.claims,
        });
        let key = pass.at.key.sibling(&revision.name);
        let created = self.wiring.client.create(&kind, key.namespace(), &body).await;
        match created {
            Err(error) if error.is_already_exists() => Err(self.revision_exists(pass, &key).await?),
            created => {
                let created = created.attempting(|| format!("create ControllerRevision {key}"))?;
                pass.wrote("created", &kind, &key, None, Some(&created));
                Ok(())
            }
        }
    }

    /// Returns why a revision cannot be created: the cache does not show it yet, or its owner reference was removed.
    async fn revision_exists(&self, pass: &Pass, key: &Key) -> Result<Failure, Failure> {
        let read = self.wiring.client.get(&revision_kind(), key).await.optional();
        let live = read.attempting(|| format!("read ControllerRevision {key}"))?;
        let is_ours =
            |live: Object| live.meta().controller().is_some_and(|owner| owner.uid == pass.parent.meta().uid);
        let why = format!("create ControllerRevision {key}: it exists");
        Ok(match live.is_none_or(is_ours) {
            true => Failure::conflict(why),
            false => Failure::of(format!("{why} and is not owned by {}", pass.at)),
        })
    }

    fn revision_labels(&self, pass: &Pass) -> Value {
        let template =
            pass.parent_value().pointer("/spec/template/metadata/labels").filter(|it| it.is_object());
        let mut labels = match self.setup.generate_selector {
            true => json!({CONTROLLER_UID: pass.parent.meta().uid}),
            false => template.cloned().unwrap_or_else(|| json!({})),
        };
        labels[PARENT_GROUP] = pass.at.kind.group().into();
        labels[PARENT_RESOURCE] = pass.at.kind.plural().into();
        labels
    }
}

fn revision(name: String, patch: Value, claims: Claims) -> Revision {
    Revision { name, patch, claims, answer: SyncAnswer::default(), desired: Objects::default() }
}

/// Combines the responses for revisions: the latest status, the shortest delay, finalized if all are.
fn combined(revisions: &[Revision]) -> SyncAnswer {
    let mut answer = revisions[0].answer.clone();
    for older in &revisions[1..] {
        answer.resync_after = match (answer.resync_after, older.answer.resync_after) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        answer.finalized &= older.answer.finalized;
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_for_revisions_are_combined() {
        let with = |seconds: Option<u64>, finalized: bool| {
            let mut one = revision("r".into(), Value::Null, Claims::default());
            one.answer.resync_after = seconds.map(Duration::from_secs);
            one.answer.finalized = finalized;
            one
        };
        let answer = combined(&[with(None, true), with(Some(9), true), with(Some(5), true)]);
        assert_eq!((answer.resync_after, answer.finalized), (Some(Duration::from_secs(5)), true));
        assert!(!combined(&[with(None, true), with(None, false)]).finalized);
    }
}
