//! Metadata validation that built-in kinds do in addition to the server's own.
//!
//! v1.34 validates the metadata of an update once for every kind and then again kind by kind, so that the causes of an
//! error name a field more than once. Clients count them, so this server does the same.

use serde_json::Value;

use crate::field::Errors;
use crate::kind::Scope;
use crate::metadata;
use crate::strategy::NameRule;
use crate::validation::finalizer_names;

/// Validates a new object.
pub(super) fn new(object: &Value, errors: &mut Errors) {
    finalizer_names(object, errors);
}

/// Validates an update; the server has already checked the rest twice.
pub(super) fn change(new: &Value, errors: &mut Errors) {
    finalizer_names(new, errors);
}

/// Validates an updated object, if its kind checks the whole metadata once more.
pub(super) fn whole(object: &Value, scope: Scope, names: NameRule, errors: &mut Errors) {
    errors.extend(metadata::validate(object, scope == Scope::Namespaced, names));
    finalizer_names(object, errors);
}
