//! The client: any `kube::Client`, used with encoded bytes.
//!
//! Responses stay encoded: a controller that only needs to know that a create succeeded does not pay for decoding it.
//! Every update and delete carries a precondition.
//!
//! Invariants:
//! - A request is sent once. The caller knows best whether to retry it; a worker requeues failed reconciles.
//! - A request without a response is a [`ClientError::Transport`]: it may have been executed.

mod error;
#[cfg(test)]
pub(crate) mod fake;
mod list;
mod path;
mod send;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use kube::client::Body;
use serde::Serialize;

pub use error::{Cause, ClientError, IgnoreErrors, Optional};

use crate::adaptive::AdaptiveLimits;
use crate::leader::Fence;
use crate::metrics::Metrics;
use crate::{Clock, Key, Kind, Object, pending_writes};
use send::{Call, Transport};

/// A client for all kinds. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use setpoint::{Client, Key, Kind};
/// # use http::{Request, Response};
/// # use kube::client::Body;
/// # let service = tower::service_fn(|request: Request<Body>| async move {
/// #     let body = format!(r#"{{"metadata":{{"name":"web","namespace":"default","uid":"1"}},"path":"{}"}}"#, request.uri());
/// #     Ok::<_, std::convert::Infallible>(Response::new(Body::from(body.into_bytes())))
/// # });
/// # let kube_client = kube::Client::new(service, "default");
/// let client = Client::new(kube_client);
/// let pods = Kind::new("", "v1", "Pod", "pods", true);
/// let pod = client.get(&pods, &Key::namespaced("default", "web")).await.unwrap();
/// assert_eq!(&*pod.meta().uid, "1");
/// # });
/// ```
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    /// Whether reconciles wait for caches that show the writes.
    untracked: bool,
}

/// The object itself, or one of its subresources.
///
/// ```
/// # async fn example(client: setpoint::Client, pods: setpoint::Kind, pod: setpoint::Object) -> Result<(), setpoint::ClientError> {
/// use setpoint::client::Subresource;
/// let status = serde_json::json!({"status": {"phase": "Running"}});
/// client.update(&pods, pod.key(), Subresource::Status, &status).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    None,
    /// The `status` subresource.
    Status,
    /// The `scale` subresource.
    Scale,
    /// The `binding` subresource of a pod, which assigns it to a node.
    Binding,
    /// The `eviction` subresource of a pod.
    Eviction,
    /// The `finalize` subresource of a namespace.
    Finalize,
    /// The `approval` subresource of a certificate signing request.
    Approval,
    /// The `token` subresource of a service account.
    Token,
}

/// An encoded patch.
///
/// ```
/// use setpoint::client::Patch;
/// let patch = Patch::merge(&serde_json::json!({"metadata": {"labels": {"tier": "front"}}}));
/// assert!(matches!(patch, Patch::Merge(_)));
/// ```
#[derive(Clone, Debug)]
pub enum Patch {
    /// A JSON patch (RFC 6902).
    Json(Bytes),
    /// A JSON merge patch (RFC 7386).
    Merge(Bytes),
    /// A strategic merge patch, which merges lists by their keys.
    Strategic(Bytes),
    /// A server-side apply.
    Apply {
        /// The fields to apply.
        body: Bytes,
        /// The field manager.
        manager: String,
        /// Whether to take over fields that other managers own.
        force: bool,
    },
}

/// The options and preconditions of a delete.
///
/// ```
/// use setpoint::client::{DeleteOptions, PropagationPolicy};
/// let delete = DeleteOptions { propagation: Some(PropagationPolicy::Background), ..DeleteOptions::of_uid("7f3e") };
/// assert_eq!(delete.uid.as_deref(), Some("7f3e"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Precondition: the object has this uid.
    pub uid: Option<String>,
    /// Precondition: the object has this resource version.
    pub resource_version: Option<String>,
    /// The grace period. 0 deletes immediately.
    pub grace_period_seconds: Option<i64>,
    /// What happens to the dependents.
    pub propagation: Option<PropagationPolicy>,
}

/// What happens to the dependents of a deleted object.
///
/// ```
/// use setpoint::client::PropagationPolicy;
/// assert_eq!(serde_json::to_string(&PropagationPolicy::Orphan).unwrap(), "\"Orphan\"");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PropagationPolicy {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They are kept.
    Orphan,
}

