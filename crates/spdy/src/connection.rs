//! The handle of a connection: opening and accepting streams, and closing.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::driver::Driver;
use crate::frame::{ResetStatus, StreamId};
use crate::headers::Headers;
use crate::settings::{Role, Settings};
use crate::slot::{Inbound, register};
use crate::state::State;
use crate::stream::Stream;

/// The state shared by a driver, a connection and its streams.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    ended: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn end(&self) {
        self.state.lock().end();
        self.ended.send_replace(true);
    }
}

/// Starts SPDY on a transport that was upgraded to it.
pub fn connect<Io>(io: Io, role: Role, settings: Settings) -> (Connection, Driver<Io>)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let state = Mutex::new(State::new(role, settings));
    let shared = Arc::new(Shared { state, ended: watch::Sender::new(false) });
    (Connection { shared: shared.clone() }, Driver::new(shared, io))
}

/// A SPDY connection. Dropping it closes it.
pub struct Connection {
    shared: Arc<Shared>,
}

/// Why a stream could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("the SPDY connection is closed")]
    Closed,
    #[error("the SPDY connection has too many streams")]
    TooMany,
    #[error("the peer refused the SPDY stream")]
    Refused,
}

impl Connection {
    /// Opens a stream, and waits until the peer has accepted it. Dropping the future resets the stream.
    pub async fn open(&self, headers: Headers) -> Result<Stream, OpenError> {
        let opened = {
            let mut state = self.shared.state.lock();
            if !state.is_accepting() {
                return Err(OpenError::Closed);
            }
            state.open(headers).ok_or(OpenError::TooMany)?
        };
        let stream = Stream::new(self.shared.clone(), opened);
        poll_fn(|context| self.poll_opened(opened, context)).await?;
        Ok(stream)
    }

    fn poll_opened(&self, stream: StreamId, context: &mut Context<'_>) -> Poll<Result<(), OpenError>> {
        let mut state = self.shared.state.lock();
        let is_ended = state.is_ended;
        match state.streams.get_mut(&stream) {
            Some(slot) if slot.is_accepted => Poll::Ready(Ok(())),
            Some(slot) if matches!(slot.inbound, Inbound::Reset(_)) => Poll::Ready(Err(OpenError::Refused)),
            Some(slot) if !is_ended => {
                register(&mut slot.opener, context);
                Poll::Pending
            }
            _ => Poll::Ready(Err(OpenError::Closed)),
        }
    }

    /// Waits for a stream that the peer opens; `None` if there will be none. For one task at a time.
    pub async fn accept(&self) -> Option<Incoming> {
        poll_fn(|context| {
            let mut state = self.shared.state.lock();
            if let Some(stream) = state.take_arrived() {
                return Poll::Ready(Some(Incoming { stream: Stream::new(self.shared.clone(), stream) }));
            }
            if !state.is_accepting() {
                return Poll::Ready(None);
            }
            register(&mut state.acceptor, context);
            Poll::Pending
        })
        .await
    }

    /// Closes the connection: no further streams are opened or accepted, and it ends with its last stream.
    pub fn close(&self) {
        self.shared.state.lock().close();
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        // The sender lives as long as this handle.
        _ = self.shared.ended.subscribe().wait_for(|is_ended| *is_ended).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

/// A stream that the peer has opened. Dropping it refuses it.
pub struct Incoming {
    stream: Stream,
}

impl Incoming {
    /// The headers that it was opened with.
    pub fn headers(&self) -> Headers {
        self.stream.headers()
    }

    pub fn accept(self) -> Stream {
        self.stream.accept();
        self.stream
    }

    pub fn refuse(self) {
        self.stream.reset(ResetStatus::REFUSED_STREAM);
    }
}
