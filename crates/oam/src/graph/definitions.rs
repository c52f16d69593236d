//! The controller of ResourceGraphDefinitions: checks them, installs their kinds and watches instances.
//!
//! Owns: the CustomResourceDefinitions of graphs, their revisions, and the status of definitions. Watches: definitions,
//! revisions, and the CustomResourceDefinitions that it has created.
//!
//! Invariants:
//! - A CustomResourceDefinition that something else created is never changed.
//! - A rejected definition does not affect its kind and its instances.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::handler::{enqueue_mapped, enqueue_self};
use setpoint::queue::limiter;
use setpoint::reconcile::ErrorContext;
use setpoint::shard::Sharded;
use setpoint::source::Selection;
use setpoint::{
    Client, Clock, Context, Controller, Informer, Informers, Key, Kind, Object, Outcome, Queue,
    ReconcileError, Reconciler, Runnable,
};

use super::check::check;
use super::compatible::breaking;
use super::crd::{graph_kind, instance_crd, revision_kind};
use super::instances::{InstanceKey, of_instance};
use super::label;
use super::parse::{Graph, instance_kind};
use super::revisions::Revisions;
use super::types::Schemas;

use crate::apply::drift;

/// The requeue delay if a user has to fix something.
const REPAIR: Duration = Duration::from_secs(10);

/// The checked definitions, and the kinds whose instances are watched. Cheap to clone.
#[derive(Clone)]
pub(super) struct Graphs {
    pub(super) definitions: Informer,
    revisions: Informer,
    pub(super) queue: Queue<InstanceKey>,
    informers: Informers,
    state: Arc<Mutex<State>>,
}

/// Bounded by the definitions and kinds in the cluster: one parsed graph for each definition.
#[derive(Default)]
struct State {
    /// Parsed revisions by name, with the version they were read at.
    parsed: BTreeMap<String, (String, Arc<Graph>)>,
    watched: BTreeMap<Kind, Informer>,
}

impl Graphs {
    pub(super) fn new(context: &Context) -> Self {
        let limits = limiter::kubernetes_limiter(&context.runtime.clock);
        Self {
            definitions: context.informers.select(&graph_kind(), Selection::default()),
            revisions: context.informers.select(&revision_kind(), Selection::default()),
            queue: Queue::with_rate_limiter("graph-instance", &context.runtime, limits),
            informers: context.informers.clone(),
            state: Arc::default(),
        }
    }

