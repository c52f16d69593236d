//! Connections. The dialer can be replaced, so that tests run in virtual time over pipes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::cidr::Cidr;
use crate::first_record::FirstRecord;
use crate::tls::{TlsError, TlsSettings};

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A connection, before TLS.
pub type Dialed = Box<dyn Stream>;

/// Opens connections.
pub trait Dial: Send + Sync + 'static {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>>;

    /// Whether connections to a host stay within this process. They need no TLS, and the host need not be resolved.
    fn is_in_process(&self, host: &str) -> bool {
        _ = host;
        false
    }
}

/// A dialer for TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        Box::pin(async move { connect(&host, port, |_| false).await })
    }
}

/// A TCP dialer that refuses some address ranges. It checks the address that is dialed, not the name, so a name that
/// resolves differently the second time cannot bypass it.
#[derive(Clone, Debug)]
pub struct GuardedTcp {
    denied: Arc<[Cidr]>,
}

impl GuardedTcp {
    pub fn new(denied: impl Into<Arc<[Cidr]>>) -> Self {
        Self { denied: denied.into() }
    }
}

impl Dial for GuardedTcp {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        let denied = self.denied.clone();
        let contains = move |address| denied.iter().any(|range| range.contains(address));
        let is_denied = move |address| contains(address) || as_loopback(address).is_some_and(&contains);
        Box::pin(async move { connect(&host, port, is_denied).await })
    }
}

/// Returns the loopback address that an unspecified one leads to: operating systems connect `0.0.0.0` and `::` to
/// themselves.
fn as_loopback(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(v4) if v4.is_unspecified() => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(v6) if v6.is_unspecified() => Some(Ipv6Addr::LOCALHOST.into()),
        _ => None,
    }
}

/// Connects to the first address of a host that accepts.
async fn connect(host: &str, port: u16, is_denied: impl Fn(IpAddr) -> bool) -> io::Result<Dialed> {
    let addresses = lookup_host((host, port)).await;
    let addresses = addresses
        .map_err(|why| io::Error::new(why.kind(), format!("dial tcp: lookup {host}: {}", shown(&why))))?;
    let mut failure = io::Error::other(format!("dial tcp: lookup {host}: no such host"));
    for address in addresses {
        if is_denied(address.ip()) {
            let why = format!("dial tcp {address}: the address is in a denied range");
            failure = io::Error::new(io::ErrorKind::PermissionDenied, why);
            continue;
        }
        match connect_to(address).await {
            Ok(stream) => return Ok(Box::new(stream)),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

/// How long a connection may be idle before TCP keep-alive probes are sent, as in v1.34's clients.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await;
    let stream = stream
        .map_err(|why| io::Error::new(why.kind(), format!("dial tcp {address}: connect: {}", shown(&why))))?;
    stream.set_nodelay(true)?;
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keep_alive)?;
    Ok(stream)
}

/// Dials, and performs the TLS handshake if the URL requires it.
#[derive(Clone)]
pub struct Connector {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) server_name: Option<String>,
}

impl Connector {
    pub fn new(tls: &TlsSettings, dial: Arc<dyn Dial>) -> Result<Self, TlsError> {
        Ok(Self { dial, tls: Arc::new(tls.config()?), server_name: tls.server_name.clone() })
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Conn;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Conn>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(uri).await })
    }
}

/// Maximum number of headers of an HTTP/1.1 response. Go has no such limit.
pub(crate) const MAX_HEADERS: usize = 1_000;

/// How long a connection and its handshake may take, as in v1.34's clients. Callers may allow less.
const DIAL: Duration = Duration::from_secs(30);
const HANDSHAKE: Duration = Duration::from_secs(10);

impl Connector {
    /// Connects to the host of a URL.
    pub async fn connect(self, uri: Uri) -> io::Result<Conn> {
        let (host, port) = target(&uri)?;
        let is_tls = uri.scheme_str() == Some("https");
        let dialed = tokio::time::timeout(DIAL, self.dial.dial(host.clone(), port)).await;
        let dialed = dialed.map_err(|_| timed_out(&format!("dial tcp {host}:{port}: i/o timeout")))??;
        if !is_tls || self.dial.is_in_process(&host) {
            return Ok(Conn { io: TokioIo::new(dialed), is_h2: false });
        }
        let name = ServerName::try_from(self.server_name.unwrap_or(host));
        let name = name.map_err(|_| io::Error::other("the URL's host is not a valid server name"))?;
        let handshake = TlsConnector::from(self.tls).connect(name, FirstRecord::new(dialed)).into_fallible();
        let stream = tokio::time::timeout(HANDSHAKE, handshake).await;
        let stream = stream.map_err(|_| timed_out("net/http: TLS handshake timeout"))?;
        let stream = stream.map_err(|(why, connection)| connection.explain(why))?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Conn { io: TokioIo::new(Box::new(stream)), is_h2 })
    }
}

/// Returns the host and port that a URL leads to. The host may have been checked before the URL was put together, so a
/// URL that can be read in two ways is refused: with user information before the host, or with a port that is not one.
fn target(uri: &Uri) -> io::Result<(String, u16)> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let authority = uri.authority().ok_or_else(|| invalid("the URL has no host".into()))?.as_str();
    let host = uri.host().unwrap_or_default();
    let Some(port) = authority.strip_prefix(host) else {
        return Err(invalid(format!("host {authority:?} has user information, expected HOST or HOST:PORT")));
    };
    let port = match port.strip_prefix(':').unwrap_or(port) {
        "" if uri.scheme_str() == Some("https") => 443,
        "" => 80,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| invalid(format!("dial tcp: address {digits}: invalid port")))?
        }
        _ => return Err(invalid(format!("dial tcp: lookup {authority}: no such host"))),
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

fn timed_out(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Formats an I/O error, without the OS error number if it is a common one.
fn shown(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".into(),
        _ => error.to_string(),
    }
}

/// A connection used for HTTP.
pub struct Conn {
    io: TokioIo<Dialed>,
    is_h2: bool,
}

impl Connection for Conn {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.is_h2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Conn {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_one_host_and_port_or_is_refused() {
        for (url, expected) in [
            ("http://10.0.0.1/", Some(("10.0.0.1", 80))),
            ("https://a.example/", Some(("a.example", 443))),
            ("https://a.example:/", Some(("a.example", 443))),
            ("http://[fd00::1]:8080/", Some(("fd00::1", 8080))),
            ("http://[fd00::1]/", Some(("fd00::1", 80))),
            ("http://10.0.0.1:80@intranet.example/x", None),
            ("http://user@10.0.0.1/", None),
            ("http://10.0.0.1:99999/", None),
            ("http://10.0.0.1:http/", None),
            ("http://10.0.0.1:+80/", None),
        ] {
            // Some of them are not even URLs.
            let found = url.parse::<Uri>().ok().and_then(|url| target(&url).ok());
            let expected = expected.map(|(host, port): (&str, u16)| (host.to_owned(), port));
            assert_eq!(found, expected, "{url}");
        }
    }
}
