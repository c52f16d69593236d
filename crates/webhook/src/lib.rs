//! Outgoing calls of the API server: to authentication, authorization, admission and audit webhooks, and to token
//! issuers.
//!
//! ```text
//!  kubeconfig ─► Endpoint ─► Client ─► attempt (timeout, size limit) ─► retries with backoff ─► Answer
//!                                        │
//!                                        └─► Dial: TCP, or a pipe in tests; TLS on top of either
//! ```
//!
//! Invariants:
//! - A call ends at its timeout, or earlier if the caller drops it.
//! - A response never exceeds the size limit, and redirects are never followed.
//! - A call carries the credentials of its endpoint, and nothing from the request that caused it.

mod backoff;
mod client;
mod dial;
mod error;
mod kubeconfig;
mod settings;
mod signatures;
#[cfg(test)]
mod tests;
mod tls;

pub use backoff::Backoff;
pub use client::{Answer, Call, Client};
pub use dial::{Dial, Dialed, Stream, Tcp};
pub use error::{CallError, StatusError};
pub use kubeconfig::{Endpoint, KubeconfigError};
pub use settings::{Retries, Settings, go_duration};
pub use signatures::Signatures;
pub use tls::{ClientIdentity, TlsError, TlsSettings};
