//! An etcd whose connection breaks at chosen points.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use setpoint_etcd::EtcdCluster;
use setpoint_store::Revision;
use setpoint_store::etcd::*;
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct Faulty {
    inner: EtcdCluster,
    /// Transactions happen, but their responses are lost.
    pub(crate) loses_answers: Arc<AtomicBool>,
    /// Watches are cut, and cannot be started.
    is_cut: Arc<watch::Sender<bool>>,
}

impl Faulty {
    pub(crate) fn new(inner: EtcdCluster) -> Self {
        Self { inner, loses_answers: Arc::default(), is_cut: Arc::new(watch::channel(false).0) }
    }

    pub(crate) fn cut_watches(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

fn unavailable() -> EtcdError {
    EtcdError::Unavailable("the connection is cut".into())
}

impl EtcdClient for Faulty {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>> {
        self.inner.range(request)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>> {
        async move {
            let response = self.inner.txn(txn).await;
            if self.loses_answers.load(Ordering::Relaxed) { Err(unavailable()) } else { response }
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>> {
        async move {
            let mut is_cut = self.is_cut.subscribe();
            if *is_cut.borrow() {
                return Err(unavailable());
            }
            let EtcdWatch { responses, progress } = self.inner.watch(request).await?;
            let cut = async move { _ = is_cut.wait_for(|is_cut| *is_cut).await };
            Ok(EtcdWatch { responses: responses.take_until(cut.boxed()).boxed(), progress })
        }
        .boxed()
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
