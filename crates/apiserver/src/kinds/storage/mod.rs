//! The kinds of `storage.k8s.io`.

use serde_json::Value;

use super::Api;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{qualified_name, too_long};

pub mod csidriver;
pub mod csinode;
pub mod csistoragecapacity;
pub mod storageclass;
pub mod volumeattachment;
pub mod volumeattributesclass;

const STORAGE: Api = Api { group: "storage.k8s.io", version: "v1", schemas: "io.k8s.api.storage.v1" };

/// Maximum number of parameters, and their maximum total size in bytes.
const PARAMETERS: usize = 512;
const PARAMETER_BYTES: usize = 256 << 10;

/// Validates a provisioner: a qualified name, case-insensitive.
fn check_provisioner(name: &str, path: &Path<'_>, errors: &mut Errors) {
    match name {
        "" => errors.required(path, ""),
        name => qualified_name(&name.to_lowercase(), path, errors),
    }
}

/// Validates the parameters of a class.
fn check_parameters(class: &Value, errors: &mut Errors) {
    let path = Path::root("parameters");
    let parameters = class.map("parameters");
    if parameters.is_some_and(|parameters| parameters.len() > PARAMETERS) {
        return too_long(PARAMETERS, &path, errors);
    }
    if parameters.is_some_and(|parameters| parameters.contains_key("")) {
        errors.invalid(&path, "", "field can not be empty.");
    }
    if bytes_of(class.at("parameters")) > PARAMETER_BYTES {
        too_long(PARAMETER_BYTES, &path, errors);
    }
}

/// Returns the total size of a string map's keys and values.
fn bytes_of(map: &Value) -> usize {
    let pairs = map.as_object().into_iter().flatten();
    pairs.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// Checks that parameters do not change; absent equals an empty map.
fn check_parameters_unchanged(new: &Value, old: &Value, errors: &mut Errors) {
    let some = |class: &Value| class.map("parameters").filter(|map| !map.is_empty()).cloned();
    if some(new) != some(old) {
        errors.forbidden(&Path::root("parameters"), "updates to parameters are forbidden.");
    }
}
