//! ResourceTrackers: the record of what an application has applied.
//!
//! An application has one record per run of its workflow, and a root record for objects that outlive updates. A record
//! names the revision of its run. The record of the latest run is current; objects that are only in older ones are
//! deleted once that run has succeeded.
//!
//! Invariants:
//! - A run is in the status of the application before it is recorded, and recorded before it applies anything. If the
//!   status and the current record have different revisions, the status is outdated, and its run restarts.
//! - An object that moves between records is added to the new one before it is removed from the old one.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Subresource};
use setpoint::{Client, Key, Kind, Lister, View};

use super::cluster::ClusterError;
use super::identity::Identity;
use super::replaced::Uids;
use crate::compression::Compression;
use crate::crds;
use crate::digest;
use crate::names;

/// A decoded record.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Tracker {
    pub(crate) metadata: Meta,
    pub(crate) spec: Spec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deletion_timestamp: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) application_generation: i64,
    #[serde(deserialize_with = "setpoint::null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) managed_resources: Vec<Managed>,
    /// The compressed entries of a record of KubeVela. Records are written uncompressed.
    #[serde(skip_serializing)]
    compression: Option<Compression>,
}

/// An object in a record.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Managed {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cluster: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) component: String,
    #[serde(rename = "trait", skip_serializing_if = "String::is_empty")]
    pub(crate) trait_type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) creator: String,
    /// The manifest, to restore the object from. Null if it is not restored.
    #[serde(skip_serializing_if = "is_null")]
    pub(crate) raw: Arc<Value>,
    /// Whether the object is deleted once the workflow has succeeded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleted: bool,
    /// Whether the object is kept when the record is deleted.
    #[serde(rename = "skipGC", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skip_gc: bool,
}

impl View for Tracker {
    fn kind() -> Kind {
        crds::RESOURCE_TRACKER.kind()
    }
}

impl Tracker {
    /// Returns the number of the workflow run.
    pub(crate) fn run(&self) -> i64 {
        self.metadata.annotations.get(names::RUN).and_then(|run| run.parse().ok()).unwrap_or_default()
    }

    /// Returns when the run started. Empty in records of other programs.
    fn start(&self) -> &str {
        self.metadata.annotations.get(names::RUN_START).map_or("", String::as_str)
    }

    /// Returns the revision of the run. Empty in records of other programs.
    pub(crate) fn revision(&self) -> &str {
        self.metadata.annotations.get(names::APP_REVISION).map_or("", String::as_str)
    }

    /// Returns the record with decompressed entries.
    fn unpacked(mut self) -> Result<Self, String> {
        if let Some(packed) = self.spec.compression.take().filter(Compression::is_used) {
            let entries: Result<Option<Vec<Managed>>, _> = packed.read();
            let entries = entries.map_err(|why| format!("ResourceTracker {}: {why}", self.metadata.name))?;
            self.spec.managed_resources = entries.unwrap_or_default();
        }
        Ok(self)
    }

    fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns whether all its objects are in the local cluster.
    pub(crate) fn is_local(&self) -> bool {
        self.spec.managed_resources.iter().all(|entry| entry.cluster().is_empty())
    }
}

impl Managed {
    /// Returns the entry for a manifest.
    pub(crate) fn of(
        cluster: &str,
        identity: &Identity,
        manifest: &Arc<Value>,
        creator: &str,
        restored: bool,
    ) -> Self {
        let label = |name: &str| manifest["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        Self {
            api_version: identity.kind.api_version(),
            kind: identity.kind.kind().to_owned(),
            name: identity.key.name().to_owned(),
            namespace: identity.namespace().unwrap_or_default().to_owned(),
            cluster: cluster.to_owned(),
            component: label(names::APP_COMPONENT),
            trait_type: label(names::TRAIT_TYPE),
            creator: creator.to_owned(),
            raw: if restored { manifest.clone() } else { Arc::default() },
            deleted: false,
            skip_gc: false,
        }
    }

    /// Its cluster: empty for the local one, which other programs record by name.
    pub(crate) fn cluster(&self) -> &str {
        if self.cluster == names::LOCAL_CLUSTER { "" } else { &self.cluster }
    }

    /// Returns whether two entries name the same object. Versions of a group are one kind.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_same_in_any_cluster(other) && self.cluster() == other.cluster()
    }

    /// Returns whether two entries name the same object, ignoring the cluster.
    pub(crate) fn is_same_in_any_cluster(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.name == other.name
            && self.namespace == other.namespace
            && group(&self.api_version) == group(&other.api_version)
    }
}

