//! Processes stored CRDs: maintains their status and serves their kinds. CRDs being deleted are handed to the
//! clean-up, which removes their objects in the background ([`finish`]).
//!
//! CRDs are processed after every write to one, before the response is sent, when another server has written one, and again
//! during periodic maintenance; processing is idempotent. A CRD is decoded once per change, and only the parts its status depends on are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Record, Resource, Revision, Watch, WatchError, Write};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::finish::{self, CleanUp};
use super::{kinds, names};
use crate::aggregation;
use crate::apply::{Live, ManagedFields};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::registry::{Registry, Served};
use crate::rest::ownership;
use crate::selector::name_of;
use crate::server::Server;
use crate::status::Status;

/// Writing a CRD may free names that another one waits for, which in turn may free more. Every round makes progress on
/// at least one CRD, so this suffices for that many that wait for each other.
const MAX_ROUNDS: usize = 64;
const RESOURCE: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// The known state of the stored CRDs.
#[derive(Default)]
pub(crate) struct Definitions {
    known: Mutex<Known>,
    pub(super) clean_up: CleanUp,
}

#[derive(Default)]
struct Known {
    /// The built-in kinds.
    built_in: Option<Arc<Registry>>,
    by_name: BTreeMap<String, Definition>,
    /// CRDs that cannot be decoded, with the revision at which that was noticed.
    unreadable: BTreeMap<String, Revision>,
}

/// The CRDs being deleted, and what is needed to finish them.
pub(super) struct TerminatingDefinitions {
    pub(super) built_in: Arc<Registry>,
    /// The kind `CustomResourceDefinition`.
    pub(super) served: Arc<Served>,
    pub(super) records: Vec<Arc<Record>>,
}

/// Notices CRDs that other servers have written.
#[derive(Default)]
pub(crate) struct DefinitionChanges(Option<Watch>);

impl DefinitionChanges {
    /// Waits until CRDs may have changed. Never returns for a server that is alone. Cancel-safe.
    pub(crate) async fn next(&mut self, server: &Server) {
        if !server.store.is_shared() {
            return std::future::pending().await;
        }
        let Some(watch) = &mut self.0 else {
            let range = Resource::new(RESOURCE).all();
            match server.store.watch(range, server.store.revision()) {
                // Something may have changed before.
                Ok(watch) => self.0 = Some(watch),
                Err(_) => std::future::pending().await,
            }
            return;
        };
        match watch.next().await {
            Ok(_) => {}
            Err(WatchError::FellBehind { .. }) => self.0 = None,
            Err(WatchError::Closed) => std::future::pending().await,
        }
    }
}

/// A CRD as read at a revision.
struct Definition {
    record: Arc<Record>,
    /// Without its versions.
    outline: Value,
    kinds: Vec<Arc<Served>>,
    closing: CancellationToken,
}

impl Server {
    /// Updates the status and kinds of all CRDs, and starts the clean-up of those being deleted. Failures are retried
    /// the next time.
    pub(crate) async fn reconcile_definitions(&self) {
        match self.try_reconcile_definitions().await {
            Ok(Some(ending)) if !ending.records.is_empty() => finish::wake(self),
            Ok(_) => {}
            Err(why) => tracing::warn!(%why, "cannot reconcile custom resource definitions"),
        }
    }

    /// Processes all CRDs, and returns those being deleted; `None` if CRDs are not served.
    pub(super) async fn try_reconcile_definitions(&self) -> Result<Option<TerminatingDefinitions>, Status> {
        let mut known = self.definitions.known.lock().await;
        let built_in = known.built_in.get_or_insert_with(|| self.registry.snapshot()).clone();
        let Some(served) = built_in.all().find(|served| served.kind.semantics.defines_kinds).cloned() else {
            return Ok(None);
        };
        for _ in 0..MAX_ROUNDS {
            if known.read(self, &served).await? {
                let kinds = known.by_name.values().flat_map(|definition| definition.kinds.iter().cloned());
                self.registry.publish(built_in.with_custom(kinds));
            }
            if !self.reconcile_names(&served, &known.by_name).await? {
                break;
            }
        }
        let ending = known.by_name.values().filter(|definition| finish::is_due(&definition.outline));
        let records = ending.map(|definition| definition.record.clone()).collect();
        drop(known);
        aggregation::reconcile_custom(self).await;
        Ok(Some(TerminatingDefinitions { built_in, served, records }))
    }

