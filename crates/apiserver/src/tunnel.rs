//! Protocols that follow HTTP on a connection.
//!
//! A response that switches protocols carries a [`Tunnel`], which takes over the client's connection. The owner of the
//! connection ([`crate::serve`]) runs it. Most tunnels copy bytes to and from a server behind this one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use setpoint_clock::{Clock, Instant};
use setpoint_webhook::Dialed;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a connection may be idle, as in v1.34's streams. Some disconnected peers cannot be detected otherwise.
pub(crate) const IDLE: Duration = Duration::from_secs(4 * 3600);
/// How long closing both sides may take.
const CLOSE: Duration = Duration::from_secs(5);
/// How much is copied at once, in each direction.
const COPIED_BYTES: usize = 16 << 10;

/// The protocol after a response that switches protocols: a response extension. Can be run once; dropping it closes the
/// connection behind it.
#[derive(Clone)]
pub struct Tunnel(Arc<Mutex<Option<Inner>>>);

type Run = Box<dyn FnOnce(Dialed) -> BoxFuture<'static, ()> + Send>;

struct Inner {
    run: Run,
    /// Lives as long as the tunnel.
    held: Vec<Box<dyn Send>>,
}

impl Tunnel {
    /// A tunnel to a server that has switched protocols, too. It ends when it has been idle for too long.
    pub(crate) fn new(backend: OnUpgrade, idle: Idle) -> Self {
        Self::running(move |client| async move {
            if let Ok(backend) = backend.await {
                copy(client, TokioIo::new(backend), &idle).await;
            }
        })
    }

    /// A tunnel that runs this on the client's connection.
    pub(crate) fn running<F>(run: impl FnOnce(Dialed) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let run: Run = Box::new(move |client| run(client).boxed());
        Self(Arc::new(Mutex::new(Some(Inner { run, held: Vec::new() }))))
    }

    /// Holds a value until the tunnel ends.
    pub(crate) fn hold(&self, held: impl Send + 'static) {
        if let Some(inner) = &mut *self.0.lock() {
            inner.held.push(Box::new(held));
        }
    }

    /// Runs the protocol on the client's connection, until either side ends it.
    pub async fn run(self, client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let Some(Inner { run, held: _held }) = self.0.lock().take() else { return };
        run(Box::new(client)).await;
    }
}

/// Copies until either side ends, as in v1.34. While one side does not read, the end of the other is only noticed when
/// data is sent to it, or by the limit on idle connections: unwritten data does not count as use.
async fn copy(client: impl AsyncRead + AsyncWrite, backend: impl AsyncRead + AsyncWrite, idle: &Idle) {
    let (from_client, mut to_client) = tokio::io::split(client);
    let (from_backend, mut to_backend) = tokio::io::split(backend);
    let ended = tokio::select! {
        ended = copy_one_way(from_client, &mut to_backend, idle) => ended,
        ended = copy_one_way(from_backend, &mut to_client, idle) => ended,
        () = idle.expired() => Err(io::ErrorKind::TimedOut.into()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a forwarded connection broke off");
    }
    // So that neither side mistakes the end for a failure.
    let closing = futures::future::join(to_client.shutdown(), to_backend.shutdown());
    let _ = tokio::time::timeout(CLOSE, closing).await;
}

async fn copy_one_way(
    mut from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
    idle: &Idle,
) -> io::Result<()> {
    let mut piece = vec![0; COPIED_BYTES];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&piece[..count]).await?;
        to.flush().await?;
        idle.touch();
    }
}

/// Measures how long a connection has been idle.
pub(crate) struct Idle {
    clock: Clock,
    limit: Duration,
    last_use: Mutex<Instant>,
}

impl Idle {
    pub(crate) fn new(clock: Clock, limit: Duration) -> Self {
        let last_use = Mutex::new(clock.instant());
        Self { clock, limit, last_use }
    }

    pub(crate) fn touch(&self) {
        *self.last_use.lock() = self.clock.instant();
    }

    /// Waits until the connection has been idle for too long.
    pub(crate) async fn expired(&self) {
        loop {
            let due = *self.last_use.lock() + self.limit;
            if self.clock.instant() >= due {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_until_either_side_ends() {
        let ((client, mut near), (backend, mut far)) = (duplex(64), duplex(64));
        let idle = Idle::new(Clock::system(), IDLE);
        let copying = tokio::spawn(async move { copy(client, backend, &idle).await });
        near.write_all(b"there").await.unwrap();
        far.write_all(b"back").await.unwrap();
        let (mut there, mut back) = ([0; 5], [0; 4]);
        far.read_exact(&mut there).await.unwrap();
        near.read_exact(&mut back).await.unwrap();
        assert_eq!((&there, &back), (b"there", b"back"));
        drop(far);
        copying.await.unwrap();
        assert_eq!(near.read(&mut there).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unused_connection_ends() {
        let clock = Clock::system();
        let ((client, mut near), (backend, mut far)) = (duplex(64), duplex(64));
        let (idle, start) = (Idle::new(clock.clone(), Duration::from_secs(60)), clock.instant());
        let copying = tokio::spawn(async move { copy(client, backend, &idle).await });
        tokio::time::sleep(Duration::from_secs(50)).await;
        near.write_all(b"x").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
        copying.await.unwrap();
        assert_eq!((clock.instant() - start).as_secs(), 110);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disconnect_is_noticed_while_the_backend_does_not_read() {
        let ((client, mut near), (backend, far)) = (duplex(64), duplex(64));
        let idle = Idle::new(Clock::system(), IDLE);
        let copying = tokio::spawn(async move { copy(client, backend, &idle).await });
        near.write_all(&[b'x'; 128]).await.unwrap();
        drop(near);
        let ended = tokio::time::timeout(IDLE + Duration::from_secs(60), copying).await;
        ended.expect("the tunnel ends").unwrap();
        drop(far);
    }
}
