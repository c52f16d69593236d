//! Connections. The dialer can be replaced, so that tests run in virtual time over pipes.

use std::io;
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
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A connection, before TLS.
pub type Dialed = Box<dyn Stream>;

/// Opens connections.
pub trait Dial: Send + Sync + 'static {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>>;
}

/// A dialer for TCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Dialed>> {
        Box::pin(async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Dialed)
        })
    }
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
        let dialed = self.dial.dial(host.clone(), port).await;
        let dialed = dialed.map_err(|why| {
            io::Error::new(why.kind(), format!("dial tcp {host}:{port}: connect: {}", shown(&why)))
        })?;
        if !is_tls {
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
