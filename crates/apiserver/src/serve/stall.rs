//! A socket that gives up on a client that does not read: a write without any progress for [`LIMIT`] is an error.
//! While a write is blocked, the connection's responses are held back.
//!
//! There is a timer only while a write is blocked.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::bodies::Bodies;

/// How long a client may read nothing.
const LIMIT: Duration = Duration::from_secs(60);

/// A socket with a limit on stalled writes.
pub(super) struct Stall<S> {
    inner: S,
    waiting: Option<Pin<Box<Sleep>>>,
    bodies: Arc<Bodies>,
}

impl<S> Stall<S> {
    pub(super) fn new(inner: S, bodies: Arc<Bodies>) -> Self {
        Self { inner, waiting: None, bodies }
    }

    /// Passes results through; turns lack of progress into an error after the limit.
    fn limited<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            if self.waiting.take().is_some() {
                self.bodies.unblock();
            }
            return polled;
        }
        let timer = self.waiting.get_or_insert_with(|| {
            self.bodies.block();
            Box::pin(tokio::time::sleep(LIMIT))
        });
        std::task::ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S> Drop for Stall<S> {
    /// Unblocks the responses: they notice that the connection is gone when polled again.
    fn drop(&mut self) {
        self.bodies.unblock();
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
    use setpoint_clock::Clock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    fn stall(inner: DuplexStream) -> (Stall<DuplexStream>, Arc<Bodies>) {
        let bodies = Bodies::new(Clock::system().instant());
        (Stall::new(inner, bodies.clone()), bodies)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_given_up() {
        let (server, mut client) = tokio::io::duplex(16);
        let (mut server, _) = stall(server);
        server.write_all(&[0; 16]).await.unwrap();
        let failed = server.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        client.read_exact(&mut [0; 16]).await.unwrap();
        server.write_all(&[0; 1]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_waited_for() {
        let (server, mut client) = tokio::io::duplex(1);
        let (mut server, _) = stall(server);
        let reading = tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(LIMIT * 9 / 10).await;
                client.read_u8().await.unwrap();
            }
        });
        server.write_all(&[0; 4]).await.unwrap();
        reading.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn responses_wait_while_the_socket_takes_nothing() {
        let (server, mut client) = tokio::io::duplex(16);
        let (mut server, bodies) = stall(server);
        let body = bodies.follow();
        let unblocked = || std::future::poll_fn(|context| body.poll_unblocked(context));
        server.write_all(&[0; 16]).await.unwrap();
        unblocked().await;
        let writing = tokio::spawn(async move {
            server.write_all(&[0; 1]).await.unwrap();
            server
        });
        tokio::task::yield_now().await;
        let waiting = tokio::time::timeout(LIMIT / 2, unblocked());
        assert!(waiting.await.is_err(), "the socket is full");
        let (server, ()) = tokio::join!(writing, async {
            client.read_exact(&mut [0; 16]).await.unwrap();
            unblocked().await;
        });
        bodies.block();
        drop(server);
        unblocked().await;
    }
}
