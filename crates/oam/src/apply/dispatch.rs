//! Checks, records and writes the objects of an application.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use setpoint::client::PropagationPolicy;

use super::cluster::{Cluster, ClusterError, kind_of};
use super::identity::Identity;
use super::ownership::{self, Permissions};
use super::tracker::{Managed, Trackers};
use super::{drift, paths, shape};
use crate::clusters::Clusters;
use crate::digest;
use crate::names;
use crate::policy::placement::Placement;
use crate::policy::selector::Subject;
use crate::policy::{Lifetime, Moment, Policies};
use crate::render::component::set_label;

/// Writes objects for one application.
pub(crate) struct Dispatcher<'a> {
    pub(crate) clusters: &'a Clusters,
    pub(crate) policies: &'a Policies,
    /// The application, as `namespace/name`.
    pub(crate) app: &'a str,
}

/// The maximum number of attempts for a write with conflicts. Controllers write the status of an object a few times in
/// a row.
const ATTEMPTS: usize = 4;

/// A checked manifest.
pub(crate) struct Checked {
    cluster: Cluster,
    pub(crate) identity: Identity,
    pub(crate) manifest: Arc<Value>,
    live: Option<Value>,
    read_only: bool,
    permissions: Permissions,
}

impl Checked {
    /// Returns whether the object does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.live.is_none()
    }
}

