//! Compacts etcd's history to about the last interval, together with all other API servers, as v1.34's compactor does.
//!
//! The API servers of a cluster agree through one key. Its version counts the compactions, its value is the revision up
//! to which history was compacted. Every interval, each server tries to write the key, expecting the version that it
//! saw last. The one that succeeds compacts to the revision it saw an interval ago; the others learn the new version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use setpoint_clock::Clock;

use super::client::{Compare, EtcdClient, EtcdError, Op, Txn};
use crate::Revision;

/// The key: outside of every prefix, because history is shared by all of etcd.
const KEY: &[u8] = b"compact_rev_key";

pub(super) struct Compactor {
    client: Arc<dyn EtcdClient>,
    clock: Clock,
    interval: Duration,
    /// The version of the key that this server expects.
    version: u64,
    /// The revision of an interval ago. 0: unknown.
    revision: Revision,
}

impl Compactor {
    pub(super) fn new(client: Arc<dyn EtcdClient>, clock: Clock, interval: Duration) -> Self {
        Self { client, clock, interval, version: 0, revision: 0 }
    }

    pub(super) async fn run(mut self) {
        loop {
            self.clock.sleep(self.interval).await;
            if let Err(error) = self.compact().await {
                tracing::warn!(%error, revision = self.revision, "cannot compact etcd's history");
            }
        }
    }

    async fn compact(&mut self) -> Result<(), EtcdError> {
        let key = Bytes::from_static(KEY);
        let value = self.revision.to_string().into();
        let txn = Txn {
            compare: Compare::Version { key: key.clone(), version: self.version },
            then: Op::Put { key: key.clone(), value, lease: 0 },
            otherwise: Some(key),
        };
        let response = self.client.txn(txn).await?;
        let before = std::mem::replace(&mut self.revision, response.revision);
        if !response.succeeded {
            self.version = response.found.map_or(0, |found| found.version);
            return Ok(());
        }
        self.version += 1;
        // What happened before this server started is for the next round.
        if before > 0 {
            self.client.compact(before).await?;
            tracing::debug!(revision = before, "compacted etcd's history");
        }
        Ok(())
    }
}