    /// Parses a revision. The result is cached until the definition has a newer one.
    fn parsed(&self, revision: &Value) -> Result<Arc<Graph>, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let snapshot = &revision["spec"]["snapshot"];
        let (definition, uid) = (text(&snapshot["name"]), text(&revision["metadata"]["uid"]));
        if let Some((known, graph)) = self.state.lock().parsed.get(&definition)
            && *known == uid
        {
            return Ok(graph.clone());
        }
        let value = json!({"metadata": {"name": definition}, "spec": snapshot["spec"]});
        let graph = Arc::new(Graph::parse(&value)?);
        self.state.lock().parsed.insert(definition, (uid, graph.clone()));
        Ok(graph)
    }

    /// Returns the revisions of a definition.
    fn revisions(&self, definition: &Object) -> Revisions {
        Revisions::of(&self.revisions.objects().list(None), definition)
    }

    /// Finds the newest accepted definition of a kind.
    pub(super) fn of_kind(&self, kind: &Kind) -> Option<Result<Arc<Graph>, String>> {
        let is_of = |object: &Object| {
            let Ok(value) = object.decode::<Value>() else { return false };
            let made = instance_kind(&value["spec"]["schema"]);
            (made.kind(), made.group()) == (kind.kind(), kind.group())
        };
        let definitions = self.definitions.objects().list(None);
        let all = definitions.iter().filter(|definition| is_of(definition));
        // Of two definitions for the same kind, only one is accepted.
        let newest = all.map(|definition| self.revisions(definition)).find_map(|all| all.newest().cloned());
        newest.map(|revision| self.parsed(&revision))
    }

    /// Watches the instances of a kind.
    fn watch(&self, kind: &Kind) {
        let mut state = self.state.lock();
        if state.watched.contains_key(kind) {
            return;
        }
        let informer = self.informers.select(kind, Selection::default());
        let of = kind.clone();
        informer.add_handler(enqueue_mapped(&self.queue, move |object: &Object| {
            Some(of_instance(&of, object.key()))
        }));
        state.watched.insert(kind.clone(), informer);
    }

    /// Returns a kind whose instances are watched.
    pub(super) fn watched_kind(&self, group: &str, version: &str, kind: &str) -> Option<Kind> {
        let api_version = format!("{group}/{version}");
        self.state.lock().watched.keys().find(|known| known.is_named(&api_version, kind)).cloned()
    }

    fn forget(&self, kind: &Kind) {
        if let Some(informer) = self.state.lock().watched.remove(kind) {
            self.informers.remove(&informer);
        }
    }

    /// Enqueues all instances of a kind.
    fn wake(&self, kind: &Kind) {
        let informer = self.state.lock().watched.get(kind).cloned();
        for object in informer.iter().flat_map(|informer| informer.objects().list(None)) {
            self.queue.add(of_instance(kind, object.key()));
        }
    }

    /// Returns the instances of all kinds.
    pub(super) fn instances(&self) -> Vec<InstanceKey> {
        let state = self.state.lock();
        let of = |(kind, informer): (&Kind, &Informer)| -> Vec<InstanceKey> {
            let objects = informer.objects().list(None);
            objects.iter().map(|object| of_instance(kind, object.key())).collect()
        };
        state.watched.iter().flat_map(of).collect()
    }
}

fn crd_kind() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}

/// Builds the controllers of definitions and of their kinds.
pub(super) fn build(context: &Context, graphs: &Graphs) -> Vec<Box<dyn Runnable>> {
    let queue = |name| {
        Queue::with_rate_limiter(name, &context.runtime, limiter::kubernetes_limiter(&context.runtime.clock))
    };
    let (definitions, kinds) = (queue("graph-definition"), queue("graph-kind"));
    graphs.definitions.add_handler(enqueue_self(&definitions));
    let owned = Selection { labels: Some(format!("{}=true", label::OWNED)), ..Selection::default() };
    let crds = context.informers.select(&crd_kind(), owned);
    crds.add_handler(enqueue_self(&kinds));
    // Every replica watches the kinds and enqueues its instances; only one checks a definition.
    graphs.revisions.add_handler(enqueue_mapped(&kinds, |object: &Object| crd_of(object)));
    let checker = Definitions {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        graphs: graphs.clone(),
    };
    let checker = Sharded::new(&context.shards, &definitions, &graphs.definitions, checker);
    let watcher = Kinds { crds: crds.clone(), graphs: graphs.clone(), seen: Mutex::default() };
    vec![
        Box::new(
            context
                .controller("graph-definition-controller", definitions, checker)
                .persistent()
                // Prevents recording a revision twice.
                .reads_own_writes()
                .waits_for(&graphs.definitions)
                .waits_for(&graphs.revisions),
        ),
        Box::new(Controller::new("graph-kind-watcher", kinds, watcher).persistent().waits_for(&crds)),
    ]
}

/// Returns the name of a revision's CustomResourceDefinition.
fn crd_of(revision: &Object) -> Option<Key> {
    let value: Value = revision.decode().ok()?;
    let kind = instance_kind(&value["spec"]["snapshot"]["spec"]["schema"]);
    Some(Key::cluster(format!("{}.{}", kind.plural(), kind.group())))
}

/// Watches the instances of every kind that a graph has defined, even after its definition is gone.
struct Kinds {
    crds: Informer,
    graphs: Graphs,
    seen: Mutex<BTreeMap<Key, Kind>>,
}

