//! Reading records that are sealed: see [`sealing`](crate::sealing).
//!
//! Opening the store tries all of them once; those that stay sealed are tried again whenever they are read.

use std::sync::Arc;
use std::time::Duration;

use super::DurableStore;
use crate::sealing::path_of;
use crate::{Error, ListOptions, Page, Range, Record};

/// Opening decrypts for so long at most: a KMS plugin that stops answering costs its timeout with every key.
const UNSEAL_WITHIN: Duration = Duration::from_secs(30);
/// After so many records, some milliseconds of work, other tasks have their turn.
const UNSEAL_AT_ONCE: usize = 256;
/// How many objects are named in the log when opening.
const UNSEAL_LOGGED: usize = 20;

impl DurableStore {
    /// Decrypts what can be decrypted, and logs what cannot.
    pub(super) async fn unseal_all(&self) {
        let deadline = self.clock.instant() + UNSEAL_WITHIN;
        let mut failed = Vec::new();
        for (at, record) in self.core.sealed().into_iter().enumerate() {
            if at.is_multiple_of(UNSEAL_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            if self.clock.instant() >= deadline {
                tracing::warn!("decrypting takes too long: the rest is decrypted when it is read");
                break;
            }
            if let Err(reason) = self.unseal(&record).await {
                failed.push((record, reason));
            }
        }
        report(&failed);
    }

    /// Logs what is encrypted although there is no configuration.
    pub(super) fn report_sealed(&self) {
        let reason = |record: &Record| record.unreadable().unwrap_or_default().to_owned();
        let sealed = self.core.sealed().into_iter().map(|record| (record.clone(), reason(&record)));
        report(&sealed.collect::<Vec<_>>());
    }

    /// A sealed record, decrypted; from now on it is read as such.
    async fn unseal(&self, sealed: &Arc<Record>) -> Result<Arc<Record>, String> {
        let opened = Arc::new(self.sealing.open(sealed).await?);
        self.core.unseal(sealed, &opened);
        Ok(opened)
    }

    /// A record that was found, decrypted if it was not yet.
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
        // Of the past there may be records that are sealed no more, or gone.
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
