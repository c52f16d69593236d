//! The requests of one run of a program: what is forwarded, and what is added to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::{Client, Key, Kind};
use tokio_util::sync::CancellationToken;

use super::adoption::{Adoption, ReleaseMarks};
use super::protobuf;
use super::target::{Target, is_served};
use crate::parents::Write;

/// The largest request body: the API server accepts 3 MiB. A run sends few requests at a time.
pub(super) const MAX_BODY: usize = 4 << 20;
/// The largest object that is inspected while it is forwarded.
const MAX_OBJECT: usize = 16 << 20;
/// The most writes that are remembered for the report of a run, and the size of their objects.
const MAX_WRITTEN: usize = 256;
const MAX_SHOWN: usize = 4 << 20;
/// A request takes at most this long to be answered. Watches and logs may last longer once they are.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// What a run of a program may do, and what becomes of its objects.
pub(crate) struct AccessOptions {
    pub(crate) client: Client,
    pub(crate) adoption: Adoption,
    /// The marks of the releases that the run creates, if it is a run of `helm`.
    pub(crate) marks: Option<ReleaseMarks>,
    /// Called with the kind of each object that the run writes, or reads and owns.
    pub(crate) on_kind: Arc<dyn Fn(&Kind) + Send + Sync>,
    /// Whether the report shows objects before and after each write. That costs a read per write.
    pub(crate) shows_objects: bool,
}

/// The access of one run of a program to the API server. It ends with the run.
///
/// A program that is modelled in a test uses [`client`](Self::client). A real one is given an address on loopback.
pub struct Access {
    options: AccessOptions,
    written: Mutex<Journal>,
    ended: CancellationToken,
}

/// The writes of a program.
#[derive(Default)]
struct Journal {
    writes: Vec<Write>,
    /// How long their objects are, as text.
    size: usize,
}

impl Journal {
    fn note(&mut self, mut write: Write) {
        if self.writes.len() >= MAX_WRITTEN {
            return;
        }
        let objects = [&write.before, &write.after];
        let size: usize = objects.into_iter().flatten().map(|object| object.to_string().len()).sum();
        match self.size + size > MAX_SHOWN {
            true => (write.before, write.after) = (None, None),
            false => self.size += size,
        }
        self.writes.push(write);
    }
}

