//! The controller of instances: applies the objects that a graph describes.
//!
//! Owns: the objects of instances, and the status of instances. Watches: instances of all kinds that graphs have
//! defined, and the objects of instances.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::handler::enqueue_mapped;
use setpoint::reconcile::ErrorContext;
use setpoint::shard::Sharded;
use setpoint::{Clock, Context, Informer, Key, Kind, Object, Outcome, ReconcileError, Reconciler, Runnable};

use super::applyset;
use super::definitions::{Graphs, set_condition};
use super::expression::Scope;
use super::label;
use super::parse::Graph;
use crate::apply::cluster::{Cluster, ClusterError, Watcher};
use crate::apply::identity::Identity;

/// The requeue delay of an incomplete instance, as in kro. Its objects also trigger a reconcile.
const UNFINISHED: Duration = Duration::from_secs(3);
const RESYNC: Duration = Duration::from_secs(300);
/// How often the referenced objects of a complete instance are read.
const REFERENCES: Duration = Duration::from_secs(5);

/// An instance of a graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct InstanceKey {
    kind: Kind,
    key: Key,
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind.kind(), self.key)
    }
}

pub(super) fn of_instance(kind: &Kind, key: &Key) -> InstanceKey {
    InstanceKey { kind: kind.clone(), key: key.clone() }
}

/// The reconciler of instances.
pub(super) struct Instances {
    pub(super) cluster: Cluster,
    clock: Clock,
    graphs: Graphs,
}

/// The result of a pass.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The missing resources: waiting or not ready.
    pub(super) waiting: Vec<String>,
    /// The errors.
    pub(super) errors: Vec<String>,
    /// The values of resources, by id.
    pub(super) scope: Scope,
    /// The uids of the objects of complete resources, by id.
    pub(super) made: BTreeMap<String, BTreeSet<String>>,
    /// The resources that conditions exclude, by id.
    pub(super) excluded: BTreeSet<String>,
}

/// Builds the controller.
pub(super) fn build(context: &Context, graphs: &Graphs) -> Vec<Box<dyn Runnable>> {
    let (queue, kinds) = (graphs.queue.clone(), graphs.clone());
    let follow = move |informer: &Informer| {
        let kinds = kinds.clone();
        drop(
            informer.add_handler(enqueue_mapped(&queue, move |object: &Object| instance_of(&kinds, object))),
        );
    };
    let watcher = Watcher {
        label: label::INSTANCE_ID,
        follow: Arc::new(follow),
        field_manager: super::FIELD_MANAGER,
        wrote: Arc::new(|_| {}),
    };
    let reconciler = Instances {
        cluster: Cluster::new(context, watcher),
        clock: context.runtime.clock.clone(),
        graphs: graphs.clone(),
    };
    let all = {
        let graphs = graphs.clone();
        move || graphs.instances()
    };
    let place = |of: &InstanceKey| of.key.clone();
    let reconciler = Sharded::placed(&context.shards, &graphs.queue, place, all, reconciler);
    let controller = context.controller("graph-instance-controller", graphs.queue.clone(), reconciler);
    vec![Box::new(controller.persistent().waits_for(&graphs.definitions))]
}

/// Returns the instance in an object's labels.
fn instance_of(graphs: &Graphs, object: &Object) -> Option<InstanceKey> {
    let of = |name: &str| object.meta().label(name);
    let (group, version, kind) =
        (of(label::INSTANCE_GROUP)?, of(label::INSTANCE_VERSION)?, of(label::INSTANCE_KIND)?);
    let kind = graphs.watched_kind(group, version, kind)?;
    let name = of(label::INSTANCE_NAME)?;
    let key = match of(label::INSTANCE_NAMESPACE) {
        Some(namespace) if kind.namespaced() => Key::namespaced(namespace, name),
        _ => Key::cluster(name),
    };
    Some(InstanceKey { kind, key })
}

impl Reconciler for Instances {
    type Key = InstanceKey;

    async fn reconcile(&self, of: &InstanceKey) -> Result<Outcome, ReconcileError> {
        let identity = Identity { kind: of.kind.clone(), key: of.key.clone() };
        let Some(instance) = self.cluster.get(&identity).await.map_err(|error| failed(of, error))? else {
            return Ok(Outcome::Settled);
        };
        if !instance["metadata"]["deletionTimestamp"].is_null() {
            return self.delete(of, &identity, &instance).await;
        }
        let graph = match self.graphs.of_kind(&of.kind) {
            Some(Ok(graph)) => graph,
            // Without an accepted definition, instances are left unchanged.
            Some(Err(_)) | None => return Ok(Outcome::Settled),
        };
        if is_suspended(&instance) {
            return Ok(Outcome::Settled);
        }
        if let Some(patch) = preparation(&graph, &instance) {
            let prepared =
                self.cluster.merge(&identity, &instance["metadata"]["resourceVersion"], &patch).await;
            prepared.map_err(|error| failed(of, error))?;
            return Ok(Outcome::Requeue);
        }
        let mut progress = self.resolve(&graph, &instance).await;
        match self.prune(&graph, &instance, &progress).await {
            Ok(left) => {
                progress.waiting.extend(left.into_iter().map(|object| format!("{object} is being deleted")))
            }
            Err(error) => progress.errors.push(error.to_string()),
        }
        self.write(of, &graph, &instance, &progress).await?;
        match progress.waiting.is_empty() && progress.errors.is_empty() {
            // Objects that are only referenced do not trigger a reconcile.
            true if graph.resources.iter().any(|resource| resource.external) => {
                Ok(Outcome::CheckAfter(REFERENCES))
            }
            true => Ok(Outcome::CheckAfter(RESYNC)),
            false => Ok(Outcome::CheckAfter(UNFINISHED)),
        }
    }
}

