//! The store: keys with revisions, compare-and-swap, history and watch.
//!
//! What always holds:
//! - one global, ever-growing revision; every committed change takes the next one;
//! - a write is acknowledged, and becomes visible to readers and watchers, only once it is durable;
//! - readers and watchers see changes in revision order, all of them, each once;
//! - every write names what it expects to find ([`Expect`]); there is no blind write;
//! - history is bounded; whoever asks for what is no longer kept is told so ([`Error::Compacted`]).
//!
//! A resource (`pods`, `apps/replicasets`) has an index of its own; no operation spans two resources.

mod core;
mod decide;
mod durable;
mod engine;
mod history;
mod index;
mod inset;
mod interest;
mod key;
mod memory;
pub mod private;
mod record;
mod sealing;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

pub use durable::{Disk, DiskFile, DurableOptions, DurableStore, OpenError};
pub use history::Limits;
pub use inset::{Inset, Own, Part, Text};
pub use key::{Key, Range, Resource};
pub use memory::MemoryStore;
pub use record::{Facts, Payload, Record};
pub use watch::{Event, EventKind, Trigger, ValueOf, Watch, WatchError};

/// The position of a change in the one global order of changes. 0 is before every change.
pub type Revision = u64;

/// What a write expects to find under its key; otherwise it fails with [`Error::Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: this is a create.
    Absent,
    /// A record last changed at this revision.
    Revision(Revision),
}

/// One compare-and-swap.
#[derive(Debug)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub change: Change,
}

/// What a write does to its key.
#[derive(Debug)]
pub enum Change {
    /// Stores a value, which expires by itself after `ttl` if one is given.
    Put { payload: Payload, ttl: Option<Duration> },
    /// Removes the record. Its last state, stamped with the revision of the removal, is what watchers get.
    Delete,
}

/// Which part of a range a list wants.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// The state as of this revision; `None`: the newest.
    pub at: Option<Revision>,
    /// At most this many records; 0: all.
    pub limit: usize,
    /// Only records whose path is not before this one. What follows a record begins at [`just_after`] it.
    pub from: Option<String>,
    /// How many records of the range there are before that, for callers that know. It spares walking the
    /// rest to say how many remain.
    pub before: Option<usize>,
}

/// The first path that comes after another.
pub fn just_after(path: &str) -> String {
    format!("{path}\0")
}

/// What a list found, in path order.
#[derive(Clone, Debug)]
pub struct Page {
    pub records: Vec<Arc<Record>>,
    /// The revision this page shows.
    pub revision: Revision,
    /// How many more records follow the last one of this page in the range.
    pub remaining: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The expectation did not hold; `current` is what is there instead.
    #[error("the record is not what the write expected")]
    Conflict { current: Option<Arc<Record>> },
    /// History before `oldest` is gone.
    #[error("revision {requested} has been compacted; the oldest available is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    /// A revision that has not happened yet.
    #[error("revision {requested} is in the future; the newest is {newest}")]
    Future { requested: Revision, newest: Revision },
    /// The disk is full. Nothing was written; reads go on, and writes work again once there is room.
    #[error("no space left for the store")]
    Full,
    /// The write could not be made durable. Nothing of it is visible.
    #[error("the store could not write")]
    Io(#[source] Arc<std::io::Error>),
    /// A value could not be encrypted or decrypted.
    #[error("{0}")]
    Transform(String),
    /// The store is shutting down and takes no more writes.
    #[error("the store is closed")]
    Closed,
}

/// A store of records. Object-safe, so that the API server does not know which engine it stands on.
pub trait Store: Send + Sync + 'static {
    /// The newest revision that readers can see.
    fn revision(&self) -> Revision;

    /// The oldest revision that can still be read or watched from. A resource with more traffic than
    /// [`Limits`] allow for may reach back less far; its [`Error::Compacted`] then says how far.
    fn compacted(&self) -> Revision;

    /// The record under a key, now or as of a revision.
    fn get<'a>(
        &'a self,
        key: &'a Key,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, Error>>;

    /// A page of a range, consistent as of one revision.
    fn list<'a>(&'a self, range: &'a Range, options: ListOptions) -> BoxFuture<'a, Result<Page, Error>>;

    /// How many records a range holds now.
    fn count<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<usize, Error>>;

    /// Applies one compare-and-swap and returns, once it is durable and visible, the record that was
    /// written, or, for a delete, the removed record stamped with the revision of the removal.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>>;

    /// Whether a record is stored otherwise than it would be now, for one because the key for writing has changed: it
    /// should be written again even if nothing else changes.
    fn is_stale(&self, record: &Record) -> bool {
        _ = record;
        false
    }

    /// Every change in the range after revision `from`, in order, with previous values.
    fn watch(&self, range: Range, from: Revision) -> Result<Watch, Error> {
        self.watch_by(range, None, from)
    }

    /// The same, only of records that have the trigger's value, or had it before the change.
    fn watch_by(&self, range: Range, trigger: Option<Trigger>, from: Revision) -> Result<Watch, Error>;

    /// Forgets history up to and including `revision`: a watch *from* `revision` stays valid.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>>;

    /// Removes the records whose time to live ended at or before `now`; returns how many. Also forgets the
    /// history that is older at `now` than [`Limits::age`], so call it every few seconds.
    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, Error>>;

    /// Takes no more writes, waits for those under way, and tells watchers once they have read all. Reads
    /// still work.
    fn close(&self) -> BoxFuture<'_, ()>;
}
