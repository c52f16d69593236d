//! The IPAddress of each cluster IP: created before its service and deleted after it.

use std::net::IpAddr;

use serde_json::{Value, json};
use setpoint_store::{Change, Expect, ListOptions, Write};

use super::range::Family;
use crate::json::Json;
use crate::registry::{Gvr, Served};
use crate::rest::internal_write;
use crate::server::Server;
use crate::status::Status;

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const ALLOCATOR: &str = "ipallocator.k8s.io";

fn kind() -> Gvr {
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

/// Creates the IPAddress of a service's address, unless it already exists for that service.
pub(crate) async fn record(server: &Server, address: IpAddr, service: &Value) -> Result<(), Status> {
    let Ok(served) = server.served(&kind()) else { return Ok(()) };
    let key = served.key(None, &address.to_string());
    if server.store.get(&key, None).await.map_err(|why| server.refusal(why))?.is_some() {
        return Ok(());
    }
    internal_write::insert(server, &served, object(address, service)).await
}

/// Deletes the IPAddress, if it belongs to the service.
pub(crate) async fn delete_addresses(
    server: &Server,
    address: IpAddr,
    service: &Value,
) -> Result<(), Status> {
    let Ok(served) = server.served(&kind()) else { return Ok(()) };
    let key = served.key(None, &address.to_string());
    let found = server.store.get(&key, None).await.map_err(|why| server.refusal(why))?;
    let Some(found) = found else { return Ok(()) };
    if parent(&served.decode_bare(&found)?) != of_service(service) {
        return Ok(());
    }
    let expect = Expect::Revision(found.modified);
    match server.store.commit(Write { key, expect, change: Change::Delete }).await {
        // Another writer was faster.
        Ok(_) | Err(setpoint_store::Error::Conflict { .. }) => Ok(()),
        Err(why) => Err(server.refusal(why)),
    }
}

fn parent(address: &Value) -> Option<(String, String)> {
    let parent = address.at("spec").at("parentRef");
    let is_service = parent.text("group").is_empty() && parent.text("resource") == "services";
    is_service.then(|| (parent.text("namespace").to_owned(), parent.text("name").to_owned()))
}

fn of_service(service: &Value) -> Option<(String, String)> {
    let metadata = service.at("metadata");
    Some((metadata.text("namespace").to_owned(), metadata.text("name").to_owned()))
}

/// Makes the IPAddresses match the services: a server that stopped between the two writes leaves one too many, and an
/// older version leaves none.
pub(crate) async fn repair(server: &Server) -> Result<(), Status> {
    let Ok(addresses) = server.served(&kind()) else { return Ok(()) };
    let services = server.served(&Gvr::new("", "v1", "services"))?;
    let mut held = Vec::new();
    for service in all(server, &services).await? {
        for address in super::addresses_of(&service) {
            record(server, address, &service).await?;
            held.push(address.to_string());
        }
    }
    for address in all(server, &addresses).await? {
        let metadata = address.at("metadata");
        let is_ours = metadata.at("labels").text(MANAGED_BY) == ALLOCATOR;
        let orphan = metadata.text("name").parse::<IpAddr>().ok();
        let orphan = orphan.filter(|_| is_ours && !held.iter().any(|held| held == metadata.text("name")));
        if let (Some(orphan), Some((namespace, name))) = (orphan, parent(&address)) {
            let service = json!({"metadata": {"namespace": namespace, "name": name}});
            delete_addresses(server, orphan, &service).await?;
            crate::rest::delete::release(server, &addresses, &address);
        }
    }
    Ok(())
}

async fn all(server: &Server, served: &Served) -> Result<Vec<Value>, Status> {
    let page = server.store.list(&served.resource.all(), ListOptions::default()).await;
    let page = page.map_err(|why| server.refusal(why))?;
    page.records.iter().map(|record| served.decode_bare(record)).collect()
}
