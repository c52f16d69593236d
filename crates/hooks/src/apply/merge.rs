//! The three-way merge of a child, as Metacontroller's dynamic apply does it: without knowing the child's schema.
//!
//! Maps are merged by field. A list of objects is merged like a map if all items on all three sides have one of the
//! usual key fields, with unique values on each side; any other list is replaced. Fields that only the child has are
//! kept, and fields that the hook no longer returns are removed.
//!
//! Invariant: metadata that the API server manages, and the status, are never changed. So they never cause a write.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::apply::same;
use crate::names::LAST_APPLIED;

/// The fields that can be the key of a list, in order of preference.
const LIST_KEYS: [&str; 7] = ["containerPort", "port", "mountPath", "name", "uid", "ip", "path"];

/// The fields of metadata that belong to the API server.
const SYSTEM_FIELDS: [&str; 8] = [
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

/// Returns the desired child: `observed`, with the hook's changes from its last to its current response.
pub(crate) fn updated(observed: &Value, desired: &Value) -> Result<Value, String> {
    let last = last_applied(observed)?;
    let mut desired = desired.clone();
    remove_annotation(&mut desired);
    let mut merged = observed.clone();
    merge("", &mut merged, last.as_ref(), &desired)?;
    restore(&mut merged, observed);
    annotate(&mut merged, &desired);
    Ok(merged)
}

/// Whether a child already matches the hook's response.
pub(crate) fn is_settled(observed: &Value, desired: &Value) -> bool {
    updated(observed, desired).is_ok_and(|updated| same(&updated, observed))
}

/// Whether a child has all fields of the hook's response. It may have more.
pub(crate) fn includes(observed: &Value, desired: &Value) -> bool {
    let mut merged = observed.clone();
    let is_merged = merge("", &mut merged, None, desired).is_ok();
    restore(&mut merged, observed);
    is_merged && same(&merged, observed)
}

/// Returns the last applied child.
fn last_applied(object: &Value) -> Result<Option<Value>, String> {
    match object["metadata"]["annotations"][LAST_APPLIED].as_str() {
        None | Some("") => Ok(None),
        Some(text) => {
            let parsed = serde_json::from_str(text);
            parsed.map(Some).map_err(|error| format!("metadata.annotations[{LAST_APPLIED}]: {error}"))
        }
    }
}

/// Sets the last-applied annotation.
pub(super) fn annotate(object: &mut Value, desired: &Value) {
    let text = encode(desired);
    if let Some(annotations) = annotations(object) {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
    }
}

/// Removes the last-applied annotation: a hook that returns children as it received them includes it.
pub(super) fn remove_annotation(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(LAST_APPLIED);
    }
}

/// Returns an object without the API server's metadata, the status and the last-applied annotation.
pub(crate) fn system_fields_removed(object: &Value) -> Value {
    let mut object = object.clone();
    remove_annotation(&mut object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        SYSTEM_FIELDS.iter().for_each(|field| _ = metadata.remove(*field));
    }
    object
}

/// Returns the annotations, creating them if necessary.
fn annotations(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| Map::new().into());
    let annotations = metadata.as_object_mut()?.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Map::new().into();
    }
    annotations.as_object_mut()
}

