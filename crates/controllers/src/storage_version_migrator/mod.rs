//! StorageVersionMigration: rewrites every object of a resource in its current storage version.
//!
//! Owns: the status of StorageVersionMigrations.
//! Watches: StorageVersionMigrations.
//! Writes: their status (update); an empty server-side apply to every object of the resource.
//!
//! ```text
//!  plan.rs       the next step of a migration, and its conditions              (pure)
//!  reconcile.rs  records the resource version, then applies object by object
//! ```
//!
//! Invariants:
//! - an object is rewritten with its observed resource version; one that changed in the meantime was rewritten by that
//!   change;
//! - a migration finishes once: `Succeeded`, or `Failed` at the first object that the server refuses to store;
//! - an interrupted migration starts over, which does not change objects that are done.

mod plan;
mod reconcile;

use serde::{Deserialize, Serialize};
use setpoint::handler::{Handler, enqueue_self};
use setpoint::{Context, Event, Runnable};

use self::reconcile::Migrator;
use crate::registry::{Access, Entry, Options};
use crate::served::Served;
use crate::wiring;
use crate::workload::encoding::null_is_empty;

const GROUP: &str = "storagemigration.k8s.io";

pub(crate) const ENTRY: Entry = Entry {
    name: "storage-version-migrator-controller",
    aliases: &["svm"],
    on_by_default: true,
    gates: &["StorageVersionMigrator", "InformerResourceVersion"],
    summary: "rewrites the objects of a resource in its current storage version",
    watches: &[Access::to(GROUP, "storageversionmigrations", &["list", "watch"])],
    writes: &[
        Access::to(GROUP, "storageversionmigrations/status", &["update"]),
        Access::to("*", "*", &["list", "patch"]),
    ],
    default_workers: 5,
    build,
};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Migration {
    spec: Spec,
    status: Status,
}

setpoint::view!(Migration of k8s_openapi::api::storagemigration::v1alpha1::StorageVersionMigration);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    resource: Resource,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resource {
    group: String,
    version: String,
    resource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource_version: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_update_time: Option<jiff::Timestamp>,
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// As in v1.34, does not run without the garbage collector, which knows the resources to migrate.
fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    if !options.garbage_collector {
        tracing::error!("storage version migrator requires garbage collector");
        return Vec::new();
    }
    let migrations = context.informers.of::<Migration>();
    let queue = wiring::queue(context, "storage_version_migrator_controller");
    migrations
        .add_handler(enqueue_self(&queue).when(|event: &Event| !matches!(event, Event::Deleted { .. })));
    let migrator = Migrator {
        client: context.client.clone(),
        clock: context.runtime.clock.clone(),
        served: Served::new(context),
        migrations: migrations.lister(),
    };
    let controller = wiring::controller(&ENTRY, options, queue, migrator, [&migrations]);
    vec![Box::new(controller)]
}
