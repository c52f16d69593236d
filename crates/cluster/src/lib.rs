//! The assembly: a whole control plane in one process.
//!
//! ```text
//!  store ◄── API server ◄── transport.rs  kube::Client without a socket
//!                       ◄── source.rs     informers that share the API server's bytes
//!                                │
//!                            Manager: controllers, scheduler, simulated nodes
//!
//!  identity.rs  who each of them speaks as     readers.rs  whether those who share a cache may read it
//!  denials.rs   what they were refused       accounts.rs  the controllers' service accounts
//! ```
//!
//! The one room that sees both sides of the API. `setpoint up`, the simulation and test clusters all stand
//! on it, so that what is tested is what runs.

mod accounts;
mod cluster;
mod denials;
pub mod identity;
mod metrics;
mod readers;
mod source;
mod transport;

pub use cluster::{Build, Cluster, Parts};
pub use denials::Denials;
pub use setpoint_apiserver::egress::in_process as webhooks;
pub use source::InProcessSource;
pub use transport::{Connect, InProcess, in_memory, in_process_client};