fn is_null(raw: &Arc<Value>) -> bool {
    raw.is_null()
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// All records of one application.
#[derive(Clone)]
pub(crate) struct Trackers {
    client: Client,
    lister: Lister<Tracker>,
    app: AppRef,
    all: Vec<Tracker>,
    /// The record that this workflow run writes. `None` for a WorkflowRun, which has no record: its objects are kept.
    target: Option<String>,
    /// The clusters that objects are applied to in this pass.
    clusters: Uids,
}

/// The application of these records.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// The generation, or the published version.
    pub(crate) generation: i64,
    pub(crate) publish_version: String,
}

impl AppRef {
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn versioned_name(&self) -> String {
        match self.publish_version.is_empty() {
            true => format!("{}-v{}-{}", self.name, self.generation, self.namespace),
            false => format!("{}-{}-{}", self.name, in_name(&self.publish_version), self.namespace),
        }
    }

    fn root_name(&self) -> String {
        format!("{}-{}", self.name, self.namespace)
    }
}

/// Returns a version as part of a name. Users can choose any version.
fn in_name(version: &str) -> String {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    match version.chars().all(fits) && version.len() <= 63 {
        true => version.to_owned(),
        false => digest::short_hash(&json!(version)),
    }
}

/// The maximum number of records of older runs while none succeeds. The oldest are merged.
const MAX_LEGACY: usize = 8;

/// The index of trackers by application.
pub(crate) const BY_APPLICATION: &str = "application";

pub(crate) const ROOT: &str = "root";
pub(crate) const VERSIONED: &str = "versioned";

impl Trackers {
    /// Reads the records of an application from the cache.
    pub(crate) fn load(lister: &Lister<Tracker>, client: &Client, app: AppRef) -> Result<Self, ClusterError> {
        let found = lister.read_indexed(BY_APPLICATION, &app.key());
        let found =
            found.map_err(|error| ClusterError::Refused(format!("decode a ResourceTracker: {error}")))?;
        let all = found.into_iter().map(|found| found.into_view().unpacked());
        let all = all.collect::<Result<_, _>>().map_err(ClusterError::Refused)?;
        let (client, lister) = (client.clone(), lister.clone());
        let (target, clusters) = (Some(app.versioned_name()), Uids::new());
        let mut trackers = Self { client, lister, target, app, all, clusters };
        // A running workflow keeps its record, even if the generation has changed.
        if let Some(current) = trackers.current() {
            trackers.target = Some(current.metadata.name.clone());
        }
        Ok(trackers)
    }

    /// Returns empty records, for a WorkflowRun.
    pub(crate) fn none(client: &Client, app: AppRef) -> Self {
        let lister = Lister::from_objects([]);
        let (client, clusters) = (client.clone(), Uids::new());
        Self { client, lister, target: None, app, all: Vec::new(), clusters }
    }

    /// Returns the record of the latest run.
    pub(crate) fn current(&self) -> Option<&Tracker> {
        let versioned = self.all.iter().filter(|tracker| tracker.spec.kind == VERSIONED);
        versioned
            .filter(|tracker| self.is_ours(tracker))
            .max_by_key(|tracker| (tracker.run(), tracker.spec.application_generation))
    }

    pub(crate) fn root(&self) -> Option<&Tracker> {
        self.all.iter().find(|tracker| tracker.spec.kind == ROOT)
    }

    /// Returns the records that a newer one has replaced, and those of a deleted application with the same name.
    pub(crate) fn legacy(&self) -> Vec<Tracker> {
        let current = self.current().map(|tracker| tracker.metadata.name.clone());
        let versioned = self.all.iter().filter(|tracker| tracker.spec.kind == VERSIONED);
        versioned.filter(|tracker| Some(&tracker.metadata.name) != current.as_ref()).cloned().collect()
    }

    /// Returns whether there are records or entries to collect.
    pub(crate) fn has_garbage(&self) -> bool {
        let marked = |tracker: &Tracker| tracker.spec.managed_resources.iter().any(|entry| entry.deleted);
        self.current().is_some_and(marked) || !self.legacy().is_empty()
    }

    pub(crate) fn all(&self) -> &[Tracker] {
        &self.all
    }

    fn is_ours(&self, tracker: &Tracker) -> bool {
        tracker.metadata.labels.get(names::APP_UID) == Some(&self.app.uid)
    }

