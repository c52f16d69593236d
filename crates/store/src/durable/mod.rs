//! The durable engine: everything in memory, every change in a log, and occasional checkpoints.
//!
//! ```text
//!  commit ─► queue: check against the head, take a revision ─► writer thread: one frame, one sync
//!                                                                 │
//!  reader, watcher ◄── core: index, history, watchers ◄── publish ┘─► reply
//! ```
//!
//! Invariants:
//! - A change is published and acknowledged after its frame was synced, in revision order. All writes queued during a
//!   sync share the next one (group commit).
//! - The newest checkpoint, plus the logs from its generation on, contain exactly what was published, and at most one
//!   more frame of writes whose outcome was never reported.
//! - Nothing is ever appended after bytes that are not known to be durable.
//!
//! When the disk fails:
//! - If an append fails (disk full), the log is truncated to its last durable length. The writes of the batch and those
//!   queued behind it fail, and nothing of them is visible. The next batch tries again.
//! - If a sync fails, the system may have dropped what it could not write, and would report success next time. So the
//!   log is not used any more, as after an append that could not be truncated. The batch and those behind it fail. The
//!   next batch first starts a new generation: a new log, and a complete checkpoint of the published state, from
//!   memory. Only when both are durable does writing continue, and the old files are removed.
//! - If a checkpoint fails, the log continues, and the checkpoint is retried when the log has grown further.
//! - Reads are served from memory throughout.
//!
//! Lock order: the queue's lock, then the state's ([`Core`]). Only [`Queue::submit`] holds both. The writer takes them
//! one after the other, and never holds either while it waits for the disk.

mod checkpoint;
mod disk;
mod files;
pub(crate) mod format;
mod lock;
mod log;
mod queue;
mod recovery;
mod snapshot;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_clock::Clock;
use setpoint_encryption::Transformers;
use tokio::sync::{oneshot, watch};

use self::disk::Directory;
pub use self::disk::{Disk, DiskFile};
use self::lock::DirectoryLock;
use self::queue::{BatchWait, Queue, Reply};
use self::recovery::{Recovered, recover};
pub use self::snapshot::{
    Contents, SnapshotError, SnapshotInfo, check_snapshot, read_contents, restore_snapshot, save_snapshot,
    write_contents,
};
use self::writer::Writer;
use crate::core::Core;
use crate::decide::{decide, removal};
use crate::engine::Engine;
use crate::sealing::{Sealing, path_of};
use crate::unseal::Unseal;
use crate::{Change, Error, Key, Limits, ListOptions, Page, Range, Record, Revision, Write};

/// How many expired records are removed concurrently.
const EXPIRE_BATCH: usize = 1024;

/// The settings of a durable store.
#[derive(Clone, Copy, Debug)]
pub struct DurableOptions {
    pub limits: Limits,
    /// The log size after which a checkpoint replaces the logs, if they are also larger than the last checkpoint.
    pub checkpoint_after: u64,
    /// The approximate number of checkpoint bytes written between two batches of commits.
    pub checkpoint_slice: usize,
}

impl Default for DurableOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            // Takes a tenth of a second to read. Some 15,000 changes of pods.
            checkpoint_after: 32 << 20,
            // A few milliseconds of disk time, about as long as a sync.
            checkpoint_slice: 2 << 20,
        }
    }
}

/// An error while opening a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the data directory {} is in use by {holder}", directory.display())]
    InUse { directory: PathBuf, holder: String },
    #[error(
        "{file} was written by a newer version: its format is {found}, this version reads up to {supported}"
    )]
    Newer { file: String, found: u32, supported: u32 },
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged { file: String, offset: u64, what: String },
    #[error("could not {attempt}")]
    Io { attempt: String, source: io::Error },
}

/// A store in a data directory.
pub struct DurableStore {
    core: Arc<Core>,
    queue: Arc<Queue>,
    clock: Clock,
    sealing: Sealing,
    writer: Mutex<Option<JoinHandle<()>>>,
    finished: watch::Receiver<()>,
}

