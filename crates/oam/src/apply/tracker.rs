//! ResourceTrackers: the record of what an application has applied.
//!
//! An application has one record per generation that dispatched something, and a root record for objects that outlive
//! updates. The newest one by generation is current; the others are legacy, and what only they name is deleted once the
//! workflow has succeeded. Nothing else decides: a generation that dispatched nothing has no record, so that an edit and
//! its reversal delete nothing.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Subresource};
use setpoint::{Cached, Client, Key, Kind, Lister, View};

use super::cluster::ClusterError;
use super::identity::Identity;
use crate::crds;
use crate::names;

/// A record, as read.
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
    pub(crate) labels: std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) managed_resources: Vec<Managed>,
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
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) raw: Value,
    /// Whether the object is to be deleted once the workflow has succeeded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleted: bool,
    /// Whether the object stays although the record goes.
    #[serde(rename = "skipGC", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) skip_gc: bool,
}

impl View for Tracker {
    fn kind() -> Kind {
        crds::RESOURCE_TRACKER.kind()
    }
}

impl Managed {
    /// Returns the entry for a manifest.
    pub(crate) fn of(identity: &Identity, manifest: &Value, creator: &str, restored: bool) -> Self {
        let label = |name: &str| manifest["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        Self {
            api_version: identity.kind.api_version(),
            kind: identity.kind.kind().to_owned(),
            name: identity.key.name().to_owned(),
            namespace: identity.namespace().unwrap_or_default().to_owned(),
            cluster: String::new(),
            component: label(names::APP_COMPONENT),
            trait_type: label(names::TRAIT_TYPE),
            creator: creator.to_owned(),
            raw: if restored { manifest.clone() } else { Value::Null },
            deleted: false,
            skip_gc: false,
        }
    }

    /// Returns whether two entries name the same object. Versions of a group are one kind.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let group = |version: &str| version.split_once('/').map_or("", |(group, _)| group).to_owned();
        self.kind == other.kind
            && self.name == other.name
            && self.namespace == other.namespace
            && group(&self.api_version) == group(&other.api_version)
    }
}

/// All records of one application.
#[derive(Clone)]
pub(crate) struct Trackers {
    client: Client,
    app: AppRef,
    all: Vec<Tracker>,
    /// The record that this run of the workflow writes.
    target: String,
}

/// The application whose records these are.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppRef {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// The generation, or the version that the user publishes.
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
            false => format!("{}-{}-{}", self.name, self.publish_version, self.namespace),
        }
    }

    fn root_name(&self) -> String {
        format!("{}-{}", self.name, self.namespace)
    }
}

/// The index of trackers by application.
pub(crate) const BY_APPLICATION: &str = "application";

pub(crate) const ROOT: &str = "root";
pub(crate) const VERSIONED: &str = "versioned";

impl Trackers {
    /// Reads the records of an application from the cache.
    pub(crate) fn load(lister: &Lister<Tracker>, client: &Client, app: AppRef) -> Result<Self, ClusterError> {
        let found = lister.indexed(BY_APPLICATION, &app.key());
        let found =
            found.map_err(|error| ClusterError::Refused(format!("decode a ResourceTracker: {error}")))?;
        let all = found.iter().map(|tracker: &Cached<Tracker>| Tracker::clone(tracker)).collect();
        let mut trackers = Self { client: client.clone(), target: app.versioned_name(), app, all };
        // A run that goes on writes the record that it began, whatever the generation is by now.
        if let Some(current) = trackers.current() {
            trackers.target = current.metadata.name.clone();
        }
        Ok(trackers)
    }

    /// Returns the newest record.
    pub(crate) fn current(&self) -> Option<&Tracker> {
        let versioned = self.all.iter().filter(|tracker| tracker.spec.kind == VERSIONED);
        versioned
            .filter(|tracker| self.is_ours(tracker))
            .max_by_key(|tracker| tracker.spec.application_generation)
    }

    pub(crate) fn root(&self) -> Option<&Tracker> {
        self.all.iter().find(|tracker| tracker.spec.kind == ROOT)
    }

    /// Returns the records that a newer one has replaced, and those of an application of the same name that is gone.
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

    /// Returns the entries that are kept: of the current record and of the root.
    pub(crate) fn kept(&self) -> Vec<Managed> {
        let trackers = self.current().into_iter().chain(self.root());
        trackers.flat_map(|tracker| tracker.spec.managed_resources.iter().cloned()).collect()
    }

