//! Watches: the changes of a selection, and how they are framed.
//!
//! A watcher is a cursor into the store's history. One that is too slow loses its place there and is cut
//! off with an error event; nothing is buffered for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;
use setpoint_clock::{Clock, Instant};
use setpoint_store::{Event, EventKind, Record, Revision, Watch, WatchError};
use tokio_util::sync::CancellationToken;

use super::{Call, list, respond};
use crate::body::Body;
use crate::codec::to_bytes;
use crate::negotiate::{Encoding, Output, Shape};
use crate::options::ListOptions;
use crate::registry::Served;
use crate::selector::Choice;
use crate::server::Server;
use crate::status::Status;
use crate::transform::{self, IncludeObject, TableOptions};

/// What happened to an object, seen through a selection: one that stops being selected is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl ChangeKind {
    /// Its name in watch events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// The changes of a selection after a revision.
pub struct RecordWatch {
    watch: Watch,
    served: Arc<Served>,
    choice: Choice,
    closing: CancellationToken,
}

impl Server {
    pub(crate) fn watch(
        &self,
        served: Arc<Served>,
        choice: Choice,
        from: Revision,
    ) -> Result<RecordWatch, Status> {
        let watch = self.store.watch(choice.range(&served), from).map_err(|why| match why {
            setpoint_store::Error::Compacted { requested, oldest } => too_old(requested, oldest),
            other => self.refusal(other),
        })?;
        let closing = served.kind.custom.as_ref().map_or(&self.closing, |custom| &custom.closing).clone();
        Ok(RecordWatch { watch, served, choice, closing })
    }
}

fn too_old(requested: Revision, oldest: Revision) -> Status {
    Status::expired(format!("too old resource version: {requested} ({oldest})"))
}

impl RecordWatch {
    /// Waits for the next changes. An empty batch only says that the revision has moved on; `None` is the
    /// end: the server is closing, or the watched kind is not what it was. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Vec<(ChangeKind, Arc<Record>)>>, Status> {
        let events = tokio::select! {
            biased;
            events = self.watch.next() => events,
            () = self.closing.cancelled() => return Ok(None),
        };
        match events {
            Ok(events) => Ok(Some(events.iter().filter_map(|event| self.change(event)).collect())),
            Err(WatchError::FellBehind { seen }) => Err(too_old(seen, seen + 1)),
            Err(WatchError::Closed) => Ok(None),
        }
    }

    /// A record as the watched resource shows it.
    pub fn shown(&self, record: &Record) -> Result<Bytes, Status> {
        self.served.bytes(record)
    }

    /// Everything up to this revision has been handed out.
    pub fn revision(&self) -> Revision {
        self.watch.revision()
    }

    fn change(&self, event: &Event) -> Option<(ChangeKind, Arc<Record>)> {
        if self.choice.is_everything() {
            let kind = match event.kind {
                EventKind::Created => ChangeKind::Added,
                EventKind::Updated => ChangeKind::Modified,
                EventKind::Deleted => ChangeKind::Deleted,
            };
            return Some((kind, event.record.clone()));
        }
        let chosen = |record: &Arc<Record>| self.choice.matches(record, &self.served);
        let was = event.previous.as_ref().filter(|previous| chosen(previous));
        let is = event.kind != EventKind::Deleted && chosen(&event.record);
        match (was, is) {
            (None, true) => Some((ChangeKind::Added, event.record.clone())),
            (Some(_), true) => Some((ChangeKind::Modified, event.record.clone())),
            (Some(_), false) if event.kind == EventKind::Deleted => {
                Some((ChangeKind::Deleted, event.record.clone()))
            }
            // Its last selected state, at the revision it stopped being selected.
            (Some(previous), false) => {
                Some((ChangeKind::Deleted, Arc::new(previous.removed(event.revision()))))
            }
            (None, false) => None,
        }
    }
}

/// A watch without a timeout of its own ends after this long, up to twice as long, as in v1.34.
const SHORTEST_WATCH: Duration = Duration::from_secs(1800);
/// How often a watcher that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

