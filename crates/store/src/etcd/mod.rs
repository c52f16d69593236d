//! The engine on etcd: records are in etcd, and a cache of all of them serves reads and watches.
//!
//! ```text
//!  commit ─► txn: compare the revision, put or delete ─► etcd
//!    ▲                                                    │ one watch of the prefix
//!    └── acknowledged once the cache has seen it ──┐      ▼
//!  reader, watcher ◄── core: index, history, watchers ◄── follower
//! ```
//!
//! The cache is loaded from etcd at one revision, and follows it from there. Resource versions are etcd's revisions.
//! Other processes may write to the same etcd.
//!
//! Invariants:
//! - The cache is the state of etcd at its revision: all records that the codec knows, all changes in order. It may lag
//!   behind. [`Store::latest`](crate::Store::latest) tells how to read what it has not seen yet.
//! - A write is acknowledged when etcd has confirmed it and the cache has seen it, so its writer reads it. If the answer
//!   of etcd is lost, the outcome is unknown, and the write fails with [`Error::Unavailable`]; it is never sent twice.
//! - All changes of one etcd revision become visible together, and no watch reports a revision it has not read to its
//!   end.
//! - The revision never goes back. If etcd's does, because it was restored from a backup, everything fails with that
//!   explanation, until the server is restarted.
//! - If the cache cannot follow any more, because etcd has compacted what comes next, it is loaded anew. Its watchers
//!   are cut off, since what they missed is unknown.
//!
//! Records that expire have leases, and etcd removes them. History that the cache has forgotten is read from etcd.
//!
//! Bounds: commits in progress ([`MAX_COMMITS`]), the history ([`Limits`]), the size of a response (the client's), and
//! the records themselves, which must fit in memory.

mod client;
mod commit;
mod compactor;
mod follow;
mod fresh;
mod keyspace;
mod lease;
mod load;
mod migrate;
mod model;
mod past;
mod pending;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint_clock::Clock;
use setpoint_encryption::Transformers;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

pub use self::client::{
    Compare, EtcdClient, EtcdError, EtcdWatch, Features, KeyValue, Op, RangeRequest, RangeResponse, Txn,
    TxnResponse, WatchEvent, WatchRequest, WatchResponse,
};
use self::compactor::Compactor;
use self::fresh::Freshness;
use self::keyspace::Keyspace;
pub use self::keyspace::{Codec, Decoded, storage_path};
use self::lease::Leases;
use self::load::Unknown;
pub use self::migrate::{EtcdRecords, MigrateError};
pub use self::model::EtcdModel;
use self::pending::PendingWrites;
use crate::core::Core;
use crate::engine::Engine;
use crate::sealing::Sealing;
use crate::unseal::Unseal;
use crate::{Error, Key, Limits, ListOptions, Page, Range, Record, Revision, Write};

/// The maximum number of commits that etcd has not answered. Others wait. At etcd's limit of 1.5 MiB per request, 384
/// MiB; at 2 KB per object, 512 KB.
const MAX_COMMITS: u32 = 256;
/// How long a read waits for the cache before it asks etcd instead, as in v1.34.
const CACHE_WAIT: Duration = Duration::from_secs(3);
/// How long etcd's next event is awaited before progress is requested: it usually follows at once.
const FIRST_PROGRESS: Duration = Duration::from_millis(10);
/// How often progress is requested while a read waits, as in v1.34.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Fails if etcd is at an earlier revision than one that was seen before it was asked.
fn check_not_restored(seen: Revision, newest: Revision) -> Result<(), EtcdError> {
    if newest >= seen {
        return Ok(());
    }
    Err(EtcdError::Unavailable(format!(
        "etcd is at revision {newest}, but was at {seen} before: it was restored from a backup, or is another cluster. \
         Restart this server to start from what etcd has now"
    )))
}

/// The settings of a store on etcd.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The start of all keys, such as `/registry`.
    pub prefix: String,
    pub limits: Limits,
    /// How often etcd's history is compacted. Zero: never.
    pub compaction_interval: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            prefix: "/registry".into(),
            limits: Limits::default(),
            compaction_interval: Duration::from_secs(300),
        }
    }
}

/// A store on etcd.
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    core: Arc<Core>,
    client: Arc<dyn EtcdClient>,
    clock: Clock,
    keyspace: Keyspace,
    limits: Limits,
    leases: Leases,
    pending: PendingWrites,
    freshness: Freshness,
    commits: Semaphore,
    is_closed: AtomicBool,
    /// Requests progress of the running watch.
    progress: Mutex<Option<mpsc::Sender<()>>>,
    /// The revision of the cache.
    seen: watch::Sender<Revision>,
    /// Why the cache does not follow etcd at the moment.
    trouble: Mutex<Option<String>>,
    unknown: Mutex<Unknown>,
    /// History before this revision is not read from etcd either.
    forgotten: AtomicU64,
}

