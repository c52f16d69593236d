//! Hooks over HTTP and HTTPS, and child processes by the scheme `exec`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use setpoint_webhook::{ClientIdentity, Dial, Dialed, TlsSettings};

use super::process::Commands;
use super::transport::{HookReply, HookRequest, HookTarget, MAX_ANSWER, Transport, Transports};

/// Hooks on the network and, by `exec://NAME/…`, hooks that are child processes of this program. Cheap to clone.
#[derive(Clone)]
pub struct Network {
    dial: Arc<dyn Dial>,
    commands: Commands,
}

impl Network {
    /// Connects with `dial`, which decides which addresses are allowed. `commands` are the child processes.
    pub fn new(dial: Arc<dyn Dial>, commands: Commands) -> Self {
        Self { dial, commands }
    }

    /// Connects to other addresses than those of these hosts, such as `hook.shop` ─► `127.0.0.1:8080`.
    pub fn resolving(self, addresses: BTreeMap<String, String>) -> Self {
        let dial = Arc::new(Resolved { addresses, inner: self.dial });
        Self { dial, ..self }
    }
}

/// A dialer that knows the addresses of some hosts.
struct Resolved {
    addresses: BTreeMap<String, String>,
    inner: Arc<dyn Dial>,
}

impl Dial for Resolved {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        let known = self.addresses.get(&format!("{host}:{port}")).or_else(|| self.addresses.get(&host));
        match known.map(|address| address.rsplit_once(':').unwrap_or((address, ""))) {
            None => self.inner.dial(host, port),
            Some((host, text)) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                self.inner.dial(host.to_owned(), text.parse().unwrap_or(port))
            }
        }
    }
}

impl Transports for Network {
    fn open(&self, target: &HookTarget) -> Result<Arc<dyn Transport>, String> {
        let wrong = || format!("url {:?}: expected http://, https:// or exec://, and a host", target.url);
        let url: Uri = target.url.parse().map_err(|_| wrong())?;
        match (url.scheme_str(), url.host().filter(|host| !host.is_empty())) {
            (Some("exec"), Some(name)) => self.commands.open(name, url.path()),
            (Some("http" | "https"), Some(_)) => {
                Endpoint::new(url, target, self.dial.clone()).map(|endpoint| Arc::new(endpoint) as _)
            }
            _ => Err(wrong()),
        }
    }
}

/// One hook on the network.
struct Endpoint {
    url: Uri,
    authorization: Option<HeaderValue>,
    http: Arc<setpoint_webhook::Transport>,
}

impl Endpoint {
    fn new(url: Uri, target: &HookTarget, dial: Arc<dyn Dial>) -> Result<Self, String> {
        let identity = target.identity.clone();
        let tls = TlsSettings {
            authorities: target.authorities.clone(),
            identity: identity.map(|(certificate, key)| ClientIdentity { certificate, key }),
            ..TlsSettings::default()
        };
        let http = setpoint_webhook::Transport::new(&tls, dial).map_err(|error| error.to_string())?;
        let header = |text: &String| {
            let mut value = HeaderValue::from_str(text).map_err(|_| "authorization: not a valid header")?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        };
        let authorization = target.authorization.as_ref().map(header).transpose()?;
        Ok(Self { url, authorization, http: Arc::new(http) })
    }
}

impl Transport for Endpoint {
    fn send(&self, request: HookRequest) -> BoxFuture<'static, Result<HookReply, String>> {
        let body = Full::new(request.body).map_err(|never| match never {}).boxed_unsync();
        let mut sent = Request::new(body);
        *sent.method_mut() = Method::POST;
        *sent.uri_mut() = self.url.clone();
        let headers = sent.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let etag = request.etag.and_then(|etag| HeaderValue::from_str(&etag).ok());
        headers.extend(etag.map(|etag| (IF_NONE_MATCH, etag)));
        let http = self.http.clone();
        Box::pin(async move {
            let (head, body) = http.send(sent).await.map_err(|error| error.to_string())?.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| match error
                .is::<LengthLimitError>(
            ) {
                true => format!("the answer is longer than {MAX_ANSWER} bytes"),
                false => format!("cannot read the answer: {error}"),
            })?;
            Ok(reply(head.status.as_u16(), &head.headers, body.to_bytes()))
        })
    }
}

fn reply(status: u16, headers: &HeaderMap, body: Bytes) -> HookReply {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    HookReply { status, body, etag: text(ETAG), retry_after: text(RETRY_AFTER) }
}
