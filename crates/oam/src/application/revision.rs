//! ApplicationRevisions: snapshots of an application and all its definitions at the time of a change.
//!
//! There are thousands of revisions, most of which are rarely read. So they are compressed, like KubeVela's, and stay
//! encoded until they are needed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Cached, Client, Key, Kind, View};

use super::app::Application;
use crate::apply::cluster::ClusterError;
use crate::compression::Compression;
use crate::crds;
use crate::digest;
use crate::model::{RevisionRef, Spec};
use crate::names;

/// How many revisions are kept besides the current one.
const KEPT: usize = 2;

/// The part of a revision that every reconcile reads. It is kept with the object; the rest stays encoded until it is
/// needed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Revision {
    pub(crate) metadata: Meta,
    pub(crate) status: RevisionStatus,
}

/// The spec of a revision, encoded.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Encoded {
    spec: Option<Box<RawValue>>,
}

/// The compression of a revision.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Packed {
    compression: Option<Compression>,
}

/// The application in a revision.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedApplication {
    application: RecordedSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RecordedSpec {
    spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RevisionStatus {
    pub(crate) succeeded: bool,
}

impl View for Revision {
    fn kind() -> Kind {
        crds::APPLICATION_REVISION.kind()
    }
}

/// The definitions of an application, by the field of a revision that holds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded(pub(crate) BTreeMap<&'static str, Map<String, Value>>);

/// The number of referenced objects that each component copies, sorted by component name.
const REFERRED_BY: &str = "referredBy";

pub(crate) const FIELDS: [(&str, &str); 4] = [
    ("ComponentDefinition", "componentDefinitions"),
    ("TraitDefinition", "traitDefinitions"),
    ("PolicyDefinition", "policyDefinitions"),
    ("WorkflowStepDefinition", "workflowStepDefinitions"),
];

/// The inputs of a revision.
pub(crate) struct Content<'a> {
    pub(crate) app: &'a Application,
    /// The spec with named and external policies, and the workflow it refers to.
    pub(crate) spec: &'a Spec,
    pub(crate) definitions: &'a Recorded,
    /// The objects that components copy, by component.
    pub(crate) referred: &'a Map<String, Value>,
    pub(crate) hash: String,
}

