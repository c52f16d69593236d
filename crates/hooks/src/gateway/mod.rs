//! Access to the API server for programs such as `helm` and `ansible-playbook`, one run at a time.
//!
//! ```text
//!  program ─► listener.rs: loopback, a token per run ─► access.rs ─► the operator's own client ─► API server
//!                                                          │
//!                          target.rs: what a path names    ├─► adoption.rs: owner, labels, marks       (all pure)
//!                                                          └─► protobuf.rs: objects sent as protobuf
//! ```
//!
//! Programs get no credentials of the cluster. They work against any cluster, also one in this process, and the
//! operator's limits and fence apply to their requests.
//!
//! Invariants:
//! - A run can send requests only while its operator waits for it. A program that outlives its run, the operator's
//!   lease or the operator itself cannot write any more.
//! - Only requests of the Kubernetes API are forwarded, without the program's own credentials.
//! - Request bodies and the number of connections are bounded.

mod access;
mod adoption;
mod listener;
mod protobuf;
mod target;

pub use access::Access;
pub(crate) use access::{AccessOptions, End};
pub(crate) use adoption::{Adoption, Owner, ReleaseMarks, is_kept, put};
pub(crate) use listener::Gateway;
