//! Ansible operators: a role or a playbook and a kind. Each change to an object of the kind runs it.
//!
//! Owns: the status and the finalizer of objects. Watches: them, and the kinds of what the runs create.
//!
//! ```text
//!  parameters.rs  the variables of a run                                     (pure)
//!  reconcile.rs   an object: finalizer ─► run ─► status
//!  status.rs      what becomes of the status                                 (pure)
//!  runner.rs      how a play is run: the trait
//!  program.rs     … as a child process
//!  setpoint.py    … and how it reports its end
//! ```
//!
//! Invariant: without a change, nothing runs and nothing is written, unless a period is set.

mod parameters;
mod program;
mod reconcile;
mod runner;
mod status;

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::watches::GroupKind;

pub use program::{AnsibleOptions, AnsibleProgram};
pub(crate) use reconcile::{PlayWiring, Plays};
pub use runner::{Ansible, AnsibleCall, PlayResult};

/// A role or a playbook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Play {
    /// The directory of a role.
    Role(PathBuf),
    /// A playbook.
    Playbook(PathBuf),
}

impl Play {
    /// Its name, for reports.
    fn name(&self) -> String {
        let (Self::Role(path) | Self::Playbook(path)) = self;
        path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// What an Ansible operator does for a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnsibleWatch {
    pub(crate) play: Play,
    pub(crate) vars: Map<String, Value>,
    pub(crate) finalizer: Option<Finalizer>,
    pub(crate) manages_status: bool,
    pub(crate) watches_dependents: bool,
    pub(crate) watches_cluster_scoped: bool,
    pub(crate) watches_annotations: bool,
    pub(crate) snake_case: bool,
    pub(crate) marks_unsafe: bool,
    /// The kinds of dependents that are not watched.
    pub(crate) unwatched: Vec<GroupKind>,
}

/// What runs before an object goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finalizer {
    pub(crate) name: String,
    /// What runs, unless it is the same as otherwise.
    pub(crate) play: Option<Play>,
    pub(crate) vars: Map<String, Value>,
}