impl Dispatcher<'_> {
    /// Applies manifests: all are checked before any is recorded, and all are recorded before any is written. Returns
    /// the live objects.
    pub(crate) async fn dispatch(
        &self,
        trackers: &mut Trackers,
        manifests: Vec<Value>,
        place: &Placement,
        creator: &str,
    ) -> Result<Vec<Value>, ClusterError> {
        let cluster = self.clusters.get(&place.cluster)?;
        let mut checked = Vec::with_capacity(manifests.len());
        for manifest in manifests {
            checked.push(self.check(&cluster, manifest, &place.namespace).await?);
        }
        if let Some(uid) = cluster.uid().await? {
            trackers.know(cluster.name(), uid);
        }
        let (versioned, root) = self.entries(&checked, creator);
        trackers.record(versioned, root).await?;
        let mut live = Vec::with_capacity(checked.len());
        for object in &checked {
            live.push(self.write(object, Moment::Update).await?);
        }
        Ok(live)
    }

    /// Completes a manifest and checks that it may be written.
    async fn check(
        &self,
        cluster: &Cluster,
        mut manifest: Value,
        namespace: &str,
    ) -> Result<Checked, ClusterError> {
        shape::check(&manifest).map_err(ClusterError::Refused)?;
        let (api_version, kind) = kind_of(&manifest);
        let kind = cluster.kind(api_version, kind).await?;
        let identity = Identity::of(&kind, &manifest, namespace);
        match identity.namespace() {
            Some(namespace) => manifest["metadata"]["namespace"] = namespace.into(),
            None => paths::remove(&mut manifest, "metadata.namespace"),
        }
        paths::remove(&mut manifest, "status");
        if !cluster.name().is_empty() {
            set_label(&mut manifest, names::APP_CLUSTER, cluster.name());
        }
        let hash = digest::hash(&manifest);
        set_label(&mut manifest, names::RENDER_HASH, &hash);
        self.checked(cluster, identity, Arc::new(manifest)).await
    }

    /// Checks a manifest from a record.
    pub(crate) async fn check_recorded(&self, entry: &Managed) -> Result<Checked, ClusterError> {
        let cluster = self.clusters.get(entry.cluster())?;
        let kind = cluster.kind(&entry.api_version, &entry.kind).await?;
        let identity = Identity::of(&kind, &entry.raw, &entry.namespace);
        self.checked(&cluster, identity, entry.raw.clone()).await
    }

    async fn checked(
        &self,
        cluster: &Cluster,
        identity: Identity,
        manifest: Arc<Value>,
    ) -> Result<Checked, ClusterError> {
        let subject = Subject(&manifest);
        let (read_only, permissions) =
            (self.policies.is_read_only(&subject), self.policies.permissions(&subject));
        let live = cluster.get(&identity).await?;
        self.allow(&identity, live.as_ref(), read_only, permissions)?;
        let cluster = cluster.clone();
        Ok(Checked { cluster, identity, manifest, live, read_only, permissions })
    }

    fn allow(
        &self,
        of: &Identity,
        live: Option<&Value>,
        read_only: bool,
        may: Permissions,
    ) -> Result<(), ClusterError> {
        match live {
            None if read_only => Err(ClusterError::Refused(format!("{of} is read-only but does not exist"))),
            _ if read_only => Ok(()),
            None => Ok(()),
            Some(live) => ownership::check(live, self.app, may)
                .map_err(|why| ClusterError::Refused(format!("{of} {why}"))),
        }
    }

    /// Returns the entries of the versioned record and of the root record.
    fn entries(&self, checked: &[Checked], creator: &str) -> (Vec<Managed>, Vec<Managed>) {
        let (mut versioned, mut root) = (Vec::new(), Vec::new());
        for object in checked {
            let restored = !self.policies.applies_once();
            let (cluster, identity) = (object.cluster.name(), &object.identity);
            let mut entry = Managed::of(cluster, identity, &object.manifest, creator, restored);
            let lifetime = self.policies.garbage.lifetime(&Subject(&object.manifest));
            entry.skip_gc = object.read_only || lifetime == Lifetime::Never;
            match lifetime {
                Lifetime::OnAppUpdate => versioned.push(entry),
                Lifetime::OnAppDelete | Lifetime::Never => root.push(entry),
            }
        }
        (versioned, root)
    }

    /// Writes an object if it differs from the desired one. Returns the resulting object. An object that has changed or
    /// been created since it was read is checked again, because it may belong to another application now.
    pub(crate) async fn write(&self, object: &Checked, moment: Moment) -> Result<Value, ClusterError> {
        let mut written = self.write_once(object, moment).await;
        for _ in 1..ATTEMPTS {
            if !written.as_ref().is_err_and(ClusterError::is_conflict) {
                break;
            }
            let (identity, manifest) = (object.identity.clone(), object.manifest.clone());
            let again = self.checked(&object.cluster, identity, manifest).await?;
            written = self.write_once(&again, moment).await;
        }
        written
    }

    async fn write_once(&self, object: &Checked, moment: Moment) -> Result<Value, ClusterError> {
        let of = &object.identity;
        object.cluster.watch(&of.kind);
        let Some(live) = &object.live else {
            let manifest = self.shared(object, None);
            return object.cluster.create(of, &manifest).await;
        };
        if object.read_only {
            return Ok(live.clone());
        }
        if object.permissions.shared && ownership::owner(live).is_some_and(|owner| owner != self.app) {
            return self.join(object, live).await;
        }
        let mut manifest = self.shared(object, Some(live));
        self.keep_live_values(&mut manifest, live, moment);
        if drift::has(live, &manifest) {
            return Ok(live.clone());
        }
        self.update(object, live, manifest.into_owned()).await
    }

    async fn update(
        &self,
        object: &Checked,
        live: &Value,
        mut manifest: Value,
    ) -> Result<Value, ClusterError> {
        let of = &object.identity;
        let strategy = self.policies.update_strategy(&Subject(&object.manifest));
        let recreated =
            strategy.recreate_fields.iter().any(|path| paths::get(live, path) != paths::get(&manifest, path));
        if recreated {
            object.cluster.delete(of, live, PropagationPolicy::Background).await?;
            if object.cluster.get(of).await?.is_some() {
                return Err(ClusterError::Refused(format!("{of} is being deleted, to be made again")));
            }
            return object.cluster.create(of, &manifest).await;
        }
        if strategy.replaces() {
            manifest["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            return object.cluster.replace(of, &manifest).await;
        }
        object.cluster.apply_to(of, live, manifest).await
    }

    /// Copies the live values at paths that a policy leaves to other writers.
    fn keep_live_values(&self, manifest: &mut Cow<'_, Value>, live: &Value, moment: Moment) {
        for path in self.policies.kept_paths(&Subject(manifest), moment) {
            let manifest = manifest.to_mut();
            if path == "*" {
                let own = manifest["metadata"].clone();
                manifest.clone_from(live);
                manifest["metadata"] = own;
                return;
            }
            match paths::get(live, &path) {
                // A value that does not fit anywhere in the manifest is not in it.
                Some(value) => drop(paths::set(manifest, &path, value.clone())),
                None => paths::remove(manifest, &path),
            }
        }
    }

    /// Adds this application to the sharers of an object that it writes.
    fn shared<'o>(&self, object: &'o Checked, live: Option<&Value>) -> Cow<'o, Value> {
        if !object.permissions.shared {
            return Cow::Borrowed(&object.manifest);
        }
        let mut manifest = Value::clone(&object.manifest);
        let mut sharers = live.map(ownership::sharers).unwrap_or_default();
        if !sharers.iter().any(|name| name == self.app) {
            sharers.insert(0, self.app.to_owned());
        }
        if !manifest["metadata"]["annotations"].is_object() {
            manifest["metadata"]["annotations"] = serde_json::json!({});
        }
        manifest["metadata"]["annotations"][names::SHARED_BY] = sharers.join(",").into();
        Cow::Owned(manifest)
    }

    /// Joins the sharers of an object that another application writes.
    async fn join(&self, object: &Checked, live: &Value) -> Result<Value, ClusterError> {
        let mut sharers = ownership::sharers(live);
        if sharers.iter().any(|name| name == self.app) {
            return Ok(live.clone());
        }
        if let (true, Some(owner)) = (sharers.is_empty(), ownership::owner(live)) {
            sharers.push(owner);
        }
        sharers.push(self.app.to_owned());
        let patch = serde_json::json!({"metadata": {"annotations": {names::SHARED_BY: sharers.join(",")}}});
        object.cluster.merge(&object.identity, &live["metadata"]["resourceVersion"], &patch).await
    }
}
