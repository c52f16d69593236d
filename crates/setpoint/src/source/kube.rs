//! Objects from an API server, through any `kube::Client`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use http_body_util::BodyExt;
use kube::client::Body;

use super::frame::{self, Frame, Keep, Lines};
use super::listing::PART;
use super::{Listed, Parts, Selection, Source, WatchItem};
use crate::{Client, ClientError, Kind, Rng, Runtime};

/// The server closes a watch after 290 s at the latest: before proxies and clients that give an idle
/// connection five minutes do. Up to half a minute sooner, so that watches do not all end together.
const LONGEST_WATCH_SECONDS: u64 = 290;
const WATCH_JITTER_SECONDS: u64 = 30;

/// A watch that the server has not closed by then hangs on a connection that is gone.
const WATCH_GRACE: Duration = Duration::from_secs(15);

/// A server that knows streaming lists sends something at least this often until the list is complete.
const LONGEST_SILENCE_IN_LIST: Duration = Duration::from_secs(5);

/// A source over any `kube::Client`.
///
/// A list is streamed where the server can do that, which costs it least, and read in pages
/// otherwise. Managed fields are left out of what it yields: they often make up half of an object and
/// no controller reads them.
///
/// ```no_run
/// # async fn example(runtime: setpoint::Runtime) -> Result<(), kube::Error> {
/// use std::sync::Arc;
/// use setpoint::{Informers, source::KubeSource};
/// let client = kube::Client::try_default().await?;
/// let informers = Informers::new(Arc::new(KubeSource::new(client, runtime.clone())), runtime);
/// # Ok(()) }
/// ```
pub struct KubeSource {
    client: Client,
    rng: Rng,
    keep: Keep,
    /// The server cannot stream a list, or shall not.
    paged: AtomicBool,
}

/// How a streamed list ended.
enum Streamed {
    Complete(Listed),
    /// The server does not do this: ask for pages, now and from now on.
    Unknown,
    /// It did not work out: ask for pages.
    Failed,
}

type Frames = BoxStream<'static, Result<Frame, ClientError>>;

impl KubeSource {
    /// A source that reads through `client`.
    pub fn new(client: impl Into<Client>, runtime: Runtime) -> Self {
        let keep = Keep { managed_fields: false };
        Self { client: client.into(), rng: runtime.rng, keep, paged: AtomicBool::new(false) }
    }

    /// Lists in pages even where the server can stream.
    pub fn paged(self) -> Self {
        Self { paged: AtomicBool::new(true), ..self }
    }

    /// Leaves managed fields where they are.
    pub fn with_managed_fields(self) -> Self {
        Self { keep: Keep { managed_fields: true }, ..self }
    }

    /// Streams a list where the server can, else reads it in pages.
    async fn read_list(
        &self,
        kind: &Kind,
        selection: &Selection,
        parts: Option<Parts>,
    ) -> Result<Listed, ClientError> {
        if !self.paged.load(Ordering::Relaxed) {
            match self.stream_list(kind, selection, parts.as_ref()).await? {
                Streamed::Complete(listed) => return Ok(listed),
                Streamed::Unknown => self.paged.store(true, Ordering::Relaxed),
                Streamed::Failed => {}
            }
            if let Some(parts) = &parts {
                parts.again().await;
            }
        }
        let object = |raw: Bytes| self.keep.object(&raw);
        self.client.list_as(kind, selection, parts.as_ref(), object).await
    }

    async fn stream_list(
        &self,
        kind: &Kind,
        selection: &Selection,
        parts: Option<&Parts>,
    ) -> Result<Streamed, ClientError> {
        let start = [("sendInitialEvents", Some("true")), ("resourceVersionMatch", Some("NotOlderThan"))];
        let frames = match self.frames(kind, selection, &start).await {
            Ok(frames) => frames,
            Err(error) => return unable_to_stream(error),
        };
        match collect(frames, parts).await {
            Ok(streamed) => Ok(streamed),
            Err(error) => unable_to_stream(error),
        }
    }

