//! Calls out of the API server: to webhooks that authenticate, authorize, admit and record, and to issuers of
//! tokens.
//!
//! ```text
//!  kubeconfig ─► Endpoint ─► Client ─► attempt (time-out, size limit) ─► retries with backoff ─► Answer
//!                              ▲         │
//!  clientConfig ─► Clients ────┘         └─► Dial: TCP, TCP without denied ranges, or a pipe in tests; TLS on top
//! ```
//!
//! What always holds:
//! - a call ends: at its time-out, and earlier when the caller drops it;
//! - an answer is never larger than the limit, and a redirect is never followed;
//! - a call carries the credentials of its endpoint, and nothing of the request that caused it.

mod backoff;
mod cidr;
mod client;
mod clients;
mod dial;
mod error;
pub mod in_process;
mod kubeconfig;
mod settings;
mod signatures;
#[cfg(test)]
mod tests;
mod tls;

pub use backoff::Backoff;
pub use cidr::{Cidr, InvalidCidr};
pub use client::{Answer, Call, Client};
pub use clients::{Address, ClientConfig, ClientError, Clients, Place, Resolve, ServiceReference};
pub use dial::{Dial, Dialed, GuardedTcp, Stream, Tcp};
pub use error::{CallError, StatusError};
pub use kubeconfig::{Endpoint, HostUsers, KubeconfigError};
pub use settings::{Retries, Settings, go_duration};
pub use signatures::Signatures;
pub use tls::{ClientIdentity, TlsError, TlsSettings};