/// Returns the number of a revision.
pub(crate) fn number(revision: &Cached<Revision>) -> i64 {
    revision.name().rsplit_once("-v").and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

fn hash_of(revision: &Cached<Revision>) -> &str {
    revision.meta().label(names::APP_REVISION_HASH).unwrap_or_default()
}

/// Returns the revision for the status of an application.
pub(crate) fn reference(revision: &Cached<Revision>) -> RevisionRef {
    RevisionRef {
        name: revision.name().to_owned(),
        revision: number(revision),
        revision_hash: hash_of(revision).to_owned(),
    }
}

/// Decodes a part of a revision.
pub(super) fn recorded<T: DeserializeOwned + Default>(revision: &Cached<Revision>) -> Result<T, String> {
    let at = |why: &dyn std::fmt::Display| format!("revision {}: {why}", revision.name());
    let Encoded { spec } = revision.object().decode().map_err(|why| at(&why))?;
    let Some(spec) = &spec else { return Ok(T::default()) };
    let Packed { compression } = serde_json::from_str(spec.get()).map_err(|why| at(&why))?;
    match compression.filter(Compression::is_used) {
        Some(packed) => packed.read().map_err(|why| at(&why)),
        None => serde_json::from_str(spec.get()).map_err(|why| at(&why)),
    }
}

/// Returns the spec of the application as recorded.
pub(crate) fn application_spec(revision: &Cached<Revision>) -> Result<Spec, String> {
    let recorded: RecordedApplication = recorded(revision)?;
    Ok(recorded.application.spec)
}

/// Returns the hash that identifies a revision: of the spec, the published version, and the definitions if the
/// application follows them.
pub(crate) fn hash(app: &Application, spec: &Spec, definitions: Option<&Recorded>) -> String {
    let definitions = definitions.map_or(Value::Null, |definitions| json!(definitions.0));
    digest::hash(&json!([spec, definitions, app.publish_version()]))
}

impl Content<'_> {
    fn object(&self, name: &str) -> Result<Value, String> {
        let meta = &self.app.metadata;
        let mut spec = json!({
            "application": {
                "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
                "metadata": {"name": meta.name, "namespace": meta.namespace, "labels": meta.labels, "annotations": shown(&meta.annotations)},
                "spec": self.spec,
            },
        });
        for (field, definitions) in &self.definitions.0 {
            spec[field] = definitions.clone().into();
        }
        if !self.referred.is_empty() {
            let objects = self.referred.values().filter_map(Value::as_array).flatten();
            spec["referredObjects"] = objects.cloned().collect();
            let counts = self
                .referred
                .iter()
                .map(|(name, objects)| (name.clone(), objects.as_array().map_or(0, Vec::len).into()));
            spec[REFERRED_BY] = counts.collect::<Map<String, Value>>().into();
        }
        let mut annotations = json!({});
        if !self.app.publish_version().is_empty() {
            annotations[names::PUBLISH_VERSION] = self.app.publish_version().into();
        }
        Ok(json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision",
            "metadata": {
                "name": name, "namespace": meta.namespace, "annotations": annotations,
                "labels": {names::APP_NAME: meta.name, names::APP_NAMESPACE: meta.namespace, names::APP_REVISION_HASH: self.hash},
                "ownerReferences": [{
                    "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
                    "name": meta.name, "uid": meta.uid, "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"compression": Compression::of(&spec)?},
        }))
    }
}

/// Omits kubectl's last-applied annotation.
fn shown(annotations: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = annotations.clone();
    shown.remove("kubectl.kubernetes.io/last-applied-configuration");
    shown
}

/// The known revisions of an application.
pub(crate) struct Revisions {
    own: Vec<Cached<Revision>>,
    /// The largest number of a revision with the application's name. Numbers are not used again.
    last: i64,
}

impl Revisions {
    /// Selects the revisions of an application among those with its name.
    pub(crate) fn of(app: &Application, named: Vec<Cached<Revision>>) -> Self {
        let status = app.status.latest_revision.as_ref().map_or(0, |latest| latest.revision);
        let last = named.iter().map(number).max().unwrap_or_default().max(status);
        // Others may belong to an earlier application with the same name.
        let is_own = |revision: &Cached<Revision>| {
            revision.meta().owner_references.iter().any(|owner| *owner.uid == app.metadata.uid)
        };
        let mut own: Vec<_> = named.into_iter().filter(is_own).collect();
        own.sort_by_key(number);
        Self { own, last }
    }

    /// Returns the current revision of an application, if there is one.
    pub(crate) fn find(&self, app: &Application, hash: &str) -> Option<Cached<Revision>> {
        let version = app.publish_version();
        let of_version = |revision: &Revision| {
            revision.metadata.annotations.get(names::PUBLISH_VERSION).map_or("", String::as_str) == version
        };
        let found = self.own.iter().rev().find(|revision| match version.is_empty() {
            true => hash_of(revision) == hash,
            false => of_version(revision),
        });
        found.cloned()
    }

    /// Returns a definition from the latest revision that uses it.
    pub(crate) fn definition(&self, field: &str, name: &str) -> Option<Value> {
        let of =
            |revision: &Cached<Revision>| recorded::<Value>(revision).ok()?.get(field)?.get(name).cloned();
        self.own.iter().rev().find_map(of)
    }

    /// Returns the latest revision.
    pub(crate) fn latest(&self) -> Option<&Cached<Revision>> {
        self.own.last()
    }

    /// Creates the next revision.
    pub(crate) async fn create(
        &self,
        client: &Client,
        content: &Content<'_>,
    ) -> Result<Cached<Revision>, ClusterError> {
        let meta = &content.app.metadata;
        let name = format!("{}-v{}", meta.name, self.last + 1);
        let object = content.object(&name).map_err(ClusterError::Refused)?;
        let created = client.create(&Revision::kind(), Some(&meta.namespace), &object).await;
        let created = created
            .map_err(|error| ClusterError::new(format!("create ApplicationRevision {name}"), error))?;
        Cached::new(created)
            .map_err(|error| ClusterError::Refused(format!("decode ApplicationRevision {name}: {error}")))
    }

    /// Deletes old revisions, the oldest first. The current one and the latest that succeeded are kept.
    pub(crate) async fn prune(
        &self,
        client: &Client,
        namespace: &str,
        used: &str,
        limit: Option<usize>,
    ) -> Result<(), ClusterError> {
        let succeeded = self.own.iter().rev().find(|revision| revision.status.succeeded);
        let succeeded = succeeded.map(Cached::name);
        let old: Vec<_> = self.own.iter().filter(|revision| revision.name() != used).collect();
        let excess = old.len().saturating_sub(limit.unwrap_or(KEPT));
        let excess = old[..excess].iter().filter(|old| Some(old.name()) != succeeded);
        for revision in excess {
            let key = Key::namespaced(namespace, revision.name());
            let options = DeleteOptions::of_uid(&*revision.meta().uid);
            match client.delete(&Revision::kind(), &key, &options).await {
                Err(error) if !error.is_not_found() => {
                    return Err(ClusterError::new(format!("delete ApplicationRevision {key}"), error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Marks a revision whose workflow has succeeded.
pub(crate) async fn succeed(
    client: &Client,
    namespace: &str,
    revision: &Cached<Revision>,
) -> Result<(), ClusterError> {
    if revision.status.succeeded {
        return Ok(());
    }
    let key = Key::namespaced(namespace, revision.name());
    let patch = Patch::merge(&json!({"status": {"succeeded": true}}));
    let patched = client.patch(&Revision::kind(), &key, Subresource::Status, patch).await;
    patched.map(drop).map_err(|error| ClusterError::new(format!("update ApplicationRevision {key}"), error))
}
