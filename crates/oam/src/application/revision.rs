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
}

impl Revision {
    pub(crate) fn number(&self) -> i64 {
        self.metadata.name.rsplit_once("-v").and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
    }

    fn hash(&self) -> &str {
        self.metadata.labels.get(names::APP_REVISION_HASH).map_or("", String::as_str)
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

/// Returns the revision that an application is at, and makes it if there is none.
pub(crate) async fn ensure(
    client: &Client,
    known: &[Cached<Revision>],
    content: &Content<'_>,
) -> Result<Revision, ClusterError> {
    let hash = content.hash();
    let version = content.app.publish_version();
    let of_version = |revision: &&Cached<Revision>| {
        revision.metadata.annotations.get(names::PUBLISH_VERSION).map_or("", String::as_str) == version
    };
    let found = match version.is_empty() {
        true => {
            known.iter().filter(|revision| revision.hash() == hash).max_by_key(|revision| revision.number())
        }
        false => known.iter().filter(of_version).max_by_key(|revision| revision.number()),
    };
    if let Some(found) = found {
        return Ok(Revision::clone(found));
    }
    let last = content.app.status.latest_revision.as_ref().map_or(0, |latest| latest.revision);
    let number = known.iter().map(|revision| revision.number()).max().unwrap_or_default().max(last) + 1;
    let meta = &content.app.metadata;
    let name = format!("{}-v{number}", meta.name);
    let object = content.object(&name, &hash);
    let created = client.create(&Revision::kind(), Some(&meta.namespace), &object).await;
    let created =
        created.map_err(|error| ClusterError::new(format!("create ApplicationRevision {name}"), error))?;
    created
        .decode()
        .map_err(|error| ClusterError::Refused(format!("decode ApplicationRevision {name}: {error}")))
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

/// Deletes old revisions, the oldest first.
pub(crate) async fn prune(
    client: &Client,
    namespace: &str,
    known: &[Cached<Revision>],
    used: &str,
    limit: Option<usize>,
) -> Result<(), ClusterError> {
    let mut old: Vec<&Cached<Revision>> =
        known.iter().filter(|revision| revision.metadata.name != used).collect();
    old.sort_by_key(|revision| revision.number());
    let excess = old.len().saturating_sub(limit.unwrap_or(KEPT));
    for revision in &old[..excess] {
        let key = Key::namespaced(namespace, &revision.metadata.name);
        match client.delete(&Revision::kind(), &key, &DeleteOptions::of_uid(&revision.metadata.uid)).await {
            Err(error) if !error.is_not_found() => {
                return Err(ClusterError::new(format!("delete ApplicationRevision {key}"), error));
            }
            _ => {}
        }
    }
    Ok(())
}
