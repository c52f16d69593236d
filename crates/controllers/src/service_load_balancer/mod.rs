//! Service load balancer: assigns external addresses to Services of type LoadBalancer.
//!
//! For local use: addresses come from a configured pool instead of a cloud provider. Without a pool this controller
//! does nothing, like kube-controller-manager's without a cloud provider.
//!
//! Owns: the finalizer `service.kubernetes.io/load-balancer-cleanup` and `status.loadBalancer` of these Services.
//! Watches: Services.
//! Writes: Service status (patch), which also adds and removes the finalizer.
//!
//! ```text
//!  pool.rs       the address pool                                 (pure)
//!  plan.rs       what to do about a Service                       (pure)
//!  reconcile.rs  finalizer, address, status; and cleanup
//! ```
//!
//! Invariants:
//! - Services with a `loadBalancerClass` are left alone;
//! - no two Services have the same address;
//! - a Service is released only after its address is free again.

mod plan;
mod pool;
mod reconcile;
mod view;

use setpoint::backoff::Backoff;
use setpoint::handler::enqueue_self;
use setpoint::queue::limiter::PerKeyBackoff;
use setpoint::{Context, Queue, Runnable};

use std::sync::Arc;
use std::time::Duration;

pub use self::pool::AddressPool;
use self::reconcile::Balancer;
use self::view::Service;
use crate::flags::Flag;
use crate::registry::{Access, EVENTS, Entry, Options};
use crate::wiring;

pub(crate) const ENTRY: Entry = Entry {
    name: "service-lb-controller",
    aliases: &["service"],
    on_by_default: true,
    gates: &[],
    summary: "assigns addresses from a pool to Services of type LoadBalancer",
    watches: &[Access::watch("", "services")],
    writes: &[Access::to("", "services/status", &["patch"]), EVENTS],
    default_workers: 1,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-service-syncs", &ENTRY, "1")];

/// The initial and maximum backoff.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(pool) = &options.load_balancer_pool else { return Vec::new() };
    let services = context.informers.of::<Service>();
    let limiter = Arc::new(PerKeyBackoff::new(Backoff::doubling(RETRY.0, RETRY.1)));
    let queue = Queue::with_rate_limiter("service", &context.runtime, limiter);
    services.add_handler(enqueue_self(&queue));
    let balancer = Balancer {
        client: context.client.clone(),
        recorder: context.recorder("service-controller"),
        services: services.lister(),
        pool: *pool,
        given: parking_lot::Mutex::default(),
    };
    // One worker, so that free addresses are assigned to one Service at a time.
    let controller = wiring::part(ENTRY.name, queue, balancer, [&services]);
    vec![Box::new(controller)]
}
