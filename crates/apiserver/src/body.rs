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

/// Why a body ends before it is complete. The client has its status code already, so all that is left is to end the
/// connection or the HTTP/2 stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Aborted {
    #[error("the response was not read before the request's deadline")]
    Late,
    #[error("the server that the request was forwarded to broke off its response")]
    Source,
}

/// The parts of a streamed body: chunks, and possibly trailers at the end.
pub(crate) type Frames = BoxStream<'static, Result<Frame<Bytes>, Aborted>>;

enum Content {
    Full(Bytes),
    Stream { frames: Frames, length: Option<u64>, is_endless: bool },
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
        Self::frames(pieces.map(|piece| Ok(Frame::data(piece))).boxed(), length, length.is_none())
    }

    /// Creates a body from its parts. An endless one may end at any time without harm, such as a watch; every other one
    /// is either complete or [`Aborted`].
    pub(crate) fn frames(frames: Frames, length: Option<u64>, is_endless: bool) -> Self {
        Self { content: Content::Stream { frames, length, is_endless }, cut_off: None }
    }

    /// Breaks a body off when a timer ends, if it is not complete by then.
    pub(crate) fn until(self, timer: impl Future<Output = ()> + Send + 'static) -> Self {
        let (length, is_endless) = (self.length(), self.is_endless());
        let late = async move {
            timer.await;
            Err(Aborted::Late)
        };
        let frames = self.into_frames().map(Some).chain(futures::stream::iter([None]));
        let merged = futures::stream::select(frames, futures::stream::once(late).map(Some).boxed());
        let frames =
            merged.take_while(|frame| std::future::ready(frame.is_some())).filter_map(std::future::ready);
        Self::frames(frames.boxed(), length, is_endless)
    }

    /// Cuts a stream off at a deadline, as v1.34 does.
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

    /// Whether it may end at any time without harm.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self.content, Content::Stream { is_endless: true, .. })
    }

    /// Converts the body to a stream of chunks. It ends early if the body is aborted.
    pub fn into_stream(self) -> BoxStream<'static, Bytes> {
        match self.content {
            Content::Full(bytes) => Box::pin(futures::stream::iter((!bytes.is_empty()).then_some(bytes))),
            Content::Stream { frames, .. } => {
                let whole = frames.take_while(|frame| std::future::ready(frame.is_ok()));
                let data = |frame: Result<Frame<Bytes>, Aborted>| {
                    frame.ok().and_then(|frame| frame.into_data().ok())
                };
                whole.filter_map(move |frame| std::future::ready(data(frame))).boxed()
            }
        }
    }

    /// Converts the body to its parts.
    pub(crate) fn into_frames(self) -> Frames {
        match self.content {
            Content::Full(bytes) => {
                let only = (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)));
                futures::stream::iter(only).boxed()
            }
            Content::Stream { frames, .. } => frames,
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
        if let Content::Stream { frames, .. } = &mut self.content {
            let inner = std::mem::replace(frames, Box::pin(futures::stream::empty()));
            *frames = Box::pin(Holding { inner, _held: held });
        }
    }

    /// Reads the body to its end.
    pub async fn collect(self) -> Bytes {
        match self.content {
            Content::Full(bytes) => bytes,
            Content::Stream { length, .. } => {
                let mut whole = Vec::with_capacity(length.unwrap_or(0) as usize);
                let mut pieces = self.into_stream();
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
    inner: Frames,
    _held: T,
}

impl<T> Unpin for Holding<T> {}

impl<T> Stream for Holding<T> {
    type Item = Result<Frame<Bytes>, Aborted>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.as_mut().poll_next(context)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.cut_off.as_mut().is_some_and(|cut_off| cut_off.as_mut().poll(context).is_ready()) {
            self.content = Content::Full(Bytes::new());
            self.cut_off = None;
            return Poll::Ready(Some(Err(Aborted::Late)));
        }
        match &mut self.content {
            Content::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Stream { frames, length, .. } => {
                let polled = chain::guard_poll(|| frames.as_mut().poll_next(context));
                let frame = std::task::ready!(polled);
                let piece = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                if let (Some(length), Some(piece)) = (length, piece) {
                    *length = length.saturating_sub(piece.len() as u64);
                }
                Poll::Ready(frame)
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
    async fn a_body_that_takes_too_long_does_not_look_complete() {
        let timer = || tokio::time::sleep(Duration::from_secs(10));
        let frame = || futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"a")))]);
        let mut cut =
            Body::frames(frame().chain(futures::stream::pending()).boxed(), None, false).until(timer());
        assert_eq!(cut.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert_eq!(cut.frame().await.unwrap().unwrap_err(), Aborted::Late);
        let mut whole = Body::frames(frame().boxed(), None, false).until(timer());
        assert_eq!(whole.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert!(whole.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_cut_off_at_its_deadline() {
        let pieces = futures::stream::iter([Bytes::from_static(b"a")]).chain(futures::stream::pending());
        let mut body = Body::stream(pieces, None);
        let deadline = setpoint_clock::Clock::system().instant() + Duration::from_secs(60);
        body.cut_off_at(deadline);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        assert_eq!(body.frame().await.unwrap().unwrap_err(), Aborted::Late);
        assert!(setpoint_clock::Clock::system().instant() >= deadline);
        assert!(body.frame().await.is_none());
    }
}
