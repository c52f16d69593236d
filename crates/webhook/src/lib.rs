//! Calls out of the API server: to authentication, authorization, admission and audit webhooks, and to token issuers.
//!
//! ```text
//!  kubeconfig ─► Endpoint ─► Client ─► attempt (timeout, size limit) ─► retries with backoff ─► WebhookResponse
//!                              ▲         │
//!  clientConfig ─► Clients ────┘         └─► Dial: TCP, TCP without denied ranges, or a pipe in tests; TLS on top
//! ```
//!
//! Invariants:
//! - A call ends at its timeout, or earlier if the caller drops it.
//! - A response is never larger than the limit, compressed or not, and redirects are never followed.
//! - A call carries the credentials of its endpoint, and nothing of the request that caused it.

mod backoff;
mod chain;
mod cidr;
mod client;
mod clients;
mod dial;
mod error;
mod first_record;
mod go_text;
mod gzip;
pub mod in_process;
mod kubeconfig;
mod local;
mod settings;
mod signatures;
#[cfg(test)]
mod tests;
mod tls;
mod transport;
mod trusted;
mod x509;

pub use backoff::Backoff;
pub use cidr::{Cidr, InvalidCidr};
pub use client::{Call, Client, WebhookResponse};
pub use clients::{Address, ClientConfig, ClientError, Clients, Location, Resolve, ServiceReference};
pub use dial::{Conn, Connector, Dial, Dialed, GuardedTcp, Stream, Tcp};
pub use error::{CallError, StatusError, generic as generic_error};
pub use go_text::go_text;
pub use kubeconfig::{Endpoint, HostUsers, KubeconfigError};
pub use settings::{Retries, Settings, go_duration};
pub use signatures::Signatures;
pub use tls::{ClientIdentity, TlsError, TlsSettings};
pub use transport::{RequestBody, SendError, Transport, no_body};
