//! Glue: finalizer, progress, status.

use std::time::Duration;

use setpoint::client::Subresource;
use setpoint::finalizer::{Finalizer, FinalizerAction};
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Client, Clock, Decoded, EventType, Key, Lister, Outcome, ReconcileError, Reconciler, Recorder,
    UpdateBody, View,
};

use super::app::Application;
use super::catalog::Catalog;
use super::recorded::RevisionContents;
use super::revision::Revision;
use super::status::phase;
use crate::apply::cluster::ClusterError;
use crate::apply::collect::Left;
use crate::apply::echoes::Echoes;
use crate::apply::tracker::Tracker;
use crate::clusters::Clusters;
use crate::model::Status;
use crate::names;
use crate::render::judged::Judgements;
use crate::render::kept::Renders;
use crate::render::sources::Sources;
use crate::workflow::attempts::Attempts;
use crate::workflow::exchanges::Exchanges;

/// The requeue delay of a waiting deletion. The objects that it waits for also trigger a reconcile.
const DELETION: Duration = Duration::from_secs(2);

/// The reconciler of Applications.
pub(super) struct Applications {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) clusters: Clusters,
    pub(super) sources: Sources,
    pub(super) renders: Renders,
    pub(super) judgements: Judgements,
    pub(super) exchanges: Exchanges,
    pub(super) echoes: Echoes,
    pub(super) apps: Lister<Application>,
    pub(super) trackers: Lister<Tracker>,
    pub(super) revisions: Lister<Revision>,
    pub(super) recollection: RevisionContents,
    pub(super) catalog: Catalog,
    pub(super) attempts: Attempts,
}

impl Reconciler for Applications {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let _running = self.echoes.begin(key);
        let Some(app) = self.apps.read(key)? else {
            self.echoes.forget(key);
            self.exchanges.end(key);
            return Ok(Outcome::Settled);
        };
        let finalizer = Finalizer::new(self.client.clone(), Application::kind(), names::APP_FINALIZER);
        match finalizer.action(app.object()) {
            FinalizerAction::CleanUp => return self.delete(&app, &finalizer).await,
            FinalizerAction::Nothing => return Ok(Outcome::Settled),
            FinalizerAction::Ensure => {
                let ensured = finalizer.ensure(app.object()).await;
                let ensured = ensured.attempting(format!("add the finalizer of Application {key}"))?;
                self.echoes.wrote(key, &ensured);
                return Ok(Outcome::CheckAfter(Duration::ZERO));
            }
            FinalizerAction::Reconcile => {}
        }
        if app.is_paused() {
            return Ok(Outcome::Settled);
        }
        let mut status = app.status.clone();
        let progress = self.progress(&app, &mut status).await;
        if let Err(error) = &progress {
            // The state of a failed pass may not have been written: the next one starts from what was.
            status = app.status.clone();
            self.note(&app, &mut status, error);
        }
        self.tell(&app, &status);
        self.write(&app, &status).await?;
        progress.map_err(|error| failed(key, error))
    }
}

impl Applications {
    fn note(&self, app: &Decoded<Application>, status: &mut Status, error: &ClusterError) {
        if status.status.is_empty() {
            status.status = phase::STARTING.into();
        }
        let message = crate::model::bounded(error.to_string());
        self.recorder.event(
            &Application::kind(),
            app.object(),
            EventType::Warning,
            "FailedReconcile",
            &message,
        );
    }

    async fn delete(
        &self,
        app: &Decoded<Application>,
        finalizer: &Finalizer,
    ) -> Result<Outcome, ReconcileError> {
        self.attempts.forget(&app.metadata.uid);
        self.renders.forget(&app.metadata.uid);
        self.judgements.forget(&app.metadata.uid);
        self.exchanges.end(app.key());
        let orphans = app.meta().has_finalizer(names::ORPHAN_FINALIZER);
        let left = match self.clean_up(app, orphans).await {
            // Errors that a user has to fix are shown. Others are temporary.
            Err(ClusterError::Refused(why)) => Left { problems: vec![why], ..Left::default() },
            left => left.map_err(|error| failed(app.key(), error))?,
        };
        if left.is_empty() {
            if orphans {
                let own = Finalizer::new(self.client.clone(), Application::kind(), names::ORPHAN_FINALIZER);
                own.release(app.object()).await.attempting(format!("release Application {}", app.key()))?;
                return Ok(Outcome::Settled);
            }
            finalizer.release(app.object()).await.attempting(format!("release Application {}", app.key()))?;
            return Ok(Outcome::Settled);
        }
        let mut status = app.status.clone();
        status.status = phase::DELETING.into();
        status.problem("Deleting", left.message(), self.clock.now());
        self.tell(app, &status);
        self.write(app, &status).await?;
        match left.problems.is_empty() {
            true => Ok(Outcome::CheckAfter(DELETION)),
            false => {
                Err(ReconcileError::retry(format!("delete Application {}: {}", app.key(), left.message())))
            }
        }
    }

    /// Records events about new errors since the last status.
    fn tell(&self, app: &Decoded<Application>, status: &Status) {
        for condition in status.conditions.iter().filter(|condition| condition.status == "False") {
            let was = app.status.conditions.iter().find(|known| known.kind == condition.kind);
            if was.is_some_and(|was| was.status == "False" && was.message == condition.message) {
                continue;
            }
            let reason = format!("Failed{}", condition.kind);
            let (kind, object) = (Application::kind(), app.object());
            self.recorder.event(&kind, object, EventType::Warning, &reason, condition.message.clone());
        }
        let is_ready = |status: &Status| {
            status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True")
        };
        if is_ready(status) && !is_ready(&app.status) {
            let message = "the workflow has succeeded";
            self.recorder.event(&Application::kind(), app.object(), EventType::Normal, "Deployed", message);
        }
    }

    async fn write(&self, app: &Decoded<Application>, status: &Status) -> Result<(), ReconcileError> {
        if *status == app.status {
            return Ok(());
        }
        let body = UpdateBody::of(app.object()).set(&["status"], status);
        let written = self.client.update(&Application::kind(), app.key(), Subresource::Status, &body).await;
        let written = written.attempting(format!("update the status of Application {}", app.key()))?;
        self.echoes.wrote(app.key(), &written);
        Ok(())
    }
}

fn failed(key: &Key, error: ClusterError) -> ReconcileError {
    match error {
        ClusterError::Client { attempted, source } => {
            source.into_reconcile_error(format!("{attempted}, for Application {key}"))
        }
        other => ReconcileError::retry(format!("Application {key}: {other}")),
    }
}
