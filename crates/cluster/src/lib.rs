//! The assembly: a whole control plane in one process.
//!
//! ```text
//!  store ◄── API server ◄── transport.rs  kube::Client without a socket
//!                       ◄── source.rs     informers that share the API server's bytes
//!                                │
//!                            Manager: controllers, scheduler, simulated nodes
//! ```
//!
//! The one room that sees both sides of the API. `setpoint up`, the simulation and test clusters all stand
//! on it, so that what is tested is what runs.

mod cluster;
mod metrics;
mod source;
mod transport;

pub use cluster::{Build, Cluster, Parts};
pub use source::InProcessSource;
pub use transport::in_process_client;
