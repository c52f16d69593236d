//! The flags of the API server, with kube-apiserver's names, one file per topic.

pub(crate) mod admission;
pub(crate) mod apis;
pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod encryption;
pub(crate) mod etcd;
pub(crate) mod limits;
pub(crate) mod proxying;
pub(crate) mod serving;
pub(crate) mod snapshots;

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Reads a file that a flag names.
fn read(flag: &str, path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("--{flag} {}: cannot read the file", path.display()))
}
