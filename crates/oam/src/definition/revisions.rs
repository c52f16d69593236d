//! The definition controller: records a DefinitionRevision for every change of a definition.
//!
//! Owns: DefinitionRevisions and the status of definitions.
//! Watches: definitions and their revisions.
//!
//! Invariants:
//! - revisions are numbered from one and never reused;
//! - the revision of a `spec.version` never changes: changed content needs a new version;
//! - a definition whose latest revision has the same content makes no writes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, Subresource};
use setpoint::handler::enqueue_self;
use setpoint::queue::limiter;
use setpoint::reconcile::ErrorContext;
use setpoint::shard::Sharded;
use setpoint::source::Selection;
use setpoint::{
    Access, Cached, Client, Clock, Context, Informer, Key, Kind, Lister, Object, Outcome, Queue,
    ReconcileError, Reconciler, Runnable, View,
};

use crate::crds;
use crate::digest;
use crate::names::DEFINITION_NAME;
use crate::registry::{Entry, Options};

/// How many revisions are kept besides the latest.
const KEPT: usize = 2;

/// The condition of definitions, as KubeVela names it.
const SYNCED: &str = "Synced";

const BY_DEFINITION: &str = "definition";

/// A decoded revision of a definition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DefinitionRevision {
    metadata: Meta,
    spec: RevisionSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RevisionSpec {
    revision: i64,
    revision_hash: String,
}

impl View for DefinitionRevision {
    fn kind() -> Kind {
        crds::DEFINITION_REVISION.kind()
    }
}

/// The reconciler of one kind of definition.
struct Recorder {
    client: Client,
    clock: Clock,
    kind: Kind,
    definitions: Informer,
    revisions: Lister<DefinitionRevision>,
}

pub(crate) const ENTRY: Entry = Entry {
    name: "definition-controller",
    summary: "records a DefinitionRevision for every change of a definition",
    watches: &[
        Access::watch("core.oam.dev", "componentdefinitions"),
        Access::watch("core.oam.dev", "definitionrevisions"),
        Access::watch("core.oam.dev", "policydefinitions"),
        Access::watch("core.oam.dev", "traitdefinitions"),
        Access::watch("core.oam.dev", "workflowstepdefinitions"),
    ],
    writes: &[
        Access::to("core.oam.dev", "definitionrevisions", &["create", "delete"]),
        Access::to("core.oam.dev", "componentdefinitions/status", &["patch"]),
        Access::to("core.oam.dev", "policydefinitions/status", &["patch"]),
        Access::to("core.oam.dev", "traitdefinitions/status", &["patch"]),
        Access::to("core.oam.dev", "workflowstepdefinitions/status", &["patch"]),
    ],
    workers_flag: "concurrent-definition-syncs",
    default_workers: 1,
    build,
};

/// Builds a controller for each kind of definition.
fn build(context: &Context, _: &Options) -> Vec<Box<dyn Runnable>> {
    let revisions = context.informers.of::<DefinitionRevision>();
    revisions.add_index(BY_DEFINITION, Arc::new(|object: &Object| labelled(object).into_iter().collect()));
    let controllers = [
        ("component-definition-controller", &crds::COMPONENT_DEFINITION),
        ("trait-definition-controller", &crds::TRAIT_DEFINITION),
        ("policy-definition-controller", &crds::POLICY_DEFINITION),
        ("workflow-step-definition-controller", &crds::STEP_DEFINITION),
    ];
    controllers.into_iter().map(|(name, crd)| one(context, name, &crd.kind(), &revisions)).collect()
}

fn one(context: &Context, name: &'static str, kind: &Kind, revisions: &Informer) -> Box<dyn Runnable> {
    let definitions = context.informers.select(kind, Selection::default());
    let limits = limiter::kubernetes_limiter(&context.runtime.clock);
    let queue = Queue::with_rate_limiter(name, &context.runtime, limits);
    definitions.add_handler(enqueue_self(&queue));
    let recorder = Recorder {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        kind: kind.clone(),
        definitions: definitions.clone(),
        revisions: revisions.lister(),
    };
    let recorder = Sharded::new(&context.shards, &queue, &definitions, recorder);
    let controller = context.controller(name, queue, recorder).persistent().reads_own_writes();
    Box::new(controller.waits_for(&definitions).waits_for(revisions))
}

/// Returns the definition of a revision: kind, namespace and name.
fn labelled(object: &Object) -> Option<String> {
    let (kind, label) = DEFINITION_NAME.iter().find(|(_, label)| object.meta().label(label).is_some())?;
    Some(index(kind, object.key().namespace()?, object.meta().label(label)?))
}

fn index(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

impl Reconciler for Recorder {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(object) = self.definitions.objects().get(key) else { return Ok(Outcome::Settled) };
        if object.meta().is_being_deleted() {
            return Ok(Outcome::Settled);
        }
        let definition: Value = object.decode()?;
        let namespace = key.namespace().unwrap_or_default();
        let known = self.revisions.indexed(BY_DEFINITION, &index(self.kind.kind(), namespace, key.name()))?;
        let hash = digest::hash(&definition["spec"]);
        let latest = known.iter().max_by_key(|revision| revision.spec.revision);
        let version = definition["spec"]["version"].as_str().filter(|version| !version.is_empty());
        let recorded = match latest.filter(|latest| latest.spec.revision_hash == hash) {
            Some(latest) => Ok((latest.metadata.name.clone(), latest.spec.revision)),
            None => match version.and_then(|version| of_version(&known, key, version)) {
                Some(taken) => reused(taken, &hash),
                None => self.record(key, &definition, &hash, &known).await?,
            },
        };
        self.refer(key, &definition, &recorded, &hash).await?;
        self.prune(key, &known).await?;
        Ok(Outcome::Settled)
    }
}

