//! Describes changes to an object, for messages that reject an update.

use std::fmt::Write;

use serde_json::Value;

/// Returns one line for each removed (`-`) or added (`+`) value.
pub fn difference(old: &Value, new: &Value) -> String {
    let mut lines = String::new();
    walk(old, new, &mut String::new(), &mut lines);
    lines
}

fn walk(old: &Value, new: &Value, path: &mut String, lines: &mut String) {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(added) {
                let length = path.len();
                _ = write!(path, ".{key}");
                walk(&old[key], &new[key], path, lines);
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for index in 0..before.len().max(after.len()) {
                let length = path.len();
                _ = write!(path, "[{index}]");
                walk(&old[index], &new[index], path, lines);
                path.truncate(length);
            }
        }
        (old, new) => {
            let path = path.trim_start_matches('.');
            for (sign, value) in [('-', old), ('+', new)] {
                if !value.is_null() {
                    _ = writeln!(lines, "{sign} {path}: {value}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_changed_value_has_its_line() {
        let old = json!({"a": [1, 2], "b": {"c": "x"}, "d": true});
        let new = json!({"a": [1, 3, 4], "b": {"c": "x"}, "e": {}});
        assert_eq!(difference(&old, &new), "- a[1]: 2\n+ a[1]: 3\n+ a[2]: 4\n- d: true\n+ e: {}\n");
    }
}
