//! Definitions: the types of components, traits, policies and workflow steps.
//!
//! ```text
//!  file.rs     a definition as a CUE file ─► its object
//!  builtin.rs  the files that come with this program
//!  model.rs    the fields of a definition that rendering needs
//!  revisions.rs  the controller that records revisions
//! ```

pub(crate) mod builtin;
pub(crate) mod file;
pub(crate) mod model;
pub(crate) mod revisions;
