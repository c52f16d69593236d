//! Paths inside volumes and on hosts.

use crate::field::{Errors, Path};

/// No element of the path may be `..`.
pub fn no_backsteps(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if has_backsteps(target) {
        errors.invalid(path, target, "must not contain '..'");
    }
}

pub fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|element| element == "..")
}

/// A relative path that stays below where it starts.
pub fn descending(target: &str, path: &Path<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(path, target, "must be a relative path");
    }
    no_backsteps(target, path, errors);
}

/// The same, and not one of the names that volumes keep for themselves.
pub fn not_reserved(target: &str, path: &Path<'_>, errors: &mut Errors) {
    descending(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid(path, target, "must not start with '..'");
    }
}