impl DurableStore {
    /// Opens the store in a data directory, creating it if necessary.
    pub fn open(directory: impl AsRef<Path>, clock: Clock) -> Result<Self, OpenError> {
        Self::open_with(directory, clock, DurableOptions::default())
    }

    pub fn open_with(
        directory: impl AsRef<Path>,
        clock: Clock,
        options: DurableOptions,
    ) -> Result<Self, OpenError> {
        let store = Self::open_directory(directory.as_ref(), clock, options, Sealing::default())?;
        store.report_sealed();
        Ok(store)
    }

    /// Opens a store that encrypts values according to the configuration. Values that cannot be decrypted are kept and
    /// logged. Reading them is an error until decryption succeeds.
    pub async fn open_encrypted(
        directory: impl AsRef<Path>,
        clock: Clock,
        options: DurableOptions,
        transformers: Arc<dyn Transformers>,
    ) -> Result<Self, OpenError> {
        let sealing = Sealing::with(transformers);
        let store = Self::open_directory(directory.as_ref(), clock, options, sealing)?;
        store.unseal_all(&store.clock).await;
        Ok(store)
    }

    fn open_directory(
        directory: &Path,
        clock: Clock,
        options: DurableOptions,
        sealing: Sealing,
    ) -> Result<Self, OpenError> {
        let disk = Directory::open(directory).map_err(|source| {
            OpenError::io(format!("make the data directory {}", directory.display()), source)
        })?;
        let lock = DirectoryLock::take(directory)?;
        Self::start(Arc::new(disk), clock, options, sealing, Some(lock))
    }

    /// Opens the store on a disk that nothing else uses.
    pub fn open_on(disk: Arc<dyn Disk>, clock: Clock, options: DurableOptions) -> Result<Self, OpenError> {
        Self::start(disk, clock, options, Sealing::default(), None)
    }

    /// Like [`open_encrypted`](Self::open_encrypted), on a disk that nothing else uses.
    pub async fn open_encrypted_on(
        disk: Arc<dyn Disk>,
        clock: Clock,
        options: DurableOptions,
        transformers: Arc<dyn Transformers>,
    ) -> Result<Self, OpenError> {
        let store = Self::start(disk, clock, options, Sealing::with(transformers), None)?;
        store.unseal_all(&store.clock).await;
        Ok(store)
    }

    fn start(
        disk: Arc<dyn Disk>,
        clock: Clock,
        options: DurableOptions,
        sealing: Sealing,
        lock: Option<DirectoryLock>,
    ) -> Result<Self, OpenError> {
        let Recovered { state, log, growth } =
            recover(&disk, options.limits, options.checkpoint_after, &sealing)?;
        let core = Arc::new(Core::new(state));
        let queue = Arc::new(Queue::new(core.revision()));
        let writer = Writer {
            clock: clock.clone(),
            disk,
            core: core.clone(),
            queue: queue.clone(),
            log,
            is_log_sound: true,
            spare: None,
            checkpoint: None,
            checkpoint_slice: options.checkpoint_slice,
            sealing: sealing.clone(),
            log_at_slice: 0,
            growth,
            batch_wait: BatchWait::default(),
            last_sync: Duration::ZERO,
        };
        let (finish, finished) = watch::channel(());
        let run = move || {
            writer.run();
            drop((lock, finish));
        };
        let writer = thread::Builder::new().name("store-writer".into()).spawn(run);
        let writer = writer.map_err(|source| OpenError::io("start the writer thread", source))?;
        Ok(Self { core, queue, clock, sealing, writer: Mutex::new(Some(writer)), finished })
    }

