//! Operator projects: `setpoint new`, `setpoint add` and `setpoint bundle`.
//!
//! ```text
//!  description.rs  setpoint.yaml: the language, the kinds, their versions and webhooks
//!  names.rs        which names are valid, and the names that follow from others
//!  plural.rs       English plurals
//!  templates.rs    the files of a project, as templates in `templates/`
//!  render.rs       fills in the templates
//!  record.rs       the digests of the generated files, in `.setpoint/digests`
//!  update.rs       writes what is new, and leaves alone what the author has changed
//!  declared.rs    the role of an operator, from what its controllers declare
//!  versions.rs     adds a version to a CRD that the author has changed
//!  project.rs      the commands: create, update, add a kind, a version or webhooks
//!  bundle/         an OLM bundle from the manifests of a project, and its validation
//! ```
//!
//! Invariants:
//! - Every file follows from the description. Rendering the same description gives the same bytes.
//! - A file that the author has changed is never overwritten, unless they ask for that.
//! - Files are renamed into place, so none is half-written. The next run completes an interrupted one.
//! - Nothing is written outside the project, not even through symbolic links in it.

mod bundle;
mod declared;
mod description;
mod names;
mod plural;
mod project;
mod record;
mod render;
mod templates;
mod update;
mod versions;

pub use bundle::{BundleError, BundleOptions, Finding, Severity, bundle, validate};
pub use description::{DESCRIPTION, Description, KindDescription, Language, Scope, SetpointSource, Webhook};
pub use names::{Invalid, kind_of_project};
pub use plural::plural;
pub use project::{Error, NewKind, NewVersion, Project};
pub use render::{RenderError, Rendered, rendered};
pub use update::{Report, UpdateError};
