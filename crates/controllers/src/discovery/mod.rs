//! What the controllers of endpoints share: from services and pods to addresses and ports.
//!
//! ```text
//!  settings.rs    what can be set for all of them
//!  service.rs     the fields of a Service that decide who its endpoints are
//!  backend.rs     a pod as somebody behind a service
//!  address.rs     IP addresses and their families                                (pure)
//!  membership.rs  which services a change of a pod concerns
//!  trigger.rs     when the change happened that a write is the answer to
//!  subset.rs      the content of an Endpoints object, in its canonical form      (pure)
//!  slice.rs       the content of an EndpointSlice                                (pure)
//!  changes.rs     which slices to create, update and delete; carrying that out
//!  metrics.rs     what is counted of slices and of what is written to them
//!  wake.rs        from a slice to the service it belongs to, and back
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
use setpoint::queue::limiter::{MaxOf, Overall, PerKey};
use setpoint::{Context, Key, Queue};

/// How often a failing service is tried before it waits for a change.
pub(crate) const MAX_RETRIES: u32 = 15;

/// Marks the objects whose content follows a service that has no address of its own.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// A queue in which the delay between two tries begins at a second: one try may be many writes.
pub(crate) fn slow_queue(context: &Context, name: &'static str, longest: Duration) -> Queue<Key> {
    let per_key = PerKey::new(Backoff::doubling(Duration::from_secs(1), longest));
    let overall = Overall::new(context.runtime.clock.clone(), 10.0, 100);
    let limiter = MaxOf::new(vec![Arc::new(per_key), Arc::new(overall)]);
    Queue::with_rate_limiter(name, &context.runtime, Arc::new(limiter))
}
