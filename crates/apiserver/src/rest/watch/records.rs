//! The changes of a selection, as records in the version of the watched resource.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use setpoint_store::{Event, EventKind, Record, Revision, Watch, WatchError};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::convert::{Converter, Initial};
use crate::facts::Facts;
use crate::registry::Served;
use crate::selector::ParsedSelection;
use crate::server::Server;
use crate::status::Status;

/// The type of a change as seen through a selection: an object that no longer matches is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl ChangeKind {
    /// Returns the type in watch events.
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
    choice: ParsedSelection,
    /// One future for the whole watch: creating one per change would cost more than the change.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Converts objects, if a webhook does that.
    converter: Option<Converter>,
}

impl Server {
    pub(crate) fn watch(
        &self,
        served: Arc<Served>,
        choice: ParsedSelection,
        from: Revision,
    ) -> Result<RecordWatch, Status> {
        // A name narrows the range more than a field does.
        let range = choice.range(&served);
        let trigger = if range.is_exact { None } else { choice.trigger(&served) };
        let watch = self.store.watch_by(range, trigger, from).map_err(|why| match why {
            setpoint_store::Error::Compacted { requested, oldest } => too_old(requested, oldest),
            other => self.refusal(other),
        })?;
        let closing = served.kind.custom.as_ref().map_or(&self.closing, |custom| &custom.closing).clone();
        let converter = served.is_converted_by_webhook();
        let converter = converter.then(|| Converter::new(self, &served, watch.revision()));
        Ok(RecordWatch { watch, served, choice, closing: Box::pin(closing.cancelled_owned()), converter })
    }
}

/// Ends the watch if an object cannot be read, whether it was written by another server or has expired: what the
/// watcher should see of it is unknown.
fn check_readable(events: &[Arc<Event>]) -> Result<(), Status> {
    match events.iter().find_map(|event| event.record.unreadable()) {
        Some(reason) => Err(Status::internal(reason)),
        None => Ok(()),
    }
}

fn too_old(requested: Revision, oldest: Revision) -> Status {
    Status::expired(format!("too old resource version: {requested} ({oldest})"))
}

impl RecordWatch {
    /// Waits for the next changes. An empty batch only advances the revision; `None` is the end: the server is
    /// shutting down, or the watched kind has changed. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Vec<(ChangeKind, Arc<Record>)>>, Status> {
        let events = std::future::poll_fn(|context| self.poll_events(context)).await?;
        let changes = |events: Vec<Arc<Event>>| {
            let changes = events.iter().filter_map(|event| self.change(event));
            changes.map(|(kind, record)| (kind, record.into_owned())).collect()
        };
        Ok(events.map(changes))
    }

    /// Returns the next changes before selection ([`change`](Self::change)); `None` is the end.
    pub(super) fn poll_events(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<Arc<Event>>>, Status>> {
        loop {
            if self.converter.as_ref().is_some_and(Converter::is_busy) {
                return self.poll_converted(context);
            }
            let Some(events) = std::task::ready!(self.poll_stored(context))? else {
                return Poll::Ready(Ok(None));
            };
            let events = match &mut self.converter {
                None => Some(events),
                Some(converter) => {
                    converter.begin(events, self.watch.revision(), !self.choice.is_everything())
                }
            };
            if events.is_some() {
                return Poll::Ready(Ok(events));
            }
        }
    }

    fn poll_stored(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<Arc<Event>>>, Status>> {
        match self.watch.poll_next(context) {
            Poll::Ready(Ok(events)) => Poll::Ready(check_readable(&events).map(|()| Some(events))),
            Poll::Ready(Err(WatchError::FellBehind { seen })) => Poll::Ready(Err(too_old(seen, seen + 1))),
            Poll::Ready(Err(WatchError::Closed)) => Poll::Ready(Ok(None)),
            Poll::Pending => self.poll_closing(context).map(|()| Ok(None)),
        }
    }

    fn poll_converted(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<Arc<Event>>>, Status>> {
        let converted = self.converter.as_mut().map(|converter| converter.poll_events(context));
        match converted {
            Some(Poll::Ready(events)) => Poll::Ready(events.map(Some)),
            _ => self.poll_closing(context).map(|()| Ok(None)),
        }
    }

    /// Returns existing records, to be converted if necessary. Otherwise they are those of the selection.
    pub(super) fn initial(&self, records: Vec<Arc<Record>>) -> Initial {
        match &self.converter {
            None => Initial::Shown(records.into()),
            Some(converter) => Initial::Converting(converter.records(records)),
        }
    }

    /// Returns the converted records of the selection.
    pub(super) fn selected(&self, mut records: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
        records.retain(|record| self.choice.matches(record, &self.served));
        records
    }

    /// Waits until the server shuts down, or the watched kind changes.
    pub(super) fn poll_closing(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.closing.as_mut().poll(context)
    }

    /// Encodes a record for the watched resource, without managed fields.
    pub fn shown(&self, record: &Record) -> Result<Bytes, Status> {
        self.served.bare_bytes(record)
    }

    /// Returns the facts about a record of the watched resource.
    pub fn facts<'a>(&self, record: &'a Record) -> &'a Facts {
        Facts::of(record, &self.served)
    }

    /// Returns the revision up to which all changes have been returned.
    pub fn revision(&self) -> Revision {
        self.converter.as_ref().map_or_else(|| self.watch.revision(), Converter::revision)
    }

    /// Maps an event to a change of this selection, if it is one.
    pub(super) fn change<'a>(&self, event: &'a Event) -> Option<(ChangeKind, Cow<'a, Arc<Record>>)> {
        if self.choice.is_everything() {
            let kind = match event.kind {
                EventKind::Created => ChangeKind::Added,
                EventKind::Updated => ChangeKind::Modified,
                EventKind::Deleted => ChangeKind::Deleted,
            };
            return Some((kind, Cow::Borrowed(&event.record)));
        }
        let chosen = |record: &Arc<Record>| self.choice.matches(record, &self.served);
        let was = event.previous.as_ref().filter(|previous| chosen(previous));
        let is = event.kind != EventKind::Deleted && chosen(&event.record);
        match (was, is) {
            (None, true) => Some((ChangeKind::Added, Cow::Borrowed(&event.record))),
            (Some(_), true) => Some((ChangeKind::Modified, Cow::Borrowed(&event.record))),
            (Some(_), false) if event.kind == EventKind::Deleted => {
                Some((ChangeKind::Deleted, Cow::Borrowed(&event.record)))
            }
            // The last selected state, with the revision at which it stopped matching.
            (Some(previous), false) => {
                Some((ChangeKind::Deleted, Cow::Owned(Arc::new(previous.removed(event.revision())))))
            }
            (None, false) => None,
        }
    }
}