    /// Starts the record of a workflow run. What an earlier run of the same generation has recorded is marked: it is
    /// deleted unless this run records it again.
    pub(crate) async fn begin(&mut self) -> Result<(), ClusterError> {
        let (name, uid) = (self.app.versioned_name(), self.app.uid.clone());
        self.target.clone_from(&name);
        let Some(found) = self.all.iter().find(|tracker| tracker.metadata.name == name) else {
            return Ok(());
        };
        let mut marked = found.clone();
        marked.metadata.labels.insert(names::APP_UID.into(), uid);
        marked.spec.application_generation = self.app.generation;
        marked.spec.managed_resources.iter_mut().for_each(|entry| entry.deleted = true);
        if marked == *found {
            return Ok(());
        }
        self.write(marked).await
    }

    /// Records objects, before they are written. Those that outlive updates go to the root record.
    pub(crate) async fn record(
        &mut self,
        versioned: Vec<Managed>,
        root: Vec<Managed>,
    ) -> Result<(), ClusterError> {
        self.add(self.target.clone(), VERSIONED, self.app.generation, versioned).await?;
        self.record_in_root(root).await
    }

    /// Makes sure that the run has a record, also if it has applied nothing: older records end with it.
    pub(crate) async fn ensure(&mut self) -> Result<(), ClusterError> {
        self.record(Vec::new(), Vec::new()).await
    }

    /// Records objects that outlive updates.
    pub(crate) async fn record_in_root(&mut self, entries: Vec<Managed>) -> Result<(), ClusterError> {
        if entries.is_empty() {
            return Ok(());
        }
        self.add(self.app.root_name(), ROOT, 0, entries).await
    }

    async fn add(
        &mut self,
        name: String,
        kind: &str,
        generation: i64,
        entries: Vec<Managed>,
    ) -> Result<(), ClusterError> {
        let found = self.all.iter().find(|tracker| tracker.metadata.name == name);
        let mut changed = found.cloned().unwrap_or_else(|| self.new_tracker(&name, kind, generation));
        changed.metadata.labels.insert(names::APP_UID.into(), self.app.uid.clone());
        for entry in entries {
            match changed.spec.managed_resources.iter_mut().find(|known| known.is_same(&entry)) {
                Some(known) => *known = entry,
                None => changed.spec.managed_resources.push(entry),
            }
        }
        if found == Some(&changed) {
            return Ok(());
        }
        self.write(changed).await
    }

    fn new_tracker(&self, name: &str, kind: &str, generation: i64) -> Tracker {
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
            spec: Spec {
                kind: kind.to_owned(),
                application_generation: generation,
                managed_resources: Vec::new(),
            },
        }
    }

    /// Drops entries from a record.
    pub(crate) async fn forget(&mut self, tracker: &Tracker, gone: &[Managed]) -> Result<(), ClusterError> {
        let mut left = tracker.clone();
        left.spec.managed_resources.retain(|entry| !gone.iter().any(|gone| gone.is_same(entry)));
        if left == *tracker {
            return Ok(());
        }
        self.write(left).await
    }

    async fn write(&mut self, tracker: Tracker) -> Result<(), ClusterError> {
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
            Some(known) => *known = written,
            None => self.all.push(written),
        }
        Ok(())
    }

    /// Deletes a record whose objects are gone.
    pub(crate) async fn drop_tracker(&mut self, tracker: &Tracker) -> Result<(), ClusterError> {
        let (kind, key) = (Tracker::kind(), Key::cluster(&tracker.metadata.name));
        let attempted = || format!("delete ResourceTracker {}", tracker.metadata.name);
        if tracker.metadata.deletion_timestamp.is_none() {
            let deleted =
                self.client.delete(&kind, &key, &DeleteOptions::of_uid(&tracker.metadata.uid)).await;
            match deleted {
                Err(error) if error.is_not_found() => return Ok(()),
                deleted => deleted.map_err(|error| ClusterError::new(attempted(), error))?,
            }
        }
        let patch = setpoint::client::Patch::merge(
            &json!({"metadata": {"finalizers": null, "uid": tracker.metadata.uid}}),
        );
        match self.client.patch_ignoring_response(&kind, &key, Subresource::None, patch).await {
            Err(error) if !error.is_not_found() => Err(ClusterError::new(attempted(), error)),
            _ => {
                self.all.retain(|known| known.metadata.name != tracker.metadata.name);
                Ok(())
            }
        }
    }
}
