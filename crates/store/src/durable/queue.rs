//! The queue of writes to the log.
//!
//! A write is checked against the head: the published state, overlaid with the writes that are queued or being synced.
//! An accepted write gets the next revision immediately. If a write is rejected because of a write that is not durable
//! yet, the rejection waits in the queue behind it: no record is revealed before it is durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::core::Core;
use crate::{Error, Event, EventKind, Key, Record, Revision};

/// The capacity in KiB: 32 MiB, a few hundred milliseconds of disk time, or 32,768 small writes. Later writes wait for
/// room. An encrypted value is queued in both forms, so memory use is at most twice that.
const CAPACITY: usize = 32 << 10;

/// The approximate number of bytes per sync. Beyond this, the sync is no longer the dominant cost, and the first write
/// of the batch should not wait longer for the last.
pub(crate) const MAX_BATCH: usize = 4 << 20;

pub(crate) struct Queue {
    inner: Mutex<Inner>,
    work: Condvar,
    room: Arc<Semaphore>,
}

struct Inner {
    /// The newest revision that has been assigned.
    head: Revision,
    /// The records at the head of keys with unpublished writes.
    overlay: BTreeMap<Key, QueuedRecord>,
    items: VecDeque<Item>,
    /// The number of items that a waiting writer waits for.
    wake_writer_at: usize,
    is_closing: bool,
}

/// How many items the writer waits for, and how long, once there is one.
///
/// Clients that got their replies together come back together, but not all at once. A writer that took the first one
/// would sync for it alone while the others wait, and every other sync would be wasted.
#[derive(Clone, Copy, Default)]
pub(crate) struct BatchWait {
    pub(crate) items: usize,
    pub(crate) at_most: Duration,
}

struct QueuedRecord {
    revision: Revision,
    record: Option<Arc<Record>>,
}

pub(crate) type Reply = Result<Arc<Record>, Error>;

/// A write in the queue.
pub(crate) struct Item {
    pub(crate) outcome: Result<Event, Error>,
    /// The stored form of the value, if it differs from the value.
    pub(crate) stored: Option<Vec<u8>>,
    reply: oneshot::Sender<Reply>,
    _room: Reservation,
}

/// A share of the queue's capacity.
pub(crate) struct Reservation {
    _permit: OwnedSemaphorePermit,
}

impl Queue {
    pub(crate) fn new(head: Revision) -> Self {
        let inner = Inner {
            head,
            overlay: BTreeMap::new(),
            items: VecDeque::new(),
            wake_writer_at: usize::MAX,
            is_closing: false,
        };
        Self { inner: Mutex::new(inner), work: Condvar::new(), room: Arc::new(Semaphore::new(CAPACITY)) }
    }

