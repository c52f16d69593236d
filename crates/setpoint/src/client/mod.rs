//! What controllers write with: any `kube::Client`, spoken to in encoded bytes.
//!
//! A reply is kept encoded: a controller that only needs to know that a create succeeded never pays
//! for decoding it. Every update and delete carries a precondition.
//!
//! What always holds:
//! - a call is sent once: whoever called it knows best whether to send it again (a reconciler is
//!   queued again by its worker);
//! - a call without an answer is a [`ClientError::Transport`]: it may have been carried out.

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
use http::Method;
use serde::Serialize;

pub use error::{Cause, ClientError, Optional};

use crate::adaptive::Adaptive;
use crate::leader::Fence;
use crate::metrics::Metrics;
use crate::{Clock, Key, Kind, Object, journal};
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
}

/// Which part of an object a call addresses.
///
/// ```
/// # async fn example(client: setpoint::Client, pods: setpoint::Kind, pod: setpoint::Object) -> Result<(), setpoint::ClientError> {
/// use setpoint::client::Part;
/// let status = serde_json::json!({"status": {"phase": "Running"}});
/// client.update(&pods, pod.key(), Part::Status, &status).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object itself.
    Main,
    /// Its status.
    Status,
    /// How many replicas it wants and has.
    Scale,
    /// A pod's node.
    Binding,
    /// A pod's polite deletion.
    Eviction,
    /// A namespace's finalizers.
    Finalize,
    /// The approval of a certificate signing request.
    Approval,
    /// A token of a service account.
    Token,
}

/// A change of some fields, already encoded.
///
/// ```
/// use setpoint::client::Patch;
/// let patch = Patch::merge(&serde_json::json!({"metadata": {"labels": {"tier": "front"}}}));
/// assert!(matches!(patch, Patch::Merge(_)));
/// ```
#[derive(Clone, Debug)]
pub enum Patch {
    /// A list of operations (RFC 6902).
    Json(Bytes),
    /// A merge patch (RFC 7386).
    Merge(Bytes),
    /// A merge patch that merges lists by their keys.
    Strategic(Bytes),
    /// Server-side apply in the name of a field manager.
    Apply {
        /// What the manager wants to be said of the object.
        body: Bytes,
        /// Who says it.
        manager: String,
        /// Whether fields that others manage are taken from them.
        force: bool,
    },
}

/// How an object is to be deleted, and what it must still be.
///
/// ```
/// use setpoint::client::{Delete, Propagation};
/// let delete = Delete { propagation: Some(Propagation::Background), ..Delete::of_uid("7f3e") };
/// assert_eq!(delete.uid.as_deref(), Some("7f3e"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// Only if it is still this very object.
    pub uid: Option<String>,
    /// Only if it has not changed since.
    pub resource_version: Option<String>,
    /// How long it may take to go; 0: at once.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of its dependents.
    pub propagation: Option<Propagation>,
}

/// What becomes of the dependents of a deleted object.
///
/// ```
/// use setpoint::client::Propagation;
/// assert_eq!(serde_json::to_string(&Propagation::Orphan).unwrap(), "\"Orphan\"");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

impl Client {
    /// A client on any `kube::Client`.
    pub fn new(kube: kube::Client) -> Self {
        Self { transport: Transport::new(kube) }
    }

    /// Names itself so to the API server, which takes what stands before the first `/` for the
    /// manager of the fields that this client writes.
    pub fn with_user_agent(mut self, user_agent: &str) -> Self {
        self.transport.set_user_agent(user_agent);
        self
    }

    /// Adds what this client is for to its name, after a `/`, so that it stays the same manager of fields.
    pub fn add_user_agent(mut self, purpose: &str) -> Self {
        self.transport.add_user_agent(purpose);
        self
    }

    /// Sends no more than `per_second` calls a second, after `burst` at once. Clones share the limit.
    pub fn with_rate_limit(mut self, clock: &Clock, per_second: f64, burst: u32) -> Self {
        self.transport.set_rate_limit(clock, per_second, burst);
        self
    }

