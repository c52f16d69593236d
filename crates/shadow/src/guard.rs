//! The only way to the API server: reads pass, writes do not.
//!
//! A write is recorded and answered as the API server would have answered it, based on the live object: with a conflict
//! if the object has changed, with `AlreadyExists` if it exists, otherwise with the resulting object.
//!
//! Invariant: only GET and HEAD requests are sent, and none that opens a connection to a pod or a node. All clients
//! derived from a guarded one are guarded too.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::family::Family;
use crate::fields::{Change, changes};
use crate::intention::{
    Base, Expected, Input, Intention, Verb, Verdict, controller as owner_of, is_being_deleted, uid,
};
use crate::merge::PatchType;
use crate::target::{ObjectId, Target};
use crate::{Shadow, reply};

/// Subresources that use GET and do more than read.
const CONNECTIONS: &[&str] = &["attach", "exec", "portforward", "proxy"];

/// Reviews are created but change nothing: they authenticate and authorize. The secure port needs them.
pub const REVIEWS: &[&str] =
    &["/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"];

/// The user agent for reads of live objects.
const READER: &str = concat!("setpoint-shadow/", env!("CARGO_PKG_VERSION"));

type Reply = Result<Response<Body>, kube::Error>;

/// The live object that a write targets.
pub(crate) enum Live {
    Found(Value),
    Missing,
    /// It could not be read. This is the error response.
    Unknown(Response<Body>),
}

/// A write to be recorded.
struct Write<'a> {
    shadow: &'a Shadow,
    client: &'a kube::Client,
    controller: Arc<str>,
    target: Target,
    body: Bytes,
}

/// Returns a client that reads through `client` and writes nothing.
pub(crate) fn guard(shadow: &Shadow, client: kube::Client) -> kube::Client {
    let (shadow, namespace) = (shadow.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (shadow, client) = (shadow.clone(), client.clone());
        async move { answer(&shadow, &client, request).await }
    });
    kube::Client::new(service, namespace)
}

/// Returns a client that reads and creates [`REVIEWS`].
pub fn reviewer(client: kube::Client) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let is_review = request.method() == Method::POST && REVIEWS.contains(&request.uri().path());
            match is_review || is_read(&request) {
                true => client.send(request).await,
                false => Ok(reply::refused("shadow mode: only reviews may be created")),
            }
        }
    });
    kube::Client::new(service, namespace)
}

/// Whether a request changes nothing.
fn is_read(request: &Request<Body>) -> bool {
    let connects = || {
        let mut segments = request.uri().path().split('/');
        segments.any(|segment| CONNECTIONS.contains(&segment))
            && Target::parse(request.uri().path()).is_none_or(|target| {
                target.subresource.is_some_and(|part| CONNECTIONS.contains(&part.as_str()))
            })
    };
    matches!(*request.method(), Method::GET | Method::HEAD) && !connects()
}

