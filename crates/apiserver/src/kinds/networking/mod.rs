//! The kinds of `networking.k8s.io`.

use serde_json::Value;

use super::Api;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::{dns_subdomain, path_segment};

pub mod ingress;
pub mod ingressclass;
pub mod ipaddress;
pub mod networkpolicy;
pub mod servicecidr;

const NETWORKING: Api =
    Api { group: "networking.k8s.io", version: "v1", schemas: "io.k8s.api.networking.v1" };

/// Validates a reference to an object by kind and name.
fn check_object_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = reference.at("apiGroup").as_str() {
        dns_subdomain(group, &path.child("apiGroup"), errors);
    }
    for field in ["kind", "name"] {
        check_segment(reference, field, path, errors);
    }
}

/// Validates a required field that must be a path segment.
fn check_segment(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    match object.text(field) {
        "" => errors.required(&path.child(field), ""),
        text => path_segment(text, &path.child(field), errors),
    }
}
