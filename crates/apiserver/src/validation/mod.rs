//! Validation of values that many kinds have: names, labels, quantities, ports, addresses.
//!
//! Every check takes the value, its path, and the list for its errors; a valid value costs no allocation. The messages
//! are v1.34's.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Errors, Path, Reason};
use crate::json::Json;
use crate::names::{self, Messages};

pub mod address;
mod conditions;
mod difference;
pub mod labels;
pub mod paths;
pub mod resources;
pub mod words;

pub use conditions::{conditions, has_condition};
pub use difference::{difference, unified};

pub const NEGATIVE: &str = "must be greater than or equal to 0";
pub const NOT_POSITIVE: &str = "must be greater than zero";
pub const IMMUTABLE: &str = "field is immutable";

/// Adds one error for each complaint about a text.
pub fn add_invalid(complaints: Messages, value: &str, path: &Path<'_>, errors: &mut Errors) {
    for complaint in complaints {
        errors.invalid(path, value, complaint);
    }
}

pub fn dns_label(value: &str, path: &Path<'_>, errors: &mut Errors) {
    add_invalid(names::dns_label(value), value, path, errors);
}

pub fn dns_subdomain(value: &str, path: &Path<'_>, errors: &mut Errors) {
    add_invalid(names::dns_subdomain(value), value, path, errors);
}

pub fn qualified_name(value: &str, path: &Path<'_>, errors: &mut Errors) {
    add_invalid(names::qualified_name(value), value, path, errors);
}

/// Requires that a field is not empty.
pub fn required(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if object.text(field).is_empty() {
        errors.required(&path.child(field), "");
    }
}

/// Requires one of a few values.
pub fn choice(value: &str, supported: &[&str], path: &Path<'_>, errors: &mut Errors) {
    match value {
        "" => errors.required(path, ""),
        value if supported.contains(&value) => {}
        value => errors.not_supported(path, value, supported),
    }
}

/// Requires one of a few values if the field is present.
pub fn optional_choice(
    object: &Value,
    field: &str,
    supported: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(value) = object.at(field).as_str().filter(|value| !supported.contains(value)) {
        errors.not_supported(&path.child(field), value, supported);
    }
}

pub fn nonnegative(value: i64, path: &Path<'_>, errors: &mut Errors) {
    if value < 0 {
        errors.invalid(path, value, NEGATIVE);
    }
}

/// Requires that a field is not negative; absent means zero.
pub fn nonnegative_field(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    nonnegative(object.count(field), &path.child(field), errors);
}

pub fn positive(value: i64, path: &Path<'_>, errors: &mut Errors) {
    if value <= 0 {
        errors.invalid(path, value, NOT_POSITIVE);
    }
}

pub fn in_range(value: i64, low: i64, high: i64, path: &Path<'_>, errors: &mut Errors) {
    if !(low..=high).contains(&value) {
        errors.invalid(path, value, format!("must be between {low} and {high}, inclusive"));
    }
}

pub fn port_number(value: i64, path: &Path<'_>, errors: &mut Errors) {
    in_range(value, 1, 65535, path, errors);
}

/// Validates a port number or name.
pub fn port(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(name) => add_invalid(words::port_name(name), name, path, errors),
        number => port_number(number.as_i64().unwrap_or(0), path, errors),
    }
}

/// Validates a user or group ID, which has 31 bits.
pub fn user_or_group(value: i64, path: &Path<'_>, errors: &mut Errors) {
    in_range(value, 0, i32::MAX.into(), path, errors);
}

pub fn immutable(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    if new != old {
        errors.invalid(path, new.clone(), IMMUTABLE);
    }
}

pub fn too_long(limit: usize, path: &Path<'_>, errors: &mut Errors) {
    errors.push(Reason::TooLong, path, None, format!("may not be more than {limit} bytes"));
}

pub fn too_many(count: usize, limit: usize, path: &Path<'_>, errors: &mut Errors) {
    let items = if limit == 1 { "item" } else { "items" };
    let detail = format!("must have at most {limit} {items}");
    errors.push(Reason::TooMany, path, Some(count.into()), detail);
}

/// Validates the name of a CSI driver.
pub fn csi_driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
    }
    if name.len() > 63 {
        too_long(63, path, errors);
    }
    add_invalid(names::dns_subdomain(&name.to_lowercase()), name, path, errors);
}

/// Validates a path segment.
pub fn path_segment(value: &str, path: &Path<'_>, errors: &mut Errors) {
    add_invalid(names::path_segment(value), value, path, errors);
}

const BAD_HTTP_PATH: &str = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";

/// Validates a path under a domain: `acme.io/foo`.
pub fn domain_prefixed_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.is_empty() {
        return errors.required(path, "");
    }
    let parts = value.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty());
    let Some((domain, rest)) = parts else {
        return errors.invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    };
    dns_subdomain(domain, path, errors);
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(fine) {
        errors.invalid(path, rest, BAD_HTTP_PATH);
    }
}

pub fn not_found(value: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.push(Reason::NotFound, path, Some(value.into()), "");
}

/// Checks that finalizers of built-in kinds are qualified names, except for a few old ones.
pub fn finalizer_names(object: &Value, errors: &mut Errors) {
    let metadata = Path::root("metadata");
    let path = metadata.child("finalizers");
    for (index, name) in object.at("metadata").list("finalizers").iter().enumerate() {
        finalizer_name(name.as_str().unwrap_or_default(), &path.index(index), errors);
    }
}

pub fn finalizer_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

/// Detects duplicates, however long the list.
#[derive(Default)]
pub struct Seen<T>(BTreeSet<T>);

impl<T: Ord> Seen<T> {
    pub fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Whether this has been seen, without recording it.
    pub fn has(&self, item: &T) -> bool {
        self.0.contains(item)
    }

    /// Records an item; returns whether it has been seen before.
    pub fn again(&mut self, item: T) -> bool {
        !self.0.insert(item)
    }
}
