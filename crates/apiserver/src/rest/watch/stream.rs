//! The stream of a watch to its client.
//!
//! Short events since the last write are sent in one chunk of up to [`PIECE_BYTES`]: if there are many, one wake-up,
//! one TLS record and one system call serve them all. A long event is a chunk of its own, whose bytes all watchers
//! share.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use setpoint_clock::{Clock, Instant};
use setpoint_store::{Event, Record, Revision};

use super::convert::Initial;
use super::form::{Form, Framing, SHARED_BYTES};
use super::records::{ChangeKind, RecordWatch};
use crate::metrics::OpenWatch;
use crate::status::Status;

/// Interval of bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark is sent this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// A chunk ends once it has this many bytes: the size of a TLS record.
const PIECE_BYTES: usize = 16 << 10;

/// The events of a watch, in chunks for a response body, or one by one for a WebSocket.
pub(super) struct WatchStream {
    watch: RecordWatch,
    /// Existing objects, sent as if they had just been added.
    initial: Initial,
    /// The revision of the bookmark that ends the initial objects, if one is due.
    pending_end_of_initial: Option<Revision>,
    /// Skips changes up to this revision.
    after: Revision,
    /// The event after the current chunk, if its bytes are shared with other watchers.
    shared: Option<Bytes>,
    /// Events read but not yet written: at most one batch from the store.
    read: VecDeque<Arc<Event>>,
    form: Form,
    clock: Clock,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// Fires at the next bookmark or at the end; only reset after it has fired.
    timer: BoxFuture<'static, ()>,
    is_over: bool,
    /// Counts this as an open watch while it exists.
    open: OpenWatch,
}

/// Where a watch starts and how long it lasts.
pub(super) struct Plan {
    pub(super) open: OpenWatch,
    pub(super) initial: Initial,
    pub(super) pending_end_of_initial: Option<Revision>,
    /// Skips changes up to this revision.
    pub(super) after: Revision,
    pub(super) watch_duration: Duration,
    pub(super) bookmarks: bool,
}

impl WatchStream {
    pub(super) fn new(watch: RecordWatch, plan: Plan, form: Form, clock: Clock) -> Self {
        let now = clock.instant();
        let deadline = now + plan.watch_duration;
        let next_bookmark = plan.bookmarks.then(|| bookmark_after(now, deadline)).flatten();
        Self {
            watch,
            initial: plan.initial,
            pending_end_of_initial: plan.pending_end_of_initial,
            after: plan.after,
            shared: None,
            read: VecDeque::new(),
            form,
            timer: timer(&clock, next_bookmark, deadline),
            clock,
            deadline,
            next_bookmark,
            is_over: false,
            open: plan.open,
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            // Checked before every chunk: the timer is only polled when there is nothing to send.
            if self.is_over || self.clock.instant() >= self.deadline {
                return Poll::Ready(None);
            }
            if let Some(piece) = self.ready_piece() {
                return Poll::Ready(Some(piece));
            }
            match self.poll_changes(context) {
                Poll::Ready(Ok(Some(events))) => self.read.extend(events),
                Poll::Ready(Ok(None)) => self.is_over = true,
                Poll::Ready(Err(status)) => return Poll::Ready(Some(self.final_event(&status))),
                Poll::Pending => {
                    std::task::ready!(self.timer.as_mut().poll(context));
                    if let Some(bookmark) = self.timer_fired() {
                        return Poll::Ready(Some(bookmark));
                    }
                }
            }
        }
    }

