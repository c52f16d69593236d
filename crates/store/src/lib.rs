//! The store: keys with revisions, compare-and-swap, history and watch.
//!
//! Invariants:
//! - There is one global, growing revision. Every committed change takes the next one.
//! - A write is acknowledged, and visible to readers and watchers, only once it is durable.
//! - Readers and watchers see all changes, in revision order, each once.
//! - Every write states what it expects to find ([`Expect`]). There are no blind writes.
//! - History is bounded. Requests beyond it fail with [`Error::Compacted`].
//!
//! Each resource (`pods`, `apps/replicasets`) has its own index. No operation spans two resources.

mod core;
mod decide;
mod durable;
mod engine;
pub mod etcd;
mod history;
mod index;
mod inset;
mod key;
mod memory;
pub mod private;
mod record;
mod sealing;
mod unseal;
mod watch;
mod watcher_group;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

pub use durable::{
    Contents, Disk, DiskFile, DurableOptions, DurableStore, OpenError, SnapshotError, SnapshotInfo,
    check_snapshot, read_contents, restore_snapshot, save_snapshot, write_contents,
};
pub use history::Limits;
pub use inset::{InlineBytes, Inset, Part, Text};
pub use key::{Key, Range, Resource};
pub use memory::MemoryStore;
pub use record::{Facts, Payload, Record};
pub use watch::{Event, EventKind, Trigger, ValueOf, Watch, WatchError};

/// The position of a change in the global order of changes. 0 is before every change.
pub type Revision = u64;

/// What a write expects to find at its key. If it does not, it fails with [`Error::Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: this is a create.
    Absent,
    /// A record last modified at this revision.
    Revision(Revision),
}

/// A compare-and-swap.
#[derive(Debug)]
pub struct Write {
    pub key: Key,
    pub expect: Expect,
    pub change: Change,
}

/// What a write does to its key.
#[derive(Debug)]
pub enum Change {
    /// Stores a value. It expires after `ttl`, if given.
    Put { payload: Payload, ttl: Option<Duration> },
    /// Removes the record. Watchers get its last state, stamped with the revision of the removal.
    Delete,
}

/// The options of a list: which part of a range to return.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// The revision to read at. `None`: the newest.
    pub at: Option<Revision>,
    /// The maximum number of records. 0: all.
    pub limit: usize,
    /// Only records at or after this path. To continue after a record, use [`just_after`] it.
    pub from: Option<String>,
    /// The number of records in the range before `from`, if the caller knows it. This avoids walking the rest to count
    /// what remains.
    pub before: Option<usize>,
}

/// Returns the first possible path after another.
pub fn just_after(path: &str) -> String {
    format!("{path}\0")
}

/// The result of a list, in path order.
#[derive(Clone, Debug)]
pub struct Page {
    pub records: Vec<Arc<Record>>,
    /// The revision of this page.
    pub revision: Revision,
    /// How many more records of the range follow this page.
    pub remaining: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The expectation was not met. `current` is the current record.
    #[error("the record does not match the write's precondition")]
    Conflict { current: Option<Arc<Record>> },
    /// History before `oldest` has been compacted.
    #[error("revision {requested} has been compacted; the oldest available is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    /// The revision has not happened yet.
    #[error("revision {requested} is in the future; the newest is {newest}")]
    Future { requested: Revision, newest: Revision },
    /// The disk is full. Nothing was written. Reads continue, and writes work again once there is space.
    #[error("no space left for the store")]
    Full,
    /// The write could not be made durable. Nothing of it is visible.
    #[error("the store could not write")]
    Io(#[source] Arc<std::io::Error>),
    /// The system that keeps the data did not answer. Whether a write happened is unknown.
    #[error("{0}")]
    Unavailable(String),
    /// The system that keeps the data refused. Nothing was written.
    #[error("{0}")]
    Refused(String),
    /// A value could not be encrypted or decrypted.
    #[error("{0}")]
    Transform(String),
    /// The store is shutting down and accepts no more writes.
    #[error("the store is closed")]
    Closed,
}

/// A store of records. Object-safe, so that the API server does not depend on the engine.
pub trait Store: Send + Sync + 'static {
    /// Returns the newest revision that readers can see.
    fn revision(&self) -> Revision;

    /// Returns the oldest revision that can still be read or watched from. A resource with more traffic than [`Limits`]
    /// allow may not reach back that far. Its [`Error::Compacted`] then says how far.
    fn compacted(&self) -> Revision;

    /// Returns the revision at which a read sees every change that was acknowledged before this call, by this or
    /// another process. `None`: the newest that this process has seen, which is faster. Engines without other writers
    /// are always up to date.
    fn latest(&self) -> BoxFuture<'_, Result<Option<Revision>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns whether other processes may write to the same records.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns why reads and writes do not work at the moment, if they do not.
    fn health(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the record at a key, at the newest revision that this process has seen, or at a given one.
    fn get<'a>(
        &'a self,
        key: &'a Key,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, Error>>;

    /// Returns a page of a range, consistent at one revision.
    fn list<'a>(&'a self, range: &'a Range, options: ListOptions) -> BoxFuture<'a, Result<Page, Error>>;

    /// Returns the current number of records in a range.
    fn count<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<usize, Error>>;

    /// Applies a compare-and-swap. Returns once it is durable and visible, with the written record or, for a delete,
    /// the removed record stamped with the revision of the removal.
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>>;

    /// Returns whether a record is stored differently than it would be now, for example because the encryption key has
    /// changed. It should then be rewritten even if nothing else changes.
    fn is_stale(&self, record: &Record) -> bool {
        _ = record;
        false
    }

    /// Watches all changes in the range after revision `from`, in order, with previous values.
    fn watch(&self, range: Range, from: Revision) -> Result<Watch, Error> {
        self.watch_by(range, None, from)
    }

    /// Like [`watch`](Self::watch), but only for records that have the trigger's value, or had it before the change.
    fn watch_by(&self, range: Range, trigger: Option<Trigger>, from: Revision) -> Result<Watch, Error>;

    /// Forgets history up to and including `revision`. A watch *from* `revision` stays valid.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>>;

    /// Removes the records that expired at or before `now`. Returns how many. Also forgets history older than
    /// [`Limits::age`] at `now`, so call this every few seconds.
    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, Error>>;

    /// Accepts no more writes, waits for those in progress, and notifies watchers once they have read everything. Reads
    /// still work.
    fn close(&self) -> BoxFuture<'_, ()>;
}
