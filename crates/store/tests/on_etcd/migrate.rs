//! Moving records between a data directory and an etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint_clock::Clock;
use setpoint_store::etcd::*;
use setpoint_store::*;

use crate::engines::etcd::TextCodec;
use crate::engines::{World, clock, pods, text};

/// An etcd that fails after some transactions, one of which it has done all the same.
struct Interrupted {
    inner: EtcdModel,
    left: AtomicUsize,
}

impl EtcdClient for Interrupted {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>> {
        self.inner.range(request)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>> {
        async move {
            let left = self.left.load(Ordering::Relaxed);
            if left == 0 {
                return Err(EtcdError::Unavailable("it is gone".into()));
            }
            self.left.store(left - 1, Ordering::Relaxed);
            let done = self.inner.txn(txn).await;
            if left == 1 { Err(EtcdError::Unavailable("its answer is lost".into())) } else { done }
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>> {
        self.inner.watch(request)
    }

    fn grant_lease(&self, seconds: i64) -> BoxFuture<'_, Result<i64, EtcdError>> {
        self.inner.grant_lease(seconds)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), EtcdError>> {
        self.inner.compact(revision)
    }

    fn features(&self) -> Features {
        self.inner.features()
    }
}

fn records(client: impl EtcdClient, clock: &Clock) -> EtcdRecords {
    EtcdRecords::new(Arc::new(client), Arc::new(TextCodec), None, "/registry", clock.clone())
}

async fn state(world: &World) -> Vec<String> {
    let page = world.list("", ListOptions::default()).await.unwrap();
    let shown = |record: &Arc<Record>| format!("{}={}@{}", record.key.path, text(record), record.modified);
    page.records.iter().map(shown).collect()
}

/// A data directory with some history, and its records.
async fn filled(directory: &std::path::Path, clock: &Clock) -> (Contents, Vec<String>) {
    let world =
        World::with_store(Arc::new(DurableStore::open(directory, clock.clone()).unwrap()), clock.clone());
    for n in 0..30 {
        world.create(&format!("ns/{n:02}")).await;
    }
    for n in 0..200 {
        world.update("ns/03", &format!("{n}")).await;
    }
    world.delete("ns/29").await;
    world.create_for("ns/short", Duration::from_secs(600)).await;
    world.update("ns/05", "last").await;
    world.delete("ns/06").await;
    let expected = state(&world).await;
    drop(world);
    (read_contents(directory, None).await.unwrap(), expected)
}

async fn on_etcd(etcd: &EtcdModel, clock: &Clock) -> World {
    let options = EtcdOptions { compaction_interval: Duration::ZERO, ..EtcdOptions::default() };
    let store = EtcdStore::open(Arc::new(etcd.clone()), Arc::new(TextCodec), None, clock.clone(), options);
    World::with_store(Arc::new(store.await.unwrap()), clock.clone())
}

#[tokio::test(start_paused = true)]
async fn records_keep_their_revisions_both_ways() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let (contents, expected) = filled(&directory.path().join("one"), &clock).await;
    let etcd = EtcdModel::new(clock.clone());
    let copy = records(etcd.clone(), &clock);
    copy.write(&contents, &|_| {}).await.unwrap();
    copy.verify(&contents).await.unwrap();
    let world = on_etcd(&etcd, &clock).await;
    assert_eq!(world.store.revision(), contents.revision);
    assert_eq!(state(&world).await, expected);
    assert!(world.store.watch(pods().all(), contents.revision - 1).is_err(), "earlier changes are unknown");
    drop(world);

    let back = records(etcd.clone(), &clock).read(|_| false, |_| None).await.unwrap();
    let two = directory.path().join("two");
    write_contents(&back, &two, None).unwrap();
    copy.check_unchanged(back.revision).await.unwrap();
    let world = World::with_store(Arc::new(DurableStore::open(&two, clock.clone()).unwrap()), clock.clone());
    assert_eq!((world.store.revision(), state(&world).await), (contents.revision, expected));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_migration_continues() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let (contents, expected) = filled(directory.path(), &clock).await;
    for interrupted_after in [1, 2, 30, 31, 64, 150, 232] {
        let etcd = EtcdModel::new(clock.clone());
        let left = AtomicUsize::new(interrupted_after);
        let failing = records(Interrupted { inner: etcd.clone(), left }, &clock);
        assert!(failing.write(&contents, &|_| {}).await.is_err(), "{interrupted_after}");
        let copy = records(etcd.clone(), &clock);
        copy.write(&contents, &|_| {}).await.unwrap();
        copy.verify(&contents).await.unwrap();
        assert_eq!(state(&on_etcd(&etcd, &clock).await).await, expected);
        // Once more changes nothing.
        copy.write(&contents, &|_| {}).await.unwrap();
        copy.verify(&contents).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_etcd_with_anything_else_is_refused() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let (contents, _) = filled(directory.path(), &clock).await;
    let put = async |etcd: &EtcdModel, key: &'static str, value: &'static str| {
        let key = bytes::Bytes::from_static(key.as_bytes());
        let compare = Compare::Version { key: "absent".into(), version: 0 };
        let then = Op::Put { key, value: value.into(), lease: 0 };
        etcd.txn(Txn { compare, then, otherwise: None }).await.unwrap();
    };
    for (key, value, expected) in
        [("/registry/pods/ns/other", "|x", "resource version"), ("/registry/unknown/x", "?", "does not know")]
    {
        let etcd = EtcdModel::new(clock.clone());
        put(&etcd, key, value).await;
        let why = records(etcd, &clock).write(&contents, &|_| {}).await.unwrap_err().to_string();
        assert!(why.contains(expected), "{key}: {why}");
    }
    // A difference is found afterwards.
    let etcd = EtcdModel::new(clock.clone());
    let copy = records(etcd.clone(), &clock);
    copy.write(&contents, &|_| {}).await.unwrap();
    put(&etcd, "/registry/pods/ns/00", "|other").await;
    assert!(matches!(copy.verify(&contents).await, Err(MigrateError::Changed { .. })));
    assert!(copy.check_unchanged(contents.revision).await.is_err());
}
