//! Shared by the endpoint controllers: from Services and pods to addresses and ports.
//!
//! ```text
//!  settings.rs    settings of all endpoint controllers
//!  service.rs     the Service fields that determine its endpoints
//!  backend.rs     a pod as a backend of a Service
//!  address.rs     IP addresses and their families                       (pure)
//!  membership.rs  maps pod events to Services
//!  trigger.rs     when the change happened that triggered a write
//!  subset.rs      the contents of Endpoints, in canonical form          (pure)
//!  slice.rs       the contents of an EndpointSlice                      (pure)
//!  changes.rs     plans and applies writes of slices
//!  metrics.rs     metrics of slices and writes
//!  wake.rs        from a slice to its Service
//! ```

pub(crate) mod address;
pub(crate) mod backend;
pub(crate) mod changes;
pub(crate) mod membership;
pub(crate) mod metrics;
pub(crate) mod service;
pub(crate) mod settings;
pub(crate) mod slice;
pub(crate) mod subset;
pub(crate) mod trigger;
pub(crate) mod wake;

use std::sync::Arc;
use std::time::Duration;

use setpoint::backoff::Backoff;
use setpoint::queue::limiter::{Bucket, MaxOf, PerKeyBackoff};
use setpoint::{Context, Key, Queue};

/// How often a failing Service is retried before it waits for a change.
pub(crate) const MAX_RETRIES: u32 = 15;

/// The label of Endpoints and slices of headless Services.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// Creates a queue whose backoff starts at one second: one attempt can be many writes.
pub(crate) fn slow_queue(context: &Context, name: &'static str, longest: Duration) -> Queue<Key> {
    let per_key = PerKeyBackoff::new(Backoff::doubling(Duration::from_secs(1), longest));
    let overall = Bucket::new(context.runtime.clock.clone(), 10.0, 100);
    let limiter = MaxOf::new(vec![Arc::new(per_key), Arc::new(overall)]);
    Queue::with_rate_limiter(name, &context.runtime, Arc::new(limiter))
}
