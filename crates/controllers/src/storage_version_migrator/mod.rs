//! StorageVersionMigrations: every object of a resource is stored anew, in the version that it is stored in now.
//!
//! Owns: the status of StorageVersionMigrations.
//! Watches: StorageVersionMigrations.
//! Writes: their status (update); an empty server-side apply to every object of the resource.
//!
//! ```text
//!  plan.rs       what comes next for a migration, and what it says of itself  (pure)
//!  reconcile.rs  notes where the resource stands, then applies object by object
//! ```
//!
//! What always holds:
//! - an object is touched as it was seen: one that was changed meanwhile has been stored anew by that;
//! - a migration ends once: `Succeeded`, or `Failed` at the first object that the server refuses to store;
//! - a migration that is interrupted begins again, which changes nothing that is done.

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
    summary: "stores the objects of a resource anew, in the version that it is stored in now",
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

/// Without a garbage collector nobody knows what there is to migrate, as v1.34 has it.
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