impl Client {
    /// Wraps a `kube::Client`.
    pub fn new(kube: kube::Client) -> Self {
        Self { transport: Transport::new(kube), untracked: false }
    }

    /// Sets the user agent. The API server uses the part before the first `/` as the manager of the fields that this
    /// client writes.
    pub fn with_user_agent(mut self, user_agent: &str) -> Self {
        self.transport.set_user_agent(user_agent);
        self
    }

    /// Appends a purpose to the user agent, after a `/`, so that the field manager stays the same.
    pub fn add_user_agent(mut self, purpose: &str) -> Self {
        self.transport.add_user_agent(purpose);
        self
    }

    /// Limits requests to `per_second`, with bursts of `burst`. Clones share the limit.
    pub fn with_rate_limit(mut self, clock: &Clock, per_second: f64, burst: u32) -> Self {
        self.transport.set_rate_limit(clock, per_second, burst);
        self
    }

    /// Limits requests to a rate that adapts to their latency and failures.
    pub fn with_adaptive_limits(mut self, clock: &Clock, adaptive: &AdaptiveLimits) -> Self {
        self.transport.set_adaptive(clock, adaptive);
        self
    }

    /// Limits the number of concurrent requests, not counting open watches. Clones share the limit.
    pub fn with_connections(mut self, most: usize) -> Self {
        self.transport.set_connections(most);
        self
    }

