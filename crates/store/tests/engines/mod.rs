//! The engines under test, and helpers to drive them.

pub(crate) mod disk;
pub(crate) mod etcd;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use setpoint_clock::Clock;
use setpoint_store::*;

use self::disk::SimDisk;

/// Runs each test, an `async fn(World)`, on every engine.
macro_rules! on_every_engine {
    ($($claim:ident),* $(,)?) => {
        on_embedded_engines![$($claim),*];
        mod on_an_etcd_in_memory {
            $(#[tokio::test(start_paused = true)] async fn $claim() {
                super::$claim($crate::engines::World::etcd_model().await).await
            })*
        }
        mod on_etcd {
            $(#[tokio::test] async fn $claim() {
                let _turn = $crate::engines::etcd::turn().await;
                super::$claim($crate::engines::World::etcd().await).await
            })*
        }
    };
}

/// Runs each test on every engine in this process.
macro_rules! on_embedded_engines {
    ($($claim:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)] async fn $claim() { super::$claim($crate::engines::World::memory().await).await })*
        }
        mod durable {
            $(#[tokio::test(start_paused = true)] async fn $claim() { super::$claim($crate::engines::World::durable().await).await })*
        }
    };
}

/// A store of one engine, and its clock.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    open: Option<Open>,
    /// Whether time passes.
    is_real: bool,
}

type Open = fn(Clock, Limits) -> BoxFuture<'static, Arc<dyn Store>>;

pub(crate) fn clock() -> Clock {
    Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap())
}

pub(crate) fn pods() -> Resource {
    Resource::new("pods")
}

pub(crate) fn text(record: &Record) -> &str {
    std::str::from_utf8(&record.value).unwrap()
}

/// `+path@revision`, `~path@revision`, `-path@revision`: created, updated, deleted.
pub(crate) fn brief(event: &Event) -> String {
    let sign = match event.kind {
        EventKind::Created => '+',
        EventKind::Updated => '~',
        EventKind::Deleted => '-',
    };
    format!("{sign}{}@{}", event.record.key.path, event.revision())
}

impl World {
    pub(crate) async fn memory() -> Self {
        Self::new(|clock, limits| {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::with_limits(clock, limits));
            ready(store).boxed()
        })
        .await
    }

    pub(crate) async fn durable() -> Self {
        Self::new(|clock, limits| {
            // Small enough for frequent checkpoints.
            let options = DurableOptions { limits, checkpoint_after: 2048, checkpoint_slice: 500 };
            let disk = Arc::<SimDisk>::default().share();
            let store: Arc<dyn Store> = Arc::new(DurableStore::open_on(disk, clock, options).unwrap());
            ready(store).boxed()
        })
        .await
    }

    /// On an etcd in memory.
    pub(crate) async fn etcd_model() -> Self {
        Self::new(|clock, limits| etcd::open_on_model(clock, limits).boxed()).await
    }

    /// On the shared etcd. Take a [`turn`](etcd::turn) first.
    pub(crate) async fn etcd() -> Self {
        Self { is_real: true, ..Self::new(|clock, limits| etcd::open(clock, limits).boxed()).await }
    }

    /// Creates a new store of the same engine with less history.
    pub(crate) async fn with_limits(self, limits: Limits) -> Self {
        Self { store: self.open.unwrap()(self.clock.clone(), limits).await, ..self }
    }

    async fn new(open: Open) -> Self {
        let clock = clock();
        Self { store: open(clock.clone(), Limits::default()).await, clock, open: Some(open), is_real: false }
    }

    pub(crate) fn with_store(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { store, clock, open: None, is_real: false }
    }

    pub(crate) async fn commit(
        &self,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Record>, Error> {
        self.store.commit(Write { key, expect, change }).await
    }

    pub(crate) async fn create(&self, path: &str) -> Revision {
        self.create_in(&pods(), path).await
    }

    pub(crate) async fn create_in(&self, resource: &Resource, path: &str) -> Revision {
        self.put(resource.key(path), Expect::Absent, path, None).await.unwrap().modified
    }

    pub(crate) async fn create_for(&self, path: &str, ttl: Duration) -> Revision {
        self.put(pods().key(path), Expect::Absent, path, Some(ttl)).await.unwrap().modified
    }

    /// Overwrites the record at the path with `value`.
    pub(crate) async fn update(&self, path: &str, value: &str) -> Revision {
        let expect = Expect::Revision(self.get(path).await.expect("there is something to update").modified);
        self.put(pods().key(path), expect, value, None).await.unwrap().modified
    }

    pub(crate) async fn delete(&self, path: &str) -> Arc<Record> {
        let expect = Expect::Revision(self.get(path).await.expect("there is something to delete").modified);
        self.commit(pods().key(path), expect, Change::Delete).await.unwrap()
    }

    pub(crate) async fn put(
        &self,
        key: Key,
        expect: Expect,
        value: &str,
        ttl: Option<Duration>,
    ) -> Result<Arc<Record>, Error> {
        let payload = Payload::plain(value.to_owned());
        self.commit(key, expect, Change::Put { payload, ttl }).await
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Arc<Record>> {
        self.store.get(&pods().key(path), None).await.unwrap()
    }

    pub(crate) async fn get_at(&self, path: &str, at: Revision) -> Result<Option<String>, Error> {
        let record = self.store.get(&pods().key(path), Some(at)).await?;
        Ok(record.map(|record| text(&record).to_owned()))
    }

    pub(crate) async fn list(&self, prefix: &str, options: ListOptions) -> Result<Page, Error> {
        self.store.list(&pods().under(prefix), options).await
    }

    /// Returns `path=value` of all records of the resource at a revision.
    pub(crate) async fn state_at(&self, at: Revision) -> Result<Vec<String>, Error> {
        let page = self.list("", ListOptions { at: Some(at), ..ListOptions::default() }).await?;
        assert_eq!(page.revision, at);
        Ok(page.records.iter().map(|record| format!("{}={}", record.key.path, text(record))).collect())
    }

    pub(crate) fn watch(&self, prefix: &str, from: Revision) -> Watch {
        self.store.watch(pods().under(prefix), from).unwrap()
    }

    /// Advances the clock. With real sockets, time is paused only for this: a paused clock does not wait for them.
    pub(crate) async fn advance(&self, by: Duration) {
        if self.is_real {
            tokio::time::pause();
        }
        tokio::time::advance(by).await;
        if self.is_real {
            tokio::time::resume();
        }
    }

    pub(crate) async fn expire(&self) -> usize {
        self.store.expire(self.clock.now()).await.unwrap()
    }
}

/// Returns everything a watch has now.
pub(crate) fn drain(watch: &mut Watch) -> Result<Vec<String>, WatchError> {
    let mut seen = Vec::new();
    while let Some(events) = watch.next().now_or_never().transpose()? {
        assert!(!events.is_empty(), "a watch answers with at least one event");
        seen.extend(events.iter().map(|event| brief(event)));
    }
    Ok(seen)
}
