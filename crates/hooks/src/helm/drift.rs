//! Drift: compares the objects of a revision with the cluster, and corrects what others have changed.
//!
//! An object is correct if it has all fields of the manifest; others may add more. What only the API server can decide,
//! such as equal quantities, is applied once and remembered. Corrections are server-side applies with Helm's own field
//! manager: to the API server, Helm has applied the same object again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint::client::{DeleteOptions, IgnoreErrors, Optional, PropagationPolicy, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{EventType, Key, Kind, Object, Outcome, ReconcileError};

use super::manifest::{applied, objects};
use super::plan::Revision;
use super::reconcile::{Pass, Releases};
use super::record::Record;
use super::status::News;
use crate::apply::{fingerprint, includes, system_fields_removed};
use crate::gateway::is_kept;
use crate::parents::{Write, full};

/// An entry takes about 150 bytes, so all of them take at most 15 MB. Forgotten objects are applied again.
const MAX_ENTRIES: usize = 100_000;

/// Objects that differ from their manifest in a way that applying it does not change.
#[derive(Default)]
pub(super) struct Memory(Mutex<BTreeMap<(Kind, Key), (u64, u64)>>);

impl Memory {
    fn knows(&self, kind: &Kind, key: &Key, pair: (u64, u64)) -> bool {
        self.0.lock().get(&(kind.clone(), key.clone())) == Some(&pair)
    }

    fn note(&self, kind: &Kind, key: &Key, pair: (u64, u64)) {
        let mut entries = self.0.lock();
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert((kind.clone(), key.clone()), pair);
    }
}

/// An object of a manifest, and its place in the cluster.
struct Placed {
    kind: Kind,
    key: Key,
    object: Value,
}

