//! The controller: observe, plan, apply, status.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};
use setpoint::client::{Patch, Subresource};
use setpoint::finalizer::{Finalizer, FinalizerAction};
use setpoint::handler::{enqueue_controller, enqueue_self};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, Context, EventType, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Recorder,
    Runnable,
};

use crate::{Application, ApplicationStatus, Phase, desired, directory, status};

/// The operator's name, used in events, as field manager and in metrics.
pub const CONTROLLER: &str = "application-controller";

const FINALIZER: &str = "example.com/directory";

/// Returns the runnables for a manager.
pub fn runnables(context: &Context) -> Vec<Box<dyn Runnable>> {
    let queue = context.queue(CONTROLLER);
    let applications = context.informers.of::<Application>();
    let deployments = context.informers.of::<Deployment>();
    let services = context.informers.of::<Service>();
    let directories = context.informers.of::<ConfigMap>();
    let kind = Kind::of::<Application>();
    applications.add_handler(enqueue_self(&queue));
    deployments.add_handler(enqueue_controller(&queue, &kind));
    services.add_handler(enqueue_controller(&queue, &kind));
    let reconciler = ApplicationReconciler {
        client: context.client.clone(),
        recorder: context.recorder(CONTROLLER),
        metrics: context.metrics.clone(),
        finalizer: Finalizer::new(context.client.clone(), kind, FINALIZER),
        applications: applications.lister(),
        deployments: deployments.lister(),
        services: services.lister(),
        directories: directories.lister(),
    };
    let controller = context.controller(CONTROLLER, queue, reconciler);
    let controller = [&applications, &deployments, &services, &directories]
        .into_iter()
        .fold(controller, |controller, informer| controller.waits_for(informer));
    vec![Box::new(controller)]
}

struct ApplicationReconciler {
    client: Client,
    recorder: Recorder,
    metrics: Metrics,
    finalizer: Finalizer,
    applications: Lister<Application>,
    deployments: Lister<Deployment>,
    services: Lister<Service>,
    directories: Lister<ConfigMap>,
}

impl Reconciler for ApplicationReconciler {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        let Some(application) = self.applications.get(key)? else { return Ok(Outcome::Settled) };
        match self.finalizer.action(application.object()) {
            FinalizerAction::Nothing => Ok(Outcome::Settled),
            FinalizerAction::CleanUp => self.clean_up(&application).await,
            FinalizerAction::Ensure | FinalizerAction::Reconcile => {
                let ensured = self.finalizer.ensure(application.object()).await;
                ensured.attempting(format!("put the finalizer on application {key}"))?;
                self.bring_about(&application).await
            }
        }
    }
}

impl ApplicationReconciler {
    async fn bring_about(&self, application: &Cached<Application>) -> Result<Outcome, ReconcileError> {
        let key = application.key();
        let deployment = self.deployments.get(key)?;
        if !deployment.as_ref().is_some_and(|it| desired::is_deployed(application, it)) {
            self.apply::<Deployment>(application, &desired::deployment(application)).await?;
        }
        let service = self.services.get(key)?;
        if !service.is_some_and(|it| desired::is_reachable(application, &it)) {
            self.apply::<Service>(application, &desired::service(application)).await?;
        }
        self.list_in_directory(application).await?;
        self.write_status(application, status::status(application, deployment.as_deref())).await?;
        Ok(Outcome::Settled)
    }

    /// Applies the fields that the operator manages. Other fields are left alone.
    async fn apply<V: setpoint::View>(
        &self,
        application: &Cached<Application>,
        wanted: &Value,
    ) -> Result<(), ReconcileError> {
        let (kind, key) = (Kind::of::<V>(), application.key());
        let patch = Patch::Apply { body: wanted.to_string().into(), manager: CONTROLLER.into(), force: true };
        let applied = self.client.patch(&kind, key, Subresource::None, patch).await;
        applied.attempting(format!("apply {} {key}", kind.kind()))?;
        let message = format!("Applied {} {}", kind.kind(), key.name());
        self.recorder.event(
            &Kind::of::<Application>(),
            application.object(),
            EventType::Normal,
            "Applied",
            message,
        );
        Ok(())
    }

    async fn list_in_directory(&self, application: &Cached<Application>) -> Result<(), ReconcileError> {
        let (key, address) = (application.key(), directory::address(application));
        let listed = self.directories.get(&directory::key(key))?;
        let is_listed = listed.is_some_and(|map| {
            map.data.as_ref().and_then(|entries| entries.get(key.name())) == Some(&address)
        });
        if !is_listed {
            let written = directory::write(&self.client, key, Some(&address)).await;
            written.attempting(format!("list application {key} in the directory"))?;
        }
        Ok(())
    }

    async fn write_status(
        &self,
        application: &Cached<Application>,
        status: ApplicationStatus,
    ) -> Result<(), ReconcileError> {
        let before = application.status.clone().unwrap_or_default();
        if application.status.is_some() && before == status {
            return Ok(());
        }
        let (kind, key) = (Kind::of::<Application>(), application.key());
        let patch = Patch::merge(&json!({"metadata": {"uid": &application.meta().uid}, "status": &status}));
        let written = self.client.patch(&kind, key, Subresource::Status, patch).await;
        written.attempting(format!("write the status of application {key}"))?;
        if before.phase != Phase::Ready && status.phase == Phase::Ready {
            let message = format!("All {} replicas are ready", status.ready_replicas);
            self.recorder.event(&kind, application.object(), EventType::Normal, "Ready", message);
            self.metrics.count(
                "application_rollouts",
                "Applications that became ready",
                &[("namespace", key.namespace().unwrap_or_default())],
                1,
            );
        }
        Ok(())
    }

    /// The garbage collector deletes what the Application owns. Only its directory entry has to be removed here.
    async fn clean_up(&self, application: &Cached<Application>) -> Result<Outcome, ReconcileError> {
        let key = application.key();
        let removed = directory::write(&self.client, key, None).await;
        removed.attempting(format!("remove application {key} from the directory"))?;
        let released = self.finalizer.release(application.object()).await;
        released.attempting(format!("release application {key}"))?;
        Ok(Outcome::Settled)
    }
}
