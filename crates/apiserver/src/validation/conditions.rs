//! Checks and validates status conditions in the standard form.

use serde_json::Value;

use super::{Seen, qualified_name, too_long};
use crate::field::{Errors, Path};
use crate::json::Json;

const REASON_BYTES: usize = 1 << 10;
const MESSAGE_BYTES: usize = 32 << 10;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Whether a status has a condition of this type that is true.
pub fn has_condition(status: &Value, r#type: &str) -> bool {
    let mut conditions = status.list("conditions").iter();
    conditions.any(|condition| condition.text("type") == r#type && condition.text("status") == "True")
}

/// Validates conditions: one of each type, with a reason and a time.
pub fn conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut types = Seen::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let of = condition.text("type");
        if types.again(of) {
            errors.duplicate(&path.child("type"), of);
        }
        check(condition, &path, errors);
    }
}

fn check(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    qualified_name(condition.text("type"), &path.child("type"), errors);
    let status = condition.text("status");
    if !matches!(status, "True" | "False" | "Unknown") {
        errors.not_supported(&path.child("status"), status, &["False", "True", "Unknown"]);
    }
    let generation = condition.count("observedGeneration");
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.child("observedGeneration"), generation, detail);
    }
    if !condition.has("lastTransitionTime") {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    check_reason(condition.text("reason"), &path.child("reason"), errors);
    if condition.text("message").len() > MESSAGE_BYTES {
        too_long(MESSAGE_BYTES, &path.child("message"), errors);
    }
}

fn check_reason(reason: &str, path: &Path<'_>, errors: &mut Errors) {
    if reason.is_empty() {
        return errors.required(path, "");
    }
    if !is_reason(reason) {
        errors.invalid(path, reason, REASON);
    }
    if reason.len() > REASON_BYTES {
        too_long(REASON_BYTES, path, errors);
    }
}

fn is_reason(reason: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = reason.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().copied().is_some_and(word)
        && bytes.iter().all(|b| word(*b) || b",:".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(list: Value, expected: &[&str]) {
        let mut errors = Errors::default();
        conditions(list.as_array().unwrap(), &Path::root("c"), &mut errors);
        let shown: Vec<String> =
            errors.0.iter().map(|error| format!("{:?} {}", error.reason, error.field)).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_condition_has_a_time_and_a_reason() {
        let good = json!({"type": "A", "status": "True", "reason": "R", "lastTransitionTime": "2020-01-01T00:00:00Z"});
        check(json!([good]), &[]);
        check(json!([good, good]), &["Duplicate c[1].type"]);
        check(
            json!([{"type": "", "status": "X", "reason": "1", "observedGeneration": -1}]),
            &[
                "Invalid c[0].type",
                "Invalid c[0].type",
                "NotSupported c[0].status",
                "Invalid c[0].observedGeneration",
                "Required c[0].lastTransitionTime",
                "Invalid c[0].reason",
            ],
        );
    }
}
