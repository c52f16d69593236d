//! What the server does with the definitions that it stores: it settles their status, serves their kinds,
//! and removes their objects before they go.
//!
//! Nothing here runs by itself. It is done after every write of a definition, before the write is answered,
//! and once more whenever the server looks after itself; doing it twice does nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Record, Revision, Write};
use tokio::sync::Mutex;

use super::{finish, kinds, names};
use crate::apply::{self, Endpoint, Resets};
use crate::json::Json;
use crate::registry::{Registry, Served};
use crate::selector::name_of;
use crate::server::Server;
use crate::status::Status;

/// A write of a definition may free names that another waits for, which may free others. With every round
/// at least one definition gets further, so this many is enough for as many that wait for each other.
const ROUNDS: usize = 64;

/// What is known of the stored definitions.
#[derive(Default)]
pub(crate) struct Definitions(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The kinds that are not custom.
    built_in: Option<Arc<Registry>>,
    /// By name: the revision that was read, and the kinds it makes.
    served: BTreeMap<String, (Revision, Vec<Arc<Served>>)>,
    /// What is published.
    published: BTreeMap<String, Revision>,
}

impl Server {
    /// Brings status, kinds and deletions of all definitions up to date. What fails is tried again the next
    /// time.
    pub(crate) async fn settle_definitions(&self) {
        if let Err(why) = self.try_settle_definitions().await {
            tracing::warn!(%why, "cannot settle custom resource definitions");
        }
    }

    async fn try_settle_definitions(&self) -> Result<(), Status> {
        let mut known = self.definitions.0.lock().await;
        let built_in = known.built_in.get_or_insert_with(|| self.registry.snapshot()).clone();
        let Some(served) = built_in.all().find(|served| served.kind.strategy.defines_kinds()).cloned() else {
            return Ok(());
        };
        for _ in 0..ROUNDS {
            let records = self.definition_records(&served).await?;
            let has_written = self.settle_names(&served, &records).await?;
            known.publish(self, &built_in, &served, &records)?;
            if !has_written && !finish::finish_deleted(self, &built_in, &served, &records).await? {
                break;
            }
        }
        Ok(())
    }

    async fn definition_records(&self, served: &Served) -> Result<Vec<Arc<Record>>, Status> {
        let page = self.store.list(&served.resource.all(), setpoint_store::ListOptions::default()).await;
        Ok(page.map_err(|why| self.refusal(why))?.records)
    }

    /// Writes the status of each definition that is not what it should be. Whether there was one.
    async fn settle_names(&self, served: &Served, records: &[Arc<Record>]) -> Result<bool, Status> {
        let mut all = records.iter().map(|record| served.decode(record)).collect::<Result<Vec<_>, _>>()?;
        let mut has_written = false;
        for at in 0..all.len() {
            let others: Vec<&Value> =
                all.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other).collect();
            let settled = names::settled(&all[at], &others, self.now());
            if settled == all[at] {
                continue;
            }
            has_written = true;
            self.write_definition(served, &records[at], &all[at], settled.clone()).await?;
            all[at] = settled;
        }
        Ok(has_written)
    }

    /// Writes the status of a definition, unless it has changed meanwhile: then it will be looked at again.
    pub(super) async fn write_definition(
        &self,
        served: &Served,
        record: &Record,
        old: &Value,
        mut new: Value,
    ) -> Result<Option<Arc<Record>>, Status> {
        note_manager(served, old, &mut new, self.now());
        let change = Change::Put { payload: served.encode(&new), ttl: None };
        let expect = Expect::Revision(record.modified);
        match self.store.commit(Write { key: record.key.clone(), expect, change }).await {
            Ok(record) => Ok(Some(record)),
            Err(Error::Conflict { .. }) => Ok(None),
            Err(why) => Err(self.refusal(why)),
        }
    }
}

/// The server is a manager of fields like any other.
fn note_manager(served: &Served, old: &Value, new: &mut Value, now: Timestamp) {
    let resets = Resets::new(&[&["spec"], &["metadata"]]);
    let endpoint = Endpoint { target: &served.target, subresource: "status", resets: &resets };
    apply::update(&endpoint, Some(old), new, "kube-apiserver", now);
}

impl Known {
    /// Publishes the kinds of all definitions, if any of them has changed.
    fn publish(
        &mut self,
        server: &Server,
        built_in: &Registry,
        served: &Served,
        records: &[Arc<Record>],
    ) -> Result<(), Status> {
        let revisions: BTreeMap<String, Revision> =
            records.iter().map(|record| (name_of(record).to_owned(), record.modified)).collect();
        if revisions == self.published {
            return Ok(());
        }
        self.served.retain(|name, _| revisions.contains_key(name));
        for record in records {
            let name = name_of(record).to_owned();
            if self.served.get(&name).is_some_and(|(revision, _)| *revision == record.modified) {
                continue;
            }
            let made = made_kinds(&served.decode(record)?);
            self.served.insert(name, (record.modified, made));
        }
        let custom = self.served.values().flat_map(|(_, kinds)| kinds.iter().cloned());
        server.registry.publish(built_in.with_custom(custom));
        self.published = revisions;
        Ok(())
    }
}

fn made_kinds(definition: &Value) -> Vec<Arc<Served>> {
    let named = |kind: &crate::kind::Kind| !kind.kind.is_empty() && !kind.plural.is_empty();
    let kinds = kinds::of(definition).into_iter().filter(named);
    kinds
        .filter_map(|kind| match Served::new(kind, None) {
            Ok(served) => Some(Arc::new(served)),
            Err(why) => {
                let name = crate::metadata::of(definition).text("name");
                tracing::warn!(%why, name, "cannot serve a custom resource definition");
                None
            }
        })
        .collect()
}
