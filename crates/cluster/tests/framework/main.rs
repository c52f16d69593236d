//! Tests the framework against the real API server, in one process and in virtual time: what its client writes, and a
//! complete operator.

mod client;
mod operator;
mod proxies;
mod rights;

use std::sync::Arc;

use setpoint::{Clock, Kind, Rng, Runtime};
use setpoint_cluster::Cluster;
use setpoint_store::MemoryStore;

async fn cluster() -> Cluster {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().expect("a time"));
    let runtime = Runtime { clock: clock.clone(), rng: Rng::seeded(1) };
    Cluster::start(Arc::new(MemoryStore::new(clock)), runtime)
        .await
        .expect("an empty store can be started on")
}

fn config_maps() -> Kind {
    Kind::new("", "v1", "ConfigMap", "configmaps", true)
}
