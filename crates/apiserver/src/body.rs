//! Response bodies: a single chunk, or a stream of chunks produced while the client reads.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http_body::{Frame, SizeHint};
use setpoint_clock::Instant;
use tokio::time::Sleep;

use crate::chain;

/// A response body.
pub struct Body {
    content: Content,
    /// When to cut it off, whether or not the client has read all of it.
    cut_off: Option<Pin<Box<Sleep>>>,
}

/// The error for a body that was cut off: its request took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response was not read within the time that the request may take")]
pub struct CutOff;

enum Content {
    Full(Bytes),
    Stream { pieces: BoxStream<'static, Bytes>, length: Option<u64> },
}

impl Body {
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Full(bytes.into()), cut_off: None }
    }

    /// Creates a body from a stream of chunks, with its total length if known in advance.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static, length: Option<u64>) -> Self {
        Self { content: Content::Stream { pieces: Box::pin(pieces), length }, cut_off: None }
    }

    /// Cuts a stream off at a deadline, as v1.34 does: the client already has its status code, so all that is left is
    /// to end the connection or the HTTP/2 stream.
    pub(crate) fn cut_off_at(&mut self, deadline: Instant) {
        if let Content::Stream { .. } = self.content {
            self.cut_off = Some(Box::pin(tokio::time::sleep_until(deadline)));
        }
    }

    /// Returns the whole body if it is a single chunk.
    pub fn as_full(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Full(bytes) => Some(bytes),
            Content::Stream { .. } => None,
        }
    }

    /// Returns its length, if known.
    pub fn length(&self) -> Option<u64> {
        match &self.content {
            Content::Full(bytes) => Some(bytes.len() as u64),
            Content::Stream { length, .. } => *length,
        }
    }

    /// Converts the body to a stream of chunks.
    pub fn into_stream(self) -> BoxStream<'static, Bytes> {
        match self.content {
            Content::Full(bytes) => Box::pin(futures::stream::iter((!bytes.is_empty()).then_some(bytes))),
            Content::Stream { pieces, .. } => pieces,
        }
    }

    /// Like [`into_stream`](Self::into_stream), with chunks of at most this length.
    pub(crate) fn into_pieces(self, longest: usize) -> BoxStream<'static, Bytes> {
        let cut = move |mut piece: Bytes| {
            futures::stream::iter(std::iter::from_fn(move || {
                (!piece.is_empty()).then(|| piece.split_to(piece.len().min(longest)))
            }))
        };
        self.into_stream().flat_map(cut).boxed()
    }

    /// Holds a value until a streamed body ends; drops it immediately for a single chunk.
    pub(crate) fn hold(&mut self, held: impl Send + 'static) {
        if let Content::Stream { pieces, .. } = &mut self.content {
            let inner = std::mem::replace(pieces, Box::pin(futures::stream::empty()));
            *pieces = Box::pin(Holding { inner, _held: held });
        }
    }

    /// Reads the body to its end.
    pub async fn collect(self) -> Bytes {
        match self.content {
            Content::Full(bytes) => bytes,
            Content::Stream { mut pieces, length } => {
                let mut whole = Vec::with_capacity(length.unwrap_or(0) as usize);
                while let Some(piece) = pieces.next().await {
                    whole.extend_from_slice(&piece);
                }
                whole.into()
            }
        }
    }
}

/// A stream, and a value that lives as long.
struct Holding<T> {
    inner: BoxStream<'static, Bytes>,
    _held: T,
}

impl<T> Unpin for Holding<T> {}

impl<T> Stream for Holding<T> {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.inner.as_mut().poll_next(context)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if self.cut_off.as_mut().is_some_and(|cut_off| cut_off.as_mut().poll(context).is_ready()) {
            self.content = Content::Full(Bytes::new());
            self.cut_off = None;
            return Poll::Ready(Some(Err(CutOff)));
        }
        match &mut self.content {
            Content::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Stream { pieces, length } => {
                let polled = chain::guard_poll(|| pieces.as_mut().poll_next(context));
                let piece = std::task::ready!(polled);
                if let (Some(length), Some(piece)) = (length, &piece) {
                    *length = length.saturating_sub(piece.len() as u64);
                }
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream { length: Some(length), .. } => SizeHint::with_exact(*length),
            Content::Stream { length: None, .. } => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.content {
            Content::Full(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Content::Stream { length, .. } => write!(f, "Body(stream of {length:?} bytes)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_cut_off_at_its_deadline() {
        let pieces = futures::stream::iter([Bytes::from_static(b"a")]).chain(futures::stream::pending());
        let mut body = Body::stream(pieces, None);
        let deadline = setpoint_clock::Clock::system().instant() + Duration::from_secs(60);
        body.cut_off_at(deadline);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert_eq!(body.frame().await.unwrap().unwrap_err(), CutOff);
        assert!(setpoint_clock::Clock::system().instant() >= deadline);
        assert!(body.frame().await.is_none());
    }
}
