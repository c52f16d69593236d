//! Go types of v1.34 whose objects appear in messages as a whole.
//!
//! `types.txt` has their fields in order of declaration. A type is a name, followed by a line for each field: its Go name
//! and type. After `=` is its name in the API, if that is not the Go name with its first letter in lower case. `+` embeds
//! the fields of another type. `?` marks a field that is omitted if it is empty.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::escaped;
use crate::json::Json;

const TEXT: &str = include_str!("types.txt");

/// Members beyond this are left out. An empty item of a list may take a thousand bytes, so a request of 3 MiB would take
/// gigabytes. Messages show far less. The last member may exceed it by its own text: at most six bytes for each byte of the
/// request, as `\u003c`.
const MAX_BYTES: usize = 1 << 20;

static TYPES: LazyLock<BTreeMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let mut types = BTreeMap::new();
    let mut fields: &mut Vec<Field> = &mut Vec::new();
    for line in TEXT.lines() {
        match line.strip_prefix(' ') {
            None => fields = types.entry(line).or_default(),
            Some(field) => fields.push(Field::parse(field)),
        }
    }
    types
});

struct Field {
    /// Empty if the type of this field is embedded.
    name: &'static str,
    /// Its name in the API; empty for the fields of the object itself.
    json: String,
    shape: &'static str,
    omits_empty: bool,
}

impl Field {
    fn parse(line: &'static str) -> Self {
        if let Some(embedded) = line.strip_prefix('+') {
            let (shape, json) = embedded.split_once('=').unwrap_or((embedded, ""));
            return Self { name: "", json: json.to_owned(), shape, omits_empty: false };
        }
        let (names, shape) = line.split_once(' ').unwrap_or((line, ""));
        let (name, json) = names.split_once('=').unwrap_or((names, ""));
        let json = if json.is_empty() { lower_first(name) } else { json.to_owned() };
        let omits_empty = shape.ends_with('?');
        Self { name, json, shape: shape.trim_end_matches('?'), omits_empty }
    }

    fn of<'a>(&self, object: &'a Value) -> &'a Value {
        if self.json.is_empty() { object } else { object.at(&self.json) }
    }
}

fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

/// Formats an object of a type as Go's JSON encoder does, indented by one space.
pub(crate) fn pretty(shape: &str, object: &Value) -> String {
    let mut text = String::new();
    write(&mut text, shape, object, 0);
    text
}

fn write(into: &mut String, shape: &str, value: &Value, depth: usize) {
    if let Some(target) = shape.strip_prefix('*').filter(|_| !value.is_null()) {
        return write(into, target, value, depth);
    }
    let (items, members) = (value.as_array(), value.as_object());
    match (shape.strip_prefix("[]"), shape) {
        (Some(item), _) if items.is_some() => {
            let items = items.into_iter().flatten().map(|value| (None, item, value));
            write_all(into, ['[', ']'], items, depth);
        }
        (None, "map") if members.is_some() => {
            let members = members.into_iter().flatten();
            let members = members.map(|(name, value)| (Some(name.as_str()), "string", value));
            write_all(into, ['{', '}'], members, depth);
        }
        (None, shape) if TYPES.contains_key(shape) => {
            write_all(into, ['{', '}'], fields(shape, value), depth);
        }
        (None, shape) => into.push_str(&scalar(shape, value)),
        _ => into.push_str("null"),
    }
}

/// Returns the fields of an object, embedded ones included: name, shape and value.
fn fields<'a>(shape: &str, object: &'a Value) -> Vec<(Option<&'a str>, &'a str, &'a Value)> {
    let declared = TYPES.get(shape).into_iter().flatten();
    let shown = declared.filter(|field| !field.omits_empty || !is_empty(field.of(object)));
    shown
        .flat_map(|field| match field.name {
            "" => fields(field.shape, field.of(object)),
            name => vec![(Some(name), field.shape, field.of(object))],
        })
        .collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        value => value.is_null(),
    }
}

fn write_all<'a>(
    into: &mut String,
    [open, close]: [char; 2],
    members: impl IntoIterator<Item = (Option<&'a str>, &'a str, &'a Value)>,
    depth: usize,
) {
    into.push(open);
    let mut is_empty = true;
    for (name, shape, value) in members {
        if into.len() > MAX_BYTES {
            break;
        }
        into.push_str(if std::mem::take(&mut is_empty) { "\n" } else { ",\n" });
        into.extend(std::iter::repeat_n(' ', depth + 1));
        if let Some(name) = name {
            into.push_str(&escaped(&Value::from(name).to_string()));
            into.push_str(": ");
        }
        write(into, shape, value, depth + 1);
    }
    if !is_empty {
        into.push('\n');
        into.extend(std::iter::repeat_n(' ', depth));
    }
    into.push(close);
}

fn scalar(shape: &str, value: &Value) -> String {
    match (shape, value) {
        ("string", Value::Null) => r#""""#.to_owned(),
        ("quantity", Value::Null) => r#""0""#.to_owned(),
        ("int" | "int-or-string", Value::Null) => "0".to_owned(),
        ("bool", Value::Null) => "false".to_owned(),
        (_, value) => escaped(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SCALARS: [&str; 7] = ["string", "quantity", "int", "int-or-string", "bool", "time", "map"];

    #[test]
    fn every_type_of_a_field_is_known() {
        for (name, fields) in &*TYPES {
            for field in fields {
                let shape = field.shape.trim_start_matches(['*', '[', ']']);
                assert!(SCALARS.contains(&shape) || TYPES.contains_key(shape), "{name}: {shape}");
            }
        }
    }

    #[test]
    fn all_fields_are_shown_in_order_with_embedded_ones_in_place() {
        let source = json!({"name": "v", "emptyDir": {"medium": "<"}});
        let text = pretty("Volume", &source);
        assert!(text.starts_with("{\n \"Name\": \"v\",\n \"HostPath\": null,\n \"EmptyDir\": {\n"), "{text}");
        assert!(text.contains("  \"Medium\": \"\\u003c\",\n  \"SizeLimit\": null\n },\n"), "{text}");
        let term = json!({"matchExpressions": [{"key": "k", "values": ["a"]}], "matchFields": []});
        assert_eq!(
            pretty("NodeSelectorTerm", &term),
            "{\n \"MatchExpressions\": [\n  {\n   \"Key\": \"k\",\n   \"Operator\": \"\",\n   \"Values\": [\n    \"a\"\n   ]\n  }\n \
             ],\n \"MatchFields\": []\n}"
        );
    }

    #[test]
    fn types_with_names_of_their_own_keep_them() {
        let template =
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"selector": {"matchLabels": {"b": "2"}}}});
        let text = pretty("PersistentVolumeClaimTemplate", &template);
        assert!(text.starts_with("{\n \"labels\": {\n  \"a\": \"1\"\n },\n \"Spec\": {\n"), "{text}");
        assert!(
            text.contains("\"Selector\": {\n   \"matchLabels\": {\n    \"b\": \"2\"\n   }\n  },"),
            "{text}"
        );
    }

    #[test]
    fn the_text_of_a_huge_object_is_bounded() {
        let spec = json!({"containers": vec![json!({}); 300_000], "nodeName": "n"});
        let text = pretty("PodSpec", &spec);
        assert!((MAX_BYTES..MAX_BYTES + 2_000).contains(&text.len()), "{}", text.len());
        assert!(text.ends_with("\n  }\n ]\n}"), "what was opened is closed: {:?}", &text[text.len() - 40..]);
    }
}
