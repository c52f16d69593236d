//! The APIServices of this server's own group versions, maintained as v1.34's autoregistration does:
//!
//! | Stored APIService | Not served here | Built in | Defined by CRDs |
//! |---|---|---|---|
//! | none | – | created at startup | created |
//! | not labelled `automanaged` | left alone | left alone | left alone |
//! | `automanaged: onstart` | deleted at startup | updated at startup | updated at startup |
//! | `automanaged: true` | deleted | updated at startup | updated |
//!
//! So an APIService owned by a user keeps its group version, even if this server could serve it.
//!
//! Updates and deletions call admission webhooks, so they may be slow or fail. Nothing else waits for them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use setpoint_store::{ListOptions, Record};
use tokio::sync::Mutex;

use crate::facts::Facts;
use crate::json::{Json, JsonMut};
use crate::kinds::apiservice::{AUTO_MANAGED, CONTINUOUSLY, ON_START, custom_service, local_service};
use crate::metadata;
use crate::registry::{Gvr, Registry, Served};
use crate::rest::internal_write;
use crate::server::Server;
use crate::status::Status;
use crate::system_objects;

/// How long a write of a CRD waits for its APIServices. Without webhooks for APIServices, this takes no time.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Whether the APIServices of CRDs are being synced, and whether another sync is requested.
#[derive(Default)]
pub(super) struct Settling {
    turn: Mutex<()>,
    is_wanted: AtomicBool,
}

pub(super) fn api_services() -> Gvr {
    Gvr::new("apiregistration.k8s.io", "v1", "apiservices")
}

/// Registers the built-in group versions. Called once, when the server starts.
pub(crate) async fn register_built_in(server: &Server) -> Result<(), Status> {
    let Ok(served) = server.served(&api_services()) else { return Ok(()) };
    let registry = server.registry.snapshot();
    let mut missing = built_in(&registry);
    for record in stored(server, &served).await? {
        missing.remove(&*record.key.path);
        if matches!(label(&record, &served), Some(ON_START | CONTINUOUSLY)) {
            let wanted = wanted(&registry, &record.key.path);
            reconcile_one(server, &served, &record, wanted.as_ref()).await?;
        }
    }
    let collection = system_objects::path(&api_services(), "", "");
    for name in missing {
        if let Some(service) = wanted(&registry, &name) {
            server.loopback_request(Method::POST, &collection, &service, &[409]).await?;
        }
    }
    Ok(())
}

/// Syncs the APIServices of custom group versions with the CRDs in the background. Waits briefly for the result.
pub(crate) async fn reconcile_custom(server: &Server) {
    server.aggregation.settling.is_wanted.store(true, Ordering::SeqCst);
    let settling = tokio::spawn(server.tasks.track_future(settle(server.this.clone())));
    _ = tokio::time::timeout(MAX_WAIT, settling).await;
}

/// Only one sync runs at a time; further calls only request another one. Failures are retried by the next sync.
async fn settle(server: Weak<Server>) {
    let Some(server) = server.upgrade() else { return };
    let settling = &server.aggregation.settling;
    while settling.is_wanted.load(Ordering::SeqCst) {
        let Ok(_turn) = settling.turn.try_lock() else { return };
        settling.is_wanted.store(false, Ordering::SeqCst);
        let settled = tokio::select! {
            biased;
            () = server.closing.cancelled() => return,
            settled = reconcile_all(&server) => settled,
        };
        if let Err(why) = settled {
            tracing::warn!(%why, "cannot maintain the APIServices of custom resources");
        }
    }
}

/// Processes all of them, even if some fail. Returns the last failure.
async fn reconcile_all(server: &Server) -> Result<(), Status> {
    let Ok(served) = server.served(&api_services()) else { return Ok(()) };
    let registry = server.registry.snapshot();
    let custom = custom(&registry);
    let stored = stored(server, &served).await?;
    let known: BTreeSet<&str> = stored.iter().map(|record| &*record.key.path).collect();
    let mut outcome = Ok(());
    for name in custom.iter().filter(|name| !known.contains(name.as_str())) {
        if let Some(service) = wanted(&registry, name) {
            outcome = internal_write::insert(server, &served, service).await.and(outcome);
        }
    }
    for record in stored.iter().filter(|record| label(record, &served) == Some(CONTINUOUSLY)) {
        let name = &*record.key.path;
        let wanted = custom.contains(name).then(|| wanted(&registry, name)).flatten();
        let settled = reconcile_one(server, &served, record, wanted.as_ref()).await;
        outcome = settled.and(outcome);
    }
    outcome
}

/// Updates or deletes an APIService that the server manages. A conflict means that it has changed; then this runs again.
async fn reconcile_one(
    server: &Server,
    served: &Served,
    record: &Record,
    wanted: Option<&Value>,
) -> Result<(), Status> {
    let mut service = served.decode_bare(record)?;
    let path = system_objects::path(&api_services(), "", &record.key.path);
    match wanted {
        Some(wanted) if wanted.at("spec") == service.at("spec") => Ok(()),
        Some(wanted) => {
            service.set("spec", wanted.at("spec").clone());
            server.loopback_request(Method::PUT, &path, &service, &[404, 409]).await.map(drop)
        }
        None if metadata::of(&service).has("deletionTimestamp") => Ok(()),
        None => {
            let options = json!({"preconditions": {"uid": metadata::of(&service).at("uid")}});
            server.loopback_request(Method::DELETE, &path, &options, &[404, 409]).await.map(drop)
        }
    }
}

/// The names of the APIServices of built-in group versions.
fn built_in(registry: &Registry) -> BTreeSet<String> {
    let built_in = registry.all().filter(|served| served.kind.custom.is_none());
    built_in.map(|served| name(&served.kind.group, &served.kind.version)).collect()
}

/// The names of the APIServices of group versions that CRDs define.
fn custom(registry: &Registry) -> BTreeSet<String> {
    let custom = registry.all().filter(|served| served.kind.custom.is_some());
    custom.map(|served| name(&served.kind.group, &served.kind.version)).collect()
}

fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// The desired APIService, if this server serves the group version.
fn wanted(registry: &Registry, name: &str) -> Option<Value> {
    let (version, group) = name.split_once('.')?;
    registry.version(group, version)?;
    match registry.has_built_in(group, version) {
        true => local_service(group, version),
        false => Some(custom_service(group, version)),
    }
}

async fn stored(server: &Server, served: &Served) -> Result<Vec<Arc<Record>>, Status> {
    let page = server.store.list(&served.resource.all(), ListOptions::default()).await;
    Ok(page.map_err(|why| server.refusal(why))?.records)
}

fn label<'a>(record: &'a Record, served: &Served) -> Option<&'a str> {
    Facts::of(record, served).label(AUTO_MANAGED)
}
