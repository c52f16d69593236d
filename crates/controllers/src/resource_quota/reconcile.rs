//! Observe, count, write.

use std::sync::Arc;
use std::time::Duration;

use setpoint::client::Subresource;
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, Clock, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, UpdateBody};
use setpoint_quota::Resources;

use super::count::{status, usage};
use super::monitors::Monitors;
use super::view::ResourceQuota;
use setpoint::write_tracker::WriteTracker;

pub(super) struct Counter {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) quotas: Lister<ResourceQuota>,
    pub(super) monitors: Monitors,
    pub(super) writes: Arc<WriteTracker<Key>>,
    /// The interval of full recounts; zero disables them.
    pub(super) full_count: Duration,
}

impl Reconciler for Counter {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let quota = self.writes.list_if_caught_up(key, || Ok(self.quotas.get(key)?.into_iter().collect()))?;
        let Some(quota) = quota else { return Ok(Outcome::Requeue) };
        let Some(quota) = quota.into_iter().next() else {
            self.writes.forget(key);
            return Ok(Outcome::Settled);
        };
        let (counted, failure) = self.count(&quota).await;
        let status = status(&quota, &counted);
        if status != quota.status {
            let body = UpdateBody::of(quota.object()).set(&["status"], &status);
            let written =
                self.client.update(&Kind::of::<ResourceQuota>(), key, Subresource::Status, &body).await;
            self.writes.record_write(key, &written.attempting(format!("update the status of quota {key}"))?);
        }
        match failure {
            Some(failure) => Err(failure),
            None if self.full_count.is_zero() => Ok(Outcome::Settled),
            None => Ok(Outcome::CheckAfter(self.full_count)),
        }
    }
}

impl Counter {
    /// Counts usage. The error says what kept the rest from being counted.
    async fn count(&self, quota: &Cached<ResourceQuota>) -> (Resources, Option<ReconcileError>) {
        let mut counted = Resources::new();
        let monitors = match self.monitors.of(&quota.spec.hard).await {
            Ok(monitors) => monitors,
            Err(error) => return (counted, Some(error)),
        };
        let mut failure = None;
        for monitor in monitors {
            match monitor.items(quota.key().namespace()) {
                Ok(items) => counted.add(&usage(quota, &monitor.evaluator, &items, self.clock.now())),
                Err(error) => failure = Some(error),
            }
        }
        (counted, failure)
    }
}