impl EtcdStore {
    /// Loads the cache from etcd, and starts to follow it. Call this inside a Tokio runtime.
    pub async fn open(
        client: Arc<dyn EtcdClient>,
        codec: Arc<dyn Codec>,
        transformers: Option<Arc<dyn Transformers>>,
        clock: Clock,
        options: EtcdOptions,
    ) -> Result<Self, EtcdError> {
        let sealing = transformers.map(Sealing::with).unwrap_or_default();
        let prefix = normal_prefix(&options.prefix);
        let freshness = Freshness::new(client.clone(), Bytes::from(format!("{prefix}health")));
        let keyspace = Keyspace { prefix, codec, sealing };
        let mut unknown = Unknown::default();
        let state = follow::load(&*client, &keyspace, options.limits, &mut unknown).await?;
        unknown.report(&keyspace.prefix);
        let (seen, _) = watch::channel(state.revision);
        let shared = Arc::new(Shared {
            core: Arc::new(Core::new(state)),
            client: client.clone(),
            clock: clock.clone(),
            keyspace,
            limits: options.limits,
            leases: Leases::default(),
            pending: PendingWrites::default(),
            freshness,
            commits: Semaphore::new(MAX_COMMITS as usize),
            is_closed: AtomicBool::new(false),
            progress: Mutex::default(),
            seen,
            trouble: Mutex::default(),
            unknown: Mutex::new(unknown),
            forgotten: AtomicU64::new(0),
        });
        shared.report_sealed();
        let mut tasks = vec![tokio::spawn(follow::run(shared.clone()))];
        if !options.compaction_interval.is_zero() {
            tasks.push(tokio::spawn(Compactor::new(client, clock, options.compaction_interval).run()));
        }
        Ok(Self { shared, tasks })
    }
}

/// Returns a prefix that starts and ends with a slash.
fn normal_prefix(prefix: &str) -> String {
    match prefix.trim_matches('/') {
        "" => "/".to_owned(),
        inner => format!("/{inner}/"),
    }
}

impl Shared {
    /// Waits until the cache has seen a revision. Returns whether it has.
    async fn wait_until_seen(&self, revision: Revision) -> bool {
        if self.core.revision() >= revision {
            return true;
        }
        let mut seen = self.seen.subscribe();
        let deadline = self.clock.instant() + CACHE_WAIT;
        let mut pause = FIRST_PROGRESS;
        loop {
            tokio::select! {
                biased;
                seen = seen.wait_for(|seen| *seen >= revision) => return seen.is_ok(),
                () = self.clock.sleep(pause) => {}
            }
            if self.clock.instant() >= deadline {
                return false;
            }
            pause = PROGRESS_EVERY;
            self.request_progress();
        }
    }

    /// Returns etcd's newest revision, as of some moment during this call.
    async fn newest(&self) -> Result<Revision, EtcdError> {
        let seen = self.core.revision();
        let newest = self.freshness.newest().await?;
        check_not_restored(seen, newest).map(|()| newest)
    }

    fn request_progress(&self) {
        if let Some(progress) = self.progress.lock().as_ref() {
            // If one is already waiting to be sent, that is enough.
            _ = progress.try_send(());
        }
    }

    fn has_seen(&self, revision: Revision) {
        self.seen.send_replace(revision);
    }
}

impl Unseal for Shared {
    fn records(&self) -> &Arc<Core> {
        &self.core
    }

    async fn open(&self, sealed: &Record) -> Result<Record, String> {
        let stored = sealed.sealed().map(|(stored, _)| &**stored).unwrap_or_default();
        self.keyspace.open(&sealed.key, stored, sealed.created, sealed.modified).await
    }

    fn place_of(&self, key: &Key) -> String {
        self.keyspace.place_of(key)
    }
}

impl Engine for EtcdStore {
    const IS_SHARED: bool = true;

    fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    async fn read_at(&self) -> Result<Option<Revision>, Error> {
        let newest = self.shared.newest().await?;
        let is_seen = self.shared.wait_until_seen(newest).await;
        Ok(Some(newest).filter(|_| !is_seen))
    }

    async fn check_health(&self) -> Result<(), String> {
        if let Some(trouble) = self.shared.trouble.lock().clone() {
            return Err(trouble);
        }
        self.shared.newest().await.map(drop).map_err(|error| error.to_string())
    }

    async fn read(&self, key: &Key, at: Option<Revision>) -> Result<Option<Arc<Record>>, Error> {
        let shared = &self.shared;
        match shared.core.get(key, at) {
            Err(Error::Compacted { requested, .. }) if shared.may_read_from_etcd(requested) => {
                shared.readable(shared.get_at(key, requested).await?).await
            }
            Err(Error::Future { requested, .. }) => {
                shared.readable(shared.get_at(key, requested).await?).await
            }
            found => shared.readable(found?).await,
        }
    }

    async fn read_page(&self, range: &Range, options: ListOptions) -> Result<Page, Error> {
        let shared = &self.shared;
        match shared.list_readable(range, &options).await {
            Err(Error::Compacted { requested, .. }) if shared.may_read_from_etcd(requested) => {
                shared.readable_page(shared.list_at(range, &options, requested).await?).await
            }
            Err(Error::Future { requested, .. }) => {
                shared.readable_page(shared.list_at(range, &options, requested).await?).await
            }
            page => page,
        }
    }

    async fn write(&self, write: Write) -> Result<Arc<Record>, Error> {
        self.shared.commit(write).await
    }

    fn is_outdated(&self, record: &Record) -> bool {
        record.is_outdated() || self.shared.keyspace.sealing.is_stale(record)
    }

    /// Forgets history of the cache. What etcd keeps is the compactor's concern, which all API servers share.
    fn forget(&self, revision: Revision) -> Result<(), Error> {
        self.shared.core.compact(revision)?;
        self.shared.forgotten.fetch_max(revision, Ordering::AcqRel);
        Ok(())
    }

    /// etcd removes what has expired.
    async fn remove_expired(&self, now: Timestamp) -> Result<usize, Error> {
        self.shared.core.age(now);
        Ok(0)
    }

    async fn shut_down(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        // All commits in progress have ended when all permits are free.
        _ = self.shared.commits.acquire_many(MAX_COMMITS).await;
        self.shared.core.close();
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.shared.core.close();
    }
}
