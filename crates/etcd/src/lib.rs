//! A client of etcd: the operations of [`EtcdClient`], over gRPC.
//!
//! ```text
//!  EtcdCluster ─► next endpoint ─► connection (HTTP/2, TLS), after a check of cluster and version ─► call
//!       ▲                                                                                            │
//!       └── reads go on with the next endpoint; writes do only if they were not sent ────────────────┘
//! ```
//!
//! A read also asks the next endpoint if the first one is slow to answer, and takes the first answer: a member that is
//! frozen keeps its connections open, and others should not wait for it.
//!
//! Invariants:
//! - A write that may have reached etcd is never repeated.
//! - All endpoints belong to the cluster that was found first.
//! - Every call ends: within [`CALL`], or, for watches, when the connection breaks.

mod convert;
mod endpoint;
mod grpc;
mod messages;
#[cfg(feature = "test-util")]
pub mod test_server;
#[cfg(test)]
mod tests;
mod version;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Uri;
use parking_lot::Mutex;
use prost::Message;
use setpoint_clock::Clock;
use setpoint_store::Revision;
use setpoint_store::etcd::{
    EtcdClient, EtcdError, EtcdWatch, Features, RangeRequest, RangeResponse, Txn, TxnResponse, WatchRequest,
};
use setpoint_webhook::{ClientIdentity, Connector, Tcp, TlsError, TlsSettings};
use tokio::sync::mpsc;

use self::endpoint::{Endpoint, Failure, Member, Unusable};
use self::messages::{CompactionRequest, Ignored, LeaseGrantRequest, LeaseGrantResponse};
use self::watch::{Overdue, Responses};

/// How long a call may take on one endpoint, without connecting.
const CALL: Duration = Duration::from_secs(30);
/// How long the answer to a read may take before the next endpoint is asked too: for one key, and for a page of many.
const SLOW: Duration = Duration::from_secs(1);
const SLOW_PAGE: Duration = Duration::from_secs(10);
/// How long etcd is awaited at the start, and how often it is tried.
const START: Duration = Duration::from_secs(20);
const START_AGAIN: Duration = Duration::from_millis(500);

