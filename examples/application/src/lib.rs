//! An operator: whoever writes an `Application` gets a Deployment that runs it, a Service that reaches it, and
//! an entry in the directory of its namespace.
//!
//! ```text
//!  crd.rs        what users write: image, replicas, port; and what they read: phase, ready replicas
//!  desired.rs    the Deployment and the Service that an Application means; pure
//!  directory.rs  the ConfigMap that lists every Application's address; cleaned up by a finalizer
//!  status.rs     what to say of an Application, given its Deployment; pure
//!  reconcile.rs  observe, plan, apply, status
//! ```
//!
//! The Deployment and the Service are owned, so the garbage collector removes them. The directory is shared by
//! all Applications of a namespace, so a finalizer does.

mod crd;
mod desired;
mod directory;
mod reconcile;
mod status;

pub use crd::{Application, ApplicationSpec, ApplicationStatus, Phase, definition};
pub use directory::DIRECTORY;
pub use reconcile::{CONTROLLER, runnables};
