//! Resources allocated to objects: the addresses and ports of services.
//!
//! Addresses come from ranges that ServiceCIDRs can extend. Every address in use has an IPAddress, created before the
//! service that holds it and deleted after it.

mod addresses;
mod allocator;
mod families;
pub(crate) mod objects;
mod pool;
mod range;

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use setpoint_clock::Rng;

pub(crate) use allocator::addresses_of;
pub use range::first_address;

use crate::server::{Server, StartError};
use crate::status::Status;

/// Allocates and releases limited resources.
pub trait Allocator: Send + Sync + 'static {
    /// Returns the stored resource whose objects hold them.
    fn stored_as(&self) -> &'static str;

    /// Registers what an object stored before the start holds.
    fn note(&self, object: &Value);

    /// Registers an object that has just been stored.
    fn observe(&self, object: &Value) {
        let _ = object;
    }

    /// Allocates what a new object needs.
    fn for_create(&self, object: &mut Value) -> Result<Reservation, Status> {
        let _ = object;
        Ok(Reservation::nothing())
    }

    /// Allocates what a changed object needs, and releases what it no longer needs once that is stored.
    fn for_update(&self, new: &mut Value, old: &Value) -> Result<Reservation, Status> {
        let _ = (new, old);
        Ok(Reservation::nothing())
    }

    /// Returns the addresses that an object holds; each has an IPAddress.
    fn addresses(&self, object: &Value) -> Vec<IpAddr> {
        let _ = object;
        Vec::new()
    }

    /// Releases what a removed object held.
    fn release(&self, object: &Value);
}

/// Allocations for a write that is not stored yet: released unless kept.
#[derive(Default)]
pub struct Reservation {
    undo: Option<Box<dyn FnOnce() + Send + Sync>>,
    finish: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The allocated addresses, and those to release once the write is stored.
    gained: Vec<IpAddr>,
    lost: Vec<IpAddr>,
}

impl Reservation {
    pub fn nothing() -> Self {
        Self::default()
    }

    pub fn new(
        undo: impl FnOnce() + Send + Sync + 'static,
        finish: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        let (undo, finish) = (Some(Box::new(undo) as _), Some(Box::new(finish) as _));
        Self { undo, finish, gained: Vec::new(), lost: Vec::new() }
    }

    fn of_addresses(mut self, gained: Vec<IpAddr>, lost: Vec<IpAddr>) -> Self {
        (self.gained, self.lost) = (gained, lost);
        self
    }

    /// Creates IPAddresses for the addresses, before their object is stored.
    pub(crate) async fn record(&self, server: &Server, object: &Value) -> Result<(), Status> {
        for (index, address) in self.gained.iter().enumerate() {
            if let Err(why) = objects::record(server, *address, object).await {
                delete_addresses(server, &self.gained[..index], object).await;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Confirms the allocations: the write is stored.
    pub(crate) async fn keep(mut self, server: &Server, object: &Value) {
        self.undo = None;
        delete_addresses(server, &self.lost, object).await;
        if let Some(finish) = self.finish.take() {
            finish();
        }
    }

    /// Releases the allocations: the write failed.
    pub(crate) async fn give_up(self, server: &Server, object: &Value) {
        delete_addresses(server, &self.gained, object).await;
    }
}

/// Deletes the IPAddresses of these addresses. Failures are repaired at the next start.
pub(crate) async fn delete_addresses(server: &Server, addresses: &[IpAddr], object: &Value) {
    for address in addresses {
        if let Err(why) = objects::delete_addresses(server, *address, object).await {
            tracing::warn!(%address, why = %why.message, "cannot remove the IPAddress of a service");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            undo();
        }
    }
}

/// Builds all allocators.
pub(crate) fn reserves(
    cidrs: &str,
    ports: (u16, u16),
    rng: &Rng,
) -> Result<Vec<Arc<dyn Allocator>>, StartError> {
    let (services, addresses, ranges) = allocator::reserves(cidrs, ports, rng.fork())?;
    // Ranges first, since addresses and services are in them.
    Ok(vec![Arc::new(ranges), Arc::new(addresses), Arc::new(services)])
}