    /// Updates the status of each CRD that needs it. Returns whether any did.
    async fn reconcile_names(
        &self,
        served: &Served,
        all: &BTreeMap<String, Definition>,
    ) -> Result<bool, Status> {
        let now = self.now();
        let mut settled: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, definition) in all {
            let others = all.iter().filter(|(other, _)| *other != name);
            let others: Vec<&Value> =
                others.map(|(other, found)| settled.get(other.as_str()).unwrap_or(&found.outline)).collect();
            let new = names::settled(&definition.outline, &others, now);
            if new == definition.outline {
                continue;
            }
            let old = served.decode_bare(&definition.record)?;
            let mut whole = old.clone();
            whole.restore("status", &new);
            self.write_definition(served, &definition.record, &old, whole).await?;
            settled.insert(name, new);
        }
        Ok(!settled.is_empty())
    }

    /// Writes a CRD's status. On a conflict does nothing: the CRD will be processed again.
    pub(super) async fn write_definition(
        &self,
        served: &Served,
        record: &Record,
        old: &Value,
        mut new: Value,
    ) -> Result<Option<Arc<Record>>, Status> {
        let live = Live { object: old, fields: &ManagedFields::of(record) };
        let fields = ownership::note_own_status(self, served, live, &mut new, self.now());
        let change = Change::Put { payload: served.encode(&new, &fields), ttl: None };
        let expect = Expect::Revision(record.modified);
        match self.store.commit(Write { key: record.key.clone(), expect, change }).await {
            Ok(record) => Ok(Some(record)),
            Err(Error::Conflict { .. }) => Ok(None),
            Err(why) => Err(self.refusal(why)),
        }
    }
}

impl Known {
    /// Reads changed CRDs. Returns whether there are any.
    async fn read(&mut self, server: &Server, served: &Served) -> Result<bool, Status> {
        let page = server.store.list(&served.resource.all(), setpoint_store::ListOptions::default()).await;
        let records = page.map_err(|why| server.refusal(why))?.records;
        let current: BTreeMap<&str, Revision> =
            records.iter().map(|record| (name_of(record), record.modified)).collect();
        let before = self.by_name.len();
        self.by_name.retain(|name, definition| {
            let is_there = current.contains_key(name.as_str());
            if !is_there {
                definition.closing.cancel();
            }
            is_there
        });
        self.unreadable.retain(|name, revision| current.get(name.as_str()) == Some(revision));
        let mut has_changed = self.by_name.len() != before;
        for record in &records {
            let name = name_of(record);
            let is_known =
                self.by_name.get(name).is_some_and(|known| known.record.modified == record.modified);
            if !is_known && !self.unreadable.contains_key(name) {
                has_changed |= self.read_one(server, served, record);
            }
        }
        Ok(has_changed)
    }

    /// Reads a changed CRD. Returns whether its kinds may have changed. If it cannot be decoded, its kinds are not
    /// served; other CRDs are not affected.
    fn read_one(&mut self, server: &Server, served: &Served, record: &Arc<Record>) -> bool {
        let name = name_of(record);
        match Definition::read(server, served, record, self.by_name.get(name)) {
            Ok(definition) => {
                self.by_name.insert(name.to_owned(), definition);
                true
            }
            Err(why) => {
                tracing::error!(%why, name, "cannot read a custom resource definition: its kinds are not served");
                self.unreadable.insert(name.to_owned(), record.modified);
                let known = self.by_name.remove(name);
                known.as_ref().inspect(|known| known.closing.cancel()).is_some()
            }
        }
    }
}

impl Definition {
    fn read(
        server: &Server,
        served: &Served,
        record: &Arc<Record>,
        before: Option<&Self>,
    ) -> Result<Self, Status> {
        let whole = served.decode_bare(record)?;
        let mut outline = whole.clone();
        outline.object_mut("spec").unset("versions");
        // Watches continue as long as their objects look the same.
        let same = before.filter(|before| identity(&before.outline) == identity(&outline));
        let closing = same.map_or_else(|| server.closing.child_token(), |same| same.closing.clone());
        if let (None, Some(before)) = (same, before) {
            before.closing.cancel();
        }
        // A change to labels or annotations changes no kind, so what is known about the objects stays known.
        let unchanged = same.filter(|same| same.outline.at("status") == outline.at("status"));
        let kinds = unchanged.map_or_else(|| made_kinds(&whole, &closing), |same| same.kinds.clone());
        Ok(Self { record: record.clone(), outline, kinds, closing })
    }
}

/// Returns what the kinds of a CRD depend on.
fn identity(outline: &Value) -> (&str, i64, &Value) {
    let meta = metadata::of(outline);
    (meta.text("uid"), meta.count("generation"), outline.at("status").at("acceptedNames"))
}

/// Returns the kind of a CRD without any served version. Its objects still exist.
pub(super) fn unserved_kind(definition: &Value) -> Option<Arc<Served>> {
    let mut definition = definition.clone();
    for version in definition.object_mut("spec").list_mut("versions") {
        let is_stored = version.flag("storage");
        version.set("served", is_stored);
    }
    made_kinds(&definition, &CancellationToken::new()).into_iter().next()
}

fn made_kinds(definition: &Value, closing: &CancellationToken) -> Vec<Arc<Served>> {
    let named = |kind: &crate::kind::Kind| !kind.kind.is_empty() && !kind.plural.is_empty();
    let kinds = kinds::of(definition, closing).into_iter().filter(named);
    kinds
        .filter_map(|kind| match Served::new(kind, None) {
            Ok(served) => Some(Arc::new(served)),
            Err(why) => {
                let name = metadata::of(definition).text("name");
                tracing::warn!(%why, name, "cannot serve a custom resource definition");
                None
            }
        })
        .collect()
}
