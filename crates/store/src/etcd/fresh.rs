//! Finds out how far a read has to wait to see everything that was acknowledged before it.
//!
//! One question to etcd answers everyone who was waiting when it was asked. Whoever comes later waits for the next
//! question, because the answer to this one may be older than they are.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use super::client::{EtcdClient, EtcdError, RangeRequest};
use crate::Revision;

type Answer = Shared<BoxFuture<'static, Result<Revision, EtcdError>>>;

pub(super) struct Freshness {
    client: Arc<dyn EtcdClient>,
    /// Any key: only the revision in the response matters.
    key: Bytes,
    /// The question that has not been asked yet.
    next: Arc<Mutex<Option<Answer>>>,
    /// Held while a question is being answered.
    asking: Arc<tokio::sync::Mutex<()>>,
}

impl Freshness {
    pub(super) fn new(client: Arc<dyn EtcdClient>, key: Bytes) -> Self {
        Self { client, key, next: Arc::default(), asking: Arc::default() }
    }

    /// Returns etcd's newest revision, as of some moment during this call.
    pub(super) async fn newest(&self) -> Result<Revision, EtcdError> {
        let answer = self.next.lock().get_or_insert_with(|| self.question()).clone();
        answer.await
    }

    fn question(&self) -> Answer {
        let (client, key) = (self.client.clone(), self.key.clone());
        let (next, asking) = (self.next.clone(), self.asking.clone());
        async move {
            let _turn = asking.lock().await;
            // From here on, others need a question of their own.
            next.lock().take();
            let request = RangeRequest { key, count_only: true, ..RangeRequest::default() };
            Ok(client.range(request).await?.revision)
        }
        .boxed()
        .shared()
    }
}
