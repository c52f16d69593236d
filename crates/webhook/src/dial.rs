//! Connections. The dialer can be replaced, so that tests run in virtual time over pipes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::cidr::Cidr;

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

/// The network without some ranges of addresses. What counts is the address that is dialed, not the name that led to
/// it, so a name that resolves to another address the second time gains nothing.
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
        let is_denied = move |address| denied.iter().any(|range| range.contains(address));
        Box::pin(async move { connect(&host, port, is_denied).await })
    }
}

/// Connects to the first address of a host that answers.
async fn connect(host: &str, port: u16, is_denied: impl Fn(IpAddr) -> bool) -> io::Result<Dialed> {
    let addresses = lookup_host((host, port)).await;
    let addresses = addresses
        .map_err(|why| io::Error::new(why.kind(), format!("dial tcp: lookup {host}: {}", shown(&why))))?;
    let mut failure = io::Error::other(format!("dial tcp: lookup {host}: no such host"));
    for address in addresses {
        if is_denied(address.ip()) {
            let why = format!("dial tcp {address}: the address is in a range that webhooks must not be in");
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

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await;
    let stream = stream
        .map_err(|why| io::Error::new(why.kind(), format!("dial tcp {address}: connect: {}", shown(&why))))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Dials, and performs the TLS handshake if the URL requires it.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) server_name: Option<String>,
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

impl Connector {
    async fn connect(self, uri: Uri) -> io::Result<Conn> {
        let host = uri.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let dialed = self.dial.dial(host.clone(), port).await?;
        if !is_tls || self.dial.is_in_process(&host) {
            return Ok(Conn { io: TokioIo::new(dialed), is_h2: false });
        }
        let name = ServerName::try_from(self.server_name.unwrap_or(host));
        let name = name.map_err(|_| io::Error::other("the URL's host is not a valid server name"))?;
        let stream = TlsConnector::from(self.tls).connect(name, dialed).await?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Conn { io: TokioIo::new(Box::new(stream)), is_h2 })
    }
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
pub(crate) struct Conn {
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