    /// Sets the timeout for a response (default: none, unless the `kube::Client` has one).
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.transport.set_timeout(timeout);
        self
    }

    /// Acts as another user, with only that user's permissions. This client's own user needs permission to impersonate.
    /// A name that is not valid in a header fails every request.
    ///
    /// ```
    /// # fn example(client: setpoint::Client) {
    /// let tenant = client.impersonating("system:serviceaccount:shop:deployer");
    /// # }
    /// ```
    pub fn impersonating(mut self, user: &str) -> Self {
        self.transport.impersonate(user);
        self
    }

    /// Does not record the writes of this client for reconciles that read their own writes: it writes to a different
    /// API server than the one the caches read from.
    pub fn untracked(mut self) -> Self {
        self.untracked = true;
        self
    }

    /// Sends writes only while this fence allows them. Other writes fail with [`ClientError::Fenced`].
    pub fn with_fence(mut self, fence: &Fence) -> Self {
        self.transport.set_fence(fence);
        self
    }

    /// Counts and times requests as `rest_client_*`, with `host` as a label.
    pub fn with_metrics(mut self, clock: &Clock, metrics: &Metrics, host: &str) -> Self {
        self.transport.set_metrics(clock, metrics.requests(host));
        self
    }

    /// Returns the underlying `kube::Client`, for everything that this client does not offer.
    pub fn kube(&self) -> &kube::Client {
        self.transport.kube()
    }

    /// Reads an object from the API server, not from a cache.
    pub async fn get(&self, kind: &Kind, key: &Key) -> Result<Object, ClientError> {
        self.object(Call::new(Method::GET, path::object(kind, key, Subresource::None))).await
    }

    /// Reads a subresource, such as the scale.
    pub async fn get_subresource(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
    ) -> Result<Object, ClientError> {
        self.object(Call::new(Method::GET, path::object(kind, key, subresource))).await
    }

    /// Creates an object. `namespace` is `None` for a cluster-scoped object.
    ///
    /// With `metadata.generateName` instead of a name, the API server generates the name. The response contains it.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        self.create_encoded(kind, namespace, encode(body)?).await
    }

    /// Creates an object with `manager` as the field manager of its fields.
    pub async fn create_as(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        manager: &str,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        let path = path::with_query(path::collection(kind, namespace), &[("fieldManager", Some(manager))]);
        self.written(kind, Call::new(Method::POST, path).json(encode(body)?)).await
    }

    /// Creates an object that is already encoded.
    pub async fn create_encoded(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        body: Bytes,
    ) -> Result<Object, ClientError> {
        let call = Call::new(Method::POST, path::collection(kind, namespace)).json(body);
        self.written(kind, call).await
    }

    /// Creates an object without reading the response.
    pub async fn create_ignoring_response(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::POST, path::collection(kind, namespace)).json(encode(body)?);
        self.send_ignoring_response(kind, call).await
    }

    /// Replaces an object or a subresource. The body must contain the resource version it was read at.
    pub async fn update(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        self.update_encoded(kind, key, subresource, encode(body)?).await
    }

    /// Replaces an object or a subresource with an encoded body.
    pub async fn update_encoded(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
        body: Bytes,
    ) -> Result<Object, ClientError> {
        self.written(kind, Call::new(Method::PUT, path::object(kind, key, subresource)).json(body)).await
    }

    /// Patches an object or a subresource.
    pub async fn patch(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
        patch: Patch,
    ) -> Result<Object, ClientError> {
        self.written(kind, patching(kind, key, subresource, patch)).await
    }

    /// Patches an object without reading the response.
    pub async fn patch_ignoring_response(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
        patch: Patch,
    ) -> Result<(), ClientError> {
        self.send_ignoring_response(kind, patching(kind, key, subresource, patch)).await
    }

    /// Applies fields with server-side apply, as the field manager `manager`. Creates the object if it does not exist.
    /// Takes over the given fields from other managers. Removes fields that were applied before and are now missing,
    /// unless another manager owns them too. The API server writes nothing if nothing changes, so a steady state makes
    /// no writes.
    ///
    /// ```no_run
    /// # async fn example(client: setpoint::Client) -> Result<(), setpoint::ClientError> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::{Key, Kind, client::Subresource};
    /// let (configs, key) = (Kind::of::<ConfigMap>(), Key::namespaced("shop", "settings"));
    /// let fields = serde_json::json!({"data": {"colour": "red"}});
    /// client.apply(&configs, &key, Subresource::None, "shop-operator", fields).await?;
    /// # Ok(()) }
    /// ```
    pub async fn apply(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
        manager: &str,
        fields: serde_json::Value,
    ) -> Result<Object, ClientError> {
        self.patch(kind, key, subresource, Patch::apply(kind, key, manager, fields)).await
    }

    /// Returns what an [`apply`](Self::apply) would result in, without writing anything.
    pub async fn preview_apply(
        &self,
        kind: &Kind,
        key: &Key,
        manager: &str,
        fields: serde_json::Value,
    ) -> Result<Object, ClientError> {
        let call = patching(kind, key, Subresource::None, Patch::apply(kind, key, manager, fields));
        self.object(call.dry_run()).await
    }

    /// Creates through a subresource (`binding`, `eviction`).
    pub async fn post(
        &self,
        kind: &Kind,
        key: &Key,
        subresource: Subresource,
        body: &impl Serialize,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::POST, path::object(kind, key, subresource)).json(encode(body)?);
        self.transport.send(call).await.map(drop)
    }

    /// Deletes an object, or requests its deletion if it has finalizers or a grace period.
    pub async fn delete(&self, kind: &Kind, key: &Key, options: &DeleteOptions) -> Result<(), ClientError> {
        let call = Call::new(Method::DELETE, path::object(kind, key, Subresource::None))
            .json(encode(&options.body())?);
        self.transport.send(call).await?;
        if !self.untracked {
            pending_writes::deleted(kind, key, options.uid.as_deref());
        }
        Ok(())
    }

    /// Deletes all objects of a kind, or those in a namespace, each as [`delete`](Self::delete) would.
    pub async fn delete_collection(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        options: &DeleteOptions,
    ) -> Result<(), ClientError> {
        let path = path::collection(kind, namespace);
        let call = Call::new(Method::DELETE, path).json(encode(&options.body())?);
        self.transport.send(call).await.map(drop)
    }

    /// Reads a path that is not an object, such as a metric. Query pairs without a value are omitted.
    pub async fn get_path(
        &self,
        segments: &[&str],
        query: &[(&str, Option<&str>)],
    ) -> Result<Bytes, ClientError> {
        let path = path::with_query(path::of(segments), query);
        self.transport.send(Call::new(Method::GET, path)).await
    }

    /// Sends a request of another program as it is, and returns the response, whatever its status. It counts as a request
    /// of this client: same user, same limits, same fence.
    pub async fn forward(&self, request: Request<Bytes>) -> Result<Response<Body>, ClientError> {
        self.transport.forward(request).await
    }

    /// Reads a path that is not an object.
    pub(crate) async fn read(&self, path: &str, accept: &'static str) -> Result<Bytes, ClientError> {
        self.transport.send(Call::new(Method::GET, path.to_owned()).accepting(accept)).await
    }

    /// Sends a write, and records it for a reconcile that reads its own writes.
    async fn written(&self, kind: &Kind, call: Call) -> Result<Object, ClientError> {
        let object = self.object(call).await?;
        if !self.untracked {
            pending_writes::wrote(kind, &object);
        }
        Ok(object)
    }

    /// Sends a write. Reads the response only for a reconcile that reads its own writes.
    async fn send_ignoring_response(&self, kind: &Kind, call: Call) -> Result<(), ClientError> {
        match pending_writes::is_recording() && !self.untracked {
            true => self.written(kind, call).await.map(drop),
            false => self.transport.send(call).await.map(drop),
        }
    }

    async fn object(&self, call: Call) -> Result<Object, ClientError> {
        let reply = self.transport.send(call).await?;
        Object::from_json(reply).map_err(|error| ClientError::InvalidResponse(Box::new(error)))
    }
}

