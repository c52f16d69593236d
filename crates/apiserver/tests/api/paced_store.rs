//! A store with test-controlled delays and conflicts.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use setpoint_store::{Error, Key, ListOptions, Page, Range, Record, Revision, Store, Trigger, Watch, Write};

/// A store call.
#[derive(Clone, Copy)]
pub(crate) enum Call<'a> {
    Get(&'a Key),
    List(&'a Range),
    Commit(&'a Key),
}

/// Controls how a store behaves.
pub(crate) trait Pace: Send + Sync + 'static {
    /// Runs before and after each call.
    fn step(&self, call: Call<'_>) -> BoxFuture<'_, ()>;

    /// Returns whether a write fails as if another one had been first.
    fn conflicts(&self, _: &Key) -> bool {
        false
    }
}

/// A store with this behaviour.
pub(crate) struct Paced<P>(pub(crate) Arc<dyn Store>, pub(crate) P);

impl<P: Pace> Paced<P> {
    async fn at_pace<T>(&self, call: Call<'_>, work: impl Future<Output = T>) -> T {
        self.1.step(call).await;
        let outcome = work.await;
        self.1.step(call).await;
        outcome
    }
}

impl<P: Pace> Store for Paced<P> {
    fn revision(&self) -> Revision {
        self.0.revision()
    }

    fn compacted(&self) -> Revision {
        self.0.compacted()
    }

    fn get<'a>(
        &'a self,
        key: &'a Key,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, Error>> {
        self.at_pace(Call::Get(key), self.0.get(key, at)).boxed()
    }

    fn list<'a>(&'a self, range: &'a Range, options: ListOptions) -> BoxFuture<'a, Result<Page, Error>> {
        self.at_pace(Call::List(range), self.0.list(range, options)).boxed()
    }

    fn count<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<usize, Error>> {
        self.at_pace(Call::List(range), self.0.count(range)).boxed()
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        async move {
            let key = write.key.clone();
            let work = async {
                match self.1.conflicts(&key) {
                    true => Err(Error::Conflict { current: self.0.get(&key, None).await? }),
                    false => self.0.commit(write).await,
                }
            };
            self.at_pace(Call::Commit(&key), work).await
        }
        .boxed()
    }

    fn watch_by(&self, range: Range, trigger: Option<Trigger>, from: Revision) -> Result<Watch, Error> {
        self.0.watch_by(range, trigger, from)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.0.compact(revision)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, Error>> {
        self.0.expire(now)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}
