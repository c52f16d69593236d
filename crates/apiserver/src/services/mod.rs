//! What objects hold of the server's: addresses and ports of services.

mod allocator;
mod families;
mod pool;
mod range;

use std::sync::Arc;

use serde_json::Value;
use setpoint_clock::Rng;

pub use range::first_address;

use crate::server::StartError;
use crate::status::Status;

/// Hands out things of which there are only so many, and takes them back.
pub trait Reserve: Send + Sync + 'static {
    /// The resource whose objects hold them.
    fn stored_as(&self) -> &'static str;

    /// Notes what a stored object already holds.
    fn restore(&self, object: &Value);

    /// Gives a new object what it needs.
    fn for_create(&self, object: &mut Value) -> Result<Reservation, Status>;

    /// Gives a changed object what it needs, and takes back what it no longer does once that is stored.
    fn for_update(&self, new: &mut Value, old: &Value) -> Result<Reservation, Status>;

    /// Takes back what a removed object held.
    fn release(&self, object: &Value);
}

/// What has been handed out for a write that is not stored yet: given back unless it is kept.
#[derive(Default)]
pub struct Reservation {
    undo: Option<Box<dyn FnOnce() + Send>>,
    finish: Option<Box<dyn FnOnce() + Send>>,
}

impl Reservation {
    pub fn nothing() -> Self {
        Self::default()
    }

    pub fn new(undo: impl FnOnce() + Send + 'static, finish: impl FnOnce() + Send + 'static) -> Self {
        Self { undo: Some(Box::new(undo)), finish: Some(Box::new(finish)) }
    }

    /// The write is stored.
    pub fn keep(mut self) {
        self.undo = None;
        if let Some(finish) = self.finish.take() {
            finish();
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

/// Everything that is handed out.
pub(crate) fn reserves(
    cidr: &str,
    ports: (u16, u16),
    rng: &Rng,
) -> Result<Vec<Arc<dyn Reserve>>, StartError> {
    Ok(vec![Arc::new(allocator::ServiceAllocator::new(cidr, ports, rng.fork())?)])
}
