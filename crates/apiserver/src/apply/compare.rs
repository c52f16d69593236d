//! Compares two objects of a type, field by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::{List, Struct};

use super::element;
use super::schema_node::{Merging, SchemaNode, entries, items};
use super::set::Set;

/// Managed fields themselves are not owned.
pub(super) const MANAGED_FIELDS: &str = "managedFields";

/// The fields that a change removes, modifies and adds. The sets are disjoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    pub(super) fn between(place: SchemaNode<'_>, old: &Value, new: &Value) -> Self {
        compare(place, Some(old), Some(new)).1
    }

    /// Compares without some fields and everything below them. Ignored parts of the object are skipped entirely.
    pub(super) fn between_ignoring(place: SchemaNode<'_>, old: &Value, new: &Value, ignored: &Set) -> Self {
        let (Merging::Struct(root), Value::Object(old), Value::Object(new)) = (place.merging(), old, new)
        else {
            return Self::between(place, old, new).without(ignored);
        };
        let is_looked_at = |name: &str| !ignored.view().has_field(name);
        compare_fields(place, root, Some(old), Some(new), is_looked_at).without(ignored)
    }

    pub(super) fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Encodes the change: equal changes have equal texts.
    pub(super) fn text(&self) -> String {
        let [removed, modified, added] = [&self.removed, &self.modified, &self.added].map(Set::text);
        format!("{removed}{modified}{added}")
    }

    fn without(self, ignored: &Set) -> Self {
        Self {
            removed: self.removed.without(ignored),
            modified: self.modified.without(ignored),
            added: self.added.without(ignored),
        }
    }

    /// Adds the result for an element and for what is below it.
    fn push(&mut self, element: impl Fn() -> String, mark: Mark, below: Self) {
        self.removed.push(&element, mark == Mark::Removed, below.removed);
        self.modified.push(&element, mark == Mark::Modified, below.modified);
        self.added.push(&element, mark == Mark::Added, below.added);
    }
}

/// The change to a field itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Kept,
    Removed,
    Modified,
    Added,
}

fn compare(place: SchemaNode<'_>, old: Option<&Value>, new: Option<&Value>) -> (Mark, Comparison) {
    if old == new {
        return (Mark::Kept, Comparison::default());
    }
    let below = match place.merging() {
        Merging::Struct(fields) => match (entries(old), entries(new)) {
            (None, None) => return (leaf(old, new), Comparison::default()),
            (old, new) => compare_fields(place, fields, old, new, |_| true),
        },
        Merging::Map => match (entries(old), entries(new)) {
            (None, None) => return (leaf(old, new), Comparison::default()),
            (old, new) => compare_entries(place, old, new),
        },
        Merging::Items(list) => match (items(old), items(new)) {
            (None, None) => return (leaf(old, new), Comparison::default()),
            (old, new) => compare_items(place, list, old.unwrap_or_default(), new.unwrap_or_default()),
        },
        Merging::Whole => return (leaf(old, new), Comparison::default()),
    };
    let mark = match (old, new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Kept,
    };
    (mark, below)
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Mark {
    match (old, new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        (Some(old), Some(new)) if old == new => Mark::Kept,
        _ => Mark::Modified,
    }
}

type Entries<'v> = Option<&'v Map<String, Value>>;

fn compare_fields(
    place: SchemaNode<'_>,
    fields: &Struct,
    old: Entries<'_>,
    new: Entries<'_>,
    is_looked_at: impl Fn(&str) -> bool,
) -> Comparison {
    let mut comparison = Comparison::default();
    for field in
        fields.fields.iter().filter(|field| &*field.name != MANAGED_FIELDS && is_looked_at(&field.name))
    {
        let (old, new) =
            (old.and_then(|old| old.get(&*field.name)), new.and_then(|new| new.get(&*field.name)));
        if old.is_some() || new.is_some() {
            let (mark, below) = compare(place.field(field), old, new);
            comparison.push(|| element::field(&field.name), mark, below);
        }
    }
    if fields.open {
        compare_undeclared(place, fields, old, new, is_looked_at, &mut comparison);
    }
    comparison
}

fn compare_undeclared(
    place: SchemaNode<'_>,
    fields: &Struct,
    old: Entries<'_>,
    new: Entries<'_>,
    is_looked_at: impl Fn(&str) -> bool,
    comparison: &mut Comparison,
) {
    for name in names_of(old, new) {
        if fields.field(name).is_none() && is_looked_at(name) {
            let (old, new) = (old.and_then(|old| old.get(name)), new.and_then(|new| new.get(name)));
            let (mark, below) = compare(place.named(name), old, new);
            comparison.push(|| element::field(name), mark, below);
        }
    }
}

fn names_of<'v>(old: Entries<'v>, new: Entries<'v>) -> Vec<&'v String> {
    let mut names: Vec<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
    names.sort();
    names.dedup();
    names
}

fn compare_entries(place: SchemaNode<'_>, old: Entries<'_>, new: Entries<'_>) -> Comparison {
    let mut comparison = Comparison::default();
    for name in names_of(old, new) {
        let (old, new) = (old.and_then(|old| old.get(name)), new.and_then(|new| new.get(name)));
        let (mark, below) = compare(place.named(name), old, new);
        comparison.push(|| element::field(name), mark, below);
    }
    comparison
}

/// Compares items with the same identity. If an identity occurs more than once, its items are compared as a whole.
fn compare_items(place: SchemaNode<'_>, list: &List, old: &[Value], new: &[Value]) -> Comparison {
    let mut by_identity: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(element) = place.identify(list, item) {
            by_identity.entry(element).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(element) = place.identify(list, item) {
            by_identity.entry(element).or_default().1.push(item);
        }
    }
    let place = place.item(list);
    let mut comparison = Comparison::default();
    for (element, (old, new)) in by_identity {
        let (mark, below) = match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => compare(place, old.first().copied(), new.first().copied()),
            ([_, _, ..], [_, _, ..]) if old == new => continue,
            ([_, _, ..], [_, _, ..]) => (Mark::Modified, Comparison::default()),
            ([_, _, ..], _) => (Mark::Removed, compare(place, None, new.first().copied()).1),
            (_, _) => (Mark::Added, compare(place, old.first().copied(), None).1),
        };
        comparison.push(|| element.clone(), mark, below);
    }
    comparison
}
