//! Reads and writes objects of any kind, and watches the kinds that applications use.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint::client::{DeleteOptions, Optional, Patch, PropagationPolicy, Subresource};
use setpoint::discovery::{Discovered, discover};
use setpoint::handler::enqueue_mapped;
use setpoint::source::Selection;
use setpoint::{Client, ClientError, Context, Informer, Informers, Key, Kind, Object, Queue};

use super::identity::Identity;
use crate::names;
use crate::render::context::ClusterVersion;

/// Access to a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    informers: Informers,
    watcher: Watcher,
    state: Arc<Mutex<State>>,
}

/// How changes of applied objects are followed, and as whom they are written.
#[derive(Clone)]
pub(crate) struct Watcher {
    /// The label that all applied objects have.
    pub(crate) label: &'static str,
    /// Adds a handler to the informer of a kind.
    pub(crate) follow: Arc<dyn Fn(&Informer) + Send + Sync>,
    pub(crate) field_manager: &'static str,
}

/// What is known of the cluster. Bounded by the kinds it serves.
#[derive(Default)]
struct State {
    discovered: Option<Discovered>,
    version: Option<ClusterVersion>,
    watched: BTreeMap<Kind, Informer>,
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("the server does not serve {api_version} {kind}")]
    NoKind { api_version: String, kind: String },
    #[error("{0}")]
    Refused(String),
    #[error("{attempted}: {source}")]
    Client { attempted: String, source: ClientError },
}

impl ClusterError {
    pub(crate) fn new(attempted: impl Into<String>, source: ClientError) -> Self {
        Self::Client { attempted: attempted.into(), source }
    }
}

impl Cluster {
    pub(crate) fn new(context: &Context, watcher: Watcher) -> Self {
        Self {
            client: context.client.clone(),
            informers: context.informers.clone(),
            watcher,
            state: Arc::default(),
        }
    }

    /// Returns access for applications: changes wake the application that an object's labels name.
    pub(crate) fn of_applications(context: &Context, queue: Queue<Key>) -> Self {
        let follow =
            move |informer: &Informer| drop(informer.add_handler(enqueue_mapped(&queue, application_of)));
        let watcher =
            Watcher { label: names::APP_NAME, follow: Arc::new(follow), field_manager: names::FIELD_MANAGER };
        Self::new(context, watcher)
    }

