//! One step of the path to a field, in the form that stored field sets have: `f:name` for a field or a
//! map's entry, `k:{"name":"c"}` for an item of a list by its keys, `v:"x"` for an item of a set, `i:0`.

use serde_json::{Map, Value};

/// A field of a struct, or an entry of a map.
pub(super) fn field(name: &str) -> String {
    let mut element = String::with_capacity(2 + name.len());
    element.push_str("f:");
    element.push_str(name);
    element
}

/// An item of a list of objects, by the fields that identify it.
pub(super) fn key(fields: Map<String, Value>) -> String {
    format!("k:{}", Value::Object(fields))
}

/// An item of a set.
pub(super) fn value(item: &Value) -> String {
    format!("v:{item}")
}

/// The name of a field.
pub(super) fn field_name(element: &str) -> Option<&str> {
    element.strip_prefix("f:")
}

/// The same element as this server writes it; none for one of a kind that is not known.
pub(super) fn canonical(element: &str) -> Option<String> {
    let (kind, rest) = element.split_once(':')?;
    match kind {
        "f" | "i" => Some(element.to_owned()),
        "k" => serde_json::from_str(rest).ok().map(key),
        "v" => serde_json::from_str(rest).ok().map(|item| value(&item)),
        _ => None,
    }
}

/// Whether an element is written as this server does, as far as that can be seen without reading it.
pub(super) fn looks_canonical(element: &str) -> bool {
    match element.as_bytes() {
        [b'f' | b'i', b':', ..] => true,
        [b'k' | b'v', b':', ..] => !element.contains(['\\', ' ']),
        _ => false,
    }
}

/// As messages write it: `.name`, `[name="c"]`, `[="x"]`, `[0]`.
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
