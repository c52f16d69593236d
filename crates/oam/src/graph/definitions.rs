//! The controller of ResourceGraphDefinitions: checks them, makes their kinds and has instances watched.
//!
//! Owns: the CustomResourceDefinitions of graphs, and the status of definitions.
//! Watches: definitions, and the CustomResourceDefinitions that it has made.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::handler::{enqueue_mapped, enqueue_self};
use setpoint::queue::limiter;
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Client, Clock, Context, Controller, Informer, Informers, Key, Kind, Object, Outcome, Queue,
    ReconcileError, Reconciler, Runnable,
};

use super::crd::{graph_kind, instance_crd};
use super::instances::{InstanceKey, of_instance};
use super::label;
use super::parse::Graph;

/// The checked definitions, and the kinds whose instances are watched. Cheap to clone.
#[derive(Clone)]
pub(super) struct Graphs {
    pub(super) definitions: Informer,
    pub(super) queue: Queue<InstanceKey>,
    informers: Informers,
    state: Arc<Mutex<State>>,
}

/// Bounded by the definitions and kinds in the cluster.
#[derive(Default)]
struct State {
    /// Checked definitions by name, with the version they were read at.
    checked: BTreeMap<String, (String, Arc<Graph>)>,
    watched: BTreeMap<Kind, Informer>,
}

impl Graphs {
    pub(super) fn new(context: &Context) -> Self {
        let limits = limiter::kubernetes_limiter(&context.runtime.clock);
        Self {
            definitions: context.informers.select(&graph_kind(), Selection::default()),
            queue: Queue::with_rate_limiter("graph-instance", &context.runtime, limits),
            informers: context.informers.clone(),
            state: Arc::default(),
        }
    }

    /// Returns a checked definition. The result is kept until the definition changes.
    pub(super) fn checked(&self, object: &Object) -> Result<Arc<Graph>, String> {
        let (name, version) = (object.key().name(), &*object.meta().resource_version);
        if let Some((known, graph)) = self.state.lock().checked.get(name)
            && known == version
        {
            return Ok(graph.clone());
        }
        let value: Value = object.decode().map_err(|error| error.to_string())?;
        let graph = Arc::new(Graph::parse(&value)?);
        self.state.lock().checked.insert(name.to_owned(), (version.to_owned(), graph.clone()));
        Ok(graph)
    }

    /// Finds the definition of a kind.
    pub(super) fn of_kind(&self, kind: &Kind) -> Option<Result<Arc<Graph>, String>> {
        let is_of = |object: &Object| {
            let Ok(value) = object.decode::<Value>() else { return false };
            let schema = &value["spec"]["schema"];
            schema["kind"] == kind.kind() && schema["group"].as_str().unwrap_or("kro.run") == kind.group()
        };
        let found = self.definitions.objects().list(None).into_iter().find(is_of)?;
        Some(self.checked(&found))
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

    /// Reconciles all instances of a kind again.
    fn wake(&self, kind: &Kind) {
        let informer = self.state.lock().watched.get(kind).cloned();
        for object in informer.iter().flat_map(|informer| informer.objects().list(None)) {
            self.queue.add(of_instance(kind, object.key()));
        }
    }
}

fn crd_kind() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}

/// Builds the controllers of definitions and of the kinds they make.
pub(super) fn build(context: &Context, graphs: &Graphs) -> Vec<Box<dyn Runnable>> {
    let queue = |name| {
        Queue::with_rate_limiter(name, &context.runtime, limiter::kubernetes_limiter(&context.runtime.clock))
    };
    let (definitions, kinds) = (queue("graph-definition"), queue("graph-kind"));
    graphs.definitions.add_handler(enqueue_self(&definitions));
    let owned = Selection { labels: Some(format!("{}=true", label::OWNED)), ..Selection::default() };
    let crds = context.informers.select(&crd_kind(), owned);
    crds.add_handler(enqueue_self(&kinds));
    let checker = Definitions {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        graphs: graphs.clone(),
    };
    let watcher = Kinds { crds: crds.clone(), graphs: graphs.clone(), seen: Mutex::default() };
    vec![
        Box::new(
            Controller::new("graph-definition-controller", definitions, checker)
                .persistent()
                .waits_for(&graphs.definitions),
        ),
        Box::new(Controller::new("graph-kind-watcher", kinds, watcher).persistent().waits_for(&crds)),
    ]
}

