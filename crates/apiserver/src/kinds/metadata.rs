//! The checks of metadata that built-in kinds do on top of the server's own.
//!
//! v1.34 checks the metadata of a change once for every kind and then again kind by kind, so that the
//! causes of a refusal name a field more than once. Clients count them, so they do here.

use serde_json::Value;

use crate::field::Errors;
use crate::kind::Scope;
use crate::metadata;
use crate::strategy::NameRule;
use crate::validation::finalizer_names;

/// Of a new object.
pub(super) fn new(object: &Value, errors: &mut Errors) {
    finalizer_names(object, errors);
}

/// Of a change; the server has looked at the rest of it twice.
pub(super) fn change(new: &Value, errors: &mut Errors) {
    finalizer_names(new, errors);
}

/// Of a changed object, where its kind looks at the whole of it once more.
pub(super) fn whole(object: &Value, scope: Scope, names: NameRule, errors: &mut Errors) {
    errors.extend(metadata::validate(object, scope == Scope::Namespaced, names));
    finalizer_names(object, errors);
}
