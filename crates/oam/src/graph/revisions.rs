//! GraphRevisions: a copy of every accepted definition. Instances follow the newest one.
//!
//! Invariants:
//! - Numbers increase and are never reused while the definition exists.
//! - An unchanged definition makes no writes.

use serde_json::{Value, json};
use setpoint::client::DeleteOptions;
use setpoint::reconcile::ErrorContext;
use setpoint::{Client, Key, Object, ReconcileError};

use super::crd::revision_kind;
use super::label;
use crate::digest;

/// How many revisions are kept.
const KEPT: usize = 5;

/// The revisions of one definition, the newest first.
pub(super) struct Revisions {
    pub(super) all: Vec<Value>,
}

impl Revisions {
    /// Selects the revisions of a definition, without those of an earlier definition with the same name.
    pub(super) fn of(objects: &[Object], definition: &Object) -> Self {
        let uid = &*definition.meta().uid;
        let is_own = |object: &&Object| object.meta().owner_references.iter().any(|owner| *owner.uid == *uid);
        let decoded = objects.iter().filter(is_own).filter_map(|object| object.decode::<Value>().ok());
        let mut all: Vec<Value> = decoded.collect();
        all.sort_by_key(|revision| std::cmp::Reverse(number(revision)));
        Self { all }
    }

    pub(super) fn newest(&self) -> Option<&Value> {
        self.all.first()
    }

    /// Records a definition, unless the newest revision is equal. Returns the number of its revision.
    pub(super) async fn issue(
        &self,
        client: &Client,
        definition: &Object,
        value: &Value,
    ) -> Result<i64, ReconcileError> {
        let hash = digest::hash(&value["spec"]);
        let newest = self.newest();
        let same = |revision: &&Value| revision["spec"]["snapshot"]["spec"] == value["spec"];
        if let Some(newest) = newest.filter(same) {
            return Ok(number(newest));
        }
        let last = value["status"]["lastIssuedRevision"].as_i64().unwrap_or_default();
        let next = newest.map(number).unwrap_or_default().max(last) + 1;
        let revision = revision(definition, value, next, &hash);
        match client.create(&revision_kind(), None, &revision).await {
            Ok(_) => Ok(next),
            // The cache may not have it yet: the next attempt sees it.
            Err(error) => Err(error.into_reconcile_error(format!(
                "record revision {next} of ResourceGraphDefinition {}",
                definition.key()
            ))),
        }
    }

    /// Deletes revisions beyond the newest ones.
    pub(super) async fn prune(&self, client: &Client) -> Result<(), ReconcileError> {
        for old in self.all.iter().skip(KEPT) {
            let text = |field: &str| old["metadata"][field].as_str().unwrap_or_default();
            let key = Key::cluster(text("name"));
            match client.delete(&revision_kind(), &key, &DeleteOptions::of_uid(text("uid"))).await {
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                deleted => deleted.attempting(format!("delete GraphRevision {key}"))?,
            }
        }
        Ok(())
    }
}

fn number(revision: &Value) -> i64 {
    revision["spec"]["revision"].as_i64().unwrap_or_default()
}

fn revision(definition: &Object, value: &Value, number: i64, hash: &str) -> Value {
    let name = definition.key().name();
    let mut labels = json!({label::REVISION_HASH: hash});
    // A longer name is not a valid label value.
    if name.len() <= 63 {
        labels[label::REVISION_OF] = name.into();
    }
    json!({
        "apiVersion": "internal.kro.run/v1alpha1", "kind": "GraphRevision",
        "metadata": {
            "name": format!("{name}-r{number:05}"),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "kro.run/v1alpha1", "kind": "ResourceGraphDefinition", "name": name,
                "uid": &*definition.meta().uid, "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "revision": number,
            "snapshot": {"name": name, "generation": definition.meta().generation, "spec": value["spec"]},
        },
    })
}
