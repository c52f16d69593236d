//! ApplicationRevisions: an application and all definitions it uses, as they were when it changed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::{Cached, Client, Key, Kind, View};

use super::app::Application;
use crate::apply::cluster::ClusterError;
use crate::crds;
use crate::definition::model::Definition;
use crate::digest;
use crate::model::{RevisionRef, Spec};
use crate::names;
use crate::render::component::Definitions;

/// How many revisions beside the one in use are kept.
const KEPT: usize = 2;

/// A revision, as read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Revision {
    pub(crate) metadata: Meta,
    pub(crate) spec: Value,
    pub(crate) status: RevisionStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "setpoint::null_is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(rename = "ownerReferences", deserialize_with = "setpoint::null_is_empty")]
    owners: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    uid: String,
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

/// How many of the referred objects each component copies, in order of names.
const REFERRED_BY: &str = "referredBy";

pub(crate) const FIELDS: [(&str, &str); 4] = [
    ("ComponentDefinition", "componentDefinitions"),
    ("TraitDefinition", "traitDefinitions"),
    ("PolicyDefinition", "policyDefinitions"),
    ("WorkflowStepDefinition", "workflowStepDefinitions"),
];

/// What a revision is made of.
pub(crate) struct Content<'a> {
    pub(crate) app: &'a Application,
    /// The spec with named and external policies, and the workflow it refers to.
    pub(crate) spec: &'a Spec,
    pub(crate) definitions: &'a Recorded,
    /// The objects that components copy, by component.
    pub(crate) referred: &'a Map<String, Value>,
}

impl Revision {
    pub(crate) fn number(&self) -> i64 {
        self.metadata.name.rsplit_once("-v").and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
    }

    fn hash(&self) -> &str {
        self.metadata.labels.get(names::APP_REVISION_HASH).map_or("", String::as_str)
    }

    /// Returns whether the revision is of the application with this uid, and not of one that had its name before.
    fn is_of(&self, uid: &str) -> bool {
        self.metadata.owners.iter().any(|owner| owner.uid == uid)
    }

    pub(crate) fn reference(&self) -> RevisionRef {
        RevisionRef {
            name: self.metadata.name.clone(),
            revision: self.number(),
            revision_hash: self.hash().to_owned(),
        }
    }

    /// Returns the definitions as recorded.
    pub(crate) fn definitions(&self) -> Result<Definitions, String> {
        let of = |field: &str| -> Result<BTreeMap<String, Definition>, String> {
            let all = self.spec[field].as_object().into_iter().flatten();
            all.map(|(name, object)| match Definition::of(object) {
                Ok(definition) => Ok((name.clone(), definition)),
                Err(error) => Err(format!("definition {name}: {error}")),
            })
            .collect()
        };
        Ok(Definitions {
            components: of("componentDefinitions")?,
            traits: of("traitDefinitions")?,
            policies: of("policyDefinitions")?,
            steps: of("workflowStepDefinitions")?,
        })
    }

    /// Returns the objects that components copy, by component.
    pub(crate) fn referred(&self) -> Map<String, Value> {
        let mut objects = self.spec["referredObjects"].as_array().into_iter().flatten();
        let counts = self.spec[REFERRED_BY].as_object().into_iter().flatten();
        let of_component = |(name, count): (&String, &Value)| {
            let count = count.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
            (name.clone(), objects.by_ref().take(count).cloned().collect())
        };
        counts.map(of_component).collect()
    }

    /// Returns the spec as recorded.
    pub(crate) fn application_spec(&self) -> Result<Spec, String> {
        Spec::deserialize(&self.spec["application"]["spec"])
            .map_err(|error| format!("revision {}: {error}", self.metadata.name))
    }
}