    /// Returns the next changes. Existing objects come first, however long their conversion takes.
    fn poll_changes(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Vec<Arc<Event>>>, Status>> {
        let Initial::Converting(converting) = &mut self.initial else {
            return self.watch.poll_events(context);
        };
        match converting.as_mut().poll(context) {
            Poll::Ready(Ok(records)) => {
                self.initial = Initial::Shown(self.watch.selected(records).into());
                Poll::Ready(Ok(Some(Vec::new())))
            }
            Poll::Ready(Err(status)) => Poll::Ready(Err(status)),
            Poll::Pending => self.watch.poll_closing(context).map(|()| Ok(None)),
        }
    }

    /// Returns the available events as one chunk.
    fn ready_piece(&mut self) -> Option<Bytes> {
        if let Some(shared) = self.shared.take() {
            return Some(shared);
        }
        let mut piece = Vec::new();
        let mut events = 0;
        while !self.is_over && self.shared.is_none() && !self.is_full(&piece) {
            let Initial::Shown(initial) = &mut self.initial else { break };
            if let Some(record) = initial.pop_front() {
                self.write(&mut piece, ChangeKind::Added, &record);
                events += 1;
            } else if let Some(revision) = self.pending_end_of_initial.take() {
                self.form.bookmark(&mut piece, revision, true);
            } else if let Some(event) = self.read.pop_front() {
                events += self.write_event(&mut piece, &event);
            } else {
                break;
            }
        }
        if events > 0 {
            self.open.sent(events);
        }
        match piece.is_empty() {
            true => self.shared.take(),
            false => Some(piece.into()),
        }
    }

    /// Writes an event if this watcher's selection includes it; returns how many were written.
    fn write_event(&mut self, piece: &mut Vec<u8>, event: &Event) -> u64 {
        if event.record.modified <= self.after {
            return 0;
        }
        let Some((kind, record)) = self.watch.change(event) else { return 0 };
        self.write(piece, kind, &record);
        1
    }

    /// Writes an event about a record; ends the watch if the record cannot be encoded.
    fn write(&mut self, piece: &mut Vec<u8>, kind: ChangeKind, record: &Record) {
        match self.form.event(piece, kind, record) {
            Ok(None) => {}
            Ok(Some(event)) if event.len() < SHARED_BYTES => piece.extend_from_slice(&event),
            Ok(Some(event)) => self.shared = Some(event),
            Err(status) => {
                self.form.error(piece, &status);
                self.initial = Initial::Shown(VecDeque::new());
                self.read.clear();
                self.is_over = true;
            }
        }
    }

    fn is_full(&self, piece: &[u8]) -> bool {
        match self.form.framing {
            Framing::Messages => !piece.is_empty(),
            Framing::Lines | Framing::Lengths => piece.len() >= PIECE_BYTES,
        }
    }

    fn final_event(&mut self, status: &Status) -> Bytes {
        self.is_over = true;
        let mut piece = Vec::new();
        self.form.error(&mut piece, status);
        piece.into()
    }

    /// Sends a bookmark if one is due, or ends the watch.
    fn timer_fired(&mut self) -> Option<Bytes> {
        let now = self.clock.instant();
        if now >= self.deadline {
            self.is_over = true;
            return None;
        }
        self.next_bookmark = bookmark_after(now, self.deadline);
        self.timer = timer(&self.clock, self.next_bookmark, self.deadline);
        if matches!(self.initial, Initial::Converting(_)) {
            // A bookmark would say that the existing objects have been sent.
            return None;
        }
        let mut piece = Vec::new();
        let revision = self.watch.revision();
        self.form.bookmark(&mut piece, revision, false);
        Some(piece.into())
    }
}

impl Stream for WatchStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.poll_piece(context)
    }
}

fn timer(clock: &Clock, next_bookmark: Option<Instant>, deadline: Instant) -> BoxFuture<'static, ()> {
    let clock = clock.clone();
    let wake = next_bookmark.map_or(deadline, |at| at.min(deadline));
    Box::pin(async move { clock.sleep_until(wake).await })
}

/// Returns when the next bookmark is due: after the usual interval, and once more shortly before the end.
fn bookmark_after(now: Instant, deadline: Instant) -> Option<Instant> {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now)?;
    Some((now + BOOKMARK_EVERY).min(last))
}