async fn answer(shadow: &Shadow, client: &kube::Client, request: Request<Body>) -> Reply {
    if is_read(&request) {
        return client.send(request).await;
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let refused =
        || Ok(reply::refused(&format!("shadow mode: {} {} is not sent", head.method, head.uri.path())));
    let Some(target) = Target::parse(head.uri.path()) else { return refused() };
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let write = Write { shadow, client, controller: controller(text(USER_AGENT)), target, body };
    if write.target.is_event() {
        return Ok(write.event());
    }
    match (&head.method, &write.target.name, write.target.subresource.as_deref()) {
        (&Method::POST, None, None) => write.create().await,
        (&Method::POST, Some(_), Some("eviction")) => write.delete(Verb::Evict).await,
        (&Method::PUT, Some(_), _) => write.update().await,
        (&Method::PATCH, Some(_), _) => write.patch(text(CONTENT_TYPE)).await,
        (&Method::DELETE, Some(_), None) => write.delete(Verb::Delete).await,
        (&Method::DELETE, None, None) => write.delete_collection().await,
        _ => refused(),
    }
}

/// Returns the controller that writes: the user agent after the first slash.
fn controller(user_agent: &str) -> Arc<str> {
    user_agent.split_once('/').map_or(user_agent, |(_, purpose)| purpose).into()
}

/// Reads a live object.
pub(crate) async fn read(client: &kube::Client, path: &str) -> Result<Live, kube::Error> {
    let request = Request::get(path).header(USER_AGENT, READER).body(Body::empty());
    let request = request.map_err(kube::Error::HttpError)?;
    let (head, body) = client.send(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    if head.status == StatusCode::NOT_FOUND {
        return Ok(Live::Missing);
    }
    match serde_json::from_slice(&body) {
        Ok(object) if head.status.is_success() => Ok(Live::Found(object)),
        _ => Ok(Live::Unknown(Response::from_parts(head, Body::from(body)))),
    }
}

impl Write<'_> {
    /// Events are not compared: their timing and aggregation vary between runs.
    fn event(&self) -> Response<Body> {
        self.shadow.lock().count_event(&self.controller);
        let metadata = json!({"name": self.target.name, "namespace": self.target.namespace});
        let named = || json!({"kind": "Event", "apiVersion": "v1", "metadata": metadata});
        match self.target.name {
            Some(_) => reply::object(StatusCode::OK, &named()),
            None => reply::object(StatusCode::CREATED, &self.json().unwrap_or_else(named)),
        }
    }

    async fn create(self) -> Reply {
        let Some(body) = self.json() else { return Ok(reply::bad_request("the body is not an object")) };
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match Family::of(&self.target, &body) {
            Some((family, wanted)) => Ok(self.create_generated(family, wanted, &name, body)),
            None if name.is_empty() => Ok(reply::bad_request("metadata: name or generateName is required")),
            None => self.create_named(&name, body).await,
        }
    }

    async fn create_named(self, name: &str, body: Value) -> Reply {
        let target = self.target.named(name);
        match read(self.client, &target.read_path()).await? {
            Live::Unknown(answer) => Ok(answer),
            Live::Found(live) => {
                let agrees = self.shadow.lock().comparison.of_object(&body, &live).is_empty();
                let verdict = if agrees { Verdict::Matched } else { Verdict::Superseded };
                self.decided(Verb::Create, target.object().as_ref(), &verdict);
                Ok(reply::already_exists(&self.what(&target)))
            }
            Live::Missing => {
                let reply = self.synthetic(body.clone(), name);
                let input = self.input(&body);
                let intention =
                    self.intention(Verb::Create, &target, Expected::Created(Arc::new(body)), input);
                if let Some(id) = target.object() {
                    self.shadow.lock().intend(id, intention);
                }
                self.shadow.wake_events();
                Ok(reply)
            }
        }
    }

    fn create_generated(self, family: Family, wanted: Value, name: &str, body: Value) -> Response<Body> {
        let input = self.input(&body);
        let generated = || format!("{}{}", family.prefix, self.shadow.rng().suffix(5));
        let name = if name.is_empty() { generated() } else { name.to_owned() };
        let reply = self.synthetic(body, &name);
        let mut ledger = self.shadow.lock();
        let shared = ledger.last_body(&family).filter(|last| **last == wanted);
        let expected = Expected::Created(shared.unwrap_or_else(|| Arc::new(wanted)));
        let intention = self.intention(Verb::Create, &self.target, expected, input);
        ledger.intend_generated(family, intention);
        drop(ledger);
        self.shadow.wake_events();
        reply
    }

    /// Returns the object as the API server would have stored it.
    fn synthetic(&self, mut object: Value, name: &str) -> Response<Body> {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let metadata = &mut object["metadata"];
        metadata["name"] = name.into();
        metadata["uid"] = self.shadow.rng().uid().to_string().into();
        metadata["creationTimestamp"] = seconds(self.shadow.now()).into();
        // Version 0, so that no cache waits for it.
        metadata["resourceVersion"] = "0".into();
        if let Some(namespace) = &self.target.namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        reply::object(StatusCode::CREATED, &object)
    }

    async fn update(self) -> Reply {
        let Some(body) = self.json() else { return Ok(reply::bad_request("the body is not an object")) };
        let live = match read(self.client, &self.target.read_path()).await? {
            Live::Unknown(answer) => return Ok(answer),
            Live::Missing => return Ok(self.gone(Verb::Update)),
            Live::Found(live) => live,
        };
        let after = self.updated(&live, &body);
        if let Some(why) = stale(&body, &live) {
            return Ok(self.stale(Verb::Update, &live, &after, why));
        }
        Ok(self.change(Verb::Update, &live, after))
    }

    /// Returns the live object with the written part replaced.
    fn updated(&self, live: &Value, body: &Value) -> Value {
        let part = match self.target.subresource.as_deref() {
            Some("status" | "approval") => "status",
            Some(_) => "spec",
            None => {
                let mut after = body.clone();
                if let (Some(after), Some(status)) = (after.as_object_mut(), live.get("status")) {
                    after.insert("status".into(), status.clone());
                }
                return after;
            }
        };
        let mut after = live.clone();
        after[part] = body.get(part).cloned().unwrap_or(Value::Null);
        after
    }

    async fn patch(self, content_type: &str) -> Reply {
        let Some(kind) = PatchType::of(content_type) else {
            let message = format!("shadow mode: patches of type {content_type} are not supported");
            return Ok(reply::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", &message));
        };
        let Some(patch) = self.json() else { return Ok(reply::bad_request("the patch is not an object")) };
        let live = match read(self.client, &self.target.read_path()).await? {
            Live::Unknown(answer) => return Ok(answer),
            Live::Found(live) => live,
            Live::Missing if kind == PatchType::Apply && self.target.subresource.is_none() => {
                let name = self.target.name.clone().unwrap_or_default();
                return self.create_named(&name, patch).await;
            }
            Live::Missing => return Ok(self.gone(Verb::Patch)),
        };
        let after = kind.apply(&live, &patch);
        if let Some(why) = stale(&patch, &live) {
            return Ok(self.stale(Verb::Patch, &live, &after, why));
        }
        Ok(self.change(Verb::Patch, &live, after))
    }

    /// Records the changes, and responds with the resulting object.
    fn change(self, verb: Verb, live: &Value, after: Value) -> Response<Body> {
        let changes = self.changes(live, &after);
        let answer = reply::object(StatusCode::OK, &after);
        let Some(id) = self.target.object() else { return answer };
        let is_shown = self.shadow.lock().comparison.of_changes(&changes, live).is_empty();
        if is_shown {
            self.decided(verb, Some(&id), &Verdict::Matched);
            return answer;
        }
        let expected = Expected::Changed { base: Base::of(live), changes };
        let intention = self.intention(verb, &self.target, expected, None);
        self.shadow.lock().intend(id, intention);
        self.shadow.wake_events();
        answer
    }

    /// Returns the changes that the subresource allows.
    fn changes(&self, live: &Value, after: &Value) -> Vec<Change> {
        let is_status = matches!(self.target.subresource.as_deref(), Some("status" | "approval"));
        let mut found = changes(live, after);
        found.retain(|change| change.path.starts_with(&["status"]) == is_status);
        found
    }

    /// A write based on an older state. It is matched if the newer state shows it.
    fn stale(self, verb: Verb, live: &Value, after: &Value, why: &str) -> Response<Body> {
        let agrees = {
            let ledger = self.shadow.lock();
            ledger.comparison.of_changes(&self.changes(live, after), live).is_empty()
        };
        let verdict = if agrees { Verdict::Matched } else { Verdict::Superseded };
        self.decided(verb, self.target.object().as_ref(), &verdict);
        reply::conflict(&self.what(&self.target), why)
    }

    fn gone(self, verb: Verb) -> Response<Body> {
        self.decided(verb, self.target.object().as_ref(), &Verdict::Superseded);
        reply::not_found(&self.what(&self.target))
    }

    async fn delete(self, verb: Verb) -> Reply {
        let live = match read(self.client, &self.target.read_path()).await? {
            Live::Unknown(answer) => return Ok(answer),
            Live::Found(live) => live,
            Live::Missing => {
                self.decided(verb, self.target.object().as_ref(), &Verdict::Matched);
                return Ok(reply::not_found(&self.what(&self.target)));
            }
        };
        let options = self.json().unwrap_or_default();
        let options = if verb == Verb::Evict { &options["deleteOptions"] } else { &options };
        if let Some(why) = stale(&json!({"metadata": options["preconditions"]}), &live) {
            self.decided(verb, self.target.object().as_ref(), &Verdict::Superseded);
            return Ok(reply::conflict(&self.what(&self.target), why));
        }
        if let (Some(owner), Some(id)) = (owner_of(&live), self.target.object()) {
            let owner = owner["uid"].as_str().unwrap_or_default();
            self.shadow.lock().observed.explain_deletion(owner, &id);
        }
        let is_forced = options["gracePeriodSeconds"] == 0;
        if is_being_deleted(&live) && !is_forced {
            self.decided(verb, self.target.object().as_ref(), &Verdict::Matched);
            return Ok(reply::success());
        }
        let input = self.input(&live);
        // A forced delete of a terminating object has to remove it, unless it has finalizers.
        let finalizers = live["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let at_once = is_forced && is_being_deleted(&live) && !finalizers;
        let expected = Expected::Gone { uid: uid(&live).to_owned(), at_once };
        let intention = self.intention(verb, &self.target, expected, input);
        if let Some(id) = self.target.object() {
            self.shadow.lock().intend(id, intention);
        }
        self.shadow.wake_events();
        Ok(reply::success())
    }

    async fn delete_collection(self) -> Reply {
        match read(self.client, &self.target.read_path()).await? {
            Live::Unknown(answer) => return Ok(answer),
            Live::Found(list) if !is_emptied(&list) => {
                let intention = self.intention(Verb::DeleteCollection, &self.target, Expected::Emptied, None);
                let (resource, namespace) = (self.target.resource.clone(), self.target.namespace.clone());
                let id = ObjectId { resource, namespace, name: String::new() };
                self.shadow.lock().intend(id, intention);
            }
            Live::Found(_) | Live::Missing => self.decided(Verb::DeleteCollection, None, &Verdict::Matched),
        }
        Ok(reply::success())
    }

    fn decided(&self, verb: Verb, id: Option<&ObjectId>, verdict: &Verdict) {
        let now = self.shadow.instant();
        self.shadow.lock().intend_decided(id, &self.controller, verb, verdict, now);
        self.shadow.wake_events();
    }

    fn intention(&self, verb: Verb, target: &Target, expected: Expected, input: Option<Input>) -> Intention {
        Intention {
            controller: self.controller.clone(),
            verb,
            target: target.clone(),
            expected,
            input,
            at: self.shadow.instant(),
            last: self.shadow.instant(),
            time: self.shadow.now(),
            count: 1,
            reported: None,
            challenged: None,
        }
    }

    /// Returns the owner for which an object is created or deleted.
    fn input(&self, object: &Value) -> Option<Input> {
        self.shadow.lock().observed.input(owner_of(object)?["uid"].as_str()?)
    }

    fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok().filter(Value::is_object)
    }

    /// `deployments.apps "web"`
    fn what(&self, target: &Target) -> String {
        format!("{} \"{}\"", target.resource, target.name.as_deref().unwrap_or_default())
    }
}

/// Returns why the preconditions of a write (version or uid) do not match the live object.
fn stale(written: &Value, live: &Value) -> Option<&'static str> {
    let differs = |field: &str| {
        let wanted = written["metadata"][field].as_str().filter(|value| !value.is_empty());
        wanted.is_some_and(|wanted| live["metadata"][field].as_str() != Some(wanted))
    };
    if differs("uid") {
        return Some("the UID in the precondition does not match the UID in record");
    }
    differs("resourceVersion").then_some("the object has been modified")
}

/// Whether a list contains only terminating objects.
pub(crate) fn is_emptied(list: &Value) -> bool {
    list["items"].as_array().is_none_or(|items| items.iter().all(is_being_deleted))
}

/// Formats a time as the API does.
fn seconds(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