    /// Sends as many calls a second as is decided from how they go.
    pub fn with_adaptive(mut self, clock: &Clock, adaptive: &Adaptive) -> Self {
        self.transport.set_adaptive(clock, adaptive);
        self
    }

    /// Has no more than this many calls under way at the same time, open watches left out. Clones share the limit.
    pub fn with_connections(mut self, most: usize) -> Self {
        self.transport.set_connections(most);
        self
    }

    /// A call that is not answered within this time counts as not answered (default: no limit; whoever
    /// made the `kube::Client` may have set one).
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.transport.set_timeout(timeout);
        self
    }

    /// Sends writes only while this fence holds; others fail with [`ClientError::Fenced`].
    pub fn with_fence(mut self, fence: &Fence) -> Self {
        self.transport.set_fence(fence);
        self
    }

    /// Counts and times its calls as `rest_client_*`; `host` is their label.
    pub fn with_metrics(mut self, clock: &Clock, metrics: &Metrics, host: &str) -> Self {
        self.transport.set_metrics(clock, metrics.requests(host));
        self
    }

    /// The typed client of the ecosystem, for whatever this one does not offer.
    pub fn kube(&self) -> &kube::Client {
        self.transport.kube()
    }

    /// Reads an object from the API server, not from a cache.
    pub async fn get(&self, kind: &Kind, key: &Key) -> Result<Object, ClientError> {
        self.object(Call::new(Method::GET, path::object(kind, key, Part::Main))).await
    }

    /// Reads a part of an object, such as its scale.
    pub async fn get_part(&self, kind: &Kind, key: &Key, part: Part) -> Result<Object, ClientError> {
        self.object(Call::new(Method::GET, path::object(kind, key, part))).await
    }

    /// Creates an object. `namespace` is that of the object, `None` for a cluster-scoped one.
    ///
    /// With `metadata.generateName` instead of a name the API server makes the name up; it is in the reply.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        self.create_encoded(kind, namespace, encode(body)?).await
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

    /// Creates an object whose state nobody needs to know: the reply is not read.
    pub async fn create_and_forget(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        body: &impl Serialize,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::POST, path::collection(kind, namespace)).json(encode(body)?);
        self.forgotten(kind, call).await
    }

    /// Replaces an object or a part of it; the body carries the resource version it was made from.
    pub async fn update(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: &impl Serialize,
    ) -> Result<Object, ClientError> {
        self.update_encoded(kind, key, part, encode(body)?).await
    }

    /// Replaces an object or a part of it by what is already encoded.
    pub async fn update_encoded(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: Bytes,
    ) -> Result<Object, ClientError> {
        self.written(kind, Call::new(Method::PUT, path::object(kind, key, part)).json(body)).await
    }

    /// Changes some fields of an object or a part of it.
    pub async fn patch(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        patch: Patch,
    ) -> Result<Object, ClientError> {
        self.written(kind, patching(kind, key, part, patch)).await
    }

    /// Changes some fields of an object whose new state nobody needs to know: the reply is not read.
    pub async fn patch_and_forget(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        patch: Patch,
    ) -> Result<(), ClientError> {
        self.forgotten(kind, patching(kind, key, part, patch)).await
    }

    /// Server-side apply: makes the object have these fields, in the name of `manager`, and creates it if it
    /// is not there. Of other managers' fields those are taken over that `fields` names; fields that were
    /// applied before and are left out now are removed, unless somebody else wants them too. What is so
    /// already is not written by the API server, so a settled world stays as it is.
    ///
    /// ```no_run
    /// # async fn example(client: setpoint::Client) -> Result<(), setpoint::ClientError> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use setpoint::{Key, Kind, client::Part};
    /// let (configs, key) = (Kind::of::<ConfigMap>(), Key::namespaced("shop", "settings"));
    /// let fields = serde_json::json!({"data": {"colour": "red"}});
    /// client.apply(&configs, &key, Part::Main, "shop-operator", fields).await?;
    /// # Ok(()) }
    /// ```
    pub async fn apply(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        manager: &str,
        fields: serde_json::Value,
    ) -> Result<Object, ClientError> {
        self.patch(kind, key, part, Patch::apply(kind, key, manager, fields)).await
    }

    /// Creates through a subresource (`binding`, `eviction`).
    pub async fn post(
        &self,
        kind: &Kind,
        key: &Key,
        part: Part,
        body: &impl Serialize,
    ) -> Result<(), ClientError> {
        let call = Call::new(Method::POST, path::object(kind, key, part)).json(encode(body)?);
        self.transport.send(call).await.map(drop)
    }

    /// Deletes an object, or asks for its deletion if it has finalizers or a grace period.
    pub async fn delete(&self, kind: &Kind, key: &Key, delete: &Delete) -> Result<(), ClientError> {
        let call =
            Call::new(Method::DELETE, path::object(kind, key, Part::Main)).json(encode(&delete.options())?);
        self.transport.send(call).await?;
        journal::deleted(kind, key, delete.uid.as_deref());
        Ok(())
    }

    /// Deletes all objects of a kind, or those of a namespace, each as [`delete`](Self::delete) would.
    pub async fn delete_collection(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        delete: &Delete,
    ) -> Result<(), ClientError> {
        let path = path::collection(kind, namespace);
        let call = Call::new(Method::DELETE, path).json(encode(&delete.options())?);
        self.transport.send(call).await.map(drop)
    }

    /// Reads what is at a path that is no object's, such as a metric's; pairs of the query without a value
    /// are left out.
    pub async fn get_path(
        &self,
        segments: &[&str],
        query: &[(&str, Option<&str>)],
    ) -> Result<Bytes, ClientError> {
        let path = path::with_query(path::of(segments), query);
        self.transport.send(Call::new(Method::GET, path)).await
    }

    /// Reads what is at a path that is no object's.
    pub(crate) async fn read(&self, path: &str, accept: &'static str) -> Result<Bytes, ClientError> {
        self.transport.send(Call::new(Method::GET, path.to_owned()).accepting(accept)).await
    }

    /// A write, noted for a reconcile that reads its own writes.
    async fn written(&self, kind: &Kind, call: Call) -> Result<Object, ClientError> {
        let object = self.object(call).await?;
        journal::wrote(kind, &object);
        Ok(object)
    }

    /// A write whose reply nobody reads but a reconcile that reads its own writes.
    async fn forgotten(&self, kind: &Kind, call: Call) -> Result<(), ClientError> {
        match journal::is_kept() {
            true => self.written(kind, call).await.map(drop),
            false => self.transport.send(call).await.map(drop),
        }
    }

    async fn object(&self, call: Call) -> Result<Object, ClientError> {
        let reply = self.transport.send(call).await?;
        Object::from_json(reply).map_err(|error| ClientError::Answer(Box::new(error)))
    }
}

