//! The part of [`Store`] that every engine shares. An engine decides how a write is committed and how a record is read
//! back; counting, watching and compacting work on the [`Core`] it holds.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::core::Core;
use crate::{Error, Key, ListOptions, Page, Range, Record, Revision, Store, Trigger, Watch, Write};

pub(crate) trait Engine: Send + Sync + 'static {
    fn core(&self) -> &Arc<Core>;

    fn read(
        &self,
        key: &Key,
        at: Option<Revision>,
    ) -> impl Future<Output = Result<Option<Arc<Record>>, Error>> + Send;

    fn read_page(
        &self,
        range: &Range,
        options: ListOptions,
    ) -> impl Future<Output = Result<Page, Error>> + Send;

    fn write(&self, write: Write) -> impl Future<Output = Result<Arc<Record>, Error>> + Send;

    fn is_outdated(&self, _record: &Record) -> bool {
        false
    }

    fn read_at(&self) -> impl Future<Output = Result<Option<Revision>, Error>> + Send {
        std::future::ready(Ok(None))
    }

    /// Whether other processes may write to the same records.
    const IS_SHARED: bool = false;

    fn check_health(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    fn forget(&self, revision: Revision) -> Result<(), Error> {
        self.core().compact(revision)
    }

    fn remove_expired(&self, now: Timestamp) -> impl Future<Output = Result<usize, Error>> + Send;

    fn shut_down(&self) -> impl Future<Output = ()> + Send;
}

impl<E: Engine> Store for E {
    fn revision(&self) -> Revision {
        self.core().revision()
    }

    fn compacted(&self) -> Revision {
        self.core().read().compacted()
    }

    fn latest(&self) -> BoxFuture<'_, Result<Option<Revision>, Error>> {
        self.read_at().boxed()
    }

    fn is_shared(&self) -> bool {
        E::IS_SHARED
    }

    fn health(&self) -> BoxFuture<'_, Result<(), String>> {
        self.check_health().boxed()
    }

    fn get<'a>(
        &'a self,
        key: &'a Key,
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<Option<Arc<Record>>, Error>> {
        self.read(key, at).boxed()
    }

    fn list<'a>(&'a self, range: &'a Range, options: ListOptions) -> BoxFuture<'a, Result<Page, Error>> {
        self.read_page(range, options).boxed()
    }

    fn count<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<usize, Error>> {
        async move { Ok(self.core().count(range)) }.boxed()
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        self.write(write).boxed()
    }

    fn is_stale(&self, record: &Record) -> bool {
        self.is_outdated(record)
    }

    fn watch_by(&self, range: Range, trigger: Option<Trigger>, from: Revision) -> Result<Watch, Error> {
        Watch::new(self.core().clone(), range, trigger.as_ref(), from)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.forget(revision) }.boxed()
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, Error>> {
        self.remove_expired(now).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shut_down().boxed()
    }
}