/// Ends an access when it is dropped, also if the reconcile is.
pub(crate) struct End(pub(crate) Arc<Access>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A request body that was read.
struct Sent {
    object: Value,
    kind: Kind,
}

/// An object to which something was added, and the body that contains it.
struct Changed {
    object: Value,
    body: Bytes,
    media_type: &'static str,
}

impl Access {
    pub(crate) fn new(options: AccessOptions) -> Arc<Self> {
        Arc::new(Self { options, written: Mutex::default(), ended: CancellationToken::new() })
    }

    /// Returns a client whose requests are those of the run.
    pub fn client(self: &Arc<Self>) -> Client {
        let access = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let access = access.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, kube::Error>(access.send(Request::from_parts(head, body)).await)
            }
        });
        Client::new(kube::Client::new(service, "default")).untracked()
    }

    /// Ends the access: requests are refused from now on, and open ones are cut off.
    pub(crate) fn end(&self) {
        self.ended.cancel();
    }

    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Returns the writes so far, in order, for a report.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.written.lock().writes.clone()
    }

    /// Forwards a request.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Response<Body> {
        let answered = tokio::time::timeout(ANSWERED_WITHIN, self.forward(request));
        match self.ended.run_until_cancelled(answered).await {
            Some(Ok(Ok(response))) => response,
            Some(Ok(Err(refusal))) => refusal,
            Some(Err(_)) => status(StatusCode::GATEWAY_TIMEOUT, "the API server did not answer in time"),
            None => status(StatusCode::UNAUTHORIZED, "the run that this token was for is over"),
        }
    }

    async fn forward(&self, request: Request<Bytes>) -> Result<Response<Body>, Response<Body>> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if !is_served(&path) {
            return Err(status(
                StatusCode::FORBIDDEN,
                &format!("{path} is not a path of the Kubernetes API"),
            ));
        }
        if head.headers.contains_key(http::header::UPGRADE) {
            let why = "exec, attach and port-forward are not forwarded";
            return Err(status(StatusCode::NOT_IMPLEMENTED, why));
        }
        strip(&mut head.headers);
        let target = Target::parse(&path);
        let query = head.uri.query().unwrap_or_default().to_owned();
        let is_dry = query.contains("dryRun=");
        let mut body = body;
        let mut sent = None;
        if let Some(target) =
            target.as_ref().filter(|target| self.changes(&head.method, &head.headers, target))
        {
            let changed = self.changed(target, &head.headers, &head.method, &body)?;
            body = changed.body;
            if !content_type(&head.headers).contains("apply-patch") {
                head.headers.insert(CONTENT_TYPE, HeaderValue::from_static(changed.media_type));
            }
            sent = kind_of(target, &changed.object).map(|kind| Sent { object: changed.object, kind });
        }
        let method = head.method.clone();
        let shown = target.as_ref().filter(|target| !is_dry && self.shows(&method, target, sent.as_ref()));
        let before = match shown.filter(|target| target.name.is_some()) {
            Some(_) => self.read(&path).await,
            None => None,
        };
        let is_shown = shown.is_some();
        if method == Method::GET || is_shown {
            prefer_json(&mut head.headers);
        }
        let response = self.options.client.forward(Request::from_parts(head, body)).await;
        let response = response.map_err(|error| status(StatusCode::BAD_GATEWAY, &error.to_string()))?;
        let Some(target) = target.filter(|_| response.status().is_success() && !is_dry) else {
            return Ok(response);
        };
        if method == Method::GET {
            return self.learn(&target, &query, response).await;
        }
        let (response, after) = match is_shown && method != Method::DELETE {
            true => decoded(response).await?,
            false => (response, None),
        };
        self.note(&method, &target, sent, before, after);
        Ok(response)
    }

    /// Whether the objects of a request are shown: if it writes one that is stored, and not a record of Helm.
    fn shows(&self, method: &Method, target: &Target<'_>, sent: Option<&Sent>) -> bool {
        let is_record = sent.is_some_and(|sent| self.is_release(sent));
        self.options.shows_objects && verb_of(method).is_some() && target.is_stored() && !is_record
    }

    /// Reads an object as it is before a write.
    async fn read(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Bytes::new()).ok()?;
        let response = self.options.client.forward(request).await.ok()?;
        let is_there = response.status().is_success();
        decoded(response).await.ok().and_then(|(_, object)| object).filter(|_| is_there)
    }

    fn is_release(&self, sent: &Sent) -> bool {
        self.options.marks.as_ref().is_some_and(|marks| marks.concerns(&sent.object))
    }

    /// Whether something is added to the body of a request.
    fn changes(&self, method: &Method, headers: &HeaderMap, target: &Target<'_>) -> bool {
        let replaces = *method == Method::PUT && (self.options.adoption.controls || target.is_secret());
        let applies = *method == Method::PATCH && content_type(headers).contains("apply-patch");
        target.is_stored() && (*method == Method::POST || replaces || applies) && !self.is_owner(target)
    }

    fn is_owner(&self, target: &Target<'_>) -> bool {
        let owner = &self.options.adoption.owner;
        let is_kind = target.group == owner.kind.group() && target.plural == owner.kind.plural();
        is_kind && target.namespace == owner.key.namespace() && target.name == Some(owner.key.name())
    }

    fn changed(
        &self,
        target: &Target<'_>,
        headers: &HeaderMap,
        method: &Method,
        body: &Bytes,
    ) -> Result<Changed, Response<Body>> {
        let sent_as = content_type(headers);
        let is_protobuf = sent_as.starts_with(protobuf::MEDIA_TYPE);
        if !(is_protobuf || sent_as.is_empty() || sent_as.contains("json") || sent_as.contains("yaml")) {
            let why = format!("{sent_as}: expected JSON, YAML or protobuf");
            return Err(status(StatusCode::UNSUPPORTED_MEDIA_TYPE, &why));
        }
        let unreadable =
            |why: &str| status(StatusCode::BAD_REQUEST, &format!("cannot read the object: {why}"));
        let not_protobuf = || unreadable("expected an object in Kubernetes' protobuf encoding");
        let mut object = match is_protobuf {
            true => protobuf::read(body).ok_or_else(not_protobuf)?,
            false => parse(body, sent_as).map_err(|why| unreadable(&why))?,
        };
        if !object.is_object() {
            return Err(unreadable("expected an object"));
        }
        match self.options.marks.as_ref().filter(|marks| target.is_secret() && marks.concerns(&object)) {
            Some(marks) => marks.mark(&mut object),
            None if *method != Method::PUT || self.options.adoption.controls => {
                self.options.adoption.adopt(&mut object, target.namespace);
            }
            None => {}
        }
        let (body, media_type) = match is_protobuf {
            true => (protobuf::write(body, &object).ok_or_else(not_protobuf)?, protobuf::MEDIA_TYPE),
            false => (object.to_string().into(), "application/json"),
        };
        Ok(Changed { object, body, media_type })
    }

    /// Records a write, and the kind of an object that was created or applied.
    fn note(
        &self,
        method: &Method,
        target: &Target<'_>,
        sent: Option<Sent>,
        before: Option<Value>,
        after: Option<Value>,
    ) {
        let Some(verb) = verb_of(method).filter(|_| target.is_stored()) else { return };
        if sent.as_ref().is_some_and(|sent| self.is_release(sent)) {
            return;
        }
        if let Some(sent) = &sent {
            (self.options.on_kind)(&sent.kind);
        }
        let version = |object: &Option<Value>| {
            object
                .as_ref()
                .and_then(|object| object["metadata"]["resourceVersion"].as_str().map(str::to_owned))
        };
        if version(&before).is_some_and(|before| version(&after).is_some_and(|after| before == after)) {
            // Nothing changed.
            return;
        }
        let known = after.as_ref().or(before.as_ref());
        let name = known.or(sent.as_ref().map(|sent| &sent.object));
        let name = name.and_then(|object| object["metadata"]["name"].as_str());
        let key = Key::in_namespace(target.namespace, target.name.or(name).unwrap_or_default());
        let kind = sent.as_ref().map(|sent| sent.kind.clone());
        let kind = kind.or_else(|| kind_of(target, known?)).unwrap_or_else(|| shown_kind(target));
        self.written.lock().note(Write { verb, kind, key, before, after });
    }

    /// Records the kind of an object that is read, if it is the owner's: after a restart, nothing else tells what
    /// earlier runs created.
    async fn learn(
        &self,
        target: &Target<'_>,
        query: &str,
        response: Response<Body>,
    ) -> Result<Response<Body>, Response<Body>> {
        if target.name.is_none() || !target.is_stored() || query.contains("watch=") {
            return Ok(response);
        }
        let (response, object) = decoded(response).await?;
        let object = object.unwrap_or_default();
        let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let uid = self.options.adoption.owner.uid.as_str();
        if references.into_iter().any(|owner| owner["uid"] == uid)
            && let Some(kind) = kind_of(target, &object)
        {
            (self.options.on_kind)(&kind);
        }
        Ok(response)
    }
}

