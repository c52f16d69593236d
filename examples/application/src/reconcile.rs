//! The controller: observe, plan, apply, status.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use setpoint::prelude::*;

use crate::{Application, Phase, desired, directory, status};

/// The operator's name, used in events, as field manager and in metrics.
pub const CONTROLLER: &str = "application-controller";

/// Builds the controller for a manager.
pub fn controller(context: &Context) -> Controller {
    Controller::for_::<Application>(context, CONTROLLER)
        .owns::<Deployment>()
        .owns::<Service>()
        .reads::<ConfigMap>()
        .finalizer("example.com/directory", directory::remove)
        .run(reconcile)
}

async fn reconcile(application: Cached<Application>, context: Context) -> Result<(), ReconcileError> {
    // The fields that the operator manages. Other fields are left alone.
    let deployed = context.ensure(&desired::deployment(&application)).await?;
    let reachable = context.ensure(&desired::service(&application)).await?;
    for (applied, kind) in [(deployed, "Deployment"), (reachable, "Service")] {
        if applied {
            let message = format!("Applied {kind} {}", application.name());
            context.event(&application, EventType::Normal, "Applied", message);
        }
    }
    directory::add(&application, &context).await?;
    write_status(&application, &context).await
}

async fn write_status(application: &Cached<Application>, context: &Context) -> Result<(), ReconcileError> {
    let deployment = context.cached::<Deployment>(application.key()).await?;
    let status = status::status(application, deployment.as_deref());
    let was_ready = application.status.as_ref().is_some_and(|before| before.phase == Phase::Ready);
    let written = context.api.patch_status(application, &status).await;
    written.attempting(|| format!("write the status of application {}", application.key()))?;
    if status.phase == Phase::Ready && !was_ready {
        let message = format!("All {} replicas are ready", status.ready_replicas);
        context.event(application, EventType::Normal, "Ready", message);
        let labels = [("namespace", application.namespace().unwrap_or_default())];
        context.metrics.count("application_rollouts", "Applications that became ready", &labels, 1);
    }
    Ok(())
}
