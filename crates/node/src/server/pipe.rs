//! The API server's side of a connection to a simulated node. The node learns when it is dropped, even while it reads
//! nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A connection to a simulated node.
#[derive(Debug)]
pub struct NodeConnection {
    io: DuplexStream,
    _open: DropGuard,
}

impl NodeConnection {
    /// Returns both sides, and a token that is cancelled when this one is dropped.
    pub(super) fn new(bytes: usize) -> (Self, DuplexStream, CancellationToken) {
        let (io, other) = tokio::io::duplex(bytes);
        let closed = CancellationToken::new();
        (Self { io, _open: closed.clone().drop_guard() }, other, closed)
    }
}

impl AsyncRead for NodeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for NodeConnection {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_that_reads_nothing_learns_that_a_connection_was_dropped() {
        let (mut ours, mut theirs, closed) = NodeConnection::new(4);
        ours.write_all(b"full").await.expect("room");
        assert!(!closed.is_cancelled());
        drop(ours);
        closed.cancelled().await;
        let mut left = String::new();
        theirs.read_to_string(&mut left).await.expect("what was sent before is there");
        assert_eq!(left, "full");
    }
}
