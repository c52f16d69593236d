//! Merges one object into another.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::schema::List;

use super::schema_node::{Merging, SchemaNode, entries, items};

/// Returns the union of both; if both have a leaf, `over` wins.
pub(super) fn merge(place: SchemaNode<'_>, under: &Value, over: &Value) -> Value {
    merged(place, Some(under), Some(over)).unwrap_or_default()
}

fn merged(place: SchemaNode<'_>, under: Option<&Value>, over: Option<&Value>) -> Option<Value> {
    match place.merging() {
        Merging::Struct(_) | Merging::Map => match (entries(under), entries(over)) {
            (None, None) => over.or(under).cloned(),
            // A non-object replaces an object.
            (Some(_), None) if over.is_some_and(|over| !over.is_null() && !over.is_object()) => over.cloned(),
            (under, over) => merge_entries(place, under, over),
        },
        Merging::Items(list) => match (items(under), items(over)) {
            (None, None) => over.or(under).cloned(),
            (under, over) => {
                let merged = merge_items(place, list, under.unwrap_or_default(), over.unwrap_or_default());
                (!merged.is_empty()).then_some(Value::Array(merged))
            }
        },
        Merging::Whole => over.or(under).cloned(),
    }
}

fn merge_entries(
    place: SchemaNode<'_>,
    under: Option<&Map<String, Value>>,
    over: Option<&Map<String, Value>>,
) -> Option<Value> {
    let mut result = Map::new();
    let names = under.into_iter().chain(over).flat_map(Map::keys);
    for name in names {
        if result.contains_key(name) {
            continue;
        }
        let (under, over) = (under.and_then(|under| under.get(name)), over.and_then(|over| over.get(name)));
        if let Some(value) = merged(place.named(name), under, over) {
            result.insert(name.clone(), value);
        }
    }
    (!result.is_empty()).then_some(Value::Object(result))
}

/// List items by identity. A repeated item is not merged with its counterpart.
struct Indexed<'v> {
    order: Vec<String>,
    by_identity: BTreeMap<String, Option<&'v Value>>,
}

impl<'v> Indexed<'v> {
    fn new(place: SchemaNode<'_>, list: &List, items: &'v [Value]) -> Self {
        let mut indexed = Self { order: Vec::with_capacity(items.len()), by_identity: BTreeMap::new() };
        for item in items {
            let Ok(element) = place.identify(list, item) else { continue };
            indexed
                .by_identity
                .entry(element.clone())
                .and_modify(|found| *found = None)
                .or_insert(Some(item));
            indexed.order.push(element);
        }
        indexed
    }

    fn has(&self, element: &str) -> bool {
        self.by_identity.contains_key(element)
    }

    fn get(&self, element: &str) -> Option<&'v Value> {
        self.by_identity.get(element).copied().flatten()
    }
}

/// Merges the items of two lists. They are in the order of `over`; those only in `under` keep their position between
/// the shared ones.
fn merge_items(place: SchemaNode<'_>, list: &List, under: &[Value], over: &[Value]) -> Vec<Value> {
    let (left, right) = (Indexed::new(place, list, under), Indexed::new(place, list, over));
    let mut shared = right.order.iter().filter(|element| left.has(element)).peekable();
    let mut done: BTreeSet<&String> = BTreeSet::new();
    let mut result = Vec::with_capacity(under.len().max(over.len()));
    let item = place.item(list);
    let (mut l, mut r) = (0, 0);
    while l < left.order.len() || r < right.order.len() {
        if let (Some(a), Some(b)) = (left.order.get(l), right.order.get(r)) {
            if a == b {
                result.extend(merged(item, left.get(a), right.get(a)));
                done.insert(a);
                (l, r) = (l + 1, r + 1);
                shared.next();
                continue;
            }
            if right.has(a) && shared.peek().is_some_and(|next| *next != a) {
                // Shared, but not the next shared one.
                l += 1;
                continue;
            }
        }
        if let Some(a) = left.order.get(l) {
            if !right.has(a) {
                result.extend(merged(item, Some(&under[l]), None));
                l += 1;
                continue;
            }
            if done.contains(a) {
                l += 1;
            }
        }
        if let Some(b) = right.order.get(r) {
            result.extend(merged(item, left.get(b), right.get(b)));
            done.insert(b);
            r += 1;
            if shared.peek() == Some(&b) {
                shared.next();
            }
        }
    }
    result
}
