//! Reads and modifies JSON objects that have passed the schema check.
//!
//! Absent and null are the same, as in v1.34's decoder. A field of an unexpected type reads as absent, because the
//! schema check has already rejected it.

use serde_json::{Map, Value};

/// Concise field access: absent fields read as null, empty or nothing.
pub trait Json {
    fn at(&self, field: &str) -> &Value;
    fn text(&self, field: &str) -> &str;
    fn list(&self, field: &str) -> &[Value];
    fn map(&self, field: &str) -> Option<&Map<String, Value>>;
    fn int(&self, field: &str) -> Option<i64>;
    fn boolean(&self, field: &str) -> Option<bool>;

    /// Whether the field is present and not null.
    fn has(&self, field: &str) -> bool {
        !self.at(field).is_null()
    }

    /// Whether the field is `true`.
    fn flag(&self, field: &str) -> bool {
        self.boolean(field) == Some(true)
    }

    /// Returns the number, or zero.
    fn count(&self, field: &str) -> i64 {
        self.int(field).unwrap_or(0)
    }
}

impl Json for Value {
    fn at(&self, field: &str) -> &Value {
        match self {
            Value::Object(map) => map.get(field).unwrap_or(&Value::Null),
            _ => &Value::Null,
        }
    }

    fn text(&self, field: &str) -> &str {
        self.at(field).as_str().unwrap_or_default()
    }

    fn list(&self, field: &str) -> &[Value] {
        self.at(field).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn map(&self, field: &str) -> Option<&Map<String, Value>> {
        self.at(field).as_object()
    }

    fn int(&self, field: &str) -> Option<i64> {
        self.at(field).as_i64()
    }

    fn boolean(&self, field: &str) -> Option<bool> {
        self.at(field).as_bool()
    }
}

/// Returns the nesting depth of a value; zero for a scalar.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Counts the values in a value, including itself.
pub(crate) fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

/// Field modification.
pub trait JsonMut {
    /// Returns the field, if present and not null.
    fn at_mut(&mut self, field: &str) -> Option<&mut Value>;
    /// Returns the elements of a list, or none.
    fn list_mut(&mut self, field: &str) -> &mut [Value];
    /// Returns the field as an object, created if absent.
    fn object_mut(&mut self, field: &str) -> &mut Value;
    /// Sets the field if it is absent or null.
    fn or_insert(&mut self, field: &str, value: impl Into<Value>);
    /// Sets the text if the field is absent or empty: v1.34's strings have no null.
    fn or_text(&mut self, field: &str, text: &str);
    /// Sets the number if the field is absent or zero: v1.34's plain numbers have no null.
    fn or_int(&mut self, field: &str, number: i64);
    fn set(&mut self, field: &str, value: impl Into<Value>);
    fn unset(&mut self, field: &str) -> Option<Value>;
    /// Restores the field from `old`; removes it if it is absent there.
    fn restore(&mut self, field: &str, old: &Value);
}

impl JsonMut for Value {
    fn at_mut(&mut self, field: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(field).filter(|value| !value.is_null())
    }

    fn list_mut(&mut self, field: &str) -> &mut [Value] {
        match self.at_mut(field) {
            Some(Value::Array(list)) => list,
            _ => &mut [],
        }
    }

    fn object_mut(&mut self, field: &str) -> &mut Value {
        let map = as_map(self);
        let value = match map.contains_key(field) {
            true => map.get_mut(field).expect("the key was just seen"),
            false => map.entry(field).or_insert(Value::Null),
        };
        as_map(value);
        value
    }

    fn or_insert(&mut self, field: &str, value: impl Into<Value>) {
        if !self.has(field) {
            self.set(field, value);
        }
    }

    fn or_text(&mut self, field: &str, text: &str) {
        if self.text(field).is_empty() {
            self.set(field, text);
        }
    }

    fn or_int(&mut self, field: &str, number: i64) {
        if self.count(field) == 0 {
            self.set(field, number);
        }
    }

    fn set(&mut self, field: &str, value: impl Into<Value>) {
        let map = as_map(self);
        match map.get_mut(field) {
            Some(slot) => *slot = value.into(),
            None => _ = map.insert(field.to_owned(), value.into()),
        }
    }

    fn unset(&mut self, field: &str) -> Option<Value> {
        self.as_object_mut()?.remove(field)
    }

    fn restore(&mut self, field: &str, old: &Value) {
        match old.get(field) {
            None => _ = self.unset(field),
            Some(value) if self.get(field) == Some(value) => {}
            Some(value) => self.set(field, value.clone()),
        }
    }
}

/// Returns the map, replacing any other value by an empty one.
fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_and_null_fields_read_as_empty() {
        let object = json!({"a": null, "n": 3});
        assert_eq!(object.text("a"), "");
        assert_eq!(object.list("b"), &[] as &[Value]);
        assert!(!object.has("a"));
        assert_eq!(object.count("n"), 3);
        assert_eq!(Value::Null.at("x").at("y"), &Value::Null);
    }

    #[test]
    fn restore_resets_a_field_to_its_old_value() {
        let old = json!({"status": {"a": 1}});
        let mut new = json!({"status": {"b": 2}, "spec": 1});
        new.restore("status", &old);
        new.restore("spec", &old);
        assert_eq!(new, old);
    }
}
