//! Validates device selectors.

use serde_json::Value;

use crate::cel::device::Selector;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::too_long;

const EXPRESSION_BYTES: usize = 10 << 10;

/// Validates a selector: a boolean expression over a device.
pub(super) fn check(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("cel");
    if !selector.has("cel") {
        return errors.required(&path, "");
    }
    let (text, path) = (selector.at("cel").text("expression"), path.child("expression"));
    if text.len() > EXPRESSION_BYTES {
        return too_long(EXPRESSION_BYTES, &path, errors);
    }
    if let Err(why) = Selector::compile(text) {
        errors.invalid(&path, text, why);
    }
}