/// The name and number of a revision, or the error.
type Recorded = Result<(String, i64), String>;

/// Returns the revision of a version.
fn of_version<'a>(
    known: &'a [Cached<DefinitionRevision>],
    key: &Key,
    version: &str,
) -> Option<&'a DefinitionRevision> {
    let name = format!("{}-v{version}", key.name());
    known.iter().map(|revision| &**revision).find(|revision| revision.metadata.name == name)
}

/// Returns a revision of the same version, if it has the same content.
fn reused(taken: &DefinitionRevision, hash: &str) -> Recorded {
    match taken.spec.revision_hash == hash {
        true => Ok((taken.metadata.name.clone(), taken.spec.revision)),
        false => Err(format!("{} has another content: change spec.version too", taken.metadata.name)),
    }
}

impl Recorder {
    /// Creates the next revision.
    async fn record(
        &self,
        key: &Key,
        definition: &Value,
        hash: &str,
        known: &[Cached<DefinitionRevision>],
    ) -> Result<Recorded, ReconcileError> {
        let last = definition["status"]["latestRevision"]["revision"].as_i64().unwrap_or_default();
        let number =
            known.iter().map(|revision| revision.spec.revision).max().unwrap_or_default().max(last) + 1;
        // A definition of another kind with the same name has its revisions in the same namespace.
        let is_free = |number: &i64| {
            let name = format!("{}-v{number}", key.name());
            self.revisions.get(&key.sibling(name)).is_ok_and(|taken| taken.is_none())
        };
        let number = (number..).find(is_free).unwrap_or(number);
        let version = definition["spec"]["version"].as_str().filter(|version| !version.is_empty());
        let suffix = version.map_or_else(|| number.to_string(), str::to_owned);
        let name = format!("{}-v{suffix}", key.name());
        let object = self.revision(key, definition, &name, number, hash);
        match self.client.create(&DefinitionRevision::kind(), key.namespace(), &object).await {
            Err(error) if error.is_already_exists() => Ok(self.existing(key, &name, hash).await?),
            created => created
                .map(|_| Ok((name, number)))
                .attempting(format!("record a revision of {} {key}", self.kind.kind())),
        }
    }

    /// Returns the revision that has taken a name: an earlier attempt, or a definition of another kind.
    async fn existing(&self, key: &Key, name: &str, hash: &str) -> Result<Recorded, ReconcileError> {
        let read = self.client.get(&DefinitionRevision::kind(), &key.sibling(name)).await;
        let found = read.attempting(format!("read DefinitionRevision {name}"))?;
        if labelled(&found) != Some(index(self.kind.kind(), key.namespace().unwrap_or_default(), key.name()))
        {
            return Ok(Err(format!("DefinitionRevision {name} is of another definition")));
        }
        Ok(reused(&found.decode()?, hash))
    }

    fn revision(&self, key: &Key, definition: &Value, name: &str, number: i64, hash: &str) -> Value {
        let kind = self.kind.kind();
        let label = DEFINITION_NAME.iter().find(|(known, _)| *known == kind).map_or("", |(_, label)| label);
        let mut field = kind.to_owned();
        field[..1].make_ascii_lowercase();
        let meta = &definition["metadata"];
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "DefinitionRevision",
            "metadata": {
                "name": name, "namespace": key.namespace(), "labels": {label: key.name()},
                "ownerReferences": [{
                    "apiVersion": "core.oam.dev/v1beta1", "kind": kind, "name": key.name(), "uid": meta["uid"],
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "revision": number, "revisionHash": hash, "definitionType": kind.trim_end_matches("Definition"),
                field: {
                    "apiVersion": definition["apiVersion"], "kind": kind, "spec": definition["spec"],
                    "metadata": {"name": key.name(), "namespace": key.namespace()},
                },
            },
        })
    }

    /// Records the latest revision in the status, or why this content has none.
    async fn refer(
        &self,
        key: &Key,
        definition: &Value,
        recorded: &Recorded,
        hash: &str,
    ) -> Result<(), ReconcileError> {
        let status = &definition["status"];
        let problem = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == SYNCED);
        let mut change = json!({});
        match recorded {
            Ok((name, number)) => {
                let latest = json!({"name": name, "revision": number, "revisionHash": hash});
                if status["latestRevision"] != latest {
                    change["latestRevision"] = latest;
                }
                if problem.is_some() {
                    change["conditions"] = json!([]);
                }
            }
            Err(why) if problem.is_none_or(|problem| problem["message"] != *why) => {
                change["conditions"] = json!([{
                    "type": SYNCED, "status": "False", "reason": "ReconcileError", "message": why,
                    "lastTransitionTime": self.clock.now(),
                }]);
            }
            Err(_) => {}
        }
        if change == json!({}) {
            return Ok(());
        }
        let patch = Patch::merge(&json!({"status": change}));
        let patched = self.client.patch_ignoring_response(&self.kind, key, Subresource::Status, patch).await;
        patched.attempting(format!("update the status of {} {key}", self.kind.kind()))
    }

    async fn prune(&self, key: &Key, known: &[Cached<DefinitionRevision>]) -> Result<(), ReconcileError> {
        let mut old: Vec<&Cached<DefinitionRevision>> = known.iter().collect();
        old.sort_by_key(|revision| revision.spec.revision);
        let excess = old.len().saturating_sub(KEPT + 1);
        for revision in &old[..excess] {
            let of = key.sibling(&revision.metadata.name);
            let options = DeleteOptions::of_uid(&revision.metadata.uid);
            match self.client.delete(&DefinitionRevision::kind(), &of, &options).await {
                Err(error) if !error.is_not_found() => {
                    return Err(error.into_reconcile_error(format!("delete DefinitionRevision {of}")));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
