//! Checks that the defaults in a schema are valid values.

use serde_json::Value;

use super::meta::{self, Malformed};
use super::props::{Props, is_meta_field};
use super::rules::Rules;
use super::{prune, validate};
use crate::field::{Errors, Path};

/// Validates the defaults in a resource's schema.
pub(crate) fn check(schema: &Props, path: &Path<'_>) -> Errors {
    let mut errors = Errors::default();
    walk(schema, path, true, false, &mut errors);
    errors
}

fn walk(schema: &Props, path: &Path<'_>, is_resource: bool, in_metadata: bool, errors: &mut Errors) {
    let is_resource = is_resource || schema.embedded_resource;
    let in_metadata = in_metadata && !schema.embedded_resource;
    if let Some(default) = &schema.default {
        check_default(default, schema, &path.child("default"), is_resource, in_metadata, errors);
    }
    if let Some(item) = schema.item() {
        walk(item, &path.child("items"), false, in_metadata, errors);
    }
    let properties = path.child("properties");
    for (name, property) in &schema.properties {
        let in_metadata = in_metadata || is_resource && is_meta_field(name);
        walk(property, &properties.key(name), false, in_metadata, errors);
    }
}

fn check_default(
    default: &Value,
    schema: &Props,
    path: &Path<'_>,
    is_resource: bool,
    in_metadata: bool,
    errors: &mut Errors,
) {
    let mut pruned = default.clone();
    if !in_metadata {
        prune::prune(&mut pruned, schema, schema.embedded_resource);
        if pruned != *default {
            errors.invalid(path, default.clone(), "must not have unknown fields");
        }
    }
    let at = path.to_string();
    let mut settled = default.clone();
    let form = match schema.embedded_resource {
        true => meta::normalize_resource(&mut settled, schema, "", Malformed::Refused),
        false => meta::normalize_embedded(&mut settled, schema, Malformed::Refused).map(|_| ()),
    };
    if let Err(why) = form {
        return errors.invalid(path, default.clone(), why);
    }
    let mut found = Errors::default();
    meta::validate_embedded(&settled, schema, &at, schema.embedded_resource, &mut found);
    if found.is_empty() {
        found = validate::validate(&at, default, schema);
    }
    if let Some(rules) = Rules::of(schema, is_resource).filter(|_| found.is_empty()) {
        // Once as an unchanged value, and once as a new one.
        found = rules.check(&at, default, Some(default)).0;
        if found.is_empty() {
            found = rules.check(&at, default, None).0;
        }
    }
    errors.extend(found);
}
