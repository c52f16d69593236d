//! Hooks over HTTP and HTTPS, and child processes with the scheme `exec`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use setpoint_webhook::{ClientIdentity, Dial, Dialed, TlsSettings};

use super::process::Commands;
use super::transport::{HookReply, HookRequest, HookTarget, MAX_ANSWER, Transport, Transports};

/// Hooks on the network and, with URLs `exec://NAME/…`, hooks that are child processes of this program. Cheap to clone.
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

    /// Overrides the addresses of hosts, such as `hook.shop` ─► `127.0.0.1:8080`.
    pub fn resolving(self, addresses: BTreeMap<String, String>) -> Self {
        let dial = Arc::new(Resolved { addresses, inner: self.dial });
        Self { dial, ..self }
    }
}

/// A dialer with fixed addresses for some hosts.
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
        let http = setpoint_webhook::Transport::new(&tls, dial).map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        })?;
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
            let is_open_ended = head.version <= Version::HTTP_11
                && !head.headers.contains_key(CONTENT_LENGTH)
                && !head.headers.contains_key(TRANSFER_ENCODING);
            let body = read(body, is_open_ended).await?;
            Ok(reply(head.status.as_u16(), &head.headers, body))
        })
    }
}

/// Reads a body. A body without a length ends with the connection, which some servers, such as Python's, close without
/// a TLS close notification. Go's clients accept that too, and a truncated document is not valid JSON.
async fn read<B>(body: B, is_open_ended: bool) -> Result<Bytes, String>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, MAX_ANSWER));
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => read.extend(frame.into_data()),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(format!("the answer is longer than {MAX_ANSWER} bytes"));
            }
            Err(error) if is_open_ended && is_cut(&*error) => break,
            Err(error) => return Err(format!("cannot read the answer: {error}")),
        }
    }
    Ok(read.freeze())
}

/// Whether a connection was closed without a TLS close notification.
fn is_cut(error: &(dyn Error + 'static)) -> bool {
    let is_end = |error: &(dyn Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    };
    std::iter::successors(Some(error), |&error| error.source()).any(is_end)
}

fn reply(status: u16, headers: &HeaderMap, body: Bytes) -> HookReply {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
    HookReply { status, body, etag: text(ETAG), retry_after: text(RETRY_AFTER) }
}

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::StreamBody;
    use setpoint::Clock;
    use setpoint_webhook::Tcp;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Calls a server that responds with these bytes. Returns the reply and the request head.
    async fn exchange(response: Vec<u8>) -> (Result<HookReply, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let known = [("hook.shop".to_owned(), address)].into();
        let network = Network::new(Arc::new(Tcp), Commands::new(&Clock::system())).resolving(known);
        let target = HookTarget {
            url: "http://hook.shop/sync".into(),
            authorization: Some("Bearer secret".into()),
            ..HookTarget::default()
        };
        let hook = network.open(&target).expect("a target");
        let request =
            HookRequest { hook: "sync", body: Bytes::from_static(b"{}"), etag: Some("\"7\"".into()) };
        let serving = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).await.expect("a request");
            // The client may hang up before it has read everything.
            _ = stream.write_all(&response).await;
            String::from_utf8_lossy(&head[..length]).to_lowercase()
        };
        tokio::join!(hook.send(request), serving)
    }

    #[tokio::test]
    async fn a_request_is_a_post_with_json_credentials_and_the_known_etag() {
        let response = b"HTTP/1.1 200 OK\r\netag: \"8\"\r\ncontent-length: 2\r\n\r\n{}".to_vec();
        let (reply, head) = exchange(response).await;
        let reply = reply.expect("a reply");
        assert_eq!((reply.status, &reply.body[..], reply.etag.as_deref()), (200, &b"{}"[..], Some("\"8\"")));
        assert!(head.starts_with("post /sync http/1.1\r\n"), "{head}");
        for header in [
            "content-type: application/json",
            "authorization: bearer secret",
            "if-none-match: \"7\"",
            "host: hook.shop",
        ] {
            assert!(head.contains(header), "{header} is not in {head}");
        }
    }

    #[tokio::test]
    async fn other_statuses_are_replies_too() {
        let response = b"HTTP/1.1 429 Slow\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n".to_vec();
        let reply = exchange(response).await.0.expect("a reply");
        assert_eq!((reply.status, reply.retry_after.as_deref()), (429, Some("30")));
    }

    #[tokio::test]
    async fn an_open_ended_answer_may_be_cut_where_it_ends() {
        let answer = |kind: io::ErrorKind| {
            let frames = [Ok(Frame::data(Bytes::from_static(b"{}"))), Err(io::Error::from(kind))];
            StreamBody::new(futures::stream::iter(frames))
        };
        assert_eq!(read(answer(io::ErrorKind::UnexpectedEof), true).await, Ok(Bytes::from_static(b"{}")));
        assert!(read(answer(io::ErrorKind::UnexpectedEof), false).await.is_err());
        assert!(read(answer(io::ErrorKind::ConnectionReset), true).await.is_err());
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_refused() {
        let mut response = b"HTTP/1.1 200 OK\r\ncontent-length: 10485760\r\n\r\n".to_vec();
        response.resize(response.len() + (10 << 20), b' ');
        let error = exchange(response).await.0.expect_err("too long");
        assert!(error.contains("longer than"), "{error}");
    }
}