impl Releases {
    /// Corrects the objects of a deployed revision, and writes the status.
    pub(super) async fn check(
        &self,
        pass: &mut Pass,
        revisions: &[Revision],
        version: u64,
        holds: bool,
    ) -> Result<Outcome, ReconcileError> {
        let Some(revision) = revisions.iter().find(|revision| revision.version == version) else {
            return Ok(Outcome::Requeue);
        };
        let release = pass.key.clone();
        let record = self.record(&release, revision).await;
        let record = self.shown(pass, record).await?;
        let (mut errors, mut outcome) = (Vec::new(), Outcome::Settled);
        match self.placed(pass, &record).await {
            Ok(placed) => {
                for object in placed {
                    match self.correct(pass, object).await {
                        Ok(one) => outcome = outcome.and(one),
                        Err(error) => errors.push(error),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
        if let Some(error) = errors.into_iter().next() {
            self.write_status(pass, &News::Irreconcilable(&error.report())).await?;
            return Err(error);
        }
        let news = News::Deployed { release: release.name(), version, record: &record, holds };
        self.write_status(pass, &news).await?;
        Ok(outcome)
    }

    /// Returns the objects of a record, as Helm applies them.
    async fn placed(&self, pass: &Pass, record: &Arc<Record>) -> Result<Vec<Placed>, ReconcileError> {
        let adoption = self.adoption(pass);
        let read = objects(&record.manifest)
            .map_err(|why| ReconcileError::terminal(format!("{}: {why}", pass.key)))?;
        let mut placed = Vec::with_capacity(read.len());
        for object in read {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = text(&object["metadata"]["name"]);
            if name.is_empty() {
                // Its name was generated when it was created.
                continue;
            }
            let kind =
                self.wiring.kinds.resolve_kind(&text(&object["apiVersion"]), &text(&object["kind"])).await?;
            let namespace =
                object["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
            let namespace = namespace.or(pass.key.namespace()).filter(|_| kind.namespaced());
            let key = Key::in_namespace(namespace, name);
            let object = applied(&object, &key, &pass.key, &adoption);
            placed.push(Placed { kind, key, object });
        }
        Ok(placed)
    }

    /// Returns an object from its cache. `None` if it is not watched, or if the cache does not have it.
    async fn cached_object(&self, kind: &Kind, key: &Key) -> Option<Object> {
        if !self.wiring.watch.watches_dependents {
            return None;
        }
        self.wiring.dependents.synced(kind).await?.objects().get(key)
    }

    async fn correct(&self, pass: &mut Pass, placed: Placed) -> Result<Outcome, ReconcileError> {
        let Placed { kind, key, object } = &placed;
        let wanted = fingerprint(object);
        let is_correct = |live: &Object| {
            let live = full(kind, live);
            includes(&live, object) || self.memory.knows(kind, key, (wanted, content(&live)))
        };
        if self.cached_object(kind, key).await.is_some_and(|cached| is_correct(&cached)) {
            return Ok(Outcome::Settled);
        }
        // The cache may be behind what Helm has just written, or not be there.
        let read = self.wiring.client.get(kind, key).await.optional();
        let live = read.attempting(|| format!("read {} {key}", kind.kind()))?;
        // An object that is being deleted is created again when it is gone.
        if live.as_ref().is_some_and(|live| live.meta().is_being_deleted() || is_correct(live)) {
            return Ok(Outcome::Settled);
        }
        if let Some(left) = self.quarrels.pause(kind, key, self.wiring.clock.instant()) {
            return Ok(Outcome::CheckAfter(left));
        }
        self.apply(pass, placed, live, wanted).await
    }

    /// Applies an object as Helm would.
    async fn apply(
        &self,
        pass: &mut Pass,
        placed: Placed,
        live: Option<Object>,
        wanted: u64,
    ) -> Result<Outcome, ReconcileError> {
        let Placed { kind, key, object } = placed;
        let manager = self.wiring.helm.field_manager();
        let applied = self.wiring.client.apply(&kind, &key, Subresource::None, manager, object).await;
        let applied = applied.attempting(|| format!("correct {} {key}", kind.kind()))?;
        let after = full(&kind, &applied);
        self.memory.note(&kind, &key, (wanted, content(&after)));
        if live.as_ref().is_some_and(|live| live.meta().resource_version == applied.meta().resource_version) {
            return Ok(Outcome::Settled);
        }
        let (verb, done) =
            if live.is_some() { ("updated", "corrected") } else { ("created", "created again") };
        self.event(pass, EventType::Normal, "DriftCorrected", format!("{done} {} {key}", kind.kind()));
        if self.quarrels.note(&kind, &key, self.wiring.clock.instant()) {
            let message = format!("someone else changes {} {key} again and again", kind.kind());
            self.event(pass, EventType::Warning, "DriftPersists", message);
        }
        let of = self.wiring.kind.to_string();
        let help = "Objects of releases that were corrected.";
        self.wiring.metrics.count("setpoint_helm_drift_total", help, &[("kind", of.as_str())], 1);
        let before = live.map(|live| full(&kind, &live));
        pass.writes.push(Write { verb, kind, key, before, after: Some(after) });
        Ok(Outcome::Settled)
    }

    /// Whether the objects of an uninstalled revision are gone. Those that came back are deleted again.
    pub(super) async fn are_gone(
        &self,
        pass: &Pass,
        revisions: &[Revision],
        version: u64,
    ) -> Result<bool, ReconcileError> {
        let Some(revision) = revisions.iter().find(|revision| revision.version == version) else {
            return Ok(true);
        };
        let record = self.record(&pass.key, revision).await?;
        let mut all_gone = true;
        for Placed { kind, key, object } in self.placed(pass, &record).await? {
            if is_kept(&object) {
                continue;
            }
            let read = self.wiring.client.get(&kind, &key).await.optional();
            let Some(live) = read.attempting(|| format!("read {} {key}", kind.kind()))? else { continue };
            all_gone = false;
            if !live.meta().is_being_deleted() {
                let uid = live.meta().uid.to_string();
                let propagation = Some(PropagationPolicy::Background);
                let options = DeleteOptions { propagation, ..DeleteOptions::of_uid(uid) };
                let deleted = self.wiring.client.delete(&kind, &key, &options).await.ignore_not_found();
                deleted.attempting(|| format!("delete {} {key}", kind.kind()))?;
            }
        }
        Ok(all_gone)
    }
}

/// Returns a digest of what others can change of an object.
fn content(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object["metadata"]["uid"].as_str().hash(&mut hasher);
    system_fields_removed(object).to_string().hash(&mut hasher);
    hasher.finish()
}
