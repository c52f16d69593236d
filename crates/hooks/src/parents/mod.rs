//! The controller for the parents of one CompositeController or DecoratorController: makes their children match the
//! hook's responses.
//!
//! Owns: the children of parents, the finalizer of parents, and the status, labels and annotations that the hook
//! returns. Watches: parents, children, ControllerRevisions, and the related objects that the customize hook selects.
//!
//! ```text
//!  setup.rs      what a controller was set up with
//!  watch.rs      events ─► parents
//!  reconcile.rs  a parent: finalizer ─► children ─► related ─► hook ─► children, status
//!  claim.rs      adopts and releases children
//!  desired.rs    the answer ─► children                                               (pure)
//!  revisions.rs  ControllerRevisions: asks the hook for each, and writes them
//!  customize.rs  related objects
//!  carry_out.rs  actions ─► requests
//!  status.rs     what becomes of the parent's status                                  (pure)
//!  alive.rs      parents that are gone although the cache shows them
//!  damping.rs    parents whose status never settles                                   (pure)
//!  report.rs     what a reconcile did, for hook developers
//! ```

mod alive;
mod carry_out;
mod claim;
mod customize;
mod damping;
mod desired;
mod reconcile;
mod report;
mod revisions;
mod setup;
mod status;
mod watch;

pub(crate) use customize::Related;
pub(crate) use reconcile::{Parents, Wiring};
pub use report::{Observer, Report, Write};
pub(crate) use setup::{ChildKind, ParentKey, ParentKind, Setup, annotations, full};
pub(crate) use status::{patch as status_patch, with_conditions};
pub(crate) use watch::{SharedInformers, Watched, is_about_status_only, watch};
