//! A socket that gives up on a client which takes nothing: writing without any progress for [`LIMIT`] is an error.
//!
//! There is a timer only while a write waits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may take nothing.
const LIMIT: Duration = Duration::from_secs(60);

/// A socket with a limit to how long writes stand still.
pub(super) struct Stall<S> {
    inner: S,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Stall<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, waiting: None }
    }

    /// Passes progress on; the lack of it only until the limit.
    fn limited<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let timer = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(LIMIT)));
        std::task::ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.limited(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.limited(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.limited(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.limited(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (server, mut client) = tokio::io::duplex(16);
        let mut server = Stall::new(server);
        server.write_all(&[0; 16]).await.unwrap();
        let failed = server.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        client.read_exact(&mut [0; 16]).await.unwrap();
        server.write_all(&[0; 1]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_waited_for() {
        let (server, mut client) = tokio::io::duplex(1);
        let mut server = Stall::new(server);
        let reading = tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(LIMIT * 9 / 10).await;
                client.read_u8().await.unwrap();
            }
        });
        server.write_all(&[0; 4]).await.unwrap();
        reading.await.unwrap();
    }
}
