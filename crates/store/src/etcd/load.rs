//! Reads all records at one revision, in pages.
//!
//! A page is bounded by the size of etcd's response, so the number of keys in one is halved until it fits. Keys that the
//! codec does not know are counted and reported, and left alone.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::client::{EtcdClient, EtcdError, RangeRequest, RangeResponse};
use super::keyspace::Keyspace;
use crate::Revision;

/// Keys in a page, at first. At 2 KB each, 4 MB.
const PAGE: usize = 2000;

/// Reads a range of keys at one revision, page by page.
pub(super) struct Pages<'a> {
    client: &'a dyn EtcdClient,
    next: Option<Bytes>,
    end: Bytes,
    revision: Option<Revision>,
    size: usize,
}

impl<'a> Pages<'a> {
    /// `revision`: `None` for the newest.
    pub(super) fn new(
        client: &'a dyn EtcdClient,
        (from, end): (Bytes, Bytes),
        revision: Option<Revision>,
    ) -> Self {
        Self { client, next: Some(from), end, revision, size: PAGE }
    }

    /// Reads at most this many keys at a time.
    pub(super) fn of_size(self, size: usize) -> Self {
        Self { size: size.clamp(1, PAGE), ..self }
    }

    /// Returns the revision that is read, once a page has been.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Returns the next page. `None`: that was all.
    pub(super) async fn next(&mut self) -> Result<Option<RangeResponse>, EtcdError> {
        let Some(key) = self.next.clone() else { return Ok(None) };
        let page = loop {
            let request = RangeRequest {
                key: key.clone(),
                end: Some(self.end.clone()),
                limit: self.size,
                revision: self.revision,
                ..RangeRequest::default()
            };
            match self.client.range(request).await {
                Ok(page) => break page,
                Err(EtcdError::TooLarge { .. }) if self.size > 1 => self.size /= 2,
                Err(error) => return Err(error),
            }
        };
        self.revision.get_or_insert(page.revision);
        self.next = page.kvs.last().filter(|_| page.more).map(|last| after(&last.key));
        Ok(Some(page))
    }
}

/// Returns the first key after another.
fn after(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// Counts keys that the codec does not know, by the start of their path.
#[derive(Default)]
pub(super) struct Unknown(BTreeMap<String, usize>);

impl Unknown {
    /// The number of starts that are told apart.
    const MAX: usize = 20;

    /// Returns whether it is the first with this start.
    pub(super) fn add(&mut self, keyspace: &Keyspace, key: &[u8]) -> bool {
        let place = String::from_utf8_lossy(key);
        let path = place.strip_prefix(&keyspace.prefix).unwrap_or(&place);
        let start = path.split_inclusive('/').next().unwrap_or_default();
        if let Some(count) = self.0.get_mut(start) {
            *count += 1;
            return false;
        }
        let has_room = self.0.len() < Self::MAX;
        if has_room {
            self.0.insert(start.to_owned(), 1);
        }
        has_room
    }

    pub(super) fn report(&self, prefix: &str) {
        for (start, keys) in &self.0 {
            tracing::warn!(
                keys,
                under = format!("{prefix}{start}"),
                "etcd has keys that this server does not know; they are left alone"
            );
        }
    }
}
