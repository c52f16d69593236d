//! How children become what a hook wants.                                                                     (pure)
//!
//! ```text
//!  same.rs    whether two values mean the same
//!  merge.rs   the three-way merge of a child: last answer, new answer, child as it is
//!  plan.rs    children as they are and as they should be ─► actions
//!  ledger.rs  what was applied to which version of a child, for server-side apply
//! ```

mod ledger;
mod merge;
mod plan;
mod same;

pub(crate) use ledger::{Ledger, fingerprint};
#[cfg(test)]
pub(crate) use merge::updated;
pub(crate) use merge::{encode, includes, is_settled, system_fields_removed};
pub use plan::ApplyMode;
pub(crate) use plan::{Action, Intent, apply_body, plan};
pub(crate) use same::same;
