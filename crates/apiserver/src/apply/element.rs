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
    format!("k:{}", written(&Value::Object(fields)))
}

/// Encodes an item of a set.
pub(super) fn value(item: &Value) -> String {
    format!("v:{}", written(item))
}

/// Encodes a value as v1.34 does in an element: with HTML characters escaped.
fn written(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(ESCAPED) && !plain.contains('\\') {
        return plain;
    }
    let mut escaped = String::with_capacity(plain.len() + 16);
    let mut letters = plain.chars();
    while let Some(letter) = letters.next() {
        match letter {
            letter if ESCAPED.contains(&letter) => escaped.push_str(&format!("\\u{:04x}", u32::from(letter))),
            '\\' => match letters.next() {
                Some('b') => escaped.push_str("\\u0008"),
                Some('f') => escaped.push_str("\\u000c"),
                next => {
                    escaped.push('\\');
                    escaped.extend(next);
                }
            },
            letter => escaped.push(letter),
        }
    }
    escaped
}

const ESCAPED: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];

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
        [b'k' | b'v', b':', ..] => !element.contains(['\\', ' ']) && !element.contains(ESCAPED),
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
        Some(("v", item)) => match serde_json::from_str::<Value>(item) {
            Ok(item) => format!("[={item}]"),
            Err(_) => format!("[={item}]"),
        },
        Some((_, rest)) => format!("[{rest}]"),
        None => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn html_characters_are_escaped() {
        for (item, expected) in [
            (json!("<&>"), r#"v:"\u003c\u0026\u003e""#),
            (json!("a\u{2028}\u{8}\n\\\"b"), r#"v:"a\u2028\u0008\n\\\"b""#),
            (json!("plain"), r#"v:"plain""#),
            (json!(3), "v:3"),
        ] {
            let element = value(&item);
            assert_eq!(element, expected);
            assert_eq!(canonical(&element).as_deref(), Some(expected));
        }
        let fields = json!({"k": "<&>"}).as_object().cloned().unwrap_or_default();
        let element = key(fields);
        assert_eq!(element, r#"k:{"k":"\u003c\u0026\u003e"}"#);
        assert_eq!(shown(&element), r#"[k="<&>"]"#);
        assert_eq!(shown(&value(&json!("<"))), r#"[="<"]"#);
        assert!(!looks_canonical(r#"v:"<""#), "text stored by earlier versions is parsed again");
        assert_eq!(canonical(r#"v:"<""#).as_deref(), Some(r#"v:"\u003c""#));
    }
}
