//! Assembles a whole control plane in one process.
//!
//! ```text
//!  store ◄── API server ◄── transport.rs  kube::Client without a socket
//!                       ◄── source.rs     informers that share the API server's bytes
//!                                │
//!                            Manager: controllers, scheduler, simulated nodes
//!
//!  identity.rs  the identity of each component     readers.rs   whether components may read shared caches
//!  denials.rs   denied requests of components      accounts.rs  the controllers' service accounts
//!  network.rs   connections to simulated nodes
//! ```
//!
//! This is the only crate that sees both sides of the API. `setpoint up`, the simulation and test clusters are all
//! built on it, so that what is tested is what runs.

mod accounts;
mod cluster;
mod denials;
pub mod identity;
mod metrics;
mod network;
mod readers;
mod source;
mod transport;

pub use cluster::{Build, Cluster, Components};
pub use denials::Denials;
pub use network::{PodBackends, add_webhooks};
pub use setpoint_apiserver::egress::in_process as webhooks;
pub use setpoint_node::{ExecError, Executed, Kubelets, Lost};
pub use source::InProcessSource;
pub use transport::{Connect, InProcess, in_memory, in_process_client};
