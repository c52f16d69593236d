//! StorageVersion garbage collector: removes entries of API servers that are gone.
//!
//! Owns: the entries of `status.storageVersions` whose API server no longer has a lease.
//! Watches: Leases, StorageVersions.
//! Writes: StorageVersion status (update), deletes StorageVersions.
//!
//! ```text
//!  plan.rs       a record without some servers                          (pure)
//!  reconcile.rs  reads a record and its servers' leases, uncached
//! ```
//!
//! Invariants:
//! - an entry is removed only if an uncached read finds no API server lease of that name;
//! - a record without entries is deleted; otherwise it reports the version its entries have in common.

mod plan;
mod reconcile;

use serde::{Deserialize, Serialize};
use setpoint::{Context, Event, Key, Lister, Metadata, Object, Runnable};

use self::reconcile::Collector;
use crate::registry::{Access, Entry, Options};
use crate::wiring;
use crate::workload::encoding::null_is_empty;

const GROUP: &str = "internal.apiserver.k8s.io";

pub(crate) const ENTRY: Entry = Entry {
    name: "storageversion-garbage-collector-controller",
    aliases: &["storage-version-gc"],
    on_by_default: true,
    gates: &["APIServerIdentity", "StorageVersionAPI"],
    summary: "removes StorageVersion entries of API servers that are gone",
    watches: &[Access::watch("coordination.k8s.io", "leases"), Access::watch(GROUP, "storageversions")],
    writes: &[
        Access::to(GROUP, "storageversions", &["delete", "get"]),
        Access::to(GROUP, "storageversions/status", &["update"]),
        Access::to("coordination.k8s.io", "leases", &["get"]),
    ],
    default_workers: 1,
    build,
};

/// The namespace and label of API server identity leases.
const NAMESPACE: &str = "kube-system";
const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const API_SERVER: &str = "kube-apiserver";

/// A Lease. Only its existence matters.
#[derive(Clone, Debug, Default, Deserialize)]
struct Lease {}

setpoint::view!(Lease of k8s_openapi::api::coordination::v1::Lease);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StorageVersion {
    status: Status,
}

setpoint::view!(StorageVersion of k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "null_is_empty")]
    storage_versions: Vec<ServerVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    common_encoding_version: Option<String>,
    #[serde(deserialize_with = "null_is_empty")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ServerVersion {
    #[serde(rename = "apiServerID")]
    api_server_id: String,
    encoding_version: String,
    #[serde(deserialize_with = "null_is_empty")]
    decodable_versions: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    served_versions: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    #[serde(skip_serializing_if = "crate::workload::encoding::is_zero")]
    observed_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_transition_time: Option<jiff::Timestamp>,
    reason: String,
    message: String,
}

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let leases = context.informers.of::<Lease>();
    let versions = context.informers.of::<StorageVersion>();
    let name = "storage_version_garbage_collector_storageversions";
    let queue = wiring::queue(context, name);

    let (changed, known) = (queue.clone(), leases.lister::<Lease>());
    versions.add_handler(move |event: &Event| {
        let doubtful = |record: &Object| {
            let servers = record.view::<StorageVersion>().map(|view| view.status.storage_versions.iter());
            servers.is_ok_and(|mut servers| servers.any(|server| !has_lease(&known, &server.api_server_id)))
        };
        if !matches!(event, Event::Deleted { .. }) && doubtful(event.object()) {
            changed.add(event.object().key().clone());
        }
    });
    let (changed, records) = (queue.clone(), versions.lister::<StorageVersion>());
    leases.add_handler(move |event: &Event| {
        if let Event::Deleted { last, .. } = event
            && is_identity(last.meta())
        {
            let records = records.list(None).unwrap_or_default();
            let names = |record: &&setpoint::Cached<StorageVersion>| {
                let mut servers = record.status.storage_versions.iter();
                servers.any(|server| server.api_server_id == last.key().name())
            };
            records.iter().filter(names).for_each(|record| changed.add(record.key().clone()));
        }
    });

    let collector = Collector { client: context.client.clone(), clock: context.runtime.clock.clone() };
    let controller = wiring::controller(&ENTRY, options, queue, collector, [&leases, &versions]);
    vec![Box::new(controller)]
}

/// Whether a lease is an API server identity.
fn is_identity(lease: &Metadata) -> bool {
    lease.namespace.as_deref() == Some(NAMESPACE) && lease.label(IDENTITY) == Some(API_SERVER)
}

fn has_lease(leases: &Lister<Lease>, server: &str) -> bool {
    let lease = leases.objects().get(&Key::namespaced(NAMESPACE, server));
    lease.is_some_and(|lease| is_identity(lease.meta()))
}