/// Encodes JSON as Go does: sorted, and with some characters escaped. So the annotation is equal to Metacontroller's.
pub(crate) fn encode(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    // Outside of strings, JSON has none of these characters.
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn restore(merged: &mut Value, observed: &Value) {
    restore_field(merged, observed, "status");
    if let (Some(merged), observed) = (merged.get_mut("metadata"), &observed["metadata"]) {
        SYSTEM_FIELDS.iter().for_each(|field| restore_field(merged, observed, field));
    }
}

fn restore_field(merged: &mut Value, observed: &Value, field: &str) {
    let Some(fields) = merged.as_object_mut() else { return };
    match observed.get(field) {
        Some(value) => _ = fields.insert(field.to_owned(), value.clone()),
        None => _ = fields.remove(field),
    }
}

/// Applies the changes from `last` to `desired` to `target`.
fn merge(path: &str, target: &mut Value, last: Option<&Value>, desired: &Value) -> Result<(), String> {
    match target {
        Value::Object(fields) => {
            let last = typed(path, "last-applied-configuration", last, Value::as_object)?;
            let desired = typed(path, "the answer", Some(desired), Value::as_object)?;
            merge_fields(path, fields, last.unwrap_or(&Map::new()), desired.unwrap_or(&Map::new()))
        }
        Value::Array(items) => {
            let last = typed(path, "last-applied-configuration", last, Value::as_array)?;
            let desired = typed(path, "the answer", Some(desired), Value::as_array)?;
            let (last, desired) =
                (last.map_or(&[][..], Vec::as_slice), desired.map_or(&[][..], Vec::as_slice));
            match list_key(&[items.as_slice(), last, desired]) {
                Some(key) => merge_list(path, key, items, last, desired),
                None => {
                    *items = desired.to_vec();
                    Ok(())
                }
            }
        }
        _ => {
            *target = desired.clone();
            Ok(())
        }
    }
}

/// Returns a value as what the target is. `null` is like nothing.
fn typed<'a, T: ?Sized>(
    path: &str,
    side: &str,
    value: Option<&'a Value>,
    of: impl Fn(&'a Value) -> Option<&'a T>,
) -> Result<Option<&'a T>, String> {
    match value.filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => {
            let wrong = || format!("{side}, {path}: it is of another type than in the child");
            of(value).map(Some).ok_or_else(wrong)
        }
    }
}

fn merge_fields(
    path: &str,
    target: &mut Map<String, Value>,
    last: &Map<String, Value>,
    desired: &Map<String, Value>,
) -> Result<(), String> {
    last.keys().filter(|name| !desired.contains_key(*name)).for_each(|name| _ = target.remove(name));
    for (name, wanted) in desired {
        let field = target.entry(name.clone()).or_insert(Value::Null);
        merge(&format!("{path}.{name}"), field, last.get(name), wanted)?;
    }
    Ok(())
}

/// Returns the field that is the key of a list of objects.
fn list_key(sides: &[&[Value]]) -> Option<&'static str> {
    if sides.iter().all(|items| items.is_empty()) {
        return None;
    }
    LIST_KEYS.into_iter().find(|key| sides.iter().all(|items| is_key(items, key)))
}

/// Whether all items have a field, with unique values. TCP port 53 and UDP port 53 have the same.
fn is_key(items: &[Value], field: &str) -> bool {
    let mut seen = BTreeSet::new();
    items.iter().all(|item| item.get(field).is_some_and(|value| seen.insert(key_text(value))))
}

fn merge_list(
    path: &str,
    key: &str,
    items: &mut Vec<Value>,
    last: &[Value],
    desired: &[Value],
) -> Result<(), String> {
    let by_key = |items: &[Value]| -> Map<String, Value> {
        items.iter().map(|item| (key_text(&item[key]), item.clone())).collect()
    };
    let mut merged = by_key(items);
    merge_fields(path, &mut merged, &by_key(last), &by_key(desired))?;
    // The child's order first, then the response's.
    let order: Vec<String> = items.iter().chain(desired).map(|item| key_text(&item[key])).collect();
    *items = order.iter().filter_map(|key| merged.remove(key)).collect();
    Ok(())
}