impl Patch {
    /// Creates a merge patch from `body`.
    pub fn merge(body: &serde_json::Value) -> Self {
        Self::Merge(body.to_string().into())
    }

    /// Creates a strategic merge patch from `body`.
    pub fn strategic(body: &serde_json::Value) -> Self {
        Self::Strategic(body.to_string().into())
    }

    /// Creates a forced server-side apply. The object's kind, name and namespace are added to `fields`.
    pub fn apply(kind: &Kind, key: &Key, manager: &str, fields: serde_json::Value) -> Self {
        let mut object = members(fields);
        let mut metadata = members(object.remove("metadata").unwrap_or_default());
        metadata.insert("name".into(), key.name().into());
        metadata.extend(key.namespace().map(|namespace| ("namespace".into(), namespace.into())));
        object.insert("apiVersion".into(), kind.api_version().into());
        object.insert("kind".into(), kind.kind().into());
        object.insert("metadata".into(), metadata.into());
        let body = serde_json::Value::Object(object).to_string().into();
        Self::Apply { body, manager: manager.into(), force: true }
    }

    /// Creates a JSON patch.
    pub fn json(operations: &serde_json::Value) -> Self {
        Self::Json(operations.to_string().into())
    }
}

impl DeleteOptions {
    /// Deletes only the object with this uid, not another one of the same name.
    pub fn of_uid(uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), ..Self::default() }
    }

    fn body(&self) -> DeleteBody<'_> {
        let preconditions =
            Preconditions { uid: self.uid.as_deref(), resource_version: self.resource_version.as_deref() };
        DeleteBody {
            api_version: "v1",
            kind: "DeleteOptions",
            preconditions: Some(preconditions)
                .filter(|given| given.uid.is_some() || given.resource_version.is_some()),
            grace_period_seconds: self.grace_period_seconds,
            propagation_policy: self.propagation,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    preconditions: Option<Preconditions<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    propagation_policy: Option<PropagationPolicy>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

fn patching(kind: &Kind, key: &Key, subresource: Subresource, patch: Patch) -> Call {
    let path = path::object(kind, key, subresource);
    let (content_type, path, body) = match patch {
        Patch::Json(body) => ("application/json-patch+json", path, body),
        Patch::Merge(body) => ("application/merge-patch+json", path, body),
        Patch::Strategic(body) => ("application/strategic-merge-patch+json", path, body),
        Patch::Apply { body, manager, force } => {
            let query = [("fieldManager", Some(manager.as_str())), ("force", force.then_some("true"))];
            ("application/apply-patch+yaml", path::with_query(path, &query), body)
        }
    };
    Call::new(Method::PATCH, path).body(content_type, body)
}

/// Returns the members of a JSON object. Any other value has none.
fn members(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    match value {
        serde_json::Value::Object(members) => members,
        _ => serde_json::Map::new(),
    }
}

/// A body that cannot be encoded was never sent.
fn encode(body: &impl Serialize) -> Result<Bytes, ClientError> {
    let encoded = serde_json::to_vec(body).map_err(|error| ClientError::Api {
        code: 400,
        reason: "BadRequest".into(),
        message: format!("cannot encode the request: {error}"),
        causes: Vec::new(),
        retry_after_seconds: None,
    })?;
    Ok(encoded.into())
}
