//! Repairs what interrupted writes leave behind, as v1.34's repair loops do: at the start, and every three minutes.
//!
//! Every server does so. A claim without a service may belong to one that another server is about to store, so an address
//! is freed after a minute, and a port at the third repair that finds it so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_store::ListOptions;

use super::objects;
use crate::json::Json;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;

/// How old an IPAddress without a service must be.
const GRACE: SignedDuration = SignedDuration::from_secs(60);
/// How many repairs must find a port without a service.
const REPAIRS: u32 = 3;

/// The ports without a service, and how many more repairs must find them so.
#[derive(Default)]
pub(crate) struct Leaks(Mutex<BTreeMap<u128, u32>>);

/// Makes addresses and ports match the services.
pub(crate) async fn repair(server: &Server) -> Result<(), Status> {
    repair_addresses(server).await?;
    repair_ports(server).await
}

async fn repair_addresses(server: &Server) -> Result<(), Status> {
    let Ok(served) = server.served(&objects::kind()) else { return Ok(()) };
    let existing = addresses(server, &served).await?;
    let held = server.services.look(server, |in_use| {
        let services = in_use.services();
        let pairs = services.flat_map(|(path, held)| held.iter().map(|address| (path.to_owned(), *address)));
        pairs.collect::<Vec<(String, IpAddr)>>()
    });
    let held = held.await?;
    for (path, address) in &held {
        match existing.get(&address.to_string()) {
            None => _ = objects::create(server, *address, &service(path)).await?,
            Some(object) if objects::parent(object).as_deref() != Some(path) => {
                tracing::warn!(%address, service = path, "the address of a service belongs to another object; recreate it");
            }
            Some(_) => {}
        }
    }
    let held: BTreeSet<(String, IpAddr)> = held.into_iter().collect();
    for (name, object) in existing {
        let (Some(parent), Ok(address)) = (objects::parent(&object), name.parse::<IpAddr>()) else {
            continue;
        };
        let is_orphan = objects::is_managed(&object) && !held.contains(&(parent.clone(), address));
        if is_orphan && is_older(&object, server.now()) {
            tracing::info!(%address, service = parent, "an address has no service; freeing it");
            objects::delete(server, address, &service(&parent)).await?;
        }
    }
    Ok(())
}

fn is_older(object: &Value, now: Timestamp) -> bool {
    let created: Option<Timestamp> = object.at("metadata").text("creationTimestamp").parse().ok();
    created.is_none_or(|created| now.duration_since(created) >= GRACE)
}

fn service(path: &str) -> Value {
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    json!({"metadata": {"namespace": namespace, "name": name}})
}

async fn addresses(server: &Server, served: &Served) -> Result<BTreeMap<String, Value>, Status> {
    let page = server.store.list(&served.resource.all(), ListOptions::default()).await;
    let page = page.map_err(|why| server.refusal(why))?;
    let named = |record| Ok((crate::selector::name_of(record).to_owned(), served.decode_bare(record)?));
    page.records.iter().map(|record| named(record)).collect()
}

async fn repair_ports(server: &Server) -> Result<(), Status> {
    let held: BTreeSet<u128> = server.services.look(server, |in_use| in_use.ports().collect()).await?;
    let span = server.services.node_ports.span();
    let outside: Vec<&u128> = held.iter().filter(|port| !span.contains(**port)).collect();
    if !outside.is_empty() {
        tracing::warn!(ports = ?outside, "services have node ports outside of the range; recreate them");
    }
    let wanted = |stored: &BTreeSet<u128>| {
        let mut wanted: BTreeSet<u128> = held.iter().copied().filter(|port| span.contains(*port)).collect();
        let leaked = stored.difference(&held).copied().filter(|port| span.contains(*port));
        wanted.extend(server.services.leaks.still_held(leaked));
        wanted
    };
    if !server.services.node_ports.repair(server, wanted).await? {
        tracing::debug!("another server has changed the node ports during their repair");
    }
    Ok(())
}

impl Leaks {
    /// Returns the ports without a service that are not to be freed yet.
    fn still_held(&self, leaked: impl Iterator<Item = u128>) -> Vec<u128> {
        let mut known = self.0.lock();
        let before = std::mem::take(&mut *known);
        for port in leaked {
            match before.get(&port).copied().unwrap_or(REPAIRS) {
                0 | 1 => tracing::info!(port, "a node port has no service; freeing it"),
                left => _ = known.insert(port, left - 1),
            }
        }
        known.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_freed_by_the_third_repair_in_a_row_that_finds_no_service() {
        let leaks = Leaks::default();
        let repair = |ports: &[u128]| leaks.still_held(ports.iter().copied());
        assert_eq!(repair(&[1, 2]), [1, 2]);
        assert_eq!(repair(&[1]), [1]);
        assert_eq!(repair(&[1, 2]), [2], "the other one was in use meanwhile");
        assert_eq!(repair(&[2]), [2]);
        assert_eq!(repair(&[2]), [0; 0]);
    }
}
