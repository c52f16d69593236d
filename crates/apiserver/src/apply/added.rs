//! Encodes the fields of a new object in stored form, without building a set.
//!
//! The result is what [`Comparison`](super::compare::Comparison) finds between an empty object and this one, without
//! the ignored and server-owned fields. Most written objects are new, and most new ones have the same fields as an
//! earlier one.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::List;

use super::compare::MANAGED_FIELDS;
use super::element;
use super::schema_node::{Merging, SchemaNode, entries, items};
use super::set::View;

/// The fields to leave out, at one place in the object.
#[derive(Clone, Copy)]
pub(super) struct ExcludedFields<'s> {
    /// Left out with everything below.
    pub(super) ignored: Option<View<'s>>,
    /// Left out by themselves only.
    pub(super) server: Option<View<'s>>,
}

impl<'s> ExcludedFields<'s> {
    const NOTHING: ExcludedFields<'static> = ExcludedFields { ignored: None, server: None };

    /// Returns the exclusions below a field; `None` if the whole field is excluded.
    fn below(self, name: &str) -> Option<Self> {
        let (is_ignored, ignored) = step(self.ignored, name);
        let (_, server) = step(self.server, name);
        (!is_ignored).then_some(Self { ignored, server })
    }

    fn is_server_managed(self, name: &str) -> bool {
        self.server.is_some_and(|server| server.has_field(name))
    }
}

fn step<'s>(set: Option<View<'s>>, name: &str) -> (bool, Option<View<'s>>) {
    match set {
        Some(set) => (set.has_field(name), set.below_field(name)),
        None => (false, None),
    }
}

/// Appends the fields that `object` has and `empty` does not. Returns false, and appends nothing, if there are none.
pub(super) fn write(
    out: &mut Vec<u8>,
    place: SchemaNode<'_>,
    empty: &Value,
    object: &Value,
    left: ExcludedFields<'_>,
) -> bool {
    node(out, place, Some(empty), object, left, false)
}

/// Appends the node of a field: `{}` for a member, and what is below it.
fn node(
    out: &mut Vec<u8>,
    place: SchemaNode<'_>,
    old: Option<&Value>,
    new: &Value,
    left: ExcludedFields<'_>,
    is_server_managed: bool,
) -> bool {
    if old == Some(new) {
        return false;
    }
    let start = out.len();
    out.push(b'{');
    let is_member = (old.is_none() || is_leaf(place, old, new)) && !is_server_managed;
    if is_member {
        out.extend_from_slice(b"\".\":{},");
    }
    let children = out.len();
    match place.merging() {
        Merging::Struct(_) | Merging::Map => fields(out, place, entries(old), entries(Some(new)), left),
        Merging::Items(list) => write_items(out, place, list, items(Some(new)).unwrap_or_default()),
        Merging::Whole => {}
    }
    if out.len() > children {
        // The trailing comma.
        out.pop();
    } else {
        out.truncate(start + 1);
    }
    out.push(b'}');
    let is_useful = is_member || out.len() > start + 2;
    if !is_useful {
        out.truncate(start);
    }
    is_useful
}

/// Whether a field that already existed differs as a whole.
fn is_leaf(place: SchemaNode<'_>, old: Option<&Value>, new: &Value) -> bool {
    match place.merging() {
        Merging::Struct(_) | Merging::Map => entries(old).is_none() && entries(Some(new)).is_none(),
        Merging::Items(_) => items(old).is_none() && items(Some(new)).is_none(),
        Merging::Whole => true,
    }
}

type Entries<'v> = Option<&'v Map<String, Value>>;

fn fields(
    out: &mut Vec<u8>,
    place: SchemaNode<'_>,
    old: Entries<'_>,
    new: Entries<'_>,
    left: ExcludedFields<'_>,
) {
    for (name, value) in new.into_iter().flatten() {
        let below = match place.merging() {
            Merging::Struct(fields) => match fields.field(name) {
                Some(_) if name == MANAGED_FIELDS => continue,
                Some(field) => place.field(field),
                None if fields.open => place.named(name),
                None => continue,
            },
            _ => place.named(name),
        };
        let Some(left_below) = left.below(name) else { continue };
        let start = out.len();
        write_field(out, name);
        let old = old.and_then(|old| old.get(name));
        close(out, start, |out| node(out, below, old, value, left_below, left.is_server_managed(name)));
    }
}

/// Writes all items: an empty object has none.
fn write_items(out: &mut Vec<u8>, place: SchemaNode<'_>, list: &List, new: &[Value]) {
    let mut by_identity: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in new {
        if let Ok(element) = place.identify(list, item) {
            by_identity.entry(element).or_default().push(item);
        }
    }
    let place = place.item(list);
    for (element, items) in by_identity {
        let start = out.len();
        write_text(out, &element);
        close(out, start, |out| match items.as_slice() {
            [item] => node(out, place, None, item, ExcludedFields::NOTHING, false),
            _ => {
                out.extend_from_slice(b"{}");
                true
            }
        });
    }
}

/// Appends `:`, a node and a comma after an element, or removes the element if the node is empty.
fn close(out: &mut Vec<u8>, start: usize, node: impl FnOnce(&mut Vec<u8>) -> bool) {
    out.push(b':');
    if node(out) {
        out.push(b',');
    } else {
        out.truncate(start);
    }
}

fn write_field(out: &mut Vec<u8>, name: &str) {
    let is_plain = name.bytes().all(|byte| byte >= 0x20 && !matches!(byte, b'"' | b'\\'));
    if !is_plain {
        return write_text(out, &element::field(name));
    }
    out.extend_from_slice(b"\"f:");
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail.
    let _ = serde_json::to_writer(out, text);
}