/// Reads the object in a response, which stays as it is.
async fn decoded(response: Response<Body>) -> Result<(Response<Body>, Option<Value>), Response<Body>> {
    let (head, body) = response.into_parts();
    let read = Limited::new(body, MAX_OBJECT).collect().await;
    let body = read.map_err(|error| status(StatusCode::BAD_GATEWAY, &error.to_string()))?.to_bytes();
    let object = serde_json::from_slice(&body).ok();
    Ok((Response::from_parts(head, Body::from(body)), object))
}

fn verb_of(method: &Method) -> Option<&'static str> {
    match *method {
        Method::POST => Some("created"),
        Method::PUT | Method::PATCH => Some("updated"),
        Method::DELETE => Some("deleted"),
        _ => None,
    }
}

/// Removes what belongs to the program's own connection, and its credentials.
fn strip(headers: &mut HeaderMap) {
    let is_stripped = |name: &HeaderName| {
        let name = name.as_str();
        let hop = ["connection", "host", "keep-alive", "te", "trailer", "transfer-encoding", "authorization"];
        let asked = name == "accept-encoding" || name.starts_with("proxy-");
        hop.contains(&name) || asked || name.starts_with("impersonate-") || name.starts_with("x-remote-")
    };
    let names: Vec<HeaderName> = headers.keys().filter(|name| is_stripped(name)).cloned().collect();
    names.iter().for_each(|name| _ = headers.remove(name));
    headers.remove(CONTENT_LENGTH);
}

/// Asks for JSON if the program accepts it beside protobuf: what a run reads is inspected.
fn prefer_json(headers: &mut HeaderMap) {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let types: Vec<&str> = accepted.split(',').map(str::trim).collect();
    if types.contains(&protobuf::MEDIA_TYPE) && types.contains(&"application/json") {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    }
}

