//! Reads from etcd what the cache does not have: revisions it has forgotten, or not seen yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Shared;
use super::client::{EtcdError, RangeRequest};
use super::load::Pages;
use crate::{Error, Key, ListOptions, Page, Range, Record, Revision};

impl Shared {
    /// Returns whether a revision that the cache has forgotten may be read from etcd.
    pub(super) fn may_read_from_etcd(&self, revision: Revision) -> bool {
        revision > 0 && revision >= self.forgotten.load(Ordering::Acquire)
    }

    pub(super) async fn get_at(&self, key: &Key, at: Revision) -> Result<Option<Arc<Record>>, Error> {
        let place = Bytes::from(self.keyspace.place_of(key));
        let request = RangeRequest { key: place, revision: Some(at), ..RangeRequest::default() };
        let response = self.client.range(request).await.map_err(|error| self.past(error, at))?;
        match response.kvs.first() {
            Some(kv) => Ok(Some(Arc::new(self.keyspace.read(key.clone(), kv).await))),
            None => Ok(None),
        }
    }

    pub(super) async fn list_at(
        &self,
        range: &Range,
        options: &ListOptions,
        at: Revision,
    ) -> Result<Page, Error> {
        if range.is_exact {
            return self.list_one_at(range, options, at).await;
        }
        let (start, end) = self.keyspace.records_under(&range.resource, &range.prefix);
        let start = match &options.from {
            Some(from) => Bytes::from(self.keyspace.place_of(&range.resource.key(from.as_str()))).max(start),
            None => start,
        };
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let mut pages = Pages::new(&*self.client, (start, end), Some(at)).of_size(limit);
        let (mut records, mut remaining) = (Vec::new(), 0);
        while records.len() < limit {
            let Some(page) = pages.next().await.map_err(|error| self.past(error, at))? else { break };
            // Of the keys from the start of this page on.
            remaining = page.count;
            for kv in page.kvs.iter().take(limit - records.len()) {
                remaining = remaining.saturating_sub(1);
                if let Some(key) = self.keyspace.key_at(&kv.key).filter(|key| range.contains(key)) {
                    records.push(Arc::new(self.keyspace.read(key, kv).await));
                }
            }
        }
        Ok(Page { records, revision: at, remaining })
    }

    async fn list_one_at(&self, range: &Range, options: &ListOptions, at: Revision) -> Result<Page, Error> {
        let is_before = options.from.as_deref().is_some_and(|from| from > &*range.prefix);
        let key = range.resource.key(range.prefix.clone());
        let found = if is_before { None } else { self.get_at(&key, at).await? };
        Ok(Page { records: found.into_iter().collect(), revision: at, remaining: 0 })
    }

    fn past(&self, error: EtcdError, at: Revision) -> Error {
        match error {
            EtcdError::Compacted => Error::Compacted { requested: at, oldest: self.core.read().compacted() },
            EtcdError::Future => Error::Future { requested: at, newest: self.core.revision() },
            other => other.into(),
        }
    }
}
