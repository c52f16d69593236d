//! The application controller: drives Applications to what their specs say.
//!
//! Owns: what an Application applies, its ApplicationRevisions, ResourceTrackers and the ConfigMap of its workflow.
//! Watches: Applications, definitions, their revisions, records, and every kind that an Application has applied.
//! Writes: all of these, and the status of Applications.
//!
//! ```text
//!  app.rs        an Application, as read
//!  catalog.rs    definitions, policies and workflows from the caches
//!  revision.rs   which revision an Application is at
//!  resolve.rs    what an Application refers to
//!  policies.rs   policies with definitions of their own
//!  referred.rs   objects that exist and that components copy
//!  services.rs   health of what is in the cluster
//!  status.rs     phases and conditions                                          (pure)
//!  progress.rs   parse, revision, workflow, health, state, garbage
//!  clean_up.rs   deletion
//!  reconcile.rs  glue: finalizer, progress, status
//! ```
//!
//! Invariants:
//! - Nothing is deleted while a workflow has not succeeded, unless a policy says so.
//! - A settled Application makes no writes.
//! - Deletion evaluates no template: it works from the records.

pub(crate) mod app;
pub(crate) mod catalog;
mod clean_up;
mod policies;
mod progress;
mod reconcile;
mod referred;
mod resolve;
mod revision;
mod services;
mod status;

use std::sync::Arc;

use setpoint::handler::enqueue_self;
use setpoint::queue::limiter;
use setpoint::{Context, Controller, Object, Queue, Runnable};

use crate::apply::cluster::Cluster;
use crate::apply::tracker::{BY_APPLICATION, Tracker};
use crate::egress::Egress;
use crate::names;
use crate::render::sources::Sources;
use crate::workflow::attempts::Attempts;
use app::Application;
use catalog::Catalog;
use reconcile::Applications;
use revision::Revision;

pub(crate) const NAME: &str = "application-controller";

/// Applications that are reconciled at once.
const WORKERS: usize = 8;

/// Builds the controller.
pub(crate) fn build(
    context: &Context,
    sources: &Sources,
    egress: Option<Arc<dyn Egress>>,
) -> Vec<Box<dyn Runnable>> {
    let apps = context.informers.of::<Application>();
    let trackers = context.informers.of::<Tracker>();
    let revisions = context.informers.of::<Revision>();
    let index = Arc::new(|object: &Object| application_label(object).into_iter().collect());
    trackers.add_index(BY_APPLICATION, index.clone());
    revisions
        .add_index(BY_APPLICATION, Arc::new(|object: &Object| revision_label(object).into_iter().collect()));
    let queue = Queue::with_rate_limiter(
        "application",
        &context.runtime,
        limiter::kubernetes_limiter(&context.runtime.clock),
    );
    apps.add_handler(enqueue_self(&queue));
    let catalog = Catalog::new(context);
    let reconciler = Applications {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(NAME),
        cluster: Cluster::of_applications(context, queue.clone()),
        sources: sources.clone(),
        egress,
        apps: apps.lister(),
        trackers: trackers.lister(),
        revisions: revisions.lister(),
        attempts: Attempts::default(),
        catalog: catalog.clone(),
    };
    let controller = Controller::new(NAME, queue, reconciler)
        .workers(WORKERS)
        .persistent()
        .reads_own_writes()
        .waits_for(&apps)
        .waits_for(&trackers)
        .waits_for(&revisions);
    vec![Box::new(catalog.informers().iter().fold(controller, Controller::waits_for))]
}

/// Returns the application that a record belongs to, as `namespace/name`.
fn application_label(object: &Object) -> Option<String> {
    let meta = object.meta();
    Some(format!("{}/{}", meta.label(names::APP_NAMESPACE)?, meta.label(names::APP_NAME)?))
}

/// Revisions are in the namespace of their application.
fn revision_label(object: &Object) -> Option<String> {
    Some(format!("{}/{}", object.key().namespace()?, object.meta().label(names::APP_NAME)?))
}