/// Where etcd is, as in kube-apiserver's flags.
#[derive(Clone, Debug, Default)]
pub struct EtcdConfig {
    /// `http://host:port` or `https://host:port`.
    pub servers: Vec<String>,
    /// A file of trusted CAs. Defaults to the system's.
    pub ca_file: Option<PathBuf>,
    /// The client certificate and its key.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// Why etcd cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("--etcd-servers: {0:?} is not a URL of etcd, expected http://HOST:PORT or https://HOST:PORT")]
    Server(String),
    #[error("--etcd-servers is empty, expected at least one URL")]
    NoServers,
    #[error("{flag}: cannot read {}", path.display())]
    File { flag: &'static str, path: PathBuf, source: std::io::Error },
    #[error("--etcd-certfile and --etcd-keyfile belong together, and only {0} is set")]
    Half(&'static str),
    #[error("cannot use the files of --etcd-cafile, --etcd-certfile and --etcd-keyfile")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// A client of an etcd cluster. Cheap to clone.
#[derive(Clone)]
pub struct EtcdCluster(Arc<Inner>);

struct Inner {
    endpoints: Vec<Endpoint>,
    /// The endpoint of the next call.
    next: AtomicUsize,
    /// The ID of the cluster, once a member has told it.
    cluster: Mutex<Option<u64>>,
    has_reliable_progress: AtomicBool,
    clock: Clock,
}

impl EtcdCluster {
    /// Connects to the cluster. Waits for a while until a member can be reached.
    pub async fn connect(config: &EtcdConfig, clock: &Clock) -> Result<Self, ConnectError> {
        let cluster = Self::new(config, clock)?;
        let deadline = clock.instant() + START;
        loop {
            match cluster.0.check_all().await {
                Ok(()) => return Ok(cluster),
                Err(EtcdError::Unavailable(why)) if clock.instant() < deadline => {
                    tracing::info!(why, "waiting for etcd");
                    clock.sleep(START_AGAIN).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn new(config: &EtcdConfig, clock: &Clock) -> Result<Self, ConnectError> {
        // They are read again for each connection, but mistakes should be found at once.
        Connector::new(&config.tls()?, Arc::new(Tcp))?;
        let shared = Arc::new(config.clone());
        let endpoint = |server: &String| {
            let (url, uri) = parse(server).ok_or_else(|| ConnectError::Server(server.clone()))?;
            Ok(Endpoint::new(url, uri, shared.clone(), clock.clone()))
        };
        let endpoints: Vec<_> = config.servers.iter().map(endpoint).collect::<Result<_, ConnectError>>()?;
        if endpoints.is_empty() {
            return Err(ConnectError::NoServers);
        }
        let (next, cluster) = (AtomicUsize::new(0), Mutex::default());
        let has_reliable_progress = AtomicBool::new(true);
        let clock = clock.clone();
        Ok(Self(Arc::new(Inner { endpoints, next, cluster, has_reliable_progress, clock })))
    }
}

/// Returns `scheme://host:port` and the URL. `None`: it is not the URL of an etcd.
fn parse(server: &str) -> Option<(String, Uri)> {
    let uri: Uri = server.trim_end_matches('/').parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let authority = uri.authority().filter(|authority| authority.port_u16().is_some())?;
    let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let url = format!("{scheme}://{authority}");
    (is_bare && !authority.as_str().contains('@')).then_some((url, uri))
}

impl EtcdConfig {
    fn tls(&self) -> Result<TlsSettings, ConnectError> {
        let authorities = self.ca_file.as_deref().map(|path| read("--etcd-cafile", path)).transpose()?;
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => Some(ClientIdentity {
                certificate: read("--etcd-certfile", certificate)?,
                key: read("--etcd-keyfile", key)?,
            }),
            (None, None) => None,
            (Some(_), None) => return Err(ConnectError::Half("--etcd-certfile")),
            (None, Some(_)) => return Err(ConnectError::Half("--etcd-keyfile")),
        };
        Ok(TlsSettings { authorities, identity, ..TlsSettings::default() })
    }
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|source| ConnectError::File { flag, path: path.to_owned(), source })
}

impl Inner {
    /// Accepts a member of a supported version, if it belongs to the cluster.
    fn accept(&self, member: Member) -> Result<(), Unusable> {
        member.version.check().map_err(Unusable::Unsupported)?;
        let mut cluster = self.cluster.lock();
        let known = *cluster.get_or_insert(member.cluster);
        if known != member.cluster {
            return Err(Unusable::Foreign(format!(
                "it belongs to cluster {:x}, but the other endpoints of --etcd-servers belong to {known:x}",
                member.cluster
            )));
        }
        if member.version.may_corrupt() {
            tracing::warn!(version = %member.version, "etcd before 3.5.3 may lose consistency in a crash: upgrade it");
        }
        if !member.version.has_reliable_progress() {
            self.has_reliable_progress.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Connects to every endpoint that answers soon after the first one. Fails if none does, or one cannot be used.
    async fn check_all(&self) -> Result<(), EtcdError> {
        let check = |endpoint| self.call_on::<Ignored>(endpoint, "KV/Range", grpc::frame(&anything()));
        let mut checks: FuturesUnordered<_> = self.endpoints.iter().map(check).collect();
        let (mut is_usable, mut failures) = (false, Vec::new());
        loop {
            let patience = async {
                match is_usable {
                    true => self.clock.sleep(SLOW).await,
                    false => std::future::pending().await,
                }
            };
            let checked = tokio::select! {
                biased;
                checked = checks.next() => checked,
                () = patience => None,
            };
            match checked {
                Some(Ok(_)) => is_usable = true,
                Some(Err(Failure { error: EtcdError::Unavailable(why), .. })) => failures.push(why),
                Some(Err(failure)) => return Err(failure.error),
                None if is_usable => return Ok(()),
                None => return Err(EtcdError::Unavailable(failures.join("; "))),
            }
        }
    }

    /// Returns the endpoints in the order in which a call tries them. Each call starts with another one. Those that
    /// could not be reached come last.
    fn in_turn(&self) -> Vec<&Endpoint> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.endpoints.len();
        let turn = self.endpoints[first..].iter().chain(&self.endpoints[..first]);
        let (last, first): (Vec<_>, Vec<_>) = turn.partition(|endpoint| endpoint.is_avoided());
        first.into_iter().chain(last).collect()
    }

    async fn call_on<T: Message + Default>(
        &self,
        endpoint: &Endpoint,
        method: &str,
        message: Bytes,
    ) -> Result<T, Failure> {
        let accept = |member| self.accept(member);
        let request = |url: &str| grpc::unary(url, method, message.clone());
        let call = async { endpoint::only(endpoint.send(&accept, request).await).await };
        match tokio::time::timeout(CALL, call).await {
            Ok(result) => result,
            Err(_) => {
                endpoint.suspicion().raise();
                let why = format!("etcd at {}: no response within {} seconds", endpoint.url, CALL.as_secs());
                Err(Failure { error: EtcdError::Unavailable(why), is_unsent: false })
            }
        }
    }

    /// Calls a method. Tries the next endpoint if one did not answer and the call may be repeated.
    async fn call<T: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
        repeat: Repeat,
    ) -> Result<T, EtcdError> {
        let message = grpc::frame(message);
        let mut last = EtcdError::Unavailable("there is no endpoint".into());
        for endpoint in self.in_turn() {
            match self.call_on(endpoint, method, message.clone()).await {
                Ok(response) => return Ok(response),
                Err(failure) if repeat.allows(&failure) => last = failure.error,
                Err(failure) => return Err(failure.error),
            }
        }
        Err(last)
    }

    async fn ask<'e, T: Message + Default>(
        &self,
        endpoint: &'e Endpoint,
        method: &str,
        message: Bytes,
    ) -> (&'e Endpoint, Result<T, Failure>) {
        (endpoint, self.call_on(endpoint, method, message).await)
    }

    /// Calls a method that changes nothing. Asks the next endpoint if one fails, and also if it is slow.
    async fn read<T: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
        slow: Duration,
    ) -> Result<T, EtcdError> {
        let message = grpc::frame(message);
        let mut waiting = self.in_turn().into_iter();
        let mut asked = Vec::new();
        let mut calls = FuturesUnordered::new();
        let mut last = EtcdError::Unavailable("there is no endpoint".into());
        loop {
            match waiting.next() {
                Some(endpoint) => {
                    asked.push(endpoint);
                    calls.push(self.ask(endpoint, method, message.clone()));
                }
                None if calls.is_empty() => return Err(last),
                None => {}
            }
            let patience = async {
                match waiting.len() {
                    0 => std::future::pending().await,
                    _ => self.clock.sleep(slow).await,
                }
            };
            let answered = tokio::select! {
                biased;
                answered = calls.next() => answered,
                () = patience => None,
            };
            let Some((endpoint, result)) = answered else { continue };
            asked.retain(|one| !std::ptr::eq(*one, endpoint));
            match result {
                Ok(response) => {
                    // Those that were asked before have not answered for so long that this one has overtaken them.
                    asked.iter().for_each(|slow| slow.suspicion().raise());
                    return Ok(response);
                }
                Err(failure) if Repeat::Always.allows(&failure) => last = failure.error,
                Err(failure) => return Err(failure.error),
            }
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<EtcdWatch, EtcdError> {
        let mut last = EtcdError::Unavailable("there is no endpoint".into());
        for endpoint in self.in_turn() {
            match tokio::time::timeout(CALL, self.watch_on(endpoint, &request)).await {
                Ok(Ok(watch)) => return Ok(watch),
                Ok(Err(failure)) if Repeat::Always.allows(&failure) => last = failure.error,
                Ok(Err(failure)) => return Err(failure.error),
                Err(_) => {
                    endpoint.suspicion().raise();
                    let why = format!("etcd at {}: no watch within {} seconds", endpoint.url, CALL.as_secs());
                    last = EtcdError::Unavailable(why);
                }
            }
        }
        Err(last)
    }

    async fn watch_on(&self, endpoint: &Endpoint, request: &WatchRequest) -> Result<EtcdWatch, Failure> {
        // One waiting request for progress is enough.
        let (progress, requested) = mpsc::channel(1);
        let overdue = Overdue::new(self.clock.clone(), endpoint.suspicion().clone());
        let requested = Mutex::new(Some(requested));
        let accept = |member| self.accept(member);
        let has_progress = self.has_reliable_progress.load(Ordering::Acquire);
        let make = |url: &str| {
            let requested = requested.lock().take();
            let requested = requested.ok_or_else(|| EtcdError::Refused("a watch is sent once".into()))?;
            grpc::request(url, "Watch/Watch", watch::body(request, has_progress, requested, overdue.clone()))
        };
        let messages = endpoint.send(&accept, make).await?;
        let responses = Responses::begin(messages, overdue.clone()).await;
        let responses = responses.map_err(|error| Failure { error, is_unsent: false })?;
        Ok(EtcdWatch { responses: responses.stream(), progress })
    }
}

/// Whether a call may be repeated on another endpoint.
#[derive(Clone, Copy)]
enum Repeat {
    /// It changes nothing.
    Always,
    /// Only if it has not been sent.
    IfUnsent,
}

impl Repeat {
    fn allows(self, failure: &Failure) -> bool {
        // An endpoint that cannot be used, such as one of another cluster, says nothing about the others.
        let is_unavailable = matches!(failure.error, EtcdError::Unavailable(_));
        failure.is_unsent || is_unavailable && matches!(self, Self::Always)
    }
}

/// A read that every member answers if the cluster works.
fn anything() -> messages::RangeRequest {
    convert::range(RangeRequest { key: Bytes::from_static(b"health"), ..RangeRequest::default() })
}

impl EtcdClient for EtcdCluster {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>> {
        async move {
            let slow = if request.end.is_some() { SLOW_PAGE } else { SLOW };
            let response = self.0.read("KV/Range", &convert::range(request), slow).await?;
            Ok(convert::ranged(response))
        }
        .boxed()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>> {
        async move {
            let response = self.0.call("KV/Txn", &convert::txn(txn), Repeat::IfUnsent).await?;
            Ok(convert::txn_done(response))
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>> {
        self.0.watch(request).boxed()
    }

    fn grant_lease(&self, seconds: i64) -> BoxFuture<'_, Result<i64, EtcdError>> {
        async move {
            let request = LeaseGrantRequest { ttl: seconds };
            // A lease that nobody uses ends by itself.
            let response: LeaseGrantResponse =
                self.0.call("Lease/LeaseGrant", &request, Repeat::Always).await?;
            match response.error.is_empty() {
                true => Ok(response.id),
                false => Err(EtcdError::Refused(response.error)),
            }
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), EtcdError>> {
        async move {
            let request = CompactionRequest { revision: convert::signed(revision) };
            match self.0.call::<Ignored>("KV/Compact", &request, Repeat::IfUnsent).await {
                // Someone else was faster.
                Ok(_) | Err(EtcdError::Compacted) => Ok(()),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn features(&self) -> Features {
        Features { reliable_progress: self.0.has_reliable_progress.load(Ordering::Acquire) }
    }
}
