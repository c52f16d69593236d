//! The application controller: drives Applications towards their specs.
//!
//! Owns: the applied objects of Applications, ApplicationRevisions, ResourceTrackers and the ConfigMaps of workflows.
//! Watches: Applications, definitions, their revisions, ResourceTrackers, and all applied kinds.
//! Writes: all of these, and the status of Applications.
//!
//! ```text
//!  app.rs        a decoded Application
//!  catalog.rs    definitions, policies and workflows from the caches
//!  revision.rs   ApplicationRevisions
//!  recorded.rs   the decoded contents of revisions
//!  resolve.rs    resolves the references of an Application
//!  policies.rs   policies with their own definitions
//!  referred.rs   existing objects that components copy
//!  services.rs   health of deployed components
//!  status.rs     phases and conditions                                          (pure)
//!  progress.rs   parse, revision, workflow, health, drift, garbage collection
//!  clean_up.rs   deletion
//!  reconcile.rs  glue: finalizer, progress, status
//! ```
//!
//! Invariants:
//! - Nothing is deleted while a workflow has not succeeded, unless a policy demands it.
//! - A settled Application makes no writes.
//! - Deletion evaluates no templates: it uses the ResourceTrackers.

pub(crate) mod app;
pub(crate) mod catalog;
mod clean_up;
mod policies;
mod progress;
mod reconcile;
mod recorded;
mod referred;
mod resolve;
mod revision;
mod services;
mod status;

use std::sync::Arc;

use setpoint::handler::{Handler, enqueue_self};
use setpoint::queue::limiter;
use setpoint::shard::Sharded;
use setpoint::{Access, Context, Controller, Event, Informer, Key, Object, Queue, Runnable};

use crate::apply::cluster::Cluster;
use crate::apply::echoes::Echoes;
use crate::apply::tracker::{BY_APPLICATION, Tracker};
use crate::clusters::Clusters;
use crate::clusters::members::Follower;
use crate::names;
use crate::registry::{ANYTHING, Entry, Options};
use crate::render::judged::Judgements;
use crate::render::kept::Renders;
use crate::render::sources::Sources;
use crate::workflow::attempts::Attempts;
use crate::workflow::exchanges::Exchanges;
use app::{Application, Standing};
use catalog::Catalog;
use reconcile::Applications;
use recorded::RevisionContents;
use revision::Revision;

pub(crate) const NAME: &str = "application-controller";

pub(crate) const ENTRY: Entry = Entry {
    name: NAME,
    summary: "drives Applications: renders components and traits, runs workflows, collects garbage",
    watches: &[
        Access::watch("core.oam.dev", "applications"),
        Access::watch("core.oam.dev", "applicationrevisions"),
        Access::watch("core.oam.dev", "componentdefinitions"),
        Access::watch("core.oam.dev", "definitionrevisions"),
        Access::watch("core.oam.dev", "policies"),
        Access::watch("core.oam.dev", "policydefinitions"),
        Access::watch("core.oam.dev", "resourcetrackers"),
        Access::watch("core.oam.dev", "traitdefinitions"),
        Access::watch("core.oam.dev", "workflows"),
        Access::watch("core.oam.dev", "workflowstepdefinitions"),
        Access::watch("core.oam.dev", "workloaddefinitions"),
        // The credentials of clusters.
        Access::watch("", "secrets"),
    ],
    writes: &[
        Access::to("core.oam.dev", "applications", &["patch", "update"]),
        Access::to("core.oam.dev", "applications/status", &["patch", "update"]),
        Access::to("core.oam.dev", "applicationrevisions", &["create", "delete", "patch", "update"]),
        Access::to("core.oam.dev", "applicationrevisions/status", &["patch", "update"]),
        Access::to("core.oam.dev", "resourcetrackers", &["create", "delete", "patch", "update"]),
        // The ServiceAccounts that applications act as.
        Access::to("", "serviceaccounts", &["impersonate"]),
        ANYTHING,
        Access::EVENTS,
    ],
    workers_flag: "concurrent-application-syncs",
    default_workers: 8,
    build,
};

/// Builds the controller.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
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
    let echoes = Echoes::new(queue.clone());
    let own = echoes.clone();
    let is_news = move |event: &Event| own.is_news(event.object().key(), event);
    apps.add_handler(enqueue_self(&queue).when(is_news));
    let catalog = Catalog::new(context);
    let (exchanges, requests) = Exchanges::new(&context.runtime.clock, options.egress.clone(), queue.clone());
    let (members, mut parts) = options.members(context);
    let clusters =
        Clusters::new(Cluster::of_applications(context, queue.clone(), echoes.clone()), members.clone());
    members.follow(wake_users(&apps, &queue));
    let reconciler = Applications {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        recorder: context.recorder(NAME),
        clusters: clusters.clone(),
        sources: Sources::new(),
        renders: Renders::default(),
        judgements: Judgements::default(),
        exchanges,
        echoes,
        apps: apps.lister(),
        trackers: trackers.lister(),
        revisions: revisions.lister(),
        recollection: RevisionContents::default(),
        attempts: Attempts::default(),
        catalog: catalog.clone(),
    };
    let reconciler = Sharded::new(&context.shards, &queue, &apps, reconciler);
    let controller = context
        .controller(NAME, queue, reconciler)
        .persistent()
        .reads_own_writes()
        .waits_for(&apps)
        .waits_for(&trackers)
        .waits_for(&revisions)
        .waits_for(members.secrets());
    parts.push(requests);
    parts.push(Box::new(catalog.informers().iter().fold(controller, Controller::waits_for)));
    parts
}

/// Returns a callback that enqueues the applications that use a cluster, or may be waiting for it.
fn wake_users(apps: &Informer, queue: &Queue<Key>) -> Follower {
    let (apps, queue) = (apps.lister::<Application>(), queue.clone());
    Box::new(move |cluster| {
        for app in apps.objects().list(None) {
            // An application that cannot be decoded is not reconciled either.
            if app.decode().is_ok_and(|Standing { status }| status.concerns(cluster)) {
                queue.add(app.key().clone());
            }
        }
    })
}

/// Returns the application of a record, as `namespace/name`.
fn application_label(object: &Object) -> Option<String> {
    let meta = object.meta();
    Some(format!("{}/{}", meta.label(names::APP_NAMESPACE)?, meta.label(names::APP_NAME)?))
}

/// Revisions are in the namespace of their application.
fn revision_label(object: &Object) -> Option<String> {
    Some(format!("{}/{}", object.key().namespace()?, object.meta().label(names::APP_NAME)?))
}
