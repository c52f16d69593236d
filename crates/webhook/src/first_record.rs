//! Recognizes servers that do not speak TLS, by the first bytes that they send.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::dial::Dialed;

/// The length of a record's header: type, version, length.
const HEADER: usize = 5;

/// A connection that keeps the first bytes it reads.
pub(crate) struct FirstRecord {
    stream: Dialed,
    header: [u8; HEADER],
    count: usize,
}

/// The server does not speak TLS.
#[derive(Debug, thiserror::Error)]
#[error("tls: {why}")]
pub(crate) struct NotTls {
    why: &'static str,
    header: [u8; HEADER],
}

impl NotTls {
    /// Checks a header as Go does.
    fn check(header: [u8; HEADER]) -> Result<(), Self> {
        const ALERT: u8 = 21;
        const HANDSHAKE: u8 = 22;
        const SSL_2: u8 = 0x80;
        let why = match header {
            [SSL_2, ..] => "unsupported SSLv2 handshake received",
            [ALERT | HANDSHAKE, ..0x10, ..] => return Ok(()),
            _ => "first record does not look like a TLS handshake",
        };
        Err(Self { why, header })
    }

    /// Whether the server speaks HTTP.
    pub(crate) fn is_http(&self) -> bool {
        self.header == *b"HTTP/"
    }
}

impl FirstRecord {
    pub(crate) fn new(stream: Dialed) -> Self {
        Self { stream, header: [0; HEADER], count: 0 }
    }

    /// Explains a failed handshake by the first bytes.
    pub(crate) fn explain(&self, error: io::Error) -> io::Error {
        let is_malformed = |error: &rustls::Error| matches!(error, rustls::Error::InvalidMessage(_));
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if self.count < HEADER || !tls.is_some_and(is_malformed) {
            return error;
        }
        NotTls::check(self.header).err().map_or(error, |why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    fn keep(&mut self, bytes: &[u8]) {
        let free = &mut self.header[self.count..];
        let kept = bytes.len().min(free.len());
        free[..kept].copy_from_slice(&bytes[..kept]);
        self.count += kept;
    }
}

impl AsyncRead for FirstRecord {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.keep(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FirstRecord {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_record_that_is_not_tls_is_described_as_go_does() {
        let odd = "tls: first record does not look like a TLS handshake";
        for (header, expected) in [
            (b"HTTP/", Some(odd)),
            (b"<!DOC", Some(odd)),
            (b"\x80\x2e\x01\x03\x01", Some("tls: unsupported SSLv2 handshake received")),
            (b"\x16\x20\x20\x00\x10", Some(odd)),
            (b"\x16\x03\x03\x00\x10", None),
            (b"\x15\x03\x03\x00\x02", None),
        ] {
            let found = NotTls::check(*header).err();
            assert_eq!(found.as_ref().map(ToString::to_string).as_deref(), expected);
            assert_eq!(found.is_some_and(|found| found.is_http()), header == b"HTTP/");
        }
    }
}
