//! Reads a StorageVersion and its servers' leases, uncached.

use std::collections::BTreeSet;

use setpoint::client::{DeleteOptions, Optional, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::{Cached, Client, Clock, Key, Kind, Outcome, ReconcileError, Reconciler, UpdateBody};

use super::plan::{Plan, plan};
use super::{Lease, NAMESPACE, StorageVersion, is_identity};
use crate::workload::condition::whole_seconds;

pub(super) struct Collector {
    pub(super) client: Client,
    pub(super) clock: Clock,
}

impl Reconciler for Collector {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let kind = Kind::of::<StorageVersion>();
        let found = self.client.get(&kind, key).await.optional();
        let Some(found) = found.attempting(format!("get storage version {key}"))? else {
            return Ok(Outcome::Settled);
        };
        let record = Cached::<StorageVersion>::new(found)?;
        let mut gone = BTreeSet::new();
        for server in &record.status.storage_versions {
            if !self.has_lease(&server.api_server_id).await? {
                gone.insert(server.api_server_id.as_str());
            }
        }
        match plan(&record.status, |server| gone.contains(server), whole_seconds(self.clock.now())) {
            Plan::Keep => {}
            Plan::Delete => {
                let delete = DeleteOptions::of_uid(record.meta().uid.to_string());
                let deleted = self.client.delete(&kind, key, &delete).await.optional();
                deleted.attempting(format!("delete storage version {key}, which no API server uses"))?;
            }
            Plan::Write(status) => {
                let body = UpdateBody::of(record.object()).set(&["status"], &status);
                let written = self.client.update(&kind, key, Subresource::Status, &body).await;
                written.attempting(format!("remove deleted API servers from storage version {key}"))?;
            }
        }
        Ok(Outcome::Settled)
    }
}

impl Collector {
    async fn has_lease(&self, server: &str) -> Result<bool, ReconcileError> {
        let lease =
            self.client.get(&Kind::of::<Lease>(), &Key::namespaced(NAMESPACE, server)).await.optional();
        let lease = lease.attempting(format!("get the lease of API server {server}"))?;
        Ok(lease.is_some_and(|lease| is_identity(lease.meta())))
    }
}
