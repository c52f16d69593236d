//! Helm operators: a chart and a kind. Each object of the kind is a release whose values are its spec.
//!
//! `helm` renders and owns the releases, so `helm list`, `history` and `rollback` show them. This module decides when it
//! runs, and corrects what others have changed in between.
//!
//! Owns: releases and their objects, the status and the finalizer of their parents. Watches: parents, the Secrets in
//! which Helm keeps revisions, the kinds in the charts.
//!
//! ```text
//!  chart.rs      charts and digests of them
//!  overrides.rs  values of watches.yaml                                      (pure)
//!  record.rs     the record of a revision                                    (pure)
//!  manifest.rs   the objects of a revision                                   (pure)
//!  plan.rs       revisions, digest ─► the next step                          (pure)
//!  reconcile.rs  an object: finalizer ─► steps ─► drift ─► status
//!  drift.rs      compares the objects of a revision with the cluster
//!  quarrel.rs    objects that others change again and again                  (pure)
//!  status.rs     what becomes of the status                                  (pure)
//!  runner.rs     how `helm` is run: the trait
//!  program.rs    … as a child process
//! ```
//!
//! Invariants:
//! - `helm` runs only if the chart or the values have changed, or a release is missing, interrupted or being removed.
//! - Whether it has run is decided by its own records, so a crash at any time changes nothing about what comes next.
//! - The finalizer is added before the first run, so that a release never outlives its object.

mod chart;
mod drift;
mod manifest;
mod overrides;
mod plan;
mod program;
mod quarrel;
mod reconcile;
mod record;
mod runner;
mod status;

use std::collections::BTreeMap;

use serde_json::json;

pub use chart::Chart;
pub use program::{HelmOptions, HelmProgram};
pub(crate) use reconcile::{BY_RELEASE, ReleaseWiring, Releases};
pub use runner::{Helm, HelmCall, HelmVerb};

/// What a Helm operator does for a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HelmWatch {
    pub(crate) chart: Chart,
    /// Values by path, as texts.
    pub(crate) overrides: BTreeMap<String, String>,
    pub(crate) watches_dependents: bool,
}

/// Checks an override. The error says what was expected.
pub(crate) fn check_override(path: &str, value: &str) -> Result<(), String> {
    overrides::set(&mut json!({}), path, value)
}