pub(crate) async fn watch(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = ListOptions::parse(call.query, call.namespace, true)?;
    let choice = list::choose(call, &options)?;
    let form = Form::of(call)?;
    let revision = list::parse_revision(&options.resource_version).map_err(Status::unknown)?;
    let stream = match start(call, &options, choice, revision, form).await {
        Ok(stream) => stream,
        // Too old a version is what a watch says, not what it answers with.
        Err(status) if status.code == 410 => {
            let only = error_event(&status);
            return Ok(respond::response(StatusCode::OK, media_type(call.output), Body::full(only)));
        }
        Err(status) => return Err(status),
    };
    let pieces = futures::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((piece, stream))
    });
    Ok(respond::response(StatusCode::OK, media_type(call.output), Body::stream(pieces, None)))
}

fn media_type(output: Output) -> &'static str {
    output.encoding.media_type()
}

async fn start(
    call: &Call<'_>,
    options: &ListOptions,
    choice: Choice,
    revision: Option<Revision>,
    form: Form,
) -> Result<WatchStream, Status> {
    let named = revision.unwrap_or(0);
    let sends_initial = options.send_initial_events == Some(true);
    let is_old_style = sends_initial && call.query.get("sendInitialEvents").is_none();
    let mut initial = VecDeque::new();
    let from = match (sends_initial, options.send_initial_events, named) {
        (true, _, _) => {
            list::wait_for(call.server, named).await?;
            let range = choice.range(call.served);
            let page = call.server.store.list(&range, setpoint_store::ListOptions::default()).await;
            let page = page.map_err(|why| call.server.refusal(why))?;
            initial.extend(page.records.into_iter().filter(|record| choice.matches(record, call.served)));
            page.revision
        }
        // From now on.
        (false, Some(false), 0) => call.server.store.revision(),
        (false, _, named) => {
            list::wait_for(call.server, named).await?;
            named
        }
    };
    let watch = call.server.watch(call.served.clone(), choice, from)?;
    let now = call.server.clock.instant();
    let deadline = now + timeout(call, options);
    Ok(WatchStream {
        watch,
        initial,
        pending_end_of_initial: (sends_initial && !is_old_style && options.bookmarks).then_some(from),
        form,
        clock: call.server.clock.clone(),
        deadline,
        next_bookmark: options.bookmarks.then(|| bookmark_after(now, deadline)).flatten(),
        is_over: false,
    })
}

fn timeout(call: &Call<'_>, options: &ListOptions) -> Duration {
    match options
        .timeout_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
    {
        // More than a year is for ever.
        Some(seconds) => Duration::from_secs(seconds.min(365 * 24 * 3600)),
        None => SHORTEST_WATCH.mul_f64(1.0 + call.server.rng.fraction()),
    }
}

/// When the next bookmark is due: in a while, and once more shortly before the end.
fn bookmark_after(now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now)?;
    Some((now + BOOKMARK_EVERY).min(last))
}

/// How the objects of a watch are shown.
struct Form {
    served: Arc<Served>,
    output: Output,
    table: TableOptions,
    clock: Clock,
}

impl Form {
    fn of(call: &Call<'_>) -> Result<Self, Status> {
        if call.output.encoding == Encoding::Yaml {
            return Err(Status::not_acceptable(
                "only the following media types are accepted: application/json;stream=watch, \
                 application/vnd.kubernetes.protobuf;stream=watch",
            ));
        }
        let table = match call.output.shape {
            Shape::Table => TableOptions::parse(call.query)?,
            _ => TableOptions { include: IncludeObject::Metadata, without_columns: false },
        };
        Ok(Self { served: call.served.clone(), output: call.output, table, clock: call.server.clock.clone() })
    }

    fn is_plain(&self) -> bool {
        self.output.shape == Shape::Object
    }

    fn record(&mut self, record: &Record) -> Result<Bytes, Status> {
        if self.is_plain() {
            return self.served.bytes(record);
        }
        Ok(self.object(self.served.decode(record)?))
    }