    /// Returns the entries that are kept: of the current record, and those of the root that it does not have. Each
    /// object is in it once: an object whose rule has changed may be in both records for a moment.
    pub(crate) fn kept(&self) -> Vec<Managed> {
        let entries = |tracker: Option<&Tracker>| -> Vec<Managed> {
            let all = tracker.into_iter().flat_map(|tracker| &tracker.spec.managed_resources);
            all.filter(|entry| !entry.deleted).cloned().collect()
        };
        let mut kept = entries(self.current());
        let own = kept.len();
        for entry in entries(self.root()) {
            if !kept[..own].iter().any(|known| known.is_same(&entry)) {
                kept.push(entry);
            }
        }
        kept
    }

    /// Starts the record of a run. Entries of an earlier run under the same name are marked: they are deleted unless
    /// this run records them again. An interrupted run may start twice; a restarted one has a different start time.
    pub(crate) async fn begin(
        &mut self,
        revision: &str,
        start: Option<Timestamp>,
    ) -> Result<(), ClusterError> {
        let last = self.all.iter().map(Tracker::run).max().unwrap_or_default();
        let start = start.map(|start| start.to_string()).unwrap_or_default();
        let is_again = |current: &&Tracker| {
            current.run() == last && current.revision() == revision && current.start() == start
        };
        let again = self.current().filter(is_again);
        let (name, run) = match again {
            Some(current) => (current.metadata.name.clone(), last),
            None => (self.free_name(self.app.versioned_name()), last + 1),
        };
        self.target = Some(name.clone());
        let found = self.all.iter().find(|tracker| tracker.metadata.name == name);
        let mut record = found.cloned().unwrap_or_else(|| self.new_tracker(&name, VERSIONED));
        record.metadata.labels.insert(names::APP_UID.into(), self.app.uid.clone());
        record.metadata.annotations.insert(names::APP_REVISION.into(), revision.to_owned());
        record.metadata.annotations.insert(names::RUN.into(), run.to_string());
        record.metadata.annotations.insert(names::RUN_START.into(), start);
        record.spec.application_generation = self.app.generation;
        record.spec.managed_resources.iter_mut().for_each(|entry| entry.deleted = true);
        if found != Some(&record) {
            self.write(record).await?;
        }
        self.join_oldest().await
    }

    /// Returns a name for a new record. Applications with different names and namespaces can map to the same name, and
    /// a record that is being deleted cannot be reused.
    fn free_name(&self, name: String) -> String {
        let is_free = |name: &String| match self.all.iter().find(|known| known.metadata.name == *name) {
            Some(known) => !known.is_being_deleted(),
            None => !self.lister.objects().contains(&Key::cluster(name.as_str())),
        };
        let own = digest::short_hash(&json!([self.app.uid, name]));
        let first = name.clone();
        let numbered = (2..).map(|number| format!("{name}-{own}-{number}"));
        let mut names = [name.clone(), format!("{name}-{own}")].into_iter().chain(numbered);
        names.find(is_free).unwrap_or(first)
    }

    /// Merges the oldest records while there are too many. Their entries stay recorded.
    async fn join_oldest(&mut self) -> Result<(), ClusterError> {
        let mut legacy = self.legacy();
        legacy.sort_by_key(|tracker| (tracker.run(), tracker.spec.application_generation));
        while legacy.len() > MAX_LEGACY && !legacy[1].is_being_deleted() {
            let oldest = legacy.remove(0);
            let mut joined = legacy[0].clone();
            for entry in &oldest.spec.managed_resources {
                if !joined.spec.managed_resources.iter().any(|known| known.is_same(entry)) {
                    joined.spec.managed_resources.push(entry.clone());
                }
            }
            if joined != legacy[0] {
                legacy[0] = self.write(joined).await?;
            }
            self.drop_tracker(&oldest).await?;
        }
        Ok(())
    }

    /// Records the current identity of a cluster name.
    pub(crate) fn know(&mut self, name: &str, uid: String) {
        self.clusters.insert(name.to_owned(), uid);
    }

    /// Records objects before they are written. Objects that outlive updates are added to the root record.
    pub(crate) async fn record(
        &mut self,
        versioned: Vec<Managed>,
        root: Vec<Managed>,
    ) -> Result<(), ClusterError> {
        let Some(target) = self.target.clone() else { return Ok(()) };
        if !versioned.is_empty() {
            self.add(target, VERSIONED, versioned.clone()).await?;
            if let Some(root) = self.root().cloned() {
                self.forget(&root, &versioned).await?;
            }
        }
        self.record_in_root(root).await
    }

