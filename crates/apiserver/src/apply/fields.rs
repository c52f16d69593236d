//! Computes the set of fields that an object has.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::List;

use super::element;
use super::schema_node::{Merging, SchemaNode, items};
use super::set::Set;

pub(super) fn fields_of(place: SchemaNode<'_>, object: &Value) -> Set {
    walk(place, object).1
}

/// Returns whether a value is a member itself, and the fields below it.
fn walk(place: SchemaNode<'_>, value: &Value) -> (bool, Set) {
    match place.merging() {
        Merging::Struct(_) | Merging::Map => match value {
            Value::Object(fields) => (false, entries_of(place, fields)),
            Value::Null => (false, Set::default()),
            // Untyped values may be anything.
            _ => (true, Set::default()),
        },
        Merging::Items(list) => (false, items_of(place, list, items(Some(value)).unwrap_or_default())),
        Merging::Whole => (true, Set::default()),
    }
}

/// Collects the entries. Map entries are always members, struct fields only if nothing is below them.
fn entries_of(place: SchemaNode<'_>, fields: &Map<String, Value>) -> Set {
    let mut set = Set::default();
    for (name, value) in fields {
        let (member, below) = walk(place.named(name), value);
        let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        set.push(|| element::field(name), member || is_empty || !place.declares(name), below);
    }
    set
}

/// Collects the items. Items with a repeated identity are members without anything below.
fn items_of(place: SchemaNode<'_>, list: &List, items: &[Value]) -> Set {
    let mut by_identity: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = place.identify(list, item) {
            by_identity.entry(element).or_default().push(item);
        }
    }
    let mut set = Set::default();
    for (element, items) in by_identity {
        let below = match items.as_slice() {
            [item] => walk(place.item(list), item).1,
            _ => Set::default(),
        };
        set.push(|| element, true, below);
    }
    set
}
