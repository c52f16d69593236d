//! Decrypts sealed records: see [`sealing`](crate::sealing).
//!
//! Opening the store tries all of them once. Those that stay sealed are retried whenever they are read.

use std::sync::Arc;
use std::time::Duration;

use setpoint_clock::Clock;

use crate::core::Core;
use crate::{Error, Key, ListOptions, Page, Range, Record};

/// The time limit for decryption while opening. A KMS plugin that stops responding costs its timeout for every key.
const UNSEAL_WITHIN: Duration = Duration::from_secs(30);
/// The number of records, some milliseconds of work, after which the task yields.
const UNSEAL_BATCH: usize = 256;
/// The maximum number of objects logged while opening.
const UNSEAL_LOGGED: usize = 20;

/// An engine whose records may be sealed.
pub(crate) trait Unseal: Sync {
    fn records(&self) -> &Arc<Core>;

    /// Decrypts a sealed record.
    fn open(&self, sealed: &Record) -> impl Future<Output = Result<Record, String>> + Send;

    /// Returns where a record is stored. Used in logs and messages.
    fn place_of(&self, key: &Key) -> String;

    /// Decrypts all records if possible, and logs those that failed.
    fn unseal_all(&self, clock: &Clock) -> impl Future<Output = ()> + Send {
        async move {
            let deadline = clock.instant() + UNSEAL_WITHIN;
            let mut failed = Vec::new();
            for (at, record) in self.records().sealed().into_iter().enumerate() {
                if at.is_multiple_of(UNSEAL_BATCH) {
                    tokio::task::yield_now().await;
                }
                if clock.instant() >= deadline {
                    tracing::warn!("decrypting takes too long: the rest is decrypted on read");
                    break;
                }
                if let Err(reason) = self.unseal(&record).await {
                    failed.push((record, reason));
                }
            }
            self.report(&failed);
        }
    }

    /// Logs the records that cannot be read.
    fn report_sealed(&self) {
        let reason = |record: &Record| record.unreadable().unwrap_or_default().to_owned();
        let sealed = self.records().sealed().into_iter().map(|record| (record.clone(), reason(&record)));
        self.report(&sealed.collect::<Vec<_>>());
    }

    /// Decrypts a sealed record, and replaces it.
    fn unseal(&self, sealed: &Arc<Record>) -> impl Future<Output = Result<Arc<Record>, String>> + Send {
        async move {
            let opened = Arc::new(self.open(sealed).await?);
            self.records().unseal(sealed, &opened);
            Ok(opened)
        }
    }

    /// Returns a record, decrypting it if necessary.
    fn readable(
        &self,
        found: Option<Arc<Record>>,
    ) -> impl Future<Output = Result<Option<Arc<Record>>, Error>> + Send {
        async move {
            match found {
                Some(record) if record.unreadable().is_some() => match self.unseal(&record).await {
                    Ok(opened) => Ok(Some(opened)),
                    Err(reason) => {
                        tracing::error!(key = self.place_of(&record.key), reason, "failed to decrypt data");
                        Err(Error::Transform(reason))
                    }
                },
                found => Ok(found),
            }
        }
    }

    fn list_readable(
        &self,
        range: &Range,
        options: &ListOptions,
    ) -> impl Future<Output = Result<Page, Error>> + Send {
        async move {
            let page = self.records().list(range, options).await?;
            // A past revision may contain sealed records that have since been decrypted or removed.
            match options.at.is_some() || self.records().has_sealed(&range.resource) {
                true => self.readable_page(page).await,
                false => Ok(page),
            }
        }
    }

    /// Returns a page with its sealed records decrypted.
    fn readable_page(&self, mut page: Page) -> impl Future<Output = Result<Page, Error>> + Send {
        async move {
            for record in page.records.iter_mut().filter(|record| record.unreadable().is_some()) {
                let opened = self.unseal(record).await.map_err(|reason| {
                    let key = self.place_of(&record.key);
                    tracing::error!(key, reason, "failed to decrypt data");
                    Error::Transform(format!("unable to transform key {key:?}: {reason}"))
                })?;
                *record = opened;
            }
            Ok(page)
        }
    }

    fn report(&self, failed: &[(Arc<Record>, String)]) {
        for (record, reason) in failed.iter().take(UNSEAL_LOGGED) {
            tracing::error!(key = self.place_of(&record.key), reason, "cannot read a stored object");
        }
        if !failed.is_empty() {
            let objects = failed.len();
            tracing::error!(objects, "stored objects cannot be read; they are kept as they are");
        }
    }
}