impl Reconciler for Kinds {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(object) = self.crds.objects().get(key) else {
            if let Some(kind) = self.seen.lock().remove(key) {
                self.graphs.forget(&kind);
            }
            return Ok(Outcome::Settled);
        };
        let crd: Value = object.decode()?;
        let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&spec["versions"][0]["name"]);
        let kind = Kind::new(
            &text(&spec["group"]),
            &version,
            &text(&names["kind"]),
            &text(&names["plural"]),
            spec["scope"] == "Namespaced",
        );
        self.seen.lock().insert(key.clone(), kind.clone());
        self.graphs.watch(&kind);
        self.graphs.wake(&kind);
        Ok(Outcome::Settled)
    }
}

/// The reconciler of definitions.
struct Definitions {
    client: Client,
    clock: Clock,
    graphs: Graphs,
}

impl Reconciler for Definitions {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(object) = self.graphs.definitions.objects().get(key) else {
            self.graphs.state.lock().parsed.remove(key.name());
            return Ok(Outcome::Settled);
        };
        if object.meta().is_being_deleted() {
            return Ok(Outcome::Settled);
        }
        let value: Value = object.decode()?;
        let graph = match Graph::parse(&value) {
            Ok(graph) => graph,
            Err(why) => return self.refuse(&object, &value, "GraphAccepted", why).await,
        };
        let versions = graph.resources.iter().map(|resource| resource.api_version.clone()).collect();
        let schemas = Schemas::read(&self.client, &versions).await;
        let schemas = schemas.attempting(format!("read the schemas of ResourceGraphDefinition {key}"))?;
        match check(&graph, &schemas) {
            Ok(status) => self.accept(&object, &value, &graph, status).await,
            Err(why) => {
                self.refuse(&object, &value, "GraphAccepted", why).await?;
                // A missing kind may be installed later.
                Ok(Outcome::CheckAfter(REPAIR))
            }
        }
    }
}

impl Definitions {
    async fn accept(
        &self,
        object: &Object,
        value: &Value,
        graph: &Graph,
        status: Value,
    ) -> Result<Outcome, ReconcileError> {
        if let Err(why) = self.make_kind(value, graph, status).await? {
            self.refuse(object, value, "KindReady", why).await?;
            return Ok(Outcome::CheckAfter(REPAIR));
        }
        let revisions = self.graphs.revisions(object);
        let number = revisions.issue(&self.client, object, value).await?;
        revisions.prune(&self.client).await?;
        let mut status = self.status(object, value, None);
        status.insert("lastIssuedRevision".into(), number.into());
        let order: Vec<&str> = graph.resources.iter().map(|resource| resource.id.as_str()).collect();
        status.insert("topologicalOrder".into(), json!(order));
        let dependent = graph.resources.iter().filter(|resource| !resource.depends_on.is_empty());
        let resources = dependent.map(|resource| {
            let on: Vec<Value> = resource.depends_on.iter().map(|id| json!({"id": id})).collect();
            json!({"id": resource.id, "dependencies": on})
        });
        status.insert("resources".into(), resources.collect());
        self.write(object, value, status).await?;
        Ok(Outcome::Settled)
    }

    async fn refuse(
        &self,
        object: &Object,
        value: &Value,
        condition: &str,
        why: String,
    ) -> Result<Outcome, ReconcileError> {
        let status = self.status(object, value, Some((condition, why.as_str())));
        self.write(object, value, status).await?;
        Ok(Outcome::Settled)
    }

    /// Installs or updates the kind of a graph. The inner error says why the definition is rejected.
    async fn make_kind(
        &self,
        value: &Value,
        graph: &Graph,
        status: Value,
    ) -> Result<Result<(), String>, ReconcileError> {
        let crd = instance_crd(graph, status);
        let name = Key::cluster(crd["metadata"]["name"].as_str().unwrap_or_default());
        let attempted = || format!("make CustomResourceDefinition {name}");
        let live = self.client.get(&crd_kind(), &name).await.optional().attempting(attempted())?;
        let made = match live {
            None => self.client.create(&crd_kind(), None, &crd).await,
            Some(live) => {
                let live: Value = live.decode()?;
                if let Some(why) = objection(value, graph, &live, &crd) {
                    return Ok(Err(why));
                }
                if drift::has(&live, &crd) {
                    return Ok(Ok(()));
                }
                let next = replaced(live, &crd);
                self.client.update(&crd_kind(), &name, Subresource::None, &next).await
            }
        };
        match made {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.is_invalid() => Ok(Err(error.to_string())),
            Err(error) => Err(error.into_reconcile_error(attempted())),
        }
    }

