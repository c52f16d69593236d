//! Typed reads and writes: the kind, the namespace and the name come from the value.
//!
//! Invariant: no write is blind. A create fails if the object exists. An update carries the resource version, a status
//! patch and a delete carry the uid of the object that was read. Everything else is a server-side apply.

mod applied;
mod body;
mod contained;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use crate::client::{DeleteOptions, Optional, Patch, Subresource};
use crate::source::Selection;
use crate::{Client, ClientError, Identify, Identity, Key, Kind, Object, View, WholeView};
use applied::Applied;
use body::Body;

/// Typed reads and writes of objects of any kind. Cheap to clone.
///
/// Reads go to the API server. [`Context::cached`](crate::Context::cached) and [`Lister`](crate::Lister) read caches.
/// [`of_kind`](Self::of_kind) has the same methods for kinds that are only known at run time. [`Client`] sends the
/// underlying requests.
///
/// ```no_run
/// # async fn example(context: setpoint::Context) -> Result<(), setpoint::ClientError> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use setpoint::Key;
/// let key = Key::namespaced("shop", "settings");
/// let data = Some([("colour".to_owned(), "red".to_owned())].into());
/// context.api.apply(&ConfigMap { metadata: key.metadata(), data, ..ConfigMap::default() }).await?;
/// let map: ConfigMap = context.api.get(&key).await?;
/// context.api.delete(&map).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Api {
    client: Client,
    manager: Arc<str>,
    applied: Arc<Applied>,
}

/// The methods of [`Api`] for a kind that is known at run time. Bodies are anything that encodes to an object, such as
/// `json!({…})` or kube's `DynamicObject`. See [`Api::of_kind`].
///
/// ```no_run
/// # async fn example(context: setpoint::Context) -> Result<(), setpoint::ClientError> {
/// use setpoint::Kind;
/// let widgets = Kind::new("example.com", "v1", "Widget", "widgets", true);
/// let widget = serde_json::json!({"metadata": {"name": "big", "namespace": "shop"}, "spec": {"size": 3}});
/// let created = context.api.of_kind(&widgets).create(&widget).await?;
/// assert_eq!(created.key().name(), "big");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct KindApi<'a> {
    api: &'a Api,
    kind: &'a Kind,
}

impl Api {
    /// Wraps a client. `manager` is the field manager of server-side applies.
    pub fn new(client: Client, manager: impl Into<Arc<str>>) -> Self {
        Self { client, manager: manager.into(), applied: Arc::default() }
    }

    /// Returns the underlying client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the same methods for a kind that is known at run time.
    pub fn of_kind<'a>(&'a self, kind: &'a Kind) -> KindApi<'a> {
        KindApi { api: self, kind }
    }

    /// Reads an object from the API server.
    pub async fn get<V: View>(&self, key: &Key) -> Result<V, ClientError> {
        decode(&self.of_kind(&V::kind()).get(key).await?)
    }

    /// Reads an object from the API server, or returns `None` if it does not exist.
    pub async fn get_opt<V: View>(&self, key: &Key) -> Result<Option<V>, ClientError> {
        self.get(key).await.optional()
    }

    /// Lists all objects, or those of a namespace, from the API server.
    pub async fn list<V: View>(&self, namespace: Option<&str>) -> Result<Vec<V>, ClientError> {
        self.of_kind(&V::kind()).list(namespace).await?.iter().map(decode).collect()
    }

    /// Lists the objects of a selection from the API server.
    pub async fn list_selected<V: View>(&self, selection: &Selection) -> Result<Vec<V>, ClientError> {
        self.of_kind(&V::kind()).list_selected(selection).await?.iter().map(decode).collect()
    }

    /// Creates an object and returns it as stored. Fails if it exists.
    pub async fn create<V: View + Serialize>(&self, object: &V) -> Result<V, ClientError> {
        decode(&self.of_kind(&V::kind()).create(object).await?)
    }

    /// Applies the fields that are set, with server-side apply, and returns the resulting object. Creates the object if
    /// it does not exist, takes over the given fields from other managers, and removes fields that this manager applied
    /// before and that are now missing. The API server writes nothing if nothing changes.
    pub async fn apply<V: View + Serialize>(&self, object: &V) -> Result<V, ClientError> {
        decode(&self.of_kind(&V::kind()).apply(object).await?)
    }

    /// Replaces an object that was read before. Fails with a conflict if it has changed since. Not for views with only
    /// some of the fields, because it would delete the others.
    ///
    /// ```compile_fail
    /// # async fn example(context: setpoint::Context) -> Result<(), setpoint::ClientError> {
    /// #[derive(serde::Deserialize, serde::Serialize)]
    /// struct Labels { metadata: serde_json::Value }
    /// setpoint::view!(Labels of k8s_openapi::api::core::v1::Namespace);
    /// let labels: Labels = context.api.get(&setpoint::Key::cluster("shop")).await?;
    /// context.api.update(&labels).await?;
    /// # Ok(()) }
    /// ```
    pub async fn update<V: WholeView + Serialize>(&self, object: &V) -> Result<V, ClientError> {
        decode(&self.of_kind(&V::kind()).update(object).await?)
    }

    /// Replaces the status of an object that was read before. Fails with a conflict if the object has changed since.
    pub async fn update_status<V: WholeView + Serialize>(&self, object: &V) -> Result<V, ClientError> {
        decode(&self.of_kind(&V::kind()).update_status(object).await?)
    }