    /// Opens a watch and reads it line by line.
    async fn frames(
        &self,
        kind: &Kind,
        selection: &Selection,
        start: &[(&str, Option<&str>)],
    ) -> Result<Frames, ClientError> {
        let seconds = LONGEST_WATCH_SECONDS - self.rng.below(WATCH_JITTER_SECONDS);
        let timeout = seconds.to_string();
        let query = [start, &[("timeoutSeconds", Some(timeout.as_str()))]].concat();
        let body = self.client.open_watch(kind, selection, &query).await?;
        let overdue = tokio::time::sleep(Duration::from_secs(seconds) + WATCH_GRACE);
        Ok(read_lines(body, self.keep).take_until(overdue).boxed())
    }
}

impl Source for KubeSource {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<Listed, ClientError>> {
        Box::pin(self.read_list(kind, selection, None))
    }

    fn list_in_parts<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        parts: Parts,
    ) -> BoxFuture<'a, Result<Listed, ClientError>> {
        Box::pin(self.read_list(kind, selection, Some(parts)))
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
        Box::pin(async move {
            let frames = self.frames(kind, selection, &[("resourceVersion", Some(resource_version))]).await?;
            Ok(frames.map(|frame| frame.map(Frame::into_item)).boxed())
        })
    }
}

/// Whether pages may still do: not if the server is away, busy, or lets nobody in.
fn unable_to_stream(error: ClientError) -> Result<Streamed, ClientError> {
    match error.code() {
        Some(400 | 405 | 406 | 422) => Ok(Streamed::Unknown),
        Some(401 | 403 | 404 | 429 | 503) | None => Err(error),
        Some(_) => Ok(Streamed::Failed),
    }
}

async fn collect(mut frames: Frames, parts: Option<&Parts>) -> Result<Streamed, ClientError> {
    let mut listed = Listed::default();
    loop {
        if listed.objects.len() >= PART {
            listed.hand_over(parts).await;
        }
        let Ok(frame) = tokio::time::timeout(LONGEST_SILENCE_IN_LIST, frames.next()).await else {
            return Ok(Streamed::Unknown);
        };
        match frame.transpose()? {
            None => return Ok(Streamed::Failed),
            Some(Frame::Item(WatchItem::Added(object))) => listed.objects.push(object),
            Some(Frame::Item(WatchItem::Undecodable { .. })) => listed.undecodable += 1,
            Some(Frame::InitialEventsEnd { resource_version }) => {
                return Ok(Streamed::Complete(Listed { resource_version, ..listed }));
            }
            // A change before the end: this server watches, it does not list.
            Some(Frame::Item(WatchItem::Modified(_) | WatchItem::Deleted(_))) => {
                return Ok(Streamed::Unknown);
            }
            Some(Frame::Item(WatchItem::Bookmark { .. })) => {}
        }
    }
}

/// The events of a body, up to the first error. A line that is cut off by the end is left out: the
/// watch resumes before it.
fn read_lines(body: Body, keep: Keep) -> impl Stream<Item = Result<Frame, ClientError>> + Send {
    let reading = Some((body.into_data_stream(), Lines::default()));
    stream::unfold(reading, move |reading| async move {
        let (mut chunks, mut lines) = reading?;
        loop {
            match lines.next() {
                Ok(Some(line)) => match frame::read(&line, keep) {
                    Ok(frame) => return Some((Ok(frame), Some((chunks, lines)))),
                    Err(error) => return Some((Err(error), None)),
                },
                Ok(None) => match chunks.next().await? {
                    Ok(chunk) => lines.push(chunk),
                    Err(error) => return Some((Err(ClientError::Transport(Box::new(error))), None)),
                },
                Err(error) => return Some((Err(error), None)),
            }
        }
    })
}
