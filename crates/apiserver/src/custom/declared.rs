//! Converts a schema to CEL types with size estimates.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::props::Props;
use crate::cel::escape::escape;
use crate::cel::{Declared, Identity, Object, Type};

/// Maximum size of a request, and so of any value in it.
pub(crate) const REQUEST_BYTES: u64 = 3 << 20;

/// Returns the CEL type of a schema; `None` if expressions cannot access it.
pub(crate) fn of(schema: &Props, is_resource: bool) -> Option<Declared> {
    if schema.int_or_string {
        let longest =
            schema.max_length.map_or(REQUEST_BYTES - 2, |longest| natural(longest).saturating_mul(4));
        return Some(sized(Type::Dyn, longest, 1));
    }
    let with_meta;
    let schema = match is_resource {
        true => {
            with_meta = with_metadata(schema);
            &with_meta
        }
        false => schema,
    };
    match schema.ty.as_str() {
        "array" => list(schema),
        "object" => object(schema),
        "string" => Some(text(schema)),
        "boolean" => Some(sized(Type::Bool, 0, 4)),
        "number" => Some(sized(Type::Double, 0, 1)),
        "integer" => Some(sized(Type::Int, 0, 1)),
        _ => None,
    }
}

/// Builds a declaration. Values other than lists, maps and strings have no elements: comparing them costs next to
/// nothing.
fn sized(ty: Type, max_elements: u64, min_size: u64) -> Declared {
    Declared { max_elements, min_size, ..Declared::plain(ty) }
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Adds the kind, version and name that every resource has, unless the schema declares all of them.
fn with_metadata(schema: &Props) -> Props {
    let is = |of: &Props, name: &str, ty: &str| of.properties.get(name).is_some_and(|found| found.ty == ty);
    let says_all = ["kind", "apiVersion"].iter().all(|name| is(schema, name, "string"))
        && is(schema, "metadata", "object")
        && ["name", "generateName"].iter().all(|name| is(&schema.properties["metadata"], name, "string"));
    if says_all {
        return schema.clone();
    }
    let of = |ty: &str| Props { ty: ty.into(), ..Props::default() };
    let mut schema = schema.clone();
    let names = ["name", "generateName"].map(|name| (name.to_owned(), of("string")));
    let metadata = Props { properties: BTreeMap::from(names), ..of("object") };
    for (name, property) in [("kind", of("string")), ("apiVersion", of("string")), ("metadata", metadata)] {
        schema.properties.insert(name.into(), property);
    }
    schema
}

fn list(schema: &Props) -> Option<Declared> {
    let item = schema.item()?;
    let element = of(item, item.embedded_resource)?;
    let longest = schema.max_items.map_or((REQUEST_BYTES - 2) / (element.min_size + 1), natural);
    let identity = match schema.list_type.as_deref() {
        Some("set") => Identity::Whole,
        Some("map") => Identity::Keys(schema.list_map_keys.iter().filter_map(|key| escape(key)).collect()),
        _ => Identity::Position,
    };
    let ty = Type::list(element.ty.clone());
    Some(Declared { element: Some(Arc::new(element)), identity, ..sized(ty, longest, 2) })
}

fn object(schema: &Props) -> Option<Declared> {
    if let Some(additional) = schema.additional() {
        let element = of(additional, additional.embedded_resource)?;
        let most = schema.max_properties.map_or((REQUEST_BYTES - 2) / (element.min_size + 6), natural);
        let ty = Type::map(Type::String, element.ty.clone());
        return Some(Declared { element: Some(Arc::new(element)), ..sized(ty, most, 2) });
    }
    let mut min_size = 2;
    let mut fields = BTreeMap::new();
    for (name, property) in &schema.properties {
        let Some(field) = of(property, property.embedded_resource) else { continue };
        if schema.required.contains(name) && property.default.is_none() {
            min_size += name.len() as u64 + field.min_size + 4;
        }
        if let Some(escaped) = escape(name) {
            fields.insert(escaped, field);
        }
    }
    let ty = Type::Object(Arc::new(Object { name: "object".into(), fields }));
    Some(sized(ty, 0, min_size))
}

fn text(schema: &Props) -> Declared {
    match schema.format.as_str() {
        "byte" => sized(Type::Bytes, schema.max_length.map_or(REQUEST_BYTES - 2, natural), 2),
        "duration" => sized(Type::Duration, 32, 3),
        "date" => sized(Type::Timestamp, 12, 12),
        "date-time" => sized(Type::Timestamp, 32, 21),
        _ => {
            let longest_value = schema.values.iter().filter_map(|value| value.as_str().map(str::len)).max();
            let longest = match (schema.max_length, longest_value) {
                (Some(longest), _) => natural(longest).saturating_mul(4),
                (None, _) if schema.values.is_empty() => REQUEST_BYTES - 2,
                (None, longest) => longest.unwrap_or(0) as u64,
            };
            sized(Type::String, longest, 2)
        }
    }
}
