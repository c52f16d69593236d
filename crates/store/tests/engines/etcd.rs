//! Stores on a real etcd.
//!
//! There is one etcd for all tests of this program. A test has it to itself, because its revisions are the subject: they
//! are shifted, so that each test starts with an empty etcd at revision 1.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use setpoint_clock::Clock;
use setpoint_etcd::{EtcdCluster, EtcdConfig};
use setpoint_store::etcd::*;
use setpoint_store::*;
use tokio::sync::{Mutex, MutexGuard};

/// A running etcd. It ends with this program.
pub(crate) struct Server {
    pub(crate) url: String,
    /// When it is closed, the shell around etcd ends it.
    _alive: ChildStdin,
    _directory: tempfile::TempDir,
}

/// Returns the directory of etcd's programs: from `ETCD`, or downloaded once.
fn programs() -> PathBuf {
    if let Some(path) = std::env::var_os("ETCD") {
        return path.into();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/etcd");
    let output = Command::new(&script).output().expect("the set-up script runs");
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().into()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port is free")
        .port()
}

impl Server {
    /// Starts an etcd with one member, which does not wait for its disk.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let url = format!("http://127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut child = Command::new("sh")
            .args(["-c", r#""$0" "$@" >&2 & read -r _; kill -9 $!"#])
            .arg(programs().join("etcd"))
            .args(["--data-dir".as_ref(), directory.path().as_os_str()])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--unsafe-no-fsync", "--log-level", "error"])
            .args(["--heartbeat-interval", "10", "--election-timeout", "100"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let alive = child.stdin.take().expect("its input is a pipe");
        Self { url, _alive: alive, _directory: directory }
    }

    /// Returns the server that the tests of this program share.
    pub(crate) fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    /// Ends every lease, as if its time were over.
    pub(crate) fn end_leases(&self) {
        let run = |arguments: &[&str]| {
            let etcdctl = programs().join("etcdctl");
            let output = Command::new(etcdctl).args(["--endpoints", &self.url]).args(arguments).output();
            let output = output.expect("etcdctl runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        // The first line says how many there are.
        for lease in run(&["lease", "list"]).lines().skip(1) {
            run(&["lease", "revoke", lease]);
        }
    }

    pub(crate) async fn client(&self) -> EtcdCluster {
        let config = EtcdConfig { servers: vec![self.url.clone()], ..EtcdConfig::default() };
        EtcdCluster::connect(&config, &Clock::system()).await.expect("etcd answers")
    }
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
    let client = Shifted::new(Server::shared().client().await).await;
    let store = EtcdStore::open(Arc::new(client), Arc::new(TextCodec), None, clock, options(limits)).await;
    Arc::new(store.expect("etcd is empty"))
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