    /// Returns the served kind. Asks the server again if it is not known.
    pub(crate) async fn kind(&self, api_version: &str, kind: &str) -> Result<Kind, ClusterError> {
        if let Some(found) = self.known(api_version, kind) {
            return Ok(found);
        }
        let attempted = "discover the served kinds";
        let discovered = discover(&self.client).await.map_err(|error| ClusterError::new(attempted, error))?;
        self.state.lock().discovered = Some(discovered);
        self.known(api_version, kind).ok_or_else(|| ClusterError::NoKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    fn known(&self, api_version: &str, kind: &str) -> Option<Kind> {
        self.state.lock().discovered.as_ref()?.kind(api_version, kind).cloned()
    }

    /// Returns the version of the server.
    pub(crate) async fn version(&self) -> Result<ClusterVersion, ClusterError> {
        if let Some(version) = &self.state.lock().version {
            return Ok(version.clone());
        }
        let attempted = "read the server's version";
        let reply = self.client.get_path(&["version"], &[]).await;
        let reply = reply.map_err(|error| ClusterError::new(attempted, error))?;
        let reply: Value = serde_json::from_slice(&reply)
            .map_err(|error| ClusterError::Refused(format!("{attempted}: {error}")))?;
        let version = ClusterVersion::of(&reply);
        self.state.lock().version = Some(version.clone());
        Ok(version)
    }

    /// Follows changes of applied objects of a kind.
    pub(crate) fn watch(&self, kind: &Kind) {
        let mut state = self.state.lock();
        if state.watched.contains_key(kind) {
            return;
        }
        let selection = Selection {
            labels: Some(self.watcher.label.to_owned()),
            metadata_only: true,
            ..Selection::default()
        };
        let informer = self.informers.select(kind, selection);
        (self.watcher.follow)(&informer);
        state.watched.insert(kind.clone(), informer);
    }

    /// Stops watching a kind that is no longer served.
    fn forget(&self, kind: &Kind) {
        let mut state = self.state.lock();
        state.discovered = None;
        if let Some(informer) = state.watched.remove(kind) {
            self.informers.remove(&informer);
        }
    }

    /// Reads an object from the server, not from a cache.
    pub(crate) async fn get(&self, of: &Identity) -> Result<Option<Value>, ClusterError> {
        let read = self.client.get(&of.kind, &of.key).await.optional();
        let object = read.map_err(|error| ClusterError::new(format!("read {of}"), error))?;
        object.map(|object| decoded(&object)).transpose()
    }

    /// Applies the fields of a manifest with server-side apply.
    pub(crate) async fn apply(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        self.watch(&of.kind);
        let applied = self.client.apply(
            &of.kind,
            &of.key,
            Subresource::None,
            self.watcher.field_manager,
            manifest.clone(),
        );
        match applied.await {
            Err(error) if error.to_string().contains("duplicate entries for key") => {
                self.write_plainly(of, manifest).await
            }
            applied => self.answer(of, "apply", applied),
        }
    }

    /// Creates or merges a manifest that server-side apply cannot express: one with two variables of one name, which
    /// Kubernetes allows.
    async fn write_plainly(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        match self.get(of).await? {
            Some(live) => self.merge(of, &live["metadata"]["resourceVersion"], manifest).await,
            None => {
                let created = self.client.create(&of.kind, of.namespace(), manifest).await;
                self.answer(of, "create", created)
            }
        }
    }

    /// Replaces an object. The manifest has to carry the version that was read.
    pub(crate) async fn replace(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        self.watch(&of.kind);
        let replaced = self.client.update(&of.kind, &of.key, Subresource::None, manifest);
        self.answer(of, "replace", replaced.await)
    }

    /// Merges a patch into an object that has the given version.
    pub(crate) async fn merge(
        &self,
        of: &Identity,
        version: &Value,
        patch: &Value,
    ) -> Result<Value, ClusterError> {
        let mut patch = patch.clone();
        patch["metadata"]["resourceVersion"] = version.clone();
        let patched = self.client.patch(&of.kind, &of.key, Subresource::None, Patch::merge(&patch));
        self.answer(of, "patch", patched.await)
    }

    /// Deletes the object with this uid. One that is gone is no error.
    pub(crate) async fn delete(
        &self,
        of: &Identity,
        live: &Value,
        policy: PropagationPolicy,
    ) -> Result<(), ClusterError> {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let options = DeleteOptions { propagation: Some(policy), ..DeleteOptions::of_uid(uid) };
        match self.client.delete(&of.kind, &of.key, &options).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(ClusterError::new(format!("delete {of}"), error)),
            Ok(()) => Ok(()),
        }
    }

    /// Lists objects of a kind.
    pub(crate) async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        labels: Option<String>,
    ) -> Result<Vec<Value>, ClusterError> {
        let selection = Selection { namespace: namespace.map(str::to_owned), labels, ..Selection::default() };
        let listed = self.client.list(kind, &selection).await;
        let listed = listed.map_err(|error| ClusterError::new(format!("list {}", kind.plural()), error))?;
        listed.objects.iter().map(decoded).collect()
    }

    fn answer(
        &self,
        of: &Identity,
        verb: &str,
        answer: Result<Object, ClientError>,
    ) -> Result<Value, ClusterError> {
        match answer {
            Ok(object) => decoded(&object),
            Err(error) => {
                // A missing namespace says nothing about the kind.
                if error.code() == Some(404) && !error.to_string().contains("namespaces") {
                    self.forget(&of.kind);
                }
                Err(ClusterError::new(format!("{verb} {of}"), error))
            }
        }
    }
}

/// Decodes an object, without the record of who wrote which field.
pub(crate) fn decoded(object: &Object) -> Result<Value, ClusterError> {
    let mut value: Value = object
        .decode()
        .map_err(|error| ClusterError::Refused(format!("decode {}: {error}", object.key())))?;
    if let Some(meta) = value["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    Ok(value)
}

/// Returns the application that an object's labels name.
fn application_of(object: &Object) -> Option<Key> {
    let meta = object.meta();
    Some(Key::namespaced(meta.label(names::APP_NAMESPACE)?, meta.label(names::APP_NAME)?))
}

/// Returns a manifest's `apiVersion` and `kind`.
pub(crate) fn kind_of(manifest: &Value) -> (&str, &str) {
    (manifest["apiVersion"].as_str().unwrap_or_default(), manifest["kind"].as_str().unwrap_or_default())
}
