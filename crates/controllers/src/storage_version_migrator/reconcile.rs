//! Records the resource version, then applies object by object.

use serde_json::json;
use setpoint::client::{Patch, Subresource};
use setpoint::reconcile::ErrorContext;
use setpoint::source::Selection;
use setpoint::{
    Cached, Client, ClientError, Clock, Key, Kind, Lister, Object, Outcome, ReconcileError, Reconciler,
    UpdateBody,
};

use super::plan::{Progress, Step};
use super::{ENTRY, Migration, Status};
use crate::served::Served;
use crate::workload::condition::whole_seconds;

/// An impossible namespace: listing it returns the current resource version and no objects.
const NOWHERE: &str = "-nowhere-";

pub(super) struct Migrator {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) served: Served,
    pub(super) migrations: Lister<Migration>,
}

impl Reconciler for Migrator {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(migration) = self.migrations.get(key)? else { return Ok(Outcome::Settled) };
        match migration.status.next() {
            Step::Nothing => {}
            Step::RecordVersion => self.record_resource_version(&migration).await?,
            Step::Migrate => self.migrate(&migration).await?,
        }
        Ok(Outcome::Settled)
    }
}

impl Migrator {
    async fn record_resource_version(&self, migration: &Cached<Migration>) -> Result<(), ReconcileError> {
        let Some(kind) = self.kind(migration).await? else {
            let progress = Progress::Failed("resource does not exist in discovery");
            let status = migration.status.with_progress(progress, self.now());
            return self.write(migration.object(), &status).await.map(drop);
        };
        let namespace = kind.namespaced().then(|| NOWHERE.to_owned());
        let selection = Selection { namespace, metadata_only: true, ..Selection::default() };
        let listed = self.client.list(&kind, &selection).await;
        let listed = listed.attempting(format!("get the resource version of {kind}"))?;
        let status = Status { resource_version: listed.resource_version, ..migration.status.clone() };
        self.write(migration.object(), &status).await.map(drop)
    }

    async fn migrate(&self, migration: &Cached<Migration>) -> Result<(), ReconcileError> {
        let Some(kind) = self.kind(migration).await? else {
            let status = migration.status.with_progress(Progress::Failed("resource not found"), self.now());
            return self.write(migration.object(), &status).await.map(drop);
        };
        let running = migration.status.with_progress(Progress::Running, self.now());
        let object = match running == migration.status {
            true => migration.object().clone(),
            false => self.write(migration.object(), &running).await?,
        };
        let selection = Selection { metadata_only: true, ..Selection::default() };
        let listed = self.client.list(&kind, &selection).await;
        let listed = listed.attempting(format!("list {kind}"))?;
        for one in &listed.objects {
            if let Err(error) = self.rewrite(&kind, one).await {
                // Retry errors other than a refusal.
                if !error.is_forbidden() && !error.is_invalid() {
                    return Err(error.into_reconcile_error(format!("rewrite {kind} {}", one.key())));
                }
                tracing::warn!(%kind, key = %one.key(), %error, "cannot rewrite an object");
                let progress = Progress::Failed("migration encountered unhandled error");
                return self.write(&object, &running.with_progress(progress, self.now())).await.map(drop);
            }
        }
        self.write(&object, &running.with_progress(Progress::Succeeded, self.now())).await.map(drop)
    }

    /// Rewrites an object in the current storage version with an empty apply. Conflicts are ignored: an object that was
    /// changed or deleted meanwhile does not need it.
    async fn rewrite(&self, kind: &Kind, object: &Object) -> Result<(), ClientError> {
        let meta = object.meta();
        let body = json!({
            "apiVersion": kind.api_version(),
            "kind": kind.kind(),
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        });
        let patch =
            Patch::Apply { body: body.to_string().into(), manager: ENTRY.name.to_owned(), force: false };
        match self.client.patch(kind, object.key(), Subresource::None, patch).await {
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(()),
            applied => applied.map(drop),
        }
    }

    /// Returns the kind of the resource, if it is served.
    async fn kind(&self, migration: &Migration) -> Result<Option<Kind>, ReconcileError> {
        let wanted = &migration.spec.resource;
        let served = self.served.get().await.attempting("discover the served resources")?;
        let mut kinds = served.resources().iter().map(|resource| &resource.kind);
        let found = kinds.find(|kind| {
            kind.group() == wanted.group
                && kind.version() == wanted.version
                && kind.plural() == wanted.resource
        });
        if found.is_none() && !served.failures().is_empty() {
            return Err(ReconcileError::retry(format!(
                "discover whether {} is served: {}",
                wanted.resource,
                served.failures()
            )));
        }
        Ok(found.cloned())
    }

    async fn write(&self, migration: &Object, status: &Status) -> Result<Object, ReconcileError> {
        let body = UpdateBody::of(migration).set(&["status"], status);
        let written =
            self.client.update(&Kind::of::<Migration>(), migration.key(), Subresource::Status, &body).await;
        written.attempting(format!("update the status of migration {}", migration.key()))
    }

    fn now(&self) -> jiff::Timestamp {
        whole_seconds(self.clock.now())
    }
}
