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
/// The most writes that are remembered for the report of a run.
const MAX_WRITTEN: usize = 256;
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
}

/// The access of one run of a program to the API server. It ends with the run.
///
/// A program that is modelled in a test uses [`client`](Self::client). A real one is given an address on loopback.
pub struct Access {
    options: AccessOptions,
    written: Mutex<Vec<Written>>,
    ended: CancellationToken,
}

/// A write of a program.
#[derive(Clone, Debug)]
struct Written {
    verb: &'static str,
    kind: Kind,
    key: Key,
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
        let written = self.written.lock().clone();
        let write = |Written { verb, kind, key }| Write { verb, kind, key, before: None, after: None };
        written.into_iter().map(write).collect()
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
        if method == Method::GET {
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
        self.note(&method, &target, sent);
        Ok(response)
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
    fn note(&self, method: &Method, target: &Target<'_>, sent: Option<Sent>) {
        let verb = match *method {
            Method::POST => "created",
            Method::PUT | Method::PATCH => "updated",
            Method::DELETE => "deleted",
            _ => return,
        };
        if !target.is_stored() {
            return;
        }
        let is_release = sent.as_ref().is_some_and(|sent| {
            self.options.marks.as_ref().is_some_and(|marks| marks.concerns(&sent.object))
        });
        if is_release {
            return;
        }
        let kind = match &sent {
            Some(sent) => {
                (self.options.on_kind)(&sent.kind);
                sent.kind.clone()
            }
            None => shown_kind(target),
        };
        let name = sent.as_ref().and_then(|sent| sent.object["metadata"]["name"].as_str());
        let key = Key::in_namespace(target.namespace, target.name.or(name).unwrap_or_default());
        let mut written = self.written.lock();
        if written.len() < MAX_WRITTEN {
            written.push(Written { verb, kind, key });
        }
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
        let (head, body) = response.into_parts();
        let read = Limited::new(body, MAX_OBJECT).collect().await;
        let body = read.map_err(|error| status(StatusCode::BAD_GATEWAY, &error.to_string()))?.to_bytes();
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let uid = self.options.adoption.owner.uid.as_str();
        if references.into_iter().any(|owner| owner["uid"] == uid)
            && let Some(kind) = kind_of(target, &object)
        {
            (self.options.on_kind)(&kind);
        }
        Ok(Response::from_parts(head, Body::from(body)))
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
