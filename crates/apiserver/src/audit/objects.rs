//! Objects in events: JSON on one line, with or without managed fields.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::codec::{document_bytes, to_bytes};
use crate::schema::yaml;

/// Encodes an object, or a list or table of objects.
pub(super) fn encoded(object: &Value, omit_managed_fields: bool) -> Option<Box<RawValue>> {
    if !omit_managed_fields {
        return raw(document_bytes(object).to_vec());
    }
    let mut object = object.clone();
    remove_managed_fields(&mut object);
    raw(document_bytes(&object).to_vec())
}

/// Converts an object that is already encoded.
pub(super) fn of_bytes(bytes: &[u8], omit_managed_fields: bool) -> Option<Box<RawValue>> {
    if omit_managed_fields {
        return encoded(&serde_json::from_slice(bytes).ok()?, true);
    }
    raw(on_one_line(bytes))
}

/// Converts a patch, as sent. YAML becomes JSON; anything else becomes a string, so that the event stays valid.
pub(super) fn of_patch(patch: &[u8]) -> Option<Box<RawValue>> {
    if serde_json::from_slice::<&RawValue>(patch).is_ok() {
        return raw(on_one_line(patch));
    }
    let value = yaml::to_value(patch).ok().filter(Value::is_object);
    let value = value.unwrap_or_else(|| String::from_utf8_lossy(patch).into());
    raw(to_bytes(&value).to_vec())
}

fn raw(json: Vec<u8>) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(json).ok()?).ok()
}

/// Removes line breaks from JSON. They only occur between tokens: inside strings they are escaped.
fn on_one_line(json: &[u8]) -> Vec<u8> {
    json.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r' | b'\t')).collect()
}

fn remove_managed_fields(object: &mut Value) {
    remove_own(object);
    let rows = object.get_mut("rows").and_then(Value::as_array_mut);
    for row in rows.into_iter().flatten() {
        row.get_mut("object").into_iter().for_each(remove_own);
    }
    let items = object.get_mut("items").and_then(Value::as_array_mut);
    items.into_iter().flatten().for_each(remove_own);
}

fn remove_own(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managed_fields_are_left_out_of_objects_lists_and_tables() {
        let object = json!({"kind": "A", "metadata": {"name": "a", "managedFields": [1]}, "data": {}});
        let text = |value: &Value, omit| encoded(value, omit).unwrap().get().to_owned();
        assert_eq!(text(&object, true), r#"{"data":{},"kind":"A","metadata":{"name":"a"}}"#);
        assert!(text(&object, false).contains("managedFields"));
        let list = json!({"items": [object], "rows": [{"object": object}, {"object": null}]});
        assert!(!text(&list, true).contains("managedFields"));
    }

    #[test]
    fn a_recorded_patch_is_one_line_of_json() {
        for (patch, expected) in [
            ("{\"a\":\n 1}", r#"{"a": 1}"#),
            ("[{\"op\":\"test\"}]", r#"[{"op":"test"}]"#),
            ("a:\n  b: c\n", r#"{"a":{"b":"c"}}"#),
            ("not\nJSON", r#""not\nJSON""#),
            ("{\"a\": \"\\n\"}", r#"{"a": "\n"}"#),
        ] {
            assert_eq!(of_patch(patch.as_bytes()).unwrap().get(), expected, "{patch}");
        }
    }
}
