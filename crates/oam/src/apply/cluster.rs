//! Reads and writes objects of any kind in one cluster, and watches the kinds that applications use.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{DeleteOptions, Patch, PropagationPolicy, Subresource};
use setpoint::discovery::{Discovered, discover};
use setpoint::handler::{Handler, enqueue_mapped};
use setpoint::source::Selection;
use setpoint::{Client, ClientError, Context, Event, Informer, Informers, Key, Kind, Object, Queue};

use super::echoes::Echoes;
use super::identity::Identity;
use super::{managers, paths};
use crate::clusters::members::{MAX_WATCHED, Member};
use crate::names;
use crate::render::context::ClusterVersion;

/// Access to a cluster. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// `None` for the local cluster.
    member: Option<Arc<Member>>,
    pub(crate) client: Client,
    /// Reads discovery with its own permissions, not those of an impersonated account.
    discovery: Client,
    informers: Informers,
    watcher: Watcher,
    state: Arc<Mutex<State>>,
}

/// How applied objects are watched, and the user for writes.
#[derive(Clone)]
pub(crate) struct Watcher {
    /// The label that all applied objects have.
    pub(crate) label: &'static str,
    /// Adds a handler to the informer of a kind.
    pub(crate) follow: Arc<dyn Fn(&Informer) + Send + Sync>,
    pub(crate) field_manager: &'static str,
    /// Called with every object that was written.
    pub(crate) wrote: Arc<dyn Fn(&Object) + Send + Sync>,
}

/// The discovery results. Bounded by the kinds that the cluster serves.
#[derive(Default)]
struct State {
    discovered: Option<Arc<Discovered>>,
    version: Option<ClusterVersion>,
    watched: BTreeMap<Kind, Informer>,
    /// The identity of the cluster, to distinguish it from another of the same name. Empty if unknown.
    uid: Option<String>,
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("the server does not serve {api_version} {kind}")]
    NoKind { api_version: String, kind: String },
    #[error("cannot tell whether the server serves {api_version} {kind}: discovery of its group failed")]
    Undiscovered { api_version: String, kind: String },
    #[error(
        "failed to get cluster {cluster}: virtualclusters.{} {cluster:?} not found",
        names::CLUSTER_GROUP
    )]
    NoCluster { cluster: String },
    #[error("cluster {cluster} is not the one that {object} was applied to")]
    Replaced { cluster: String, object: String },
    #[error("cluster {cluster} is unreachable: {why}")]
    Unreachable { cluster: String, why: String },
    #[error("{0}")]
    Refused(String),
    #[error("{attempted}: {source}")]
    Client { attempted: String, source: ClientError },
}

impl ClusterError {
    pub(crate) fn new(attempted: impl Into<String>, source: ClientError) -> Self {
        Self::Client { attempted: attempted.into(), source }
    }

    pub(crate) fn unreachable(cluster: &str, why: impl Into<String>) -> Self {
        Self::Unreachable { cluster: cluster.to_owned(), why: why.into() }
    }

    /// Returns whether the cluster is unreachable, so that the state of its objects is unknown.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Returns whether the state of the cluster's objects is unknown: it is unreachable, not registered, or has been
    /// replaced.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unreachable { .. }) || self.is_without_cluster()
    }

    /// Returns whether the cluster with the objects is known to be gone.
    pub(crate) fn is_without_cluster(&self) -> bool {
        matches!(self, Self::NoCluster { .. } | Self::Replaced { .. })
    }

    /// Returns whether an object has changed since it was read, or was created in the meantime.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Client { source, .. } if source.is_conflict() || source.is_already_exists())
    }
}

impl Cluster {
    pub(crate) fn new(context: &Context, watcher: Watcher) -> Self {
        Self {
            member: None,
            client: context.client.clone(),
            discovery: context.client.clone(),
            informers: context.informers.clone(),
            watcher,
            state: Arc::default(),
        }
    }

