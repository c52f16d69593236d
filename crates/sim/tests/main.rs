//! All simulation tests. A single binary, because each one would link the whole control plane again.

mod api_servers;
mod behaviour;
mod converters;
mod custom_controller;
mod extensions;
mod faults;
mod fleets;
mod framework_webhooks;
mod kinds;
mod kubelet;
mod network;
mod nodes;
mod replicas;
mod sets;
mod shadow;
mod test_cluster;
mod watches;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
