//! Path elements in their stored form: `f:name` for a field or a map's entry, `k:{"name":"c"}` for a list item by its
//! keys, `v:"x"` for an item of a set, `i:0`.

use serde_json::{Map, Value};

/// Encodes a struct field or a map entry.
pub(super) fn field(name: &str) -> String {
    let mut element = String::with_capacity(2 + name.len());
    element.push_str("f:");
    element.push_str(name);
    element
}

/// Encodes a list item by its key fields.
pub(super) fn key(fields: Map<String, Value>) -> String {
    format!("k:{}", Value::Object(fields))
}

/// Encodes an item of a set.
pub(super) fn value(item: &Value) -> String {
    format!("v:{item}")
}

/// Returns the name of a field element.
pub(super) fn field_name(element: &str) -> Option<&str> {
    element.strip_prefix("f:")
}

/// Returns the element as this server writes it; `None` if it is of an unknown type.
pub(super) fn canonical(element: &str) -> Option<String> {
    let (kind, rest) = element.split_once(':')?;
    match kind {
        "f" | "i" => Some(element.to_owned()),
        "k" => serde_json::from_str(rest).ok().map(key),
        "v" => serde_json::from_str(rest).ok().map(|item| value(&item)),
        _ => None,
    }
}

/// Whether an element looks as if written by this server, without parsing it.
pub(super) fn looks_canonical(element: &str) -> bool {
    match element.as_bytes() {
        [b'f' | b'i', b':', ..] => true,
        [b'k' | b'v', b':', ..] => !element.contains(['\\', ' ']),
        _ => false,
    }
}

/// Formats an element for messages: `.name`, `[name="c"]`, `[="x"]`, `[0]`.
pub(super) fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", fields)) => {
            let fields: Map<String, Value> = serde_json::from_str(fields).unwrap_or_default();
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", fields.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        Some((_, rest)) => format!("[{rest}]"),
        None => element.to_owned(),
    }
}
