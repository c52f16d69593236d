//! Reads objects from an API server through any `kube::Client`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use http_body_util::BodyExt;
use kube::client::Body;

use super::frame::{self, Frame, Lines, ObjectDecoder};
use super::listing::PART;
use super::{ListSink, ObjectList, Selection, Source, WatchItem};
use crate::{Client, ClientError, Kind, Rng, Runtime};

/// The server closes a watch after at most 290 s, which is before proxies and clients time out an idle connection after
/// five minutes. Up to half a minute is subtracted, so that watches do not all end together.
const MAX_WATCH_SECONDS: u64 = 290;
const WATCH_JITTER_SECONDS: u64 = 30;

/// A watch that the server has not closed this long after its timeout hangs on a dead connection.
const WATCH_GRACE: Duration = Duration::from_secs(15);

/// A server that supports streaming lists sends something at least this often until the list is complete.
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A source that reads through any `kube::Client`.
///
/// It uses streaming lists if the server supports them, because they cost the server least, and paged lists otherwise.
/// Managed fields are dropped: they are often half of an object, and controllers do not read them.
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
    keep: ObjectDecoder,
    /// The server does not support streaming lists, or they are disabled.
    paged: AtomicBool,
}

/// The result of a streaming list.
enum Streamed {
    Complete(ObjectList),
    /// The server does not support it: use pages from now on.
    Unknown,
    /// It failed: use pages this time.
    Failed,
}

type Frames = BoxStream<'static, Result<Frame, ClientError>>;

impl KubeSource {
    /// Creates a source that reads through `client`.
    pub fn new(client: impl Into<Client>, runtime: Runtime) -> Self {
        let keep = ObjectDecoder { managed_fields: false };
        Self { client: client.into(), rng: runtime.rng, keep, paged: AtomicBool::new(false) }
    }

    /// Uses paged lists even if the server supports streaming.
    pub fn paged(self) -> Self {
        Self { paged: AtomicBool::new(true), ..self }
    }

    /// Keeps managed fields.
    pub fn with_managed_fields(self) -> Self {
        Self { keep: ObjectDecoder { managed_fields: true }, ..self }
    }

    /// Streams a list if the server supports it, otherwise reads it in pages.
    async fn read_list(
        &self,
        kind: &Kind,
        selection: &Selection,
        parts: Option<ListSink>,
    ) -> Result<ObjectList, ClientError> {
        if !self.paged.load(Ordering::Relaxed) {
            match self.stream_list(kind, selection, parts.as_ref()).await? {
                Streamed::Complete(listed) => return Ok(listed),
                Streamed::Unknown => self.paged.store(true, Ordering::Relaxed),
                Streamed::Failed => {}
            }
            if let Some(parts) = &parts {
                parts.restart().await;
            }
        }
        let object = |raw: Bytes| self.keep.object(&raw);
        self.client.list_as(kind, selection, parts.as_ref(), object).await
    }

    async fn stream_list(
        &self,
        kind: &Kind,
        selection: &Selection,
        parts: Option<&ListSink>,
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
        let seconds = MAX_WATCH_SECONDS - self.rng.below(WATCH_JITTER_SECONDS);
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
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(self.read_list(kind, selection, None))
    }

    fn list_in_parts<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        parts: ListSink,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
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

/// Decides whether to try pages after a failed stream. Returns the error if pages would fail too: the server is down,
/// busy or denies access.
fn unable_to_stream(error: ClientError) -> Result<Streamed, ClientError> {
    match error.code() {
        Some(400 | 405 | 406 | 422) => Ok(Streamed::Unknown),
        Some(401 | 403 | 404 | 429 | 503) | None => Err(error),
        Some(_) => Ok(Streamed::Failed),
    }
}

async fn collect(mut frames: Frames, parts: Option<&ListSink>) -> Result<Streamed, ClientError> {
    let mut listed = ObjectList::default();
    loop {
        if listed.objects.len() >= PART {
            listed.send(parts).await;
        }
        let Ok(frame) = tokio::time::timeout(LIST_IDLE_TIMEOUT, frames.next()).await else {
            return Ok(Streamed::Unknown);
        };
        match frame.transpose()? {
            None => return Ok(Streamed::Failed),
            Some(Frame::Item(WatchItem::Added(object))) => listed.objects.push(object),
            Some(Frame::Item(WatchItem::Undecodable { .. })) => listed.undecodable += 1,
            Some(Frame::InitialEventsEnd { resource_version }) => {
                return Ok(Streamed::Complete(ObjectList { resource_version, ..listed }));
            }
            // A change before the end of the initial events: this server watches instead of listing.
            Some(Frame::Item(WatchItem::Modified(_) | WatchItem::Deleted(_))) => {
                return Ok(Streamed::Unknown);
            }
            Some(Frame::Item(WatchItem::Bookmark { .. })) => {}
        }
    }
}

/// Reads the events of a body, up to the first error. A line cut off by the end of the body is dropped, because the
/// watch resumes before it.
fn read_lines(body: Body, keep: ObjectDecoder) -> impl Stream<Item = Result<Frame, ClientError>> + Send {
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
