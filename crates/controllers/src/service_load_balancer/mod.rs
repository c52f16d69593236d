//! Service load balancer: services of type LoadBalancer have an address from outside.
//!
//! There is no cloud: a pool of addresses stands for one, for local use. Without a pool this controller does
//! nothing, as kube-controller-manager's does without a cloud.
//!
//! Owns: the finalizer `service.kubernetes.io/load-balancer-cleanup`, `status.loadBalancer` of such services.
//! Watches: Services.
//! Writes: Service status (patch), by which the finalizer comes and goes too.
//!
//! ```text
//!  pool.rs       the addresses there are                                      (pure)
//!  plan.rs       what to do about a service                                   (pure)
//!  reconcile.rs  finalizer, address, status, and the way back
//! ```
//!
//! What always holds:
//! - a service whose `loadBalancerClass` is set is somebody else's;
//! - no two services have the same address;
//! - a service goes only after its address is free again.

mod plan;
mod pool;
mod reconcile;
mod view;

use setpoint::backoff::Backoff;
use setpoint::handler::enqueue_self;
use setpoint::queue::limiter::PerKey;
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
    summary: "gives services of type LoadBalancer an address of a pool, where there is one",
    watches: &[Access::watch("", "services")],
    writes: &[Access::to("", "services/status", &["patch"]), EVENTS],
    default_workers: 1,
    build,
};

pub(crate) const FLAGS: &[Flag] = &[Flag::workers("concurrent-service-syncs", &ENTRY, "1")];

/// How long a service that failed waits, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

fn build(context: &Context, options: &Options) -> Vec<Box<dyn Runnable>> {
    let Some(pool) = &options.load_balancer_pool else { return Vec::new() };
    let services = context.informers.of::<Service>();
    let limiter = Arc::new(PerKey::new(Backoff::doubling(RETRY.0, RETRY.1)));
    let queue = Queue::with_rate_limiter("service", &context.runtime, limiter);
    services.add_handler(enqueue_self(&queue));
    let balancer = Balancer {
        client: context.client.clone(),
        recorder: context.recorder("service-controller"),
        services: services.lister(),
        pool: *pool,
        given: parking_lot::Mutex::default(),
    };
    // One worker: which address is free is decided for one service at a time.
    let controller = wiring::part(ENTRY.name, queue, balancer, [&services]);
    vec![Box::new(controller)]
}
