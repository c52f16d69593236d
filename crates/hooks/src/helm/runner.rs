//! Runs of `helm`: the trait between the reconciler and the program.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::gateway::Access;

/// What `helm` is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelmVerb {
    /// Install a release that does not exist.
    Install,
    /// Upgrade a release.
    Upgrade {
        /// Whether objects are replaced instead of patched.
        force: bool,
    },
    /// Roll a release back.
    Rollback {
        /// The revision.
        to: u64,
        /// Whether objects are replaced instead of patched.
        force: bool,
    },
    /// Uninstall a release, or remove the revisions of one that is uninstalled.
    Uninstall {
        /// Whether the revisions are kept.
        keeps_history: bool,
    },
}

impl HelmVerb {
    /// The verb, as on the command line.
    pub fn text(&self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Upgrade { .. } => "upgrade",
            Self::Rollback { .. } => "rollback",
            Self::Uninstall { .. } => "uninstall",
        }
    }
}

/// One run of `helm`.
#[derive(Clone, Debug, PartialEq)]
pub struct HelmCall {
    /// What is to be done.
    pub verb: HelmVerb,
    /// The name of the release.
    pub release: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The directory of the chart.
    pub chart: PathBuf,
    /// The values.
    pub values: Value,
}

/// Runs `helm`: the program, or a model of it in tests.
///
/// Invariant: dropping the future ends the run. It never changes anything after that.
pub trait Helm: Send + Sync + 'static {
    /// Runs it once, with access to the API server. The error is what it says.
    fn run(&self, call: HelmCall, access: Arc<Access>) -> BoxFuture<'static, Result<(), String>>;

    /// The field manager of the objects that it writes: the name of the program.
    fn field_manager(&self) -> &str {
        "helm"
    }
}
