//! The endpoints of the `kubernetes` Service: the addresses of all servers that are alive.
//!
//! As in v1.34, every server has a record with a lease of 15 seconds (`masterleases`), and writes the addresses of all
//! records to the Endpoints and the EndpointSlice. A server that is gone loses its record, and the others notice.

use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use setpoint_store::{Change, Error, Expect, ListOptions, Resource, Write};

use crate::apply::ManagedFields;
use crate::json::{Json, JsonMut};
use crate::loopback::{NAME, managed_by};
use crate::metadata;
use crate::registry::{Gvr, Served};
use crate::server::Server;
use crate::status::Status;
use crate::storage::MASTER_LEASES;
use crate::system_objects;

/// How long an address counts without being renewed, as in v1.34.
const TIME_TO_LIVE: Duration = Duration::from_secs(15);
/// Maximum attempts to renew the record, which only this server writes unless two have the same address.
const ATTEMPTS: usize = 8;
const NAMESPACE: &str = "default";
const SERVICE: &str = "kubernetes";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Renews the record of this server, and makes the endpoints match all records.
pub(super) async fn publish(server: &Server) -> Result<(), Status> {
    let Some(address) = own_address(server) else { return Ok(()) };
    renew(server, address).await?;
    let alive = alive(server).await?;
    if alive.is_empty() {
        return Err(Status::internal(
            "no API server is known, not even this one: the endpoints stay as they are",
        ));
    }
    reconcile(server, &alive).await
}

/// Removes the record of this server, and its endpoint.
pub(super) async fn withdraw(server: &Server) -> Result<(), Status> {
    let Some(address) = own_address(server) else { return Ok(()) };
    let key = Resource::new(MASTER_LEASES).key(address.to_string());
    let read = server.store.latest().await.map_err(|why| server.refusal(why))?;
    if let Some(found) = server.store.get(&key, read).await.map_err(|why| server.refusal(why))? {
        let write = Write { key, expect: Expect::Revision(found.modified), change: Change::Delete };
        match server.store.commit(write).await {
            Ok(_) | Err(Error::Conflict { .. }) => {}
            Err(why) => return Err(server.refusal(why)),
        }
    }
    let alive = alive(server).await?;
    reconcile(server, &alive).await
}

/// The address at which others reach this server.
fn own_address(server: &Server) -> Option<IpAddr> {
    server.place.address.filter(|address| !address.is_loopback() && !address.is_unspecified())
}

async fn renew(server: &Server, address: IpAddr) -> Result<(), Status> {
    let served = server.served(&Gvr::new("", "v1", "endpoints"))?;
    let key = Resource::new(MASTER_LEASES).key(address.to_string());
    let mut current = server.store.get(&key, None).await.map_err(|why| server.refusal(why))?;
    for _ in 0..ATTEMPTS {
        let before = current.as_ref().map(|record| generation(&served, record)).unwrap_or_default();
        // v1.34 counts too, because it writes nothing if nothing changes.
        let mut object = json!({
            "metadata": {"generation": before.saturating_add(1)},
            "subsets": [{"addresses": [{"ip": address}]}],
        });
        served.name_kind(&mut object);
        let payload = served.encode(&object, &ManagedFields::default());
        let expect = current.as_ref().map_or(Expect::Absent, |record| Expect::Revision(record.modified));
        let change = Change::Put { payload, ttl: Some(TIME_TO_LIVE) };
        match server.store.commit(Write { key: key.clone(), expect, change }).await {
            Ok(_) => return Ok(()),
            // It has just ended, or this server has not seen it yet.
            Err(Error::Conflict { current: newer }) => current = newer,
            Err(why) => return Err(server.refusal(why)),
        }
    }
    Err(Status::internal("the record of this server keeps changing: does another one have the same address?"))
}

fn generation(served: &Served, record: &setpoint_store::Record) -> i64 {
    served.decode_bare(record).map(|object| metadata::of(&object).count("generation")).unwrap_or_default()
}

/// Returns the addresses of all servers that are alive, in order.
async fn alive(server: &Server) -> Result<Vec<IpAddr>, Status> {
    let at = server.store.latest().await.map_err(|why| server.refusal(why))?;
    let options = ListOptions { at, ..ListOptions::default() };
    let page = server.store.list(&Resource::new(MASTER_LEASES).all(), options).await;
    let page = page.map_err(|why| server.refusal(why))?;
    let mut alive: Vec<IpAddr> =
        page.records.iter().filter_map(|record| record.key.path.parse().ok()).collect();
    alive.sort_by_key(IpAddr::to_string);
    Ok(alive)
}

