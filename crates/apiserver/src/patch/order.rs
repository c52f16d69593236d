//! The order of a merged list: items of the patch in the patch's order, the others in the order they
//! had, and an item that was before another on the server stays before it where both orders allow.

use serde_json::Value;

use super::PatchError;
use super::strategic::{bad_type, no_merge_key};

/// An item of a list with what identifies it.
pub(super) struct Keyed {
    id: Value,
    item: Value,
}

impl Keyed {
    /// Objects are identified by a field that each must have.
    pub(super) fn of(items: Vec<Value>, key: &str) -> Result<Vec<Self>, PatchError> {
        items
            .into_iter()
            .map(|item| {
                let object = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", &item))?;
                let id = object.get(key).ok_or_else(|| no_merge_key(object, key))?.clone();
                Ok(Self { id, item })
            })
            .collect()
    }

    /// Scalars identify themselves.
    pub(super) fn scalars(items: Vec<Value>) -> Vec<Self> {
        items.into_iter().map(|item| Self { id: item.clone(), item }).collect()
    }
}

/// What identifies the items of a list, in order; items without the key are left out.
pub(super) fn keys(items: &[Value], key: &str) -> Vec<Value> {
    items.iter().filter_map(|item| item.get(key).cloned()).collect()
}

/// Puts merged items in order, given the order of the patch and the one on the server.
pub(super) fn settle(merged: Vec<Keyed>, patch: &[Value], server: &[Value]) -> Vec<Value> {
    let (mut of_patch, mut of_server): (Vec<_>, Vec<_>) =
        merged.into_iter().partition(|keyed| patch.contains(&keyed.id));
    of_patch.sort_by_key(|keyed| place(patch, &keyed.id));
    of_server.sort_by_key(|keyed| place(server, &keyed.id));
    interleave(of_server, of_patch, server)
}

fn place(order: &[Value], id: &Value) -> Option<usize> {
    order.iter().position(|other| other == id)
}

/// Patch items come as early as they can, but not before server items that the server had first.
fn interleave(of_server: Vec<Keyed>, of_patch: Vec<Keyed>, server: &[Value]) -> Vec<Value> {
    let mut settled = Vec::with_capacity(of_server.len() + of_patch.len());
    let mut of_server = of_server.into_iter().peekable();
    for patched in of_patch {
        let limit = place(server, &patched.id);
        let is_before = |other: &Keyed| place(server, &other.id).zip(limit).is_some_and(|(a, b)| a < b);
        while let Some(first) = of_server.next_if(is_before) {
            settled.push(first.item);
        }
        settled.push(patched.item);
    }
    settled.extend(of_server.map(|keyed| keyed.item));
    settled
}
