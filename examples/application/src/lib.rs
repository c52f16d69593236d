//! An example operator. For every `Application`, it creates a Deployment that runs it, a Service to reach it, and an
//! entry in the directory of its namespace.
//!
//! ```text
//!  crd.rs        the spec (image, replicas, port) and the status (phase, ready replicas)
//!  desired.rs    the desired Deployment and Service of an Application; pure
//!  directory.rs  the ConfigMap that lists every Application's address; cleaned up by a finalizer
//!  status.rs     the status of an Application, given its Deployment; pure
//!  reconcile.rs  observe, plan, apply, status
//! ```
//!
//! The Deployment and the Service have owner references, so the garbage collector deletes them. The directory is shared
//! by all Applications of a namespace, so a finalizer cleans it up.

mod crd;
mod desired;
mod directory;
mod reconcile;
mod status;

pub use crd::{Application, ApplicationSpec, ApplicationStatus, Phase, definition};
pub use directory::DIRECTORY;
pub use reconcile::{CONTROLLER, controller};
