//! Which part of an old object a part of the new one takes the place of.

use serde_json::Value;

use super::props::Props;

/// The old value of a field.
pub(super) fn field<'v>(name: &str, old: Option<&'v Value>) -> Option<&'v Value> {
    old?.as_object()?.get(name)
}

/// The old value of an item: the one with its keys. Items of other lists have none.
pub(super) fn item<'v>(list: &Props, item: &Value, old: Option<&'v Value>) -> Option<&'v Value> {
    if list.list_type.as_deref() != Some("map") {
        return None;
    }
    let keys = |value: &Value| -> Vec<Option<Value>> {
        list.list_map_keys.iter().map(|key| value.get(key).cloned()).collect()
    };
    let wanted = keys(item);
    old?.as_array()?.iter().find(|candidate| keys(candidate) == wanted)
}