    /// Records objects that outlive updates.
    pub(crate) async fn record_in_root(&mut self, entries: Vec<Managed>) -> Result<(), ClusterError> {
        if entries.is_empty() {
            return Ok(());
        }
        let name = match self.root() {
            Some(root) => root.metadata.name.clone(),
            None => self.free_name(self.app.root_name()),
        };
        self.add(name, ROOT, entries).await
    }

    async fn add(&mut self, name: String, kind: &str, entries: Vec<Managed>) -> Result<(), ClusterError> {
        let found = self.all.iter().find(|tracker| tracker.metadata.name == name);
        let mut changed = found.cloned().unwrap_or_else(|| self.new_tracker(&name, kind));
        changed.metadata.labels.insert(names::APP_UID.into(), self.app.uid.clone());
        for entry in entries {
            match changed.spec.managed_resources.iter_mut().find(|known| known.is_same(&entry)) {
                Some(known) => *known = entry,
                None => changed.spec.managed_resources.push(entry),
            }
        }
        changed.note(&self.clusters);
        if found == Some(&changed) {
            return Ok(());
        }
        self.write(changed).await.map(drop)
    }

    /// Records the clusters of a record.
    pub(super) async fn note(&mut self, tracker: &Tracker, uids: &Uids) -> Result<(), ClusterError> {
        let mut changed = tracker.clone();
        changed.note(uids);
        if changed == *tracker {
            return Ok(());
        }
        self.write(changed).await.map(drop)
    }

    fn new_tracker(&self, name: &str, kind: &str) -> Tracker {
        let application_generation = if kind == ROOT { 0 } else { self.app.generation };
        let labels = [
            (names::APP_NAME, &self.app.name),
            (names::APP_NAMESPACE, &self.app.namespace),
            (names::APP_UID, &self.app.uid),
        ];
        Tracker {
            metadata: Meta {
                name: name.to_owned(),
                labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value.clone())).collect(),
                finalizers: vec![names::TRACKER_FINALIZER.to_owned()],
                ..Meta::default()
            },
            spec: Spec { kind: kind.to_owned(), application_generation, ..Spec::default() },
        }
    }

    /// Drops entries from a record.
    pub(crate) async fn forget(&mut self, tracker: &Tracker, gone: &[Managed]) -> Result<(), ClusterError> {
        let mut left = tracker.clone();
        left.spec.managed_resources.retain(|entry| !gone.iter().any(|gone| gone.is_same(entry)));
        if left == *tracker {
            return Ok(());
        }
        self.write(left).await.map(drop)
    }

    async fn write(&mut self, tracker: Tracker) -> Result<Tracker, ClusterError> {
        let (kind, key) = (Tracker::kind(), Key::cluster(&tracker.metadata.name));
        let mut body = json!(tracker);
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind().into();
        let written = match tracker.metadata.resource_version.is_empty() {
            true => self.client.create(&kind, None, &body).await,
            false => self.client.update(&kind, &key, Subresource::None, &body).await,
        };
        let name = tracker.metadata.name.clone();
        let written =
            written.map_err(|error| ClusterError::new(format!("write ResourceTracker {name}"), error))?;
        let written: Tracker = written
            .decode()
            .map_err(|error| ClusterError::Refused(format!("decode ResourceTracker {name}: {error}")))?;
        match self.all.iter_mut().find(|known| known.metadata.name == name) {
            Some(known) => *known = written.clone(),
            None => self.all.push(written.clone()),
        }
        Ok(written)
    }

    /// Deletes a record whose objects are gone.
    pub(crate) async fn drop_tracker(&mut self, tracker: &Tracker) -> Result<(), ClusterError> {
        let (kind, key) = (Tracker::kind(), Key::cluster(&tracker.metadata.name));
        let attempted = || format!("delete ResourceTracker {}", tracker.metadata.name);
        if !tracker.is_being_deleted() {
            let options = DeleteOptions::of_uid(&tracker.metadata.uid);
            match self.client.delete(&kind, &key, &options).await {
                Err(error) if !error.is_not_found() => return Err(ClusterError::new(attempted(), error)),
                _ => {}
            }
        }
        let others: Vec<&String> =
            tracker.metadata.finalizers.iter().filter(|name| *name != names::TRACKER_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": others, "uid": tracker.metadata.uid}});
        let patch = setpoint::client::Patch::merge(&patch);
        match self.client.patch_ignoring_response(&kind, &key, Subresource::None, patch).await {
            Err(error) if !error.is_not_found() => Err(ClusterError::new(attempted(), error)),
            _ => {
                self.all.retain(|known| known.metadata.name != tracker.metadata.name);
                Ok(())
            }
        }
    }
}
