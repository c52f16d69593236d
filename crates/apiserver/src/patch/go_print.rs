//! Formats values as v1.34 prints them in a few messages: `map[image:x name:c]`, `[a b]`.

use std::fmt;

use serde_json::Value;

pub(super) struct GoPrint<'a>(pub &'a Value);

impl fmt::Display for GoPrint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(on) => write!(f, "{on}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{}", GoPrint(item))?;
                }
                f.write_str("]")
            }
            Value::Object(fields) => {
                f.write_str("map[")?;
                for (index, (key, value)) in fields.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{key}:{}", GoPrint(value))?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Returns the name of a value's type in the same messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