impl Patch {
    /// A merge patch of what `body` encodes to.
    pub fn merge(body: &serde_json::Value) -> Self {
        Self::Merge(body.to_string().into())
    }

    /// A strategic merge patch of what `body` encodes to.
    pub fn strategic(body: &serde_json::Value) -> Self {
        Self::Strategic(body.to_string().into())
    }

    /// Server-side apply of fields that are to be had at any rate; `fields` need not say of which object.
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

    /// A list of operations.
    pub fn json(operations: &serde_json::Value) -> Self {
        Self::Json(operations.to_string().into())
    }
}

impl Delete {
    /// Deletes this very object, not another one of its name.
    pub fn of_uid(uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), ..Self::default() }
    }

    fn options(&self) -> DeleteOptions<'_> {
        let preconditions =
            Preconditions { uid: self.uid.as_deref(), resource_version: self.resource_version.as_deref() };
        DeleteOptions {
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
struct DeleteOptions<'a> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    preconditions: Option<Preconditions<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    propagation_policy: Option<Propagation>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}

fn patching(kind: &Kind, key: &Key, part: Part, patch: Patch) -> Call {
    let path = path::object(kind, key, part);
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

/// The members of an object; what is none has none.
fn members(value: serde_json::Value) -> serde_json::Map<String, serde_json::Value> {
    match value {
        serde_json::Value::Object(members) => members,
        _ => serde_json::Map::new(),
    }
}

/// What cannot be encoded was never sent.
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
