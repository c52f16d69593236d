//! A stream of a connection, to be read and written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Shared;
use crate::frame::{ResetStatus, StreamId};
use crate::headers::Headers;
use crate::slot::{Inbound, Outbound, register, was_reset};

/// A stream. Shutting it down for writing tells the peer that no more comes, and it can still be read. Dropping it resets
/// it, unless both sides have finished.
///
/// A stream that is cut off, by a reset or with its connection, fails with an error. Only the peer's own end of the
/// stream is read as the end.
pub struct Stream {
    shared: Arc<Shared>,
    id: StreamId,
}

impl Stream {
    pub(crate) fn new(shared: Arc<Shared>, id: StreamId) -> Self {
        Self { shared, id }
    }

    /// The number of the stream on its connection.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The headers of the peer.
    pub fn headers(&self) -> Headers {
        let state = self.shared.state.lock();
        state.streams.get(&self.id).map(|slot| slot.headers.clone()).unwrap_or_default()
    }

    /// Ends both directions at once. Buffered data is lost.
    pub fn reset(&self, status: ResetStatus) {
        self.shared.state.lock().reset(self.id, status);
    }

    pub(crate) fn accept(&self) {
        self.shared.state.lock().accept(self.id);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.state.lock().release(self.id);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.shared.state.lock();
        let (is_ended, full) = (state.is_ended, state.settings.buffer);
        let Some(slot) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(was_reset())) };
        if !slot.inbox.is_empty() {
            let was_full = slot.inbox.len() >= full;
            let (first, _) = slot.inbox.as_slices();
            let count = first.len().min(buffer.remaining());
            buffer.put_slice(&first[..count]);
            slot.inbox.drain(..count);
            state.consumed(self.id, count, was_full);
            return Poll::Ready(Ok(()));
        }
        match slot.inbound {
            Inbound::Finished => Poll::Ready(Ok(())),
            Inbound::Reset(_) => Poll::Ready(Err(was_reset())),
            Inbound::Open if is_ended => {
                let why = "the SPDY connection ended in the middle of a stream";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)))
            }
            Inbound::Open => {
                register(&mut slot.reader, context);
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.shared.state.lock();
        let (is_mute, full) = (state.is_mute, state.settings.buffer);
        let Some(slot) = state.streams.get_mut(&self.id) else { return Poll::Ready(Err(was_reset())) };
        if is_mute || slot.outbound != Outbound::Open {
            let why = "the SPDY stream is closed for writing";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)));
        }
        let count = data.len().min(full.saturating_sub(slot.outbox.len()));
        if count == 0 && !data.is_empty() {
            register(&mut slot.writer, context);
            return Poll::Pending;
        }
        slot.outbox.extend(&data[..count]);
        state.enqueue(self.id);
        Poll::Ready(Ok(count))
    }

    /// The driver sends whatever it can at once, so there is nothing to hurry.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Waits until everything before the end has been handed to the transport.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.state.lock();
        let is_mute = state.is_mute;
        let Some(slot) = state.streams.get_mut(&self.id) else { return Poll::Ready(Ok(())) };
        match slot.outbound {
            Outbound::Finished => return Poll::Ready(Ok(())),
            _ if is_mute => {
                let why = "the SPDY connection ended before the stream was sent";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, why)));
            }
            _ => slot.outbound = Outbound::Finishing,
        }
        register(&mut slot.writer, context);
        state.enqueue(self.id);
        Poll::Pending
    }
}