    /// Sets the status of a cached object, unless it is already `status`. Returns whether it was written.
    ///
    /// The object may have changed in the meantime, but must not have been replaced by another of the same name.
    ///
    /// ```no_run
    /// # async fn example(context: setpoint::Context, pod: setpoint::Cached<k8s_openapi::api::core::v1::Pod>) -> Result<(), setpoint::ReconcileError> {
    /// context.api.patch_status(&pod, &serde_json::json!({"phase": "Failed"})).await?;
    /// # Ok(()) }
    /// ```
    pub async fn patch_status<V: View>(
        &self,
        object: &crate::Cached<V>,
        status: &impl Serialize,
    ) -> Result<bool, ClientError> {
        self.of_kind(&V::kind()).patch_status(object.object(), status).await
    }

    /// Deletes an object that was read before, but not another of the same name.
    pub async fn delete(&self, object: &impl Identify) -> Result<(), ClientError> {
        self.delete_with(object, DeleteOptions::default()).await
    }

    /// Deletes an object that was read before, with options.
    pub async fn delete_with(
        &self,
        object: &impl Identify,
        options: DeleteOptions,
    ) -> Result<(), ClientError> {
        let Identity { kind, key, uid, .. } = object.identity();
        if uid.is_empty() {
            return Err(body::unread(&kind, &key, "metadata.uid", "deleted"));
        }
        self.client.delete(&kind, &key, &DeleteOptions { uid: Some(uid.into()), ..options }).await
    }
}

impl KindApi<'_> {
    /// Reads an object from the API server.
    pub async fn get(&self, key: &Key) -> Result<Object, ClientError> {
        self.api.client.get(self.kind, key).await
    }

    /// Reads an object from the API server, or returns `None` if it does not exist.
    pub async fn get_opt(&self, key: &Key) -> Result<Option<Object>, ClientError> {
        self.get(key).await.optional()
    }

    /// Lists all objects, or those of a namespace, from the API server.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<Object>, ClientError> {
        let namespace = namespace.map(str::to_owned);
        self.list_selected(&Selection { namespace, ..Selection::default() }).await
    }

    /// Lists the objects of a selection from the API server. An object that cannot be decoded is an error.
    pub async fn list_selected(&self, selection: &Selection) -> Result<Vec<Object>, ClientError> {
        let listed = self.api.client.list(self.kind, selection).await?;
        match listed.undecodable {
            0 => Ok(listed.objects),
            count => Err(body::undecodable(self.kind, count)),
        }
    }

    /// Creates an object and returns it as stored. Fails if it exists.
    pub async fn create(&self, object: &impl Serialize) -> Result<Object, ClientError> {
        let body = Body::of(self.kind, object)?;
        self.api.client.create_encoded(self.kind, body.key().namespace(), body.encode()).await
    }

    /// Applies the fields that are set. See [`Api::apply`].
    pub async fn apply(&self, object: &impl Serialize) -> Result<Object, ClientError> {
        let body = Body::of(self.kind, object)?.named("applied")?;
        let key = body.key();
        let manager = self.api.manager.to_string();
        let patch = Patch::Apply { body: body.into_applied(), manager, force: true };
        self.api.client.patch(self.kind, &key, Subresource::None, patch).await
    }

    /// Applies the fields that are set, unless `observed` returns an object that has them and the last apply set the
    /// same fields. Returns whether the object changed.
    pub(crate) async fn apply_unless(
        &self,
        object: &impl Serialize,
        observed: impl FnOnce(&Key) -> Option<Object>,
    ) -> Result<bool, ClientError> {
        let body = Body::of(self.kind, object)?;
        let (key, observed) = (body.key(), observed(&body.key()));
        let is_there = observed.as_ref().is_some_and(|observed| body.is_contained_in(observed));
        let body = body.into_applied();
        if is_there && self.api.applied.is_last(self.kind, &key, &body) {
            return Ok(false);
        }
        let applied = self.apply(object).await?;
        self.api.applied.add(self.kind, &key, &body);
        Ok(observed.is_none_or(|before| !before.same_version(&applied)))
    }

    /// Replaces an object that was read before. Fails with a conflict if it has changed since.
    pub async fn update(&self, object: &impl Serialize) -> Result<Object, ClientError> {
        self.replace(object, Subresource::None).await
    }

    /// Replaces the status of an object that was read before. Fails with a conflict if the object has changed since.
    pub async fn update_status(&self, object: &impl Serialize) -> Result<Object, ClientError> {
        self.replace(object, Subresource::Status).await
    }

    /// Sets the status of an object, unless it is already `status`. See [`Api::patch_status`].
    pub async fn patch_status(&self, object: &Object, status: &impl Serialize) -> Result<bool, ClientError> {
        let Identity { key, uid, .. } = object.of_kind(self.kind).identity();
        if uid.is_empty() {
            return Err(body::unread(self.kind, &key, "metadata.uid", "patched"));
        }
        let before = body::status_of(object)?;
        let status = body::without_nulls(body::to_json(status)?);
        if before == status {
            return Ok(false);
        }
        let patch = json!({"metadata": {"uid": uid}, "status": body::replacing(&before, status)});
        self.api.client.patch(self.kind, &key, Subresource::Status, Patch::merge(&patch)).await?;
        Ok(true)
    }

    async fn replace(
        &self,
        object: &impl Serialize,
        subresource: Subresource,
    ) -> Result<Object, ClientError> {
        let body = Body::of(self.kind, object)?.named("updated")?.versioned()?;
        self.api.client.update_encoded(self.kind, &body.key(), subresource, body.encode()).await
    }
}

fn decode<V: View>(object: &Object) -> Result<V, ClientError> {
    object.decode().map_err(|error| ClientError::InvalidResponse(Box::new(error)))
}
