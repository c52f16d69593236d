//! The files of a bundle, from a directory.

use std::path::Path;

use super::{BundleError, Files};
use crate::update::Place;

/// The directories of a bundle.
const DIRECTORIES: &[&str] = &["manifests", "metadata", "tests"];

/// Reads the manifests and the metadata of a bundle.
pub(super) fn files(directory: &Path) -> Result<Files, BundleError> {
    let shown = directory.display().to_string();
    if !directory.is_dir() {
        return Err(BundleError::Missing { path: shown, expected: "a directory with a bundle".into() });
    }
    let place = Place::existing(directory)?;
    let mut files = Files::new();
    for directory in DIRECTORIES {
        for path in place.list(directory, &[".yaml", ".yml", ".json"])? {
            if let Some(text) = place.read(&path)? {
                files.insert(path, text);
            }
        }
    }
    match files.is_empty() {
        true => Err(BundleError::Missing {
            path: shown,
            expected: "the directories manifests and metadata".into(),
        }),
        false => Ok(files),
    }
}
