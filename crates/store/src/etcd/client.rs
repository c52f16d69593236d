//! etcd's operations, as the engine needs them. `setpoint-etcd` has the client of a real etcd.
//!
//! Every read is linearizable. An implementation repeats a read on another member, but never a write that may have
//! reached etcd.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use crate::Revision;

/// An etcd cluster.
pub trait EtcdClient: Send + Sync + 'static {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>>;

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>>;

    /// Starts a watch. Returns once etcd has confirmed it.
    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>>;

    /// Creates a lease that lives for a number of seconds. Returns its ID.
    fn grant_lease(&self, seconds: i64) -> BoxFuture<'_, Result<i64, EtcdError>>;

    /// Makes etcd forget the history before a revision.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), EtcdError>>;

    /// Returns what this client found out about the cluster when it connected.
    fn features(&self) -> Features;
}

/// What an etcd cluster can do, beyond what every supported version can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// A progress notification follows all events up to its revision. Before 3.5.13, one could overtake them.
    pub reliable_progress: bool,
}

/// A read of keys from `key` to just before `end`, or of `key` alone.
#[derive(Clone, Debug, Default)]
pub struct RangeRequest {
    pub key: Bytes,
    pub end: Option<Bytes>,
    /// The maximum number of keys. 0: all.
    pub limit: usize,
    /// The revision to read at. `None`: the newest.
    pub revision: Option<Revision>,
    pub count_only: bool,
}

#[derive(Clone, Debug, Default)]
pub struct RangeResponse {
    /// The newest revision of the cluster.
    pub revision: Revision,
    /// In key order.
    pub kvs: Vec<KeyValue>,
    /// Whether more keys follow.
    pub more: bool,
    /// The number of keys in the range, whatever the limit.
    pub count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    pub created: Revision,
    pub modified: Revision,
    /// The number of writes since it was created.
    pub version: u64,
}

/// A condition, the write if it holds, and the key to read if it does not.
#[derive(Clone, Debug)]
pub struct Txn {
    pub compare: Compare,
    pub then: Op,
    pub otherwise: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub enum Compare {
    /// The key was last modified at this revision. 0: it does not exist.
    Modified { key: Bytes, revision: Revision },
    /// The key was written this often since it was created. 0: it does not exist.
    Version { key: Bytes, version: u64 },
}

#[derive(Clone, Debug)]
pub enum Op {
    /// `lease`: deletes the key with this lease. 0: none.
    Put {
        key: Bytes,
        value: Bytes,
        lease: i64,
    },
    Delete {
        key: Bytes,
    },
}

#[derive(Clone, Debug)]
pub struct TxnResponse {
    /// The revision of the write, or the newest if there was none.
    pub revision: Revision,
    pub succeeded: bool,
    /// What was read because the condition did not hold.
    pub found: Option<KeyValue>,
}

/// A watch of keys from `key` to just before `end`.
#[derive(Clone, Debug)]
pub struct WatchRequest {
    pub key: Bytes,
    pub end: Bytes,
    /// The first revision to report.
    pub from: Revision,
}

/// A running watch. It ends when it is dropped.
pub struct EtcdWatch {
    pub responses: BoxStream<'static, Result<WatchResponse, EtcdError>>,
    /// Requests a progress notification. One waiting request is enough for everyone.
    pub progress: mpsc::Sender<()>,
}

#[derive(Clone, Debug)]
pub enum WatchResponse {
    /// Changes in order, with all changes of a revision.
    Events(Vec<WatchEvent>),
    /// All changes up to this revision have been reported.
    Progress(Revision),
    /// The watch cannot start where it should: history before this revision has been compacted.
    Compacted(Revision),
}

#[derive(Clone, Debug)]
pub enum WatchEvent {
    Put(KeyValue),
    Delete { key: Bytes, revision: Revision },
}

impl WatchEvent {
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(kv) => kv.modified,
            Self::Delete { revision, .. } => *revision,
        }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted,
    #[error("etcdserver: mvcc: required revision is a future revision")]
    Future,
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    /// The response is larger than this client accepts.
    #[error("etcd's response has {length} bytes, more than the {limit} that are accepted")]
    TooLarge { length: usize, limit: usize },
    /// etcd did not answer, or has no leader. Whether a write happened is unknown.
    #[error("{0}")]
    Unavailable(String),
    /// etcd answered with another error. Nothing was written.
    #[error("{0}")]
    Refused(String),
}

impl From<EtcdError> for crate::Error {
    fn from(error: EtcdError) -> Self {
        match error {
            EtcdError::NoSpace => Self::Full,
            EtcdError::Unavailable(why) => Self::Unavailable(why),
            other => Self::Refused(other.to_string()),
        }
    }
}