async fn reconcile(server: &Server, alive: &[IpAddr]) -> Result<(), Status> {
    let [endpoints, slice] = kubernetes_endpoints(alive, server.place.port);
    let is_alone = matches!(alive, [only] if Some(*only) == own_address(server));
    let is_same = |found: &Value| {
        let label = |object: &Value| metadata::of(object).at("labels").text(SKIP_MIRROR).to_owned();
        let addresses = |object: &Value| {
            let subsets = object.list("subsets").iter();
            subsets.map(|subset| subset.at("addresses").clone()).collect::<Vec<_>>()
        };
        let ports = |object: &Value| object.list("subsets").first().map(|subset| subset.at("ports").clone());
        label(found) == label(&endpoints)
            && addresses(found) == addresses(&endpoints)
            && (!is_alone || ports(found) == ports(&endpoints))
    };
    keep(server, &Gvr::new("", "v1", "endpoints"), &endpoints, is_same).await?;
    let of = |object: &Value, field: &str| object.at(field).clone();
    let is_same = |found: &Value| {
        let addresses = |object: &Value| {
            let endpoints = object.list("endpoints").iter();
            endpoints.map(|endpoint| endpoint.at("addresses").clone()).collect::<Vec<_>>()
        };
        of(found, "addressType") == of(&slice, "addressType")
            && addresses(found) == addresses(&slice)
            && (!is_alone || of(found, "ports") == of(&slice, "ports"))
    };
    keep(server, &Gvr::new("discovery.k8s.io", "v1", "endpointslices"), &slice, is_same).await
}

/// Creates or replaces an object unless it is the same.
async fn keep(
    server: &Server,
    resource: &Gvr,
    wanted: &Value,
    is_same: impl Fn(&Value) -> bool,
) -> Result<(), Status> {
    let Ok(served) = server.served(resource) else { return Ok(()) };
    let at = server.store.latest().await.map_err(|why| server.refusal(why))?;
    let found = server.store.get(&served.key(Some(NAMESPACE), SERVICE), at).await;
    let collection = system_objects::path(resource, NAMESPACE, "");
    let this = system_objects::path(resource, NAMESPACE, SERVICE);
    let Some(record) = found.map_err(|why| server.refusal(why))? else {
        let path = managed_by(NAME, &collection);
        // The namespace is about to be created, or another server was faster.
        return server.loopback_request(Method::POST, &path, wanted, &[404, 409]).await.map(drop);
    };
    let current = served.decode_bare(&record)?;
    if is_same(&current) {
        return Ok(());
    }
    let mut new = current.clone();
    for field in ["subsets", "endpoints", "ports", "addressType"] {
        new.restore(field, wanted);
    }
    let labels = wanted.at("metadata").map("labels").into_iter().flatten();
    for (label, value) in labels {
        new.object_mut("metadata").object_mut("labels").set(label, value.clone());
    }
    tracing::info!(resource = resource.resource, "updating the endpoints of the kubernetes Service");
    if current.at("addressType") == wanted.at("addressType") {
        return server.loopback_request(Method::PUT, &managed_by(NAME, &this), &new, &[409]).await.map(drop);
    }
    // The type of addresses cannot change.
    server.loopback_request(Method::DELETE, &this, &Value::Null, &[404]).await?;
    server.loopback_request(Method::POST, &managed_by(NAME, &collection), wanted, &[409]).await.map(drop)
}

/// Returns the Endpoints and the EndpointSlice of servers at these addresses.
pub(crate) fn kubernetes_endpoints(addresses: &[IpAddr], port: u16) -> [Value; 2] {
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let metadata = |labels: Value| json!({"name": SERVICE, "namespace": NAMESPACE, "labels": labels});
    let is_v6 = !addresses.is_empty() && addresses.iter().all(IpAddr::is_ipv6);
    let all: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
    let subsets = match all.is_empty() {
        true => json!([]),
        false => json!([{"addresses": all, "ports": ports}]),
    };
    let of_type = addresses.iter().filter(|address| address.is_ipv6() == is_v6);
    let ready = of_type.map(|address| json!({"addresses": [address], "conditions": {"ready": true}}));
    let endpoints = json!({"metadata": metadata(json!({SKIP_MIRROR: "true"})), "subsets": subsets});
    let slice = json!({
        "metadata": metadata(json!({"kubernetes.io/service-name": SERVICE})),
        "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "endpoints": ready.collect::<Vec<_>>(),
        "ports": ports,
    });
    [endpoints, slice]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_addresses_of_one_family() {
        let slice = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            let [_, slice] = kubernetes_endpoints(&addresses, 6443);
            (slice["addressType"].clone(), slice["endpoints"].as_array().unwrap().len())
        };
        assert_eq!(slice(&["192.0.2.1", "192.0.2.2"]), (json!("IPv4"), 2));
        assert_eq!(slice(&["192.0.2.1", "2001:db8::1"]), (json!("IPv4"), 1));
        assert_eq!(slice(&["2001:db8::1"]), (json!("IPv6"), 1));
        assert_eq!(slice(&[]), (json!("IPv4"), 0));
    }
}
