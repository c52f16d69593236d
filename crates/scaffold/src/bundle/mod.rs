//! Bundles for the Operator Lifecycle Manager: the format registry+v1.
//!
//! ```text
//!  manifests.rs  the manifests of a project: what is bound to what
//!  write.rs      the files of a bundle, from these manifests
//!  read.rs       the files of a bundle, from a directory
//!  check/        what `operator-sdk bundle validate` checks, and what its optional validators do
//! ```
//!
//! Invariants:
//! - A bundle with errors is not written.
//! - The same manifests give the same bundle.

mod check;
mod manifests;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;

use crate::names::Invalid;
use crate::project::Project;
use crate::update::{Place, UpdateError};

/// What is not in the manifests.
#[derive(Clone, Debug, Default)]
pub struct BundleOptions {
    /// The version; that of the project if `None`.
    pub version: Option<String>,
    /// The channels; `stable` if empty.
    pub channels: Vec<String>,
    /// The default channel; the first one if `None`.
    pub default_channel: Option<String>,
    /// The version that this one replaces.
    pub replaces: Option<String>,
    /// The operator's image; that of the Deployment if `None`.
    pub image: Option<String>,
}

/// Something that is wrong with a bundle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, relative to the bundle.
    pub file: String,
    /// The field and what was expected.
    pub message: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The bundle cannot be installed, or catalogs reject it.
    Error,
    /// The bundle can be installed, but something should be better.
    Warning,
}

/// A bundle that could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// An option is not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A file could not be read or written.
    #[error(transparent)]
    Update(#[from] UpdateError),
    /// A manifest could not be read.
    #[error("{path}: expected manifests in YAML: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// Something that a bundle needs is not in the project.
    #[error("{path}: expected {expected}")]
    Missing {
        /// The file or directory.
        path: String,
        /// What was expected there.
        expected: String,
    },
}

/// The files of a bundle by path.
type Files = BTreeMap<String, String>;

/// The directory of a bundle in a project.
const DIRECTORY: &str = "bundle";
const ANNOTATIONS: &str = "metadata/annotations.yaml";
const MANIFESTS: &str = "manifests";

/// Writes the bundle of a project to its directory `bundle`, with `bundle.Dockerfile` beside it. Returns what is wrong.
/// If there is an error, nothing is written.
pub fn bundle(project: &Project, options: &BundleOptions) -> Result<Vec<Finding>, BundleError> {
    let place = Place::existing(project.root())?;
    let (files, dockerfile) = write::files(project.description(), &place, options)?;
    let findings = check::findings(&files);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Ok(findings);
    }
    for (path, text) in &files {
        place.write(&format!("{DIRECTORY}/{path}"), text, false)?;
    }
    // A kind that is gone must not stay in the bundle.
    for path in place.list(&format!("{DIRECTORY}/{MANIFESTS}"), &[".yaml", ".yml", ".json"])? {
        if path.strip_prefix("bundle/").is_some_and(|path| !files.contains_key(path)) {
            place.remove(&path)?;
        }
    }
    place.write("bundle.Dockerfile", &dockerfile, false)?;
    Ok(findings)
}

/// Returns what is wrong with the bundle in a directory.
pub fn validate(directory: &Path) -> Result<Vec<Finding>, BundleError> {
    Ok(check::findings(&read::files(directory)?))
}

impl Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(formatter, "{severity}: {}: {}", self.file, self.message)
    }
}