impl Content<'_> {
    fn hash(&self) -> String {
        let app = self.app;
        let auto = app.annotation(names::AUTO_UPDATE) == "true";
        let definitions = if auto { json!(self.definitions.0) } else { Value::Null };
        digest::hash(&json!([self.spec, definitions, app.publish_version()]))
    }

    fn object(&self, name: &str, hash: &str) -> Value {
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
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision",
            "metadata": {
                "name": name, "namespace": meta.namespace, "annotations": annotations,
                "labels": {names::APP_NAME: meta.name, names::APP_NAMESPACE: meta.namespace, names::APP_REVISION_HASH: hash},
                "ownerReferences": [{
                    "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
                    "name": meta.name, "uid": meta.uid, "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        })
    }
}

/// Leaves out the copy of the whole object that kubectl keeps.
fn shown(annotations: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = annotations.clone();
    shown.remove("kubectl.kubernetes.io/last-applied-configuration");
    shown
}

/// The revisions that are known of an application.
pub(crate) struct Revisions {
    own: Vec<Cached<Revision>>,
    /// The largest number of a revision with the application's name. Numbers are not used again.
    last: i64,
}

impl Revisions {
    /// Sorts out the revisions of an application among those with its name.
    pub(crate) fn of(app: &Application, named: Vec<Cached<Revision>>) -> Self {
        let status = app.status.latest_revision.as_ref().map_or(0, |latest| latest.revision);
        let last = named.iter().map(|revision| revision.number()).max().unwrap_or_default().max(status);
        let mut own: Vec<_> =
            named.into_iter().filter(|revision| revision.is_of(&app.metadata.uid)).collect();
        own.sort_by_key(|revision| revision.number());
        Self { own, last }
    }

    /// Returns the revision that an application is at, if there is one.
    pub(crate) fn find(&self, content: &Content<'_>) -> Option<Revision> {
        let (hash, version) = (content.hash(), content.app.publish_version());
        let of_version = |revision: &Cached<Revision>| {
            revision.metadata.annotations.get(names::PUBLISH_VERSION).map_or("", String::as_str) == version
        };
        let found = self.own.iter().rev().find(|revision| match version.is_empty() {
            true => revision.hash() == hash,
            false => of_version(revision),
        });
        found.map(|revision| Revision::clone(revision))
    }

    /// Returns a definition as the latest revision that uses it has recorded it.
    pub(crate) fn definition(&self, field: &str, name: &str) -> Option<Value> {
        let mut recorded = self.own.iter().rev().map(|revision| &revision.spec[field][name]);
        recorded.find(|definition| definition.is_object()).cloned()
    }

    /// Returns the latest revision.
    pub(crate) fn latest(&self) -> Option<&Revision> {
        self.own.last().map(|revision| &**revision)
    }

    /// Creates the next revision.
    pub(crate) async fn create(
        &self,
        client: &Client,
        content: &Content<'_>,
    ) -> Result<Revision, ClusterError> {
        let meta = &content.app.metadata;
        let name = format!("{}-v{}", meta.name, self.last + 1);
        let object = content.object(&name, &content.hash());
        let created = client.create(&Revision::kind(), Some(&meta.namespace), &object).await;
        let created = created
            .map_err(|error| ClusterError::new(format!("create ApplicationRevision {name}"), error))?;
        created
            .decode()
            .map_err(|error| ClusterError::Refused(format!("decode ApplicationRevision {name}: {error}")))
    }

    /// Deletes old revisions, the oldest first. The one in use and the latest that succeeded stay.
    pub(crate) async fn prune(
        &self,
        client: &Client,
        namespace: &str,
        used: &str,
        limit: Option<usize>,
    ) -> Result<(), ClusterError> {
        let succeeded = self.own.iter().rev().find(|revision| revision.status.succeeded);
        let succeeded = succeeded.map(|revision| revision.metadata.name.as_str());
        let old: Vec<_> = self.own.iter().filter(|revision| revision.metadata.name != used).collect();
        let excess = old.len().saturating_sub(limit.unwrap_or(KEPT));
        let excess = old[..excess].iter().filter(|old| Some(old.metadata.name.as_str()) != succeeded);
        for revision in excess {
            let key = Key::namespaced(namespace, &revision.metadata.name);
            let options = DeleteOptions::of_uid(&revision.metadata.uid);
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
    revision: &Revision,
) -> Result<(), ClusterError> {
    if revision.status.succeeded {
        return Ok(());
    }
    let key = Key::namespaced(namespace, &revision.metadata.name);
    let patch = Patch::merge(&json!({"status": {"succeeded": true}}));
    let patched = client.patch(&Revision::kind(), &key, Subresource::Status, patch).await;
    patched.map(drop).map_err(|error| ClusterError::new(format!("update ApplicationRevision {key}"), error))
}