    /// Waits for room for this many bytes.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Reservation, Error> {
        let units = (1 + bytes / 1024).min(CAPACITY) as u32;
        let permit = self.room.clone().acquire_many_owned(units).await.map_err(|_| Error::Closed)?;
        Ok(Reservation { _permit: permit })
    }

    /// Decides on a write of `key`, given its record at the head, and queues it. Takes the state's lock while holding
    /// the queue's: this is the only place that holds both. An error is the final reply. Otherwise the reply comes
    /// through the receiver.
    pub(crate) fn submit(
        &self,
        core: &Core,
        key: &Key,
        room: Reservation,
        stored: Option<Vec<u8>>,
        decide: impl FnOnce(Option<&Arc<Record>>, Revision) -> Result<Event, Error>,
    ) -> Result<oneshot::Receiver<Reply>, Error> {
        let mut inner = self.inner.lock();
        if inner.is_closing {
            return Err(Error::Closed);
        }
        let overlaid = inner.overlay.get(key).map(|overlaid| overlaid.record.clone());
        let is_published = overlaid.is_none();
        let current = overlaid.unwrap_or_else(|| core.read().record(key).cloned());
        let outcome = match decide(current.as_ref(), inner.head + 1) {
            Err(error) if is_published => return Err(error),
            outcome => outcome,
        };
        if let Ok(event) = &outcome {
            inner.accept(event);
        }
        let (reply, answer) = oneshot::channel();
        inner.items.push_back(Item { outcome, stored, reply, _room: room });
        if inner.items.len() >= inner.wake_writer_at {
            self.work.notify_one();
        }
        Ok(answer)
    }

    /// Takes everything queued, up to about [`MAX_BATCH`]. If the queue is empty, waits for an item: indefinitely if
    /// `wait` is set, otherwise only as long as `batch_wait` allows. Returns `None` if the queue is closed and empty.
    pub(crate) fn take(&self, wait: bool, batch_wait: BatchWait) -> Option<Vec<Item>> {
        let mut inner = self.inner.lock();
        inner.wake_writer_at = 1;
        if wait {
            self.work.wait_while(&mut inner, |inner| inner.has_fewer_than(1));
        } else {
            self.work.wait_while_for(&mut inner, |inner| inner.has_fewer_than(1), batch_wait.at_most);
        }
        if !inner.items.is_empty() {
            inner.wake_writer_at = batch_wait.items;
            self.work.wait_while_for(
                &mut inner,
                |inner| inner.has_fewer_than(batch_wait.items),
                batch_wait.at_most,
            );
        }
        inner.wake_writer_at = usize::MAX;
        let is_over = inner.items.is_empty() && inner.is_closing;
        (!is_over).then(|| inner.take_batch())
    }

    /// Removes a published batch from the overlay. Returns the number of waiting items.
    pub(crate) fn published(&self, revisions: impl Iterator<Item = (Key, Revision)>) -> usize {
        let mut inner = self.inner.lock();
        for (key, revision) in revisions {
            if inner.overlay.get(&key).is_some_and(|overlaid| overlaid.revision == revision) {
                inner.overlay.remove(&key);
            }
        }
        inner.items.len()
    }

    /// Handles a batch that could not be made durable. Everything queued behind it was decided based on it, so it fails
    /// too. The head returns to the published state.
    pub(crate) fn give_up(&self, published: Revision) -> Vec<Item> {
        let mut inner = self.inner.lock();
        inner.head = published;
        inner.overlay.clear();
        inner.items.drain(..).collect()
    }

    /// Accepts no more writes. Queued ones are still processed.
    pub(crate) fn close(&self) {
        self.inner.lock().is_closing = true;
        self.room.close();
        self.work.notify_one();
    }
}

impl Inner {
    /// Returns whether there are fewer than `items`, and more may come.
    fn has_fewer_than(&self, items: usize) -> bool {
        self.items.len() < items && !self.is_closing
    }

    fn accept(&mut self, event: &Event) {
        self.head = event.revision();
        let record = (event.kind != EventKind::Deleted).then(|| event.record.clone());
        let overlaid = QueuedRecord { revision: self.head, record };
        self.overlay.insert(event.record.key.clone(), overlaid);
    }

    fn take_batch(&mut self) -> Vec<Item> {
        let mut bytes = 0;
        let mut within_batch = |item: &Item| {
            let fits = bytes < MAX_BATCH;
            let stored = item.stored.as_ref().map(Vec::len);
            bytes += item.outcome.as_ref().map_or(0, |event| stored.unwrap_or(event.record.whole_length()));
            fits
        };
        let count = self.items.iter().take_while(|item| within_batch(item)).count();
        self.items.drain(..count).collect()
    }
}

impl Item {
    /// Returns the change to make durable, if the write was accepted, with its [`stored`](Self::stored) value.
    pub(crate) fn event(&self) -> Option<(&Event, Option<&[u8]>)> {
        Some((self.outcome.as_ref().ok()?, self.stored.as_deref()))
    }

    /// Sends the reply. The caller may be gone.
    pub(crate) fn answer(self, reply: Reply) {
        let _ = self.reply.send(reply);
    }
}