    fn status(&self, object: &Object, before: &Value, failed: Option<(&str, &str)>) -> Map<String, Value> {
        let mut status = before["status"].as_object().cloned().unwrap_or_default();
        status.insert("state".into(), if failed.is_none() { "Active" } else { "Inactive" }.into());
        let mut broken = false;
        for kind in CONDITIONS {
            broken |= failed.is_some_and(|(at, _)| at == kind);
            let message = failed.filter(|_| broken).map_or("", |(_, why)| why);
            set_condition(&mut status, kind, !broken, message, object.meta().generation, self.clock.now());
        }
        status
    }

    async fn write(
        &self,
        object: &Object,
        before: &Value,
        status: Map<String, Value>,
    ) -> Result<(), ReconcileError> {
        if before["status"] == Value::Object(status.clone()) {
            return Ok(());
        }
        let (key, version) = (object.key(), &*object.meta().resource_version);
        let patch = Patch::merge(&json!({"metadata": {"resourceVersion": version}, "status": status}));
        let patched =
            self.client.patch_ignoring_response(&graph_kind(), key, Subresource::Status, patch).await;
        patched.attempting(format!("update the status of ResourceGraphDefinition {key}"))
    }
}

const CONDITIONS: [&str; 5] =
    ["GraphAccepted", "GraphRevisionsResolved", "KindReady", "ControllerReady", "Ready"];

/// Returns a live CustomResourceDefinition with the spec of another, and its labels and annotations added.
fn replaced(mut live: Value, wanted: &Value) -> Value {
    live["spec"] = wanted["spec"].clone();
    for part in ["labels", "annotations"] {
        for (name, value) in wanted["metadata"][part].as_object().into_iter().flatten() {
            live["metadata"][part][name] = value.clone();
        }
    }
    live
}

/// Returns why the CustomResourceDefinition of a graph must not be changed.
fn objection(definition: &Value, graph: &Graph, live: &Value, wanted: &Value) -> Option<String> {
    let (meta, name) = (&live["metadata"], &wanted["metadata"]["name"]);
    let name = name.as_str().unwrap_or_default();
    let labels = &meta["labels"];
    if labels[label::OWNED] != "true" || !labels[label::DEFINITION].is_string() {
        return Some(format!("CustomResourceDefinition {name} exists and was not made by a resource graph"));
    }
    if labels[label::DEFINITION] != graph.name {
        let other = labels[label::DEFINITION].as_str().unwrap_or_default();
        return Some(format!("CustomResourceDefinition {name} belongs to ResourceGraphDefinition {other}"));
    }
    if definition["metadata"]["annotations"][label::ALLOW_BREAKING] == "true" {
        return None;
    }
    let spec =
        |crd: &Value| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
    breaking(&spec(live), &spec(wanted), "spec").map(|what| {
        format!(
            "the change breaks instances: {what} (annotate the definition {}=true to allow it)",
            label::ALLOW_BREAKING
        )
    })
}

/// Sets a condition. Its time changes only with its status.
pub(super) fn set_condition(
    status: &mut Map<String, Value>,
    kind: &str,
    holds: bool,
    message: &str,
    generation: i64,
    now: jiff::Timestamp,
) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(conditions) = conditions else { return };
    let word = if holds { "True" } else { "False" };
    let known = conditions.iter().position(|condition| condition["type"] == kind);
    let since = known.map(|index| &conditions[index]).filter(|known| known["status"] == word);
    let since = since.map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone());
    let condition = json!({
        "type": kind, "status": word, "reason": if holds { "Ready" } else { "NotReady" }, "message": message,
        "lastTransitionTime": since, "observedGeneration": generation,
    });
    match known {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}