fn key_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(observed: Value, last: Value, desired: Value, expected: Value) {
        let mut merged = observed;
        merge("", &mut merged, Some(&last), &desired).expect("it merges");
        assert_eq!(merged, expected);
    }

    #[test]
    fn maps_are_merged_by_field() {
        check(json!({"a": 1, "x": 1}), json!({}), json!({"a": 2}), json!({"a": 2, "x": 1}));
        check(json!({"a": 1, "b": 1}), json!({"a": 1, "b": 1}), json!({"a": 1}), json!({"a": 1}));
        check(
            json!({"a": {"b": 1, "c": 1}}),
            json!({"a": {"b": 1}}),
            json!({"a": {"d": 1}}),
            json!({"a": {"c": 1, "d": 1}}),
        );
        check(json!({"a": null}), json!({}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}}));
        check(json!({"a": {"b": 1}}), json!({}), json!({"a": null}), json!({"a": {"b": 1}}));
    }

    #[test]
    fn lists_are_replaced_unless_their_items_have_a_key() {
        check(json!({"a": [1, 2]}), json!({}), json!({"a": [2]}), json!({"a": [2]}));
        check(json!({"a": [{"x": 1}]}), json!({}), json!({"a": [{"x": 2}]}), json!({"a": [{"x": 2}]}));
        check(
            json!({"a": [{"name": "own", "v": 1, "kept": 1}, {"name": "other"}]}),
            json!({"a": [{"name": "own", "v": 1}]}),
            json!({"a": [{"name": "new"}, {"name": "own", "v": 2}]}),
            json!({"a": [{"name": "own", "v": 2, "kept": 1}, {"name": "other"}, {"name": "new"}]}),
        );
        check(
            json!({"a": [{"name": "x"}, {"name": "y"}]}),
            json!({"a": [{"name": "x"}]}),
            json!({"a": []}),
            json!({"a": [{"name": "y"}]}),
        );
    }

    #[test]
    fn the_key_of_a_list_is_the_first_that_all_items_have() {
        let check = |sides: [Value; 2], expected: Option<&str>| {
            let sides = sides.map(|side| side.as_array().expect("a list").clone());
            assert_eq!(list_key(&[&sides[0], &sides[1]]), expected, "{sides:?}");
        };
        check(
            [json!([{"name": "a", "containerPort": 1}]), json!([{"containerPort": 2}])],
            Some("containerPort"),
        );
        check([json!([{"name": "a", "port": 1}]), json!([{"name": "b"}])], Some("name"));
        check([json!([{"mountPath": "/a", "name": "a"}]), json!([])], Some("mountPath"));
        check([json!([{"name": "a"}]), json!([{"key": "b"}])], None);
        check([json!([{"name": "a"}]), json!(["b"])], None);
        check([json!([]), json!([])], None);
        let dns = json!([{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]);
        check([dns.clone(), dns], None);
        let named = json!([{"port": 53, "name": "tcp"}, {"port": 53, "name": "udp"}]);
        check([named.clone(), named], Some("name"));
    }

    #[test]
    fn two_ports_with_the_same_number_stay_two() {
        let ports = json!([{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]);
        let service = json!({"metadata": {"name": "dns"}, "spec": {"ports": ports}});
        assert_eq!(updated(&service, &service).expect("it merges")["spec"]["ports"], ports);
    }

    #[test]
    fn a_child_with_more_than_the_hook_wants_includes_it() {
        let child =
            json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"x": 1, "y": 2}, "status": {"z": 3}});
        let check = |desired: Value, expected: bool| {
            assert_eq!(includes(&child, &desired), expected, "{desired}");
        };
        check(json!({"metadata": {"name": "a"}, "spec": {"x": 1}}), true);
        check(json!({"metadata": {"name": "a"}, "spec": {"x": 2}}), false);
        check(json!({"metadata": {"name": "a", "labels": {"b": "c"}}}), false);
        check(json!({"spec": [1]}), false);
    }

    #[test]
    fn a_side_of_another_type_is_an_error() {
        let mut target = json!({"a": {"b": 1}});
        assert!(merge("", &mut target, None, &json!({"a": [1]})).is_err());
        assert!(merge("", &mut target, Some(&json!({"a": 1})), &json!({"a": {}})).is_err());
    }

    #[test]
    fn system_fields_and_the_status_are_left_alone() {
        let observed =
            json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "status": {"ready": true}});
        let desired = json!({"metadata": {"name": "a", "uid": "x", "creationTimestamp": null, "labels": {"b": "c"}}, "status": {}});
        let updated = updated(&observed, &desired).expect("it merges");
        assert_eq!(updated["metadata"]["uid"], "u");
        assert_eq!(updated["status"], json!({"ready": true}));
        assert_eq!(updated["metadata"]["labels"], json!({"b": "c"}));
        assert!(updated["metadata"].get("creationTimestamp").is_none());
        assert!(is_settled(&updated, &desired), "the second time, there is nothing to do");
    }

    #[test]
    fn a_hook_that_returns_what_it_got_changes_nothing() {
        let mut child = json!({"metadata": {"name": "a"}, "data": {"html": "<b>&</b>"}});
        let wanted = child.clone();
        annotate(&mut child, &wanted);
        let note = child["metadata"]["annotations"][LAST_APPLIED].as_str().expect("a note").to_owned();
        assert_eq!(note, r#"{"data":{"html":"\u003cb\u003e\u0026\u003c/b\u003e"},"metadata":{"name":"a"}}"#);
        assert!(is_settled(&child, &wanted));
        let once = updated(&child, &child).expect("it merges");
        assert!(is_settled(&once, &child), "its note does not grow");
    }
}