    /// Returns access to another cluster, whose objects are watched in the same way.
    pub(crate) fn of_member(&self, member: &Arc<Member>) -> Self {
        Self {
            member: Some(member.clone()),
            client: member.client.clone(),
            discovery: member.client.clone(),
            informers: member.informers.clone(),
            watcher: self.watcher.clone(),
            state: Arc::default(),
        }
    }

    /// The name of the cluster in records: empty for the local one.
    pub(crate) fn name(&self) -> &str {
        self.member.as_ref().map_or("", |member| &member.name)
    }

    /// Fails immediately if the cluster is unreachable.
    fn reach(&self) -> Result<(), ClusterError> {
        self.member.as_ref().map_or(Ok(()), |member| member.reach.check(&member.name))
    }

    /// Converts the error of a request, which may mean that the cluster is unreachable.
    fn failed(&self, attempted: impl Into<String>, error: ClientError) -> ClusterError {
        let Some(member) = &self.member else { return ClusterError::new(attempted, error) };
        match member.reach.note(&error) {
            Some(why) => ClusterError::unreachable(&member.name, why),
            None => ClusterError::new(format!("{} in cluster {}", attempted.into(), member.name), error),
        }
    }

    /// Returns access with the permissions of another user.
    pub(crate) fn acting_as(&self, user: &str) -> Self {
        Self { client: self.client.clone().impersonating(user), ..self.clone() }
    }

    /// Returns access for applications: changes enqueue the application in an object's labels.
    pub(crate) fn of_applications(context: &Context, queue: Queue<Key>, echoes: Echoes) -> Self {
        let own = echoes.clone();
        let wrote = move |object: &Object| {
            if let Some(app) = application_of(object) {
                own.wrote(&app, object);
            }
        };
        let follow = move |informer: &Informer| {
            let echoes = echoes.clone();
            let is_news = move |event: &Event| is_news(&echoes, event);
            drop(informer.add_handler(enqueue_mapped(&queue, application_of).when(is_news)));
        };
        let watcher = Watcher {
            label: names::APP_NAME,
            follow: Arc::new(follow),
            field_manager: names::FIELD_MANAGER,
            wrote: Arc::new(wrote),
        };
        Self::new(context, watcher)
    }

    /// Returns access for WorkflowRuns: changes enqueue the run in an object's labels.
    pub(crate) fn of_runs(context: &Context, queue: Queue<Key>) -> Self {
        let follow = move |informer: &Informer| drop(informer.add_handler(enqueue_mapped(&queue, run_of)));
        let watcher = Watcher {
            label: names::RUN_NAME,
            follow: Arc::new(follow),
            field_manager: names::FIELD_MANAGER,
            wrote: Arc::new(|_| {}),
        };
        Self::new(context, watcher)
    }

