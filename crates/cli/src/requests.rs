//! Requests of workflow steps: over HTTP and HTTPS, within a time and a size, and never to denied addresses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use setpoint_oam::{Egress, Request, Response};
use setpoint_webhook::{Dial, TlsError, TlsSettings, Transport};

/// How long a response may take, as in KubeVela.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response. A step may send one at a time, so eight workers hold at most eight of them.
const LONGEST: usize = 1 << 20;

/// Sends requests on connections that are kept for a while.
pub(crate) struct Requests(Arc<Transport>);

impl Requests {
    /// Connects with `dial`, which decides which addresses are denied. Servers are verified by the system's CAs.
    pub(crate) fn new(dial: Arc<dyn Dial>) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Transport::new(&TlsSettings::default(), dial)?)))
    }
}

impl Egress for Requests {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, String>> {
        let transport = self.0.clone();
        Box::pin(async move {
            let exchanged = tokio::time::timeout(TIMEOUT, exchange(&transport, request)).await;
            exchanged.unwrap_or_else(|_| Err(format!("no response within {} s", TIMEOUT.as_secs())))
        })
    }
}

async fn exchange(transport: &Transport, request: Request) -> Result<Response, String> {
    let mut sent = http::Request::builder().method(request.method.as_str()).uri(&request.url);
    for (name, value) in &request.headers {
        sent = sent.header(name, value);
    }
    let body = Full::new(Bytes::from(request.body)).map_err(|never| match never {}).boxed_unsync();
    let sent = sent.body(body).map_err(|error| error.to_string())?;
    if !matches!(sent.uri().scheme_str(), Some("http" | "https")) || sent.uri().host().is_none() {
        return Err("url: expected http:// or https:// and a host".to_owned());
    }
    let (head, body) = transport.send(sent).await.map_err(|error| error.to_string())?.into_parts();
    let body = Limited::new(body, LONGEST).collect().await.map_err(|error| error.to_string())?.to_bytes();
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.entry(name.to_string()).or_default().push(value);
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Response { status: head.status.as_u16(), headers, body })
}

#[cfg(test)]
mod tests {
    use setpoint_webhook::{Cidr, GuardedTcp};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn requests() -> Requests {
        Requests::new(Arc::new(GuardedTcp::new(Cidr::link_local()))).expect("TLS settings")
    }

    fn to(url: &str) -> Request {
        Request { method: "POST".into(), url: url.into(), headers: BTreeMap::new(), body: "ping".into() }
    }

    #[tokio::test]
    async fn a_request_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/x", listener.local_addr().expect("bound"));
        let server = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut received = vec![0; 4096];
            let length = stream.read(&mut received).await.expect("a request");
            stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\npong").await.expect("sent");
            String::from_utf8_lossy(&received[..length]).into_owned()
        };
        let (answer, received) = tokio::join!(requests().send(to(&url)), server);
        let answer = answer.expect("a response");
        assert_eq!((answer.status, answer.body.as_str()), (201, "pong"));
        assert!(received.starts_with("POST /x HTTP/1.1"), "{received}");
    }

    #[tokio::test]
    async fn denied_addresses_and_other_schemes_are_refused() {
        let refused = requests().send(to("http://169.254.169.254/latest")).await.expect_err("denied");
        assert!(refused.contains("denied range"), "{refused}");
        for url in ["file:///etc/passwd", "ftp://example.com/", "nonsense"] {
            assert!(requests().send(to(url)).await.is_err(), "{url}");
        }
    }
}
