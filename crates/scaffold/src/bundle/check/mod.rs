//! What is wrong with a bundle: the checks of `operator-sdk bundle validate`, and of its optional validators for
//! OperatorHub.io, good practices and removed APIs.
//!
//! ```text
//!  annotations.rs  metadata/annotations.yaml: package and channels
//!  csv.rs          the ClusterServiceVersion: names, required fields, install modes, examples
//!  install.rs      its Deployments, permissions and webhooks
//!  objects.rs      CRDs and all other objects
//! ```

mod annotations;
mod csv;
mod install;
mod objects;

use serde_json::Value;

use super::manifests::documents;
use super::{ANNOTATIONS, Files, Finding, MANIFESTS, Severity};

/// Collects findings about a file.
struct Findings<'a> {
    file: &'a str,
    all: &'a mut Vec<Finding>,
}

impl Findings<'_> {
    fn error(&mut self, message: impl Into<String>) {
        self.add(Severity::Error, message.into());
    }

    fn warning(&mut self, message: impl Into<String>) {
        self.add(Severity::Warning, message.into());
    }

    /// Reports an error if the condition does not hold.
    fn expect(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.error(message());
        }
    }

    fn add(&mut self, severity: Severity, message: String) {
        self.all.push(Finding { severity, file: self.file.to_owned(), message });
    }
}

/// A kind in a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Api {
    group: String,
    version: String,
    kind: String,
}

impl std::fmt::Display for Api {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} of {}/{}", self.kind, self.group, self.version)
    }
}

/// Returns what is wrong, errors first.
pub(super) fn findings(files: &Files) -> Vec<Finding> {
    let mut all = Vec::new();
    annotations::check(files.get(ANNOTATIONS), &mut Findings { file: ANNOTATIONS, all: &mut all });
    let mut manifests = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with(&format!("{MANIFESTS}/"))) {
        match documents(path, text) {
            Ok(found) => manifests.extend(found.into_iter().map(|document| (path.as_str(), document))),
            Err(error) => Findings { file: path, all: &mut all }.error(error.to_string()),
        }
    }
    let is_csv = |(_, document): &&(&str, Value)| document["kind"] == "ClusterServiceVersion";
    let csvs: Vec<_> = manifests.iter().filter(is_csv).collect();
    let [(file, csv)] = csvs[..] else {
        let message = format!("expected one ClusterServiceVersion, not {}", csvs.len());
        Findings { file: MANIFESTS, all: &mut all }.error(message);
        all.sort();
        return all;
    };
    let provided = objects::definitions(&manifests, &mut all);
    objects::check(&manifests, csv, &mut all);
    let mut of_csv = Findings { file, all: &mut all };
    csv::check(csv, &provided, &mut of_csv);
    install::check(csv, &mut of_csv);
    all.sort();
    all
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether a text is the name of an object: labels of DNS, separated by dots.
fn is_subdomain(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