    fn object(&mut self, object: Value) -> Bytes {
        match self.output.shape {
            Shape::Object => to_bytes(&object),
            Shape::PartialMetadata | Shape::PartialMetadataList => {
                to_bytes(&transform::partial(self.output, object))
            }
            Shape::Table => {
                let now: Timestamp = self.clock.now();
                let revision =
                    crate::json::Json::text(crate::metadata::of(&object), "resourceVersion").to_string();
                let list = transform::list_metadata(&revision, None, None);
                let table = transform::table(&self.served, self.output, &self.table, list, vec![object], now);
                self.table.without_columns = true;
                to_bytes(&table)
            }
        }
    }
}

/// A watch on its way to a client.
struct WatchStream {
    watch: RecordWatch,
    /// Objects that are there already, sent as if they had just been added.
    initial: VecDeque<Arc<Record>>,
    /// The revision of the bookmark that ends the initial objects, if one is due.
    pending_end_of_initial: Option<Revision>,
    form: Form,
    clock: Clock,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    is_over: bool,
}

/// Initial objects go out in batches of this many.
const INITIAL_BATCH: usize = 256;

impl WatchStream {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        if !self.initial.is_empty() {
            let count = self.initial.len().min(INITIAL_BATCH);
            let batch: Vec<_> =
                self.initial.drain(..count).map(|record| (ChangeKind::Added, record)).collect();
            return Some(self.events(&batch));
        }
        if let Some(revision) = self.pending_end_of_initial.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            let wake = self.next_bookmark.map_or(self.deadline, |at| at.min(self.deadline));
            let changes = tokio::select! {
                biased;
                changes = self.watch.next() => changes,
                () = self.clock.sleep_until(wake) => {
                    match self.timer_rang() {
                        Some(piece) => return Some(piece),
                        None if self.is_over => return None,
                        None => continue,
                    }
                }
            };
            match changes {
                Ok(Some(batch)) if batch.is_empty() => {}
                Ok(Some(batch)) => return Some(self.events(&batch)),
                Ok(None) => return None,
                Err(status) => {
                    self.is_over = true;
                    return Some(error_event(&status));
                }
            }
        }
    }

    /// A bookmark, or the end.
    fn timer_rang(&mut self) -> Option<Bytes> {
        let now = self.clock.instant();
        if now >= self.deadline {
            self.is_over = true;
            return None;
        }
        self.next_bookmark = bookmark_after(now, self.deadline);
        let revision = self.watch.revision();
        Some(self.bookmark(revision, false))
    }

    fn bookmark(&mut self, revision: Revision, ends_initial: bool) -> Bytes {
        let object = transform::bookmark(&self.form.served, revision, ends_initial);
        let object = self.form.object(object);
        let mut piece = Vec::with_capacity(object.len() + 40);
        write_event(&mut piece, "BOOKMARK", &object);
        piece.into()
    }

    fn events(&mut self, batch: &[(ChangeKind, Arc<Record>)]) -> Bytes {
        let size: usize = batch.iter().map(|(_, record)| record.value.len() + 40).sum();
        let mut piece = Vec::with_capacity(size);
        for (kind, record) in batch {
            match self.form.record(record) {
                Ok(object) => write_event(&mut piece, kind.name(), &object),
                Err(status) => {
                    self.is_over = true;
                    piece.extend_from_slice(&error_event(&status));
                    break;
                }
            }
        }
        piece.into()
    }
}

fn write_event(piece: &mut Vec<u8>, kind: &str, object: &[u8]) {
    piece.extend_from_slice(b"{\"type\":\"");
    piece.extend_from_slice(kind.as_bytes());
    piece.extend_from_slice(b"\",\"object\":");
    piece.extend_from_slice(object);
    piece.extend_from_slice(b"}\n");
}

fn error_event(status: &Status) -> Bytes {
    let mut piece = Vec::new();
    write_event(&mut piece, "ERROR", &status.to_bytes());
    piece.into()
}