impl Instances {
    async fn delete(
        &self,
        of: &InstanceKey,
        identity: &Identity,
        instance: &Value,
    ) -> Result<Outcome, ReconcileError> {
        let finalizers = instance["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|name| name == label::FINALIZER) {
            return Ok(Outcome::Settled);
        }
        let left = self.remove_all(instance).await.map_err(|error| failed(of, error))?;
        if !left.is_empty() {
            return Ok(Outcome::CheckAfter(UNFINISHED.min(Duration::from_secs(1))));
        }
        let rest: Vec<Value> = finalizers.into_iter().filter(|name| name != label::FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        let released = self.cluster.merge(identity, &instance["metadata"]["resourceVersion"], &patch).await;
        released.map(|_| Outcome::Settled).map_err(|error| failed(of, error))
    }

    async fn write(
        &self,
        of: &InstanceKey,
        graph: &Graph,
        instance: &Value,
        progress: &Progress,
    ) -> Result<(), ReconcileError> {
        let mut status = instance["status"].as_object().cloned().unwrap_or_default();
        let projected = graph.status.render_known(&progress.scope);
        status.extend(projected.as_ref().and_then(Value::as_object).cloned().unwrap_or_default());
        let (errors, waiting) = (progress.errors.join("; "), progress.waiting.join("; "));
        let state = match (errors.is_empty(), waiting.is_empty()) {
            (true, true) => "ACTIVE",
            (false, _) => "ERROR",
            (true, false) => "IN_PROGRESS",
        };
        status.insert("state".into(), state.into());
        let generation = instance["metadata"]["generation"].as_i64().unwrap_or_default();
        let problem = if errors.is_empty() { &waiting } else { &errors };
        for (kind, holds, message) in [
            ("InstanceManaged", true, ""),
            ("GraphResolved", errors.is_empty(), errors.as_str()),
            ("ResourcesReady", problem.is_empty(), problem.as_str()),
            ("Ready", problem.is_empty(), problem.as_str()),
        ] {
            set_condition(&mut status, kind, holds, message, generation, self.clock.now());
        }
        if instance["status"] == Value::Object(status.clone()) {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": instance["metadata"]["resourceVersion"]}, "status": status});
        let patched = self
            .cluster
            .client
            .patch_ignoring_response(&of.kind, &of.key, Subresource::Status, Patch::merge(&patch))
            .await;
        patched.attempting(format!("update the status of {of}"))
    }
}

fn is_suspended(instance: &Value) -> bool {
    let meta = &instance["metadata"];
    [&meta["annotations"], &meta["labels"]].iter().any(|values| values[label::RECONCILE] == "suspended")
}

/// Returns the patch that makes an instance managed: finalizer, labels, and the kinds of its objects. These records are
/// used when the definition is gone.
fn preparation(graph: &Graph, instance: &Value) -> Option<Value> {
    let meta = &instance["metadata"];
    let mut finalizers = meta["finalizers"].as_array().cloned().unwrap_or_default();
    let before = meta["annotations"][label::KINDS].as_str().unwrap_or_default();
    let mut kinds: Vec<String> =
        before.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
    for resource in graph.resources.iter().filter(|resource| !resource.external) {
        let kind = format!("{}|{}", resource.kind, resource.api_version);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let recorded = kinds.join(",");
    let set = applyset::id(graph, instance);
    let has_finalizer = finalizers.iter().any(|name| name == label::FINALIZER);
    let labels = &meta["labels"];
    if has_finalizer && labels[label::OWNED] == "true" && labels[label::SET] == set && recorded == before {
        return None;
    }
    if !has_finalizer {
        finalizers.push(label::FINALIZER.into());
    }
    let group_kinds = applyset::group_kinds(kinds.iter().filter_map(|kind| kind.split_once('|')));
    Some(json!({"metadata": {
        "finalizers": finalizers,
        "labels": {label::OWNED: "true", label::DEFINITION: graph.name, label::SET: set},
        "annotations": {
            label::KINDS: recorded, label::SET_KINDS: group_kinds, label::SET_TOOLING: applyset::TOOLING,
        },
    }}))
}

fn failed(of: &InstanceKey, error: ClusterError) -> ReconcileError {
    match error {
        ClusterError::Client { attempted, source } => {
            source.into_reconcile_error(format!("{attempted}, for {of}"))
        }
        other => ReconcileError::retry(format!("{of}: {other}")),
    }
}