/// Parses a request body.
fn parse(body: &Bytes, sent_as: &str) -> Result<Value, String> {
    match serde_json::from_slice(body) {
        Ok(object) => Ok(object),
        Err(error) if sent_as.contains("yaml") => {
            let text = String::from_utf8_lossy(body);
            serde_saphyr::from_str(&text).map_err(|_| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn kind_of(target: &Target<'_>, object: &Value) -> Option<Kind> {
    let kind = object["kind"].as_str()?;
    Some(Kind::new(target.group, target.version, kind, target.plural, target.namespace.is_some()))
}

/// A kind for reports, where only the plural name is known.
fn shown_kind(target: &Target<'_>) -> Kind {
    Kind::new(target.group, target.version, target.plural, target.plural, target.namespace.is_some())
}

/// Builds a response in the API's form.
pub(super) fn status(code: StatusCode, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": code.canonical_reason().unwrap_or_default().replace(' ', ""), "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use setpoint::Key;

    use super::super::adoption::Owner;
    use super::*;

    /// An API server with one ConfigMap, which any write turns into what was sent.
    fn server() -> Client {
        let stored = Arc::new(Mutex::new((1, json!({"value": "old"}))));
        let service = tower::service_fn(move |request: Request<Body>| {
            let stored = stored.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await?.to_bytes();
                let mut stored = stored.lock();
                let sent: Value = serde_json::from_slice(&body).unwrap_or_default();
                if method != Method::GET && stored.1 != sent["data"] {
                    *stored = (stored.0 + 1, sent["data"].clone());
                }
                let metadata = json!({"name": "m", "resourceVersion": stored.0.to_string()});
                let shown =
                    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": stored.1});
                Ok::<_, kube::Error>(Response::new(Body::from(shown.to_string().into_bytes())))
            }
        });
        Client::new(kube::Client::new(service, "default"))
    }

    fn access(shows_objects: bool) -> Arc<Access> {
        let kind = Kind::new("example.com", "v1", "Shop", "shops", true);
        let owner = Owner { kind, key: Key::namespaced("shop", "a"), uid: "u1".into() };
        Access::new(AccessOptions {
            client: server(),
            adoption: Adoption { owner, controls: false, labels: Default::default() },
            marks: None,
            on_kind: Arc::new(|_| {}),
            shows_objects,
        })
    }

    async fn send(access: &Access, method: Method, value: &str) {
        let body = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "m"}, "data": {"value": value}});
        let request = Request::builder().method(method).uri("/api/v1/namespaces/shop/configmaps/m");
        let response = access.send(request.body(body.to_string().into()).expect("a request")).await;
        assert!(response.status().is_success());
    }

    #[tokio::test]
    async fn a_report_shows_what_a_write_has_changed() {
        let access = access(true);
        send(&access, Method::PUT, "new").await;
        send(&access, Method::PUT, "new").await;
        let writes = access.writes();
        let [write] = writes.as_slice() else { panic!("the second has changed nothing: {writes:?}") };
        let value = |object: &Option<Value>| object.as_ref().expect("an object")["data"]["value"].clone();
        assert_eq!((value(&write.before), value(&write.after)), (json!("old"), json!("new")));
        assert_eq!((write.verb, write.kind.kind(), write.key.name()), ("updated", "ConfigMap", "m"));
    }

    #[tokio::test]
    async fn a_report_is_bounded() {
        let access = access(true);
        for nth in 0..4 {
            send(&access, Method::PUT, &nth.to_string().repeat(MAX_SHOWN / 4)).await;
        }
        let shown: Vec<bool> = access.writes().iter().map(|write| write.after.is_some()).collect();
        assert_eq!(shown, [true, true, false, false], "each write shows two objects");
        for nth in 0..MAX_WRITTEN {
            send(&access, Method::PUT, &nth.to_string()).await;
        }
        assert_eq!(access.writes().len(), MAX_WRITTEN);
    }

    #[tokio::test]
    async fn nothing_is_read_for_a_report_that_shows_no_objects() {
        let access = access(false);
        send(&access, Method::PUT, "new").await;
        let writes = access.writes();
        assert!(writes.len() == 1 && writes[0].before.is_none() && writes[0].after.is_none());
    }
}