    /// Encrypts in the caller's task, so that the writer thread only has to write.
    async fn commit_durably(&self, write: Write) -> Reply {
        let payload = match &write.change {
            Change::Put { payload, .. } => Some(payload),
            Change::Delete => None,
        };
        let length = payload.map_or(0, |payload| payload.bytes.len() + payload.inset.length());
        let room = self.queue.reserve(length).await?;
        let sealed = payload.map(|payload| self.sealing.seal(&write.key, payload)).transpose()?.flatten();
        let (stored, tag) = sealed.map(|sealed| (sealed.bytes, sealed.key)).unzip();
        let key = write.key.clone();
        let decide = |current: Option<&Arc<Record>>, revision| {
            let mut event = decide(write, current, revision, || self.clock.now())?;
            if let Some(record) = Arc::get_mut(&mut event.record).filter(|_| tag.is_some()) {
                record.set_key(tag);
            }
            Ok::<_, Error>(event)
        };
        answer(self.queue.submit(&self.core, &key, room, stored, decide)?).await
    }

    /// Removes a record if it is still expired when its turn comes.
    async fn expire_one(&self, key: &Key, now: Timestamp) -> Reply {
        let room = self.queue.reserve(0).await?;
        let decide = |current: Option<&Arc<Record>>, revision| match current {
            Some(record) if record.expires.is_some_and(|deadline| deadline <= now) => {
                Ok(removal(record, revision))
            }
            current => Err(Error::Conflict { current: current.cloned() }),
        };
        answer(self.queue.submit(&self.core, key, room, None, decide)?).await
    }

    async fn expire_durably(&self, now: Timestamp) -> Result<usize, Error> {
        let due = self.core.read().due(now);
        let mut expired = 0;
        for keys in due.chunks(EXPIRE_BATCH) {
            for reply in join_all(keys.iter().map(|key| self.expire_one(key, now))).await {
                match reply {
                    Ok(_) => expired += 1,
                    Err(Error::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.core.age(now);
        Ok(expired)
    }
}

impl Unseal for DurableStore {
    fn records(&self) -> &Arc<Core> {
        &self.core
    }

    fn open(&self, sealed: &Record) -> impl Future<Output = Result<Record, String>> + Send {
        self.sealing.open(sealed)
    }

    fn place_of(&self, key: &Key) -> String {
        path_of(key)
    }
}

/// Waits for the writer's reply.
async fn answer(reply: oneshot::Receiver<Reply>) -> Reply {
    // The writer replies to everything it takes. If it is gone, it crashed.
    reply.await.unwrap_or_else(|_| Err(Error::Io(Arc::new(io::Error::other("the store's writer stopped")))))
}

impl Engine for DurableStore {
    fn core(&self) -> &Arc<Core> {
        &self.core
    }

    async fn read(&self, key: &Key, at: Option<Revision>) -> Result<Option<Arc<Record>>, Error> {
        self.readable(self.core.get(key, at)?).await
    }

    async fn read_page(&self, range: &Range, options: ListOptions) -> Result<Page, Error> {
        self.list_readable(range, &options).await
    }

    fn write(&self, write: Write) -> impl Future<Output = Result<Arc<Record>, Error>> + Send {
        self.commit_durably(write)
    }

    fn is_outdated(&self, record: &Record) -> bool {
        self.sealing.is_stale(record)
    }

    fn remove_expired(&self, now: Timestamp) -> impl Future<Output = Result<usize, Error>> + Send {
        self.expire_durably(now)
    }

    async fn shut_down(&self) {
        self.queue.close();
        // The writer drops the sender, and releases the directory, once it has drained the queue.
        while self.finished.clone().changed().await.is_ok() {}
    }
}

impl Drop for DurableStore {
    /// Waits for writes in progress, so that the directory is released afterwards.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(writer) = self.writer.lock().take() {
            let _ = writer.join();
        }
    }
}

impl OpenError {
    fn io(attempt: impl Into<String>, source: io::Error) -> Self {
        Self::Io { attempt: attempt.into(), source }
    }

    fn damaged(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset, what: what.into() }
    }
}
