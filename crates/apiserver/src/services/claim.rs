//! Claims: the writes by which a service gets addresses and ports before it is stored, and gives them back.
//!
//! ```text
//!  choose ─► validate, admit ─► make the claim ─► store the service ─► keep: free what the service no longer has
//!     ▲                              │                    └─► give up: free what was claimed
//!     └── another server was faster ─┘
//! ```
//!
//! An address is claimed by creating its IPAddress, a port by setting its bit ([`NodePorts`](super::node_ports)). Both
//! fail if another server has done so, kube-apiserver included. A server that stops in between, or whose write has an
//! unknown outcome, leaves a claim without a service: [`repair`](super::repair) removes it.

use std::net::IpAddr;

use serde_json::Value;
use setpoint_store::Error;

use super::objects;
use crate::server::Server;
use crate::status::Status;

/// What a write claims, and what is free once it is stored.
#[derive(Default)]
pub(crate) struct Claim {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) ports: Vec<u128>,
    pub(super) freed_addresses: Vec<IpAddr>,
    pub(super) freed_ports: Vec<u128>,
}

impl Claim {
    /// Returns what a removed service frees.
    pub(super) fn freed(addresses: Vec<IpAddr>, ports: Vec<u128>) -> Self {
        Self { freed_addresses: addresses, freed_ports: ports, ..Self::default() }
    }

    /// Makes the claim. Returns whether it is complete; if not, another server was faster and nothing is claimed.
    pub(crate) async fn make(&self, server: &Server, service: &Value) -> Result<bool, Status> {
        let made = self.try_make(server, service).await;
        if !matches!(made, Ok(true)) {
            // This server's view may lag behind the write that it conflicted with.
            server.store.latest().await.map_err(|why| server.refusal(why))?;
        }
        made
    }

    async fn try_make(&self, server: &Server, service: &Value) -> Result<bool, Status> {
        for (index, address) in self.addresses.iter().enumerate() {
            let created = objects::create(server, *address, service).await;
            if !matches!(created, Ok(true)) {
                free_addresses(server, &self.addresses[..index], service).await;
                return created;
            }
        }
        if self.ports.is_empty() {
            return Ok(true);
        }
        let ports = &server.services.node_ports;
        let claimed = ports.change(server, |taken| self.ports.iter().all(|port| taken.insert(*port))).await;
        if !matches!(claimed, Ok(true)) {
            free_addresses(server, &self.addresses, service).await;
        }
        claimed
    }

    /// Frees what the service no longer has: it is stored.
    pub(crate) async fn keep(self, server: &Server, service: &Value) {
        free_addresses(server, &self.freed_addresses, service).await;
        free_ports(server, &self.freed_ports).await;
    }

    /// Frees what was claimed: the service was not stored.
    pub(crate) async fn give_up(self, server: &Server, service: &Value) {
        free_addresses(server, &self.addresses, service).await;
        free_ports(server, &self.ports).await;
    }

    /// Frees what was claimed if the service was not stored. If that is unknown, the repair decides.
    pub(crate) async fn give_up_after(self, server: &Server, service: &Value, why: &Error) {
        if !matches!(why, Error::Unavailable(_)) {
            self.give_up(server, service).await;
        }
    }
}

/// Deletes the IPAddresses of these addresses. Failures are left to the repair.
async fn free_addresses(server: &Server, addresses: &[IpAddr], service: &Value) {
    for address in addresses {
        if let Err(why) = objects::delete(server, *address, service).await {
            tracing::warn!(%address, why = %why.message, "cannot remove the IPAddress of a service");
        }
    }
}

async fn free_ports(server: &Server, ports: &[u128]) {
    if ports.is_empty() {
        return;
    }
    let freed = server.services.node_ports.change(server, |taken| {
        ports.iter().for_each(|port| _ = taken.remove(port));
        true
    });
    if let Err(why) = freed.await {
        tracing::warn!(?ports, why = %why.message, "cannot free the node ports of a service");
    }
}