/// Watches the instances of every kind that a graph has made, also after its definition has gone.
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
            self.graphs.state.lock().checked.remove(key.name());
            return Ok(Outcome::Settled);
        };
        if object.meta().is_being_deleted() {
            return Ok(Outcome::Settled);
        }
        match self.graphs.checked(&object) {
            Ok(graph) => self.accept(key, &object, &graph).await,
            Err(why) => self.write(key, &object, None, Err(("GraphAccepted", why))).await,
        }
    }
}

impl Definitions {
    async fn accept(
        &self,
        key: &Key,
        object: &Object,
        graph: &Arc<Graph>,
    ) -> Result<Outcome, ReconcileError> {
        let crd = instance_crd(graph);
        let name = Key::cluster(crd["metadata"]["name"].as_str().unwrap_or_default());
        let applied =
            self.client.apply(&crd_kind(), &name, Subresource::None, super::FIELD_MANAGER, crd).await;
        let verdict = match applied {
            Ok(_) => Ok(()),
            Err(error) if error.is_invalid() => Err(("KindReady", error.to_string())),
            Err(error) => {
                return Err(error.into_reconcile_error(format!("apply CustomResourceDefinition {name}")));
            }
        };
        let kind = graph.instance_kind();
        self.graphs.watch(&kind);
        let outcome = self.write(key, object, Some(graph), verdict).await?;
        self.graphs.wake(&kind);
        Ok(outcome)
    }

    async fn write(
        &self,
        key: &Key,
        object: &Object,
        graph: Option<&Arc<Graph>>,
        verdict: Result<(), (&str, String)>,
    ) -> Result<Outcome, ReconcileError> {
        let before: Value = object.decode()?;
        let mut status = before["status"].as_object().cloned().unwrap_or_default();
        status.insert("state".into(), if verdict.is_ok() { "Active" } else { "Inactive" }.into());
        let conditions = ["GraphAccepted", "GraphRevisionsResolved", "KindReady", "ControllerReady", "Ready"];
        let failed = verdict.as_ref().err();
        let mut broken = false;
        for kind in conditions {
            broken |= failed.is_some_and(|(at, _)| *at == kind);
            let message = failed.filter(|_| broken).map_or("", |(_, why)| why.as_str());
            set_condition(&mut status, kind, !broken, message, object.meta().generation, self.clock.now());
        }
        if let Some(graph) = graph {
            let order: Vec<&str> = graph.resources.iter().map(|resource| resource.id.as_str()).collect();
            status.insert("topologicalOrder".into(), json!(order));
            let resources =
                graph.resources.iter().filter(|resource| !resource.depends_on.is_empty()).map(|resource| {
                    let on: Vec<Value> = resource.depends_on.iter().map(|id| json!({"id": id})).collect();
                    json!({"id": resource.id, "dependencies": on})
                });
            status.insert("resources".into(), resources.collect());
        }
        if before["status"] == Value::Object(status.clone()) {
            return Ok(Outcome::Settled);
        }
        let patch = Patch::merge(
            &json!({"metadata": {"resourceVersion": &*object.meta().resource_version}, "status": status}),
        );
        let patched =
            self.client.patch_ignoring_response(&graph_kind(), key, Subresource::Status, patch).await;
        patched.attempting(format!("update the status of ResourceGraphDefinition {key}"))?;
        Ok(Outcome::Settled)
    }
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
