//! Validates paths in volumes and on hosts.

use crate::field::{Errors, Path};

/// Rejects a path with a `..` element.
pub fn no_backsteps(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if has_backsteps(target) {
        errors.invalid(path, target, "must not contain '..'");
    }
}

pub fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|element| element == "..")
}

/// Requires a relative path that does not leave its base.
pub fn descending(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(target, path, errors);
}

/// Like [`descending`], and rejects names reserved by volumes.
pub fn not_reserved(target: &str, path: &Path<'_>, errors: &mut Errors) {
    descending(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}
