//! Decrypts sealed records: see [`sealing`](crate::sealing).
//!
//! Opening the store tries all of them once. Those that stay sealed are retried whenever they are read.

use std::sync::Arc;
use std::time::Duration;

use super::DurableStore;
use crate::sealing::path_of;
use crate::{Error, ListOptions, Page, Range, Record};

/// The time limit for decryption while opening. A KMS plugin that stops responding costs its timeout for every key.
const UNSEAL_WITHIN: Duration = Duration::from_secs(30);
/// The number of records, some milliseconds of work, after which the task yields.
const UNSEAL_BATCH: usize = 256;
/// The maximum number of objects logged while opening.
const UNSEAL_LOGGED: usize = 20;

impl DurableStore {
    /// Decrypts all records if possible, and logs those that failed.
    pub(super) async fn unseal_all(&self) {
        let deadline = self.clock.instant() + UNSEAL_WITHIN;
        let mut failed = Vec::new();
        for (at, record) in self.core.sealed().into_iter().enumerate() {
            if at.is_multiple_of(UNSEAL_BATCH) {
                tokio::task::yield_now().await;
            }
            if self.clock.instant() >= deadline {
                tracing::warn!("decrypting takes too long: the rest is decrypted on read");
                break;
            }
            if let Err(reason) = self.unseal(&record).await {
                failed.push((record, reason));
            }
        }
        report(&failed);
    }

    /// Logs encrypted records if there is no configuration.
    pub(super) fn report_sealed(&self) {
        let reason = |record: &Record| record.unreadable().unwrap_or_default().to_owned();
        let sealed = self.core.sealed().into_iter().map(|record| (record.clone(), reason(&record)));
        report(&sealed.collect::<Vec<_>>());
    }

    /// Decrypts a sealed record, and replaces it.
    async fn unseal(&self, sealed: &Arc<Record>) -> Result<Arc<Record>, String> {
        let opened = Arc::new(self.sealing.open(sealed).await?);
        self.core.unseal(sealed, &opened);
        Ok(opened)
    }

    /// Returns a record, decrypting it if necessary.
    pub(super) async fn readable(&self, found: Option<Arc<Record>>) -> Result<Option<Arc<Record>>, Error> {
        match found {
            Some(record) if record.unreadable().is_some() => match self.unseal(&record).await {
                Ok(opened) => Ok(Some(opened)),
                Err(reason) => {
                    tracing::error!(key = path_of(&record.key), reason, "failed to decrypt data");
                    Err(Error::Transform(reason))
                }
            },
            found => Ok(found),
        }
    }

    pub(super) async fn list_readable(&self, range: &Range, options: &ListOptions) -> Result<Page, Error> {
        let mut page = self.core.list(range, options).await?;
        // A past revision may contain sealed records that have since been decrypted or removed.
        if options.at.is_some() || self.core.has_sealed(&range.resource) {
            for record in page.records.iter_mut().filter(|record| record.unreadable().is_some()) {
                let opened = self.unseal(record).await.map_err(|reason| {
                    let key = path_of(&record.key);
                    tracing::error!(key, reason, "failed to decrypt data");
                    Error::Transform(format!("unable to transform key {key:?}: {reason}"))
                })?;
                *record = opened;
            }
        }
        Ok(page)
    }
}

fn report(failed: &[(Arc<Record>, String)]) {
    for (record, reason) in failed.iter().take(UNSEAL_LOGGED) {
        tracing::error!(key = path_of(&record.key), reason, "cannot decrypt a stored object");
    }
    if !failed.is_empty() {
        let objects = failed.len();
        tracing::error!(objects, "stored objects cannot be decrypted; they are kept as they are");
    }
}
