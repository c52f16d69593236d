//! The IPAddress of each cluster IP: created before its service and deleted after it.

use std::net::IpAddr;

use serde_json::{Value, json};
use setpoint_store::{Change, Error, Expect, Write};

use super::range::Family;
use crate::json::Json;
use crate::registry::Gvr;
use crate::rest::internal_write;
use crate::server::Server;
use crate::status::Status;

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const ALLOCATOR: &str = "ipallocator.k8s.io";

pub(super) fn kind() -> Gvr {
    Gvr::new("networking.k8s.io", "v1", "ipaddresses")
}

fn object(address: IpAddr, service: &Value) -> Value {
    let metadata = service.at("metadata");
    json!({
        "metadata": {
            "name": address.to_string(),
            "labels": {FAMILY: Family::of(address).name(), MANAGED_BY: ALLOCATOR},
        },
        "spec": {"parentRef": {
            "resource": "services",
            "namespace": metadata.text("namespace"),
            "name": metadata.text("name"),
        }},
    })
}

/// Creates the IPAddress of a service's address. Returns whether the service has it now: another one may have been
/// faster.
pub(super) async fn create(server: &Server, address: IpAddr, service: &Value) -> Result<bool, Status> {
    let Ok(served) = server.served(&kind()) else { return Ok(true) };
    match internal_write::insert(server, &served, object(address, service)).await {
        Ok(()) => return Ok(true),
        Err(why) if why.code != 409 => return Err(why),
        Err(_) => {}
    }
    let (key, at) = (served.key(None, &address.to_string()), server.store.latest().await);
    let at = at.map_err(|why| server.refusal(why))?;
    let found = server.store.get(&key, at).await.map_err(|why| server.refusal(why))?;
    // Left by an earlier attempt to create the same service.
    Ok(match found {
        Some(found) => parent(&served.decode_bare(&found)?).as_deref() == Some(&*path_of(service)),
        None => false,
    })
}

/// Deletes the IPAddress, if it belongs to the service.
pub(super) async fn delete(server: &Server, address: IpAddr, service: &Value) -> Result<(), Status> {
    let Ok(served) = server.served(&kind()) else { return Ok(()) };
    let key = served.key(None, &address.to_string());
    let found = server.store.get(&key, None).await.map_err(|why| server.refusal(why))?;
    let Some(found) = found else { return Ok(()) };
    if parent(&served.decode_bare(&found)?).as_deref() != Some(&*path_of(service)) {
        return Ok(());
    }
    let expect = Expect::Revision(found.modified);
    match server.store.commit(Write { key, expect, change: Change::Delete }).await {
        // Another writer was faster.
        Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
        Err(why) => Err(server.refusal(why)),
    }
}

/// Returns the path of the service that an IPAddress belongs to.
pub(super) fn parent(address: &Value) -> Option<String> {
    let parent = address.at("spec").at("parentRef");
    let is_service = parent.text("group").is_empty() && parent.text("resource") == "services";
    is_service.then(|| format!("{}/{}", parent.text("namespace"), parent.text("name")))
}

/// Returns whether the servers manage an IPAddress.
pub(super) fn is_managed(address: &Value) -> bool {
    address.at("metadata").at("labels").text(MANAGED_BY) == ALLOCATOR
}

fn path_of(service: &Value) -> String {
    let metadata = service.at("metadata");
    format!("{}/{}", metadata.text("namespace"), metadata.text("name"))
}
