//! Stores on a real etcd.
//!
//! There is one etcd for all tests of this program. A test has it to itself, because its revisions are the subject: they
//! are shifted, so that each test starts with an empty etcd at revision 1.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use setpoint_clock::Clock;
use setpoint_etcd::EtcdCluster;
use setpoint_etcd::test_server::EtcdServer;
use setpoint_store::etcd::*;
use setpoint_store::*;
use tokio::sync::{Mutex, MutexGuard};

/// Returns the server that the tests of this program share.
pub(crate) fn server() -> &'static EtcdServer {
    static SERVER: OnceLock<EtcdServer> = OnceLock::new();
    SERVER.get_or_init(EtcdServer::start)
}

/// The right to use the shared etcd.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Returns options with a prefix that no other test has.
pub(crate) fn options(limits: Limits) -> EtcdOptions {
    static TESTS: AtomicU64 = AtomicU64::new(0);
    let prefix = format!("/test{}", TESTS.fetch_add(1, Ordering::Relaxed));
    EtcdOptions { prefix, limits, compaction_interval: Duration::ZERO }
}

/// Opens a store on the shared etcd, as if it were empty.
pub(crate) async fn open(clock: Clock, limits: Limits) -> Arc<dyn Store> {
    let client = Shifted::new(server().client().await).await;
    let store = EtcdStore::open(Arc::new(client), Arc::new(TextCodec), None, clock, options(limits)).await;
    Arc::new(store.expect("etcd is empty"))
}

/// Opens a store on an etcd in memory.
pub(crate) async fn open_on_model(clock: Clock, limits: Limits) -> Arc<dyn Store> {
    let client = Arc::new(EtcdModel::new(clock.clone()));
    let store = EtcdStore::open(client, Arc::new(TextCodec), None, clock, options(limits)).await;
    Arc::new(store.expect("it is empty"))
}

/// Stores `resource/path`, and values as `stamp position|value`.
pub(crate) struct TextCodec;

impl Codec for TextCodec {
    fn path(&self, key: &Key) -> String {
        format!("{}/{}", key.resource.as_str().replace('/', "."), key.path)
    }

    fn key(&self, path: &str) -> Option<Key> {
        let (resource, path) = path.split_once('/')?;
        (resource != "unknown").then(|| Resource::new(resource.replace('.', "/")).key(path))
    }

    fn encode(&self, _: &Key, payload: &Payload) -> Result<Bytes, String> {
        let stamp_at = payload.stamp_at.map(|at| at.to_string()).unwrap_or_default();
        Ok([stamp_at.as_bytes(), b"|", &payload.bytes].concat().into())
    }

    fn decode(&self, _: &Key, stored: &[u8]) -> Result<Decoded, String> {
        let text = std::str::from_utf8(stored).map_err(|error| error.to_string())?;
        let (stamp_at, value) = text.split_once('|').ok_or("there is no bar")?;
        let mut payload = Payload::plain(value.to_owned());
        payload.stamp_at = stamp_at.parse().ok().filter(|at| *at <= value.len());
        Ok(Decoded { payload, is_current: !value.starts_with("old") })
    }
}

/// An etcd whose revisions start at 1 when this is created.
struct Shifted {
    inner: EtcdCluster,
    by: Revision,
}

impl Shifted {
    async fn new(inner: EtcdCluster) -> Self {
        let request = RangeRequest { key: "x".into(), ..RangeRequest::default() };
        let by = inner.range(request).await.expect("etcd answers").revision - 1;
        Self { inner, by }
    }

    fn out(&self, revision: Revision) -> Revision {
        if revision == 0 { 0 } else { revision + self.by }
    }

    fn read(by: Revision, kv: KeyValue) -> KeyValue {
        KeyValue { created: kv.created - by, modified: kv.modified - by, ..kv }
    }

    fn event(by: Revision, event: WatchEvent) -> WatchEvent {
        match event {
            WatchEvent::Put(kv) => WatchEvent::Put(Self::read(by, kv)),
            WatchEvent::Delete { key, revision } => WatchEvent::Delete { key, revision: revision - by },
        }
    }
}

impl EtcdClient for Shifted {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>> {
        async move {
            let revision = request.revision.map(|revision| self.out(revision));
            let mut response = self.inner.range(RangeRequest { revision, ..request }).await?;
            response.revision -= self.by;
            response.kvs = response.kvs.into_iter().map(|kv| Self::read(self.by, kv)).collect();
            Ok(response)
        }
        .boxed()
    }

    fn txn(&self, mut txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>> {
        async move {
            if let Compare::Modified { revision, .. } = &mut txn.compare {
                *revision = self.out(*revision);
            }
            let response = self.inner.txn(txn).await?;
            let found = response.found.map(|kv| Self::read(self.by, kv));
            Ok(TxnResponse { revision: response.revision - self.by, found, ..response })
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>> {
        async move {
            let by = self.by;
            let from = self.out(request.from);
            let EtcdWatch { responses, progress } =
                self.inner.watch(WatchRequest { from, ..request }).await?;
            let shift = move |response| match response {
                WatchResponse::Events(events) => {
                    WatchResponse::Events(events.into_iter().map(|event| Self::event(by, event)).collect())
                }
                WatchResponse::Progress(revision) => WatchResponse::Progress(revision - by),
                WatchResponse::Compacted(revision) => WatchResponse::Compacted(revision - by),
            };
            let responses = responses.map(move |response| response.map(shift)).boxed();
            Ok(EtcdWatch { responses, progress })
        }
        .boxed()
    }

    fn grant_lease(&self, seconds: i64) -> BoxFuture<'_, Result<i64, EtcdError>> {
        self.inner.grant_lease(seconds)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), EtcdError>> {
        self.inner.compact(revision + self.by)
    }

    fn features(&self) -> Features {
        self.inner.features()
    }
}