    /// Returns the served kind. Repeats discovery if it is unknown.
    pub(crate) async fn kind(&self, api_version: &str, kind: &str) -> Result<Kind, ClusterError> {
        if let Some(found) = self.known(api_version, kind) {
            return Ok(found);
        }
        let discovered = self.discover().await?;
        if let Some(found) = named(&discovered, api_version, kind) {
            return Ok(found);
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let failed = discovered.failed(&Kind::new(group, version, kind, "", true));
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        Err(match failed {
            true => ClusterError::Undiscovered { api_version, kind },
            false => ClusterError::NoKind { api_version, kind },
        })
    }

    /// Runs discovery.
    async fn discover(&self) -> Result<Arc<Discovered>, ClusterError> {
        self.reach()?;
        let discovered = discover(&self.discovery).await;
        let discovered = discovered.map_err(|error| self.failed("discover the served kinds", error))?;
        let discovered = Arc::new(discovered);
        self.state.lock().discovered = Some(discovered.clone());
        Ok(discovered)
    }

    /// Returns the kind in a served version, for an object that may have been written in another one. `None` if its
    /// group certainly has no such kind, and therefore no such objects.
    pub(crate) async fn any_version(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<Kind>, ClusterError> {
        if let Some(found) = self.known(api_version, kind) {
            return Ok(Some(found));
        }
        let discovered = self.discover().await?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let is_same = |served: &&Kind| served.group() == group && served.kind() == kind;
        let found = discovered.kind(api_version, kind).or_else(|| {
            let mut preferred = discovered.preferred().map(|resource| &resource.kind);
            preferred.find(is_same)
        });
        match found {
            Some(found) => Ok(Some(found.clone())),
            None if is_complete(&discovered, group) => Ok(None),
            None => {
                let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
                Err(ClusterError::Undiscovered { api_version, kind })
            }
        }
    }

    /// Returns the preferred version of a kind by the name of its resource, in the singular or plural. Without a group, the
    /// core group comes first, then any other.
    pub(crate) async fn resource(&self, group: &str, resource: &str) -> Result<Kind, ClusterError> {
        if let Some(found) = self.known_resource(group, resource) {
            return Ok(found);
        }
        self.discover().await?;
        let not_served = || ClusterError::NoKind { api_version: group.to_owned(), kind: resource.to_owned() };
        self.known_resource(group, resource).ok_or_else(not_served)
    }

    fn known_resource(&self, group: &str, resource: &str) -> Option<Kind> {
        let discovered = self.state.lock().discovered.clone()?;
        let is_named = |kind: &&Kind| kind.plural() == resource || kind.kind().eq_ignore_ascii_case(resource);
        let named = || discovered.preferred().map(|served| &served.kind).filter(is_named);
        let of_group = named().find(|kind| kind.group() == group);
        of_group.or_else(|| named().find(|_| group.is_empty())).cloned()
    }

    fn known(&self, api_version: &str, kind: &str) -> Option<Kind> {
        named(self.state.lock().discovered.as_ref()?, api_version, kind)
    }

    /// Returns the version of the server.
    pub(crate) async fn version(&self) -> Result<ClusterVersion, ClusterError> {
        if let Some(version) = &self.state.lock().version {
            return Ok(version.clone());
        }
        self.reach()?;
        let attempted = "read the server's version";
        let reply = self.discovery.get_path(&["version"], &[]).await;
        let reply = reply.map_err(|error| self.failed(attempted, error))?;
        let reply: Value = serde_json::from_slice(&reply)
            .map_err(|error| ClusterError::Refused(format!("{attempted}: {error}")))?;
        let version = ClusterVersion::of(&reply);
        self.state.lock().version = Some(version.clone());
        Ok(version)
    }

    /// Returns the identity of another cluster: the uid of its namespace `kube-system`. `None` for the local cluster,
    /// and if the credential may not read it.
    pub(crate) async fn uid(&self) -> Result<Option<String>, ClusterError> {
        if self.member.is_none() {
            return Ok(None);
        }
        let known = self.state.lock().uid.clone();
        let uid = match known {
            Some(uid) => uid,
            None => self.read_uid().await?,
        };
        Ok(Some(uid).filter(|uid| !uid.is_empty()))
    }

    async fn read_uid(&self) -> Result<String, ClusterError> {
        self.reach()?;
        let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
        let uid = match self.discovery.get(&namespaces, &Key::cluster("kube-system")).await {
            Ok(namespace) => namespace.meta().uid.to_string(),
            Err(error) if matches!(error.code(), Some(403 | 404)) => String::new(),
            Err(error) => return Err(self.failed("read namespace kube-system", error)),
        };
        self.state.lock().uid = Some(uid.clone());
        Ok(uid)
    }

    /// Watches applied objects of a kind.
    pub(crate) fn watch(&self, kind: &Kind) {
        let mut state = self.state.lock();
        if state.watched.contains_key(kind) || (self.member.is_some() && state.watched.len() >= MAX_WATCHED) {
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
        self.reach()?;
        match self.client.get(&of.kind, &of.key).await {
            Ok(object) => decoded(&object).map(Some),
            Err(error) if is_unserved(&error) => {
                self.forget(&of.kind);
                Err(self.failed(format!("read {of}"), error))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(self.failed(format!("read {of}"), error)),
        }
    }

    /// Creates an object. Fails if it exists, because it may belong to another application.
    pub(crate) async fn create(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        self.reach()?;
        self.watch(&of.kind);
        let manager = self.watcher.field_manager;
        let created = self.client.create_as(&of.kind, of.namespace(), manager, manifest).await;
        self.answer(of, "create", created)
    }

    /// Applies the fields of a manifest to an object that was read and has not changed since.
    pub(crate) async fn apply_to(
        &self,
        of: &Identity,
        live: &Value,
        mut manifest: Value,
    ) -> Result<Value, ClusterError> {
        let version = self.take_fields(of, &live["metadata"]["resourceVersion"]).await?;
        if let Some(meta) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("resourceVersion".to_owned(), version);
        }
        self.apply(of, &manifest).await
    }

    /// Moves the ownership of fields from this program's create to its server-side apply, which then removes fields
    /// that are dropped from a manifest. Returns the version of the object.
    async fn take_fields(&self, of: &Identity, version: &Value) -> Result<Value, ClusterError> {
        let found = self.client.get(&of.kind, &of.key).await;
        let found = found.map_err(|error| self.failed(format!("read {of}"), error))?;
        let found: Value =
            found.decode().map_err(|error| ClusterError::Refused(format!("decode {of}: {error}")))?;
        let entries = found["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(taken) = managers::taken(entries, self.watcher.field_manager) else {
            return Ok(version.clone());
        };
        let patched = self.merge(of, version, &json!({"metadata": {"managedFields": taken}})).await?;
        Ok(patched["metadata"]["resourceVersion"].clone())
    }

    /// Applies the fields of a manifest with server-side apply. If it has a resource version, it is a precondition.
    pub(crate) async fn apply(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        self.reach()?;
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

    /// Creates or merges a manifest that server-side apply cannot express: one with duplicate environment variables,
    /// which Kubernetes allows.
    async fn write_plainly(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        match &manifest["metadata"]["resourceVersion"] {
            version if !version.is_null() => self.merge(of, version, manifest).await,
            _ => {
                let created = self.client.create(&of.kind, of.namespace(), manifest).await;
                self.answer(of, "create", created)
            }
        }
    }

    /// Replaces an object. The manifest must have the resource version that was read.
    pub(crate) async fn replace(&self, of: &Identity, manifest: &Value) -> Result<Value, ClusterError> {
        self.reach()?;
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
        self.reach()?;
        let mut patch = patch.clone();
        paths::set(&mut patch, "metadata.resourceVersion", version.clone())
            .map_err(|why| ClusterError::Refused(format!("patch {of}: {why}")))?;
        let patched = self.client.patch(&of.kind, &of.key, Subresource::None, Patch::merge(&patch));
        self.answer(of, "patch", patched.await)
    }

    /// Deletes the object with this uid. Succeeds if it is gone.
    pub(crate) async fn delete(
        &self,
        of: &Identity,
        live: &Value,
        policy: PropagationPolicy,
    ) -> Result<(), ClusterError> {
        self.reach()?;
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let options = DeleteOptions { propagation: Some(policy), ..DeleteOptions::of_uid(uid) };
        match self.client.delete(&of.kind, &of.key, &options).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(self.failed(format!("delete {of}"), error)),
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
        self.reach()?;
        let selection = Selection { namespace: namespace.map(str::to_owned), labels, ..Selection::default() };
        match self.client.list(kind, &selection).await {
            Ok(listed) => listed.objects.iter().map(decoded).collect(),
            Err(error) => {
                if is_unserved(&error) {
                    self.forget(kind);
                }
                Err(self.failed(format!("list {}", kind.plural()), error))
            }
        }
    }

    fn answer(
        &self,
        of: &Identity,
        verb: &str,
        answer: Result<Object, ClientError>,
    ) -> Result<Value, ClusterError> {
        match answer {
            Ok(object) => {
                self.member.iter().for_each(|member| member.reach.succeeded());
                (self.watcher.wrote)(&object);
                decoded(&object)
            }
            Err(error) => {
                if is_unserved(&error) {
                    self.forget(&of.kind);
                }
                Err(self.failed(format!("{verb} {of}"), error))
            }
        }
    }
}

/// Returns a served kind, ignoring case: KubeVela's `clean-jobs` uses the kind `pod`.
fn named(discovered: &Discovered, api_version: &str, kind: &str) -> Option<Kind> {
    let similar = |served: &&Kind| {
        served.kind().eq_ignore_ascii_case(kind) && served.is_named(api_version, served.kind())
    };
    let mut all = discovered.resources().iter().map(|resource| &resource.kind);
    discovered.kind(api_version, kind).or_else(|| all.find(similar)).cloned()
}

/// Returns whether the discovery of a group is complete. Every server of a cluster has a core group, so without one it
/// was not discovered.
fn is_complete(discovered: &Discovered, group: &str) -> bool {
    let is_found = discovered.resources().iter().any(|resource| resource.kind.group() == group);
    !discovered.failed_group(group) && (is_found || !group.is_empty())
}

/// Returns whether the server does not serve the kind. For a missing object or namespace, the response has its name.
fn is_unserved(error: &ClientError) -> bool {
    error.code() == Some(404) && !error.to_string().contains("\" not found")
}

/// Decodes an object, without managed fields.
pub(crate) fn decoded(object: &Object) -> Result<Value, ClusterError> {
    let mut value: Value = object
        .decode()
        .map_err(|error| ClusterError::Refused(format!("decode {}: {error}", object.key())))?;
    if let Some(meta) = value["metadata"].as_object_mut() {
        meta.remove("managedFields");
    }
    Ok(value)
}

/// Returns the application in an object's labels.
fn application_of(object: &Object) -> Option<Key> {
    let meta = object.meta();
    Some(Key::namespaced(meta.label(names::APP_NAMESPACE)?, meta.label(names::APP_NAME)?))
}

/// Returns whether an event is relevant for the application of an object. A change of its application is.
fn is_news(echoes: &Echoes, event: &Event) -> bool {
    let app = application_of(event.object());
    let is_moved = event.old().is_some_and(|old| application_of(old) != app);
    is_moved || app.is_none_or(|app| echoes.is_news(&app, event))
}

/// Returns the WorkflowRun in an object's labels.
fn run_of(object: &Object) -> Option<Key> {
    let meta = object.meta();
    Some(Key::namespaced(meta.label(names::RUN_NAMESPACE)?, meta.label(names::RUN_NAME)?))
}

/// Returns a manifest's `apiVersion` and `kind`.
pub(crate) fn kind_of(manifest: &Value) -> (&str, &str) {
    (manifest["apiVersion"].as_str().unwrap_or_default(), manifest["kind"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_or_namespace_says_nothing_about_its_kind() {
        let check = |message: &str, expected: bool| {
            let status = json!({"kind": "Status", "reason": "NotFound", "code": 404, "message": message});
            let error = ClientError::from_reply(404, &Default::default(), status.to_string().as_bytes());
            assert_eq!(is_unserved(&error), expected, "{message}");
        };
        check("configmaps \"a\" not found", false);
        check("namespaces \"live\" not found", false);
        check("the server could not find the requested resource", true);
        let page = ClientError::from_reply(404, &Default::default(), b"404 page not found");
        assert!(is_unserved(&page));
    }
}
