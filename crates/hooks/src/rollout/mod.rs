//! Rollouts: children of a rolling kind move to the latest revision of their parent one after the other.      (pure)
//!
//! ```text
//!  revision.rs  ControllerRevisions: their names, their fields of the parent, and the children they claim
//!  progress.rs  which child moves next, and what the parent's condition `Updated` says
//! ```

mod progress;
mod revision;

pub(crate) use progress::{Rollout, Settled, merged_children, progress};
pub(crate) use revision::{Claims, Revision, patch_of, patched, revision_name};
