//! Patches of traits: unification with the workload, and strategies in comments on fields.
//!
//! - Without a strategy, values are unified: a scalar that differs is an error, lists are matched by position, `[...{x}]`
//!   reaches every element.
//! - `+patchKey=name` matches list elements by a key, including in nested lists. Elements without the key are matched
//!   by position; elements that match nothing are appended.
//! - `+patchStrategy=retainKeys` replaces a scalar or map, or the matching elements of a keyed list.
//! - `+patchStrategy=replace` replaces a list.
//! - `+patchStrategy=jsonMergePatch` and `jsonPatch` on the patch itself apply RFC 7396 and RFC 6902.

use serde_json::{Map, Value};
use setpoint_cue::{Tree, TreeValue};

use super::json_patch;

/// Applies a patch to an object. An error names the path.
pub(crate) fn apply(base: &mut Value, patch: &Tree) -> Result<(), String> {
    match patch.marker("patchStrategy") {
        Some("jsonMergePatch") => {
            json_patch::merge(base, &patch.to_json());
            Ok(())
        }
        Some("jsonPatch") => {
            let patch = patch.to_json();
            let operations = patch["operations"].as_array().ok_or("operations: expected a list")?;
            json_patch::apply(base, operations)
        }
        _ => unify(base, patch, None, "patch"),
    }
}

fn unify(base: &mut Value, patch: &Tree, key: Option<&str>, path: &str) -> Result<(), String> {
    let strategy = patch.marker("patchStrategy");
    let key = patch.marker("patchKey").or(key);
    if let TreeValue::Scalar(value) = &patch.value
        && same(value, base)
    {
        return Ok(());
    }
    match (&patch.value, &mut *base) {
        (_, Value::Null) => {
            *base = patch.to_json();
            Ok(())
        }
        (TreeValue::Struct(_) | TreeValue::Scalar(_), _) if strategy == Some("retainKeys") => {
            *base = patch.to_json();
            Ok(())
        }
        (TreeValue::List { .. }, _) if strategy == Some("replace") => {
            *base = patch.to_json();
            Ok(())
        }
        (TreeValue::Struct(fields), Value::Object(target)) => unify_fields(target, fields, key, path),
        (TreeValue::List { items, rest, .. }, Value::Array(target)) => match key {
            Some(key) => keyed(target, items, rest.as_deref(), key, strategy == Some("retainKeys"), path),
            None => positional(target, items, rest.as_deref(), None, path),
        },
        (_, base) => Err(format!("{path}: conflicting values {base} and {}", patch.to_json())),
    }
}

/// Numbers are equal if their values are: 1 and 1.0.
fn same(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && other.is_number() && one.as_f64() == other.as_f64())
}

fn unify_fields(
    target: &mut Map<String, Value>,
    fields: &[(String, Tree)],
    key: Option<&str>,
    path: &str,
) -> Result<(), String> {
    for (name, field) in fields {
        match target.get_mut(name) {
            Some(base) => unify(base, field, key, &format!("{path}.{name}"))?,
            None => drop(target.insert(name.clone(), field.to_json())),
        }
    }
    Ok(())
}

fn positional(
    target: &mut Vec<Value>,
    items: &[Tree],
    rest: Option<&Tree>,
    key: Option<&str>,
    path: &str,
) -> Result<(), String> {
    for (index, base) in target.iter_mut().enumerate() {
        if let Some(patch) = items.get(index).or(rest) {
            unify(base, patch, key, &format!("{path}[{index}]"))?;
        }
    }
    target.extend(items.iter().skip(target.len()).map(Tree::to_json));
    Ok(())
}

/// Matches elements by a key. If an element lacks it, the list is matched by position.
fn keyed(
    target: &mut Vec<Value>,
    items: &[Tree],
    rest: Option<&Tree>,
    key: &str,
    replaces: bool,
    path: &str,
) -> Result<(), String> {
    if items.is_empty() || items.iter().any(|item| identity(&item.to_json(), key).is_none()) {
        return positional(target, items, rest, Some(key), path);
    }
    for item in items {
        let (value, index) = (item.to_json(), position(target, item, key));
        match index.map(|index| (index, &mut target[index])) {
            Some((_, base)) if replaces => *base = value,
            Some((index, base)) => unify(base, item, Some(key), &format!("{path}[{index}]"))?,
            None => target.push(value),
        }
    }
    Ok(())
}

fn position(target: &[Value], item: &Tree, key: &str) -> Option<usize> {
    let wanted = identity(&item.to_json(), key);
    target.iter().position(|base| identity(base, key) == wanted)
}

/// Returns an element's values at a key such as `name`, `a.b` or `a,b`. `None` if one of them is missing.
fn identity(element: &Value, key: &str) -> Option<Vec<Value>> {
    key.split(',')
        .map(|path| {
            let found = path.trim().split('.').try_fold(element, |value, name| value.get(name))?;
            (!found.is_object() && !found.is_array()).then(|| found.clone())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use setpoint_cue::Instance;

    use super::*;

    #[track_caller]
    fn check(base: Value, patch: &str, expected: Result<Value, &str>) {
        let instance = Instance::of("patch.cue", patch).unwrap();
        let tree = instance.lookup("patch").unwrap().to_tree().unwrap();
        let mut patched = base;
        let result = apply(&mut patched, &tree).map(|()| patched);
        match (result, expected) {
            (Ok(patched), Ok(expected)) => assert_eq!(patched, expected, "{patch}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (result, expected) => panic!("{patch}: {result:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn values_are_unified() {
        check(json!({"a": 1}), "patch: b: 2", Ok(json!({"a": 1, "b": 2})));
        check(json!({"a": 1}), "patch: a: 1", Ok(json!({"a": 1})));
        check(json!({"a": 1}), "patch: a: 2", Err("patch.a: conflicting values 1 and 2"));
        check(
            json!({"l": [{"a": 1}]}),
            "patch: l: [{b: 2}, {c: 3}]",
            Ok(json!({"l": [{"a": 1, "b": 2}, {"c": 3}]})),
        );
        check(
            json!({"l": [{"a": 1}, {}]}),
            "patch: l: [{b: 2}, ...]",
            Ok(json!({"l": [{"a": 1, "b": 2}, {}]})),
        );
        check(
            json!({"l": [{"a": 1}, {}]}),
            "patch: l: [...{b: 2}]",
            Ok(json!({"l": [{"a": 1, "b": 2}, {"b": 2}]})),
        );
    }

    #[test]
    fn a_key_matches_elements_and_reaches_lists_below() {
        let base = json!({"c": [{"name": "a", "e": [{"name": "x", "v": 1}]}]});
        let patch = "patch: {\n// +patchKey=name\nc: [{name: \"b\"}, {name: \"a\", e: [{name: \"y\"}]}]\n}";
        let expected =
            json!({"c": [{"name": "a", "e": [{"name": "x", "v": 1}, {"name": "y"}]}, {"name": "b"}]});
        check(base, patch, Ok(expected));
        let base = json!({"l": [{"a": 1, "b": 1}]});
        let patch = "patch: {\n// +patchKey=a,b\nl: [{a: 1, b: 2}]\n}";
        check(base, patch, Ok(json!({"l": [{"a": 1, "b": 1}, {"a": 1, "b": 2}]})));
    }

    #[test]
    fn elements_without_the_key_are_matched_by_position() {
        let base = json!({"c": [{"name": "a"}]});
        check(base, "patch: {\n// +patchKey=name\nc: [{r: 1}]\n}", Ok(json!({"c": [{"name": "a", "r": 1}]})));
    }

    #[test]
    fn strategies_replace() {
        let retain = "// +patchStrategy=retainKeys";
        check(json!({"a": 1}), &format!("patch: {{\n{retain}\na: 2\n}}"), Ok(json!({"a": 2})));
        check(
            json!({"m": {"x": 1}}),
            &format!("patch: {{\n{retain}\nm: {{y: 2}}\n}}"),
            Ok(json!({"m": {"y": 2}})),
        );
        let keyed = format!("patch: {{\n// +patchKey=n\n{retain}\nl: [{{n: 1, b: 2}}]\n}}");
        check(json!({"l": [{"n": 1, "a": 1}]}), &keyed, Ok(json!({"l": [{"n": 1, "b": 2}]})));
        let replace = "patch: {\n// +patchStrategy=replace\nl: [3]\n}";
        check(json!({"l": [1, 2]}), replace, Ok(json!({"l": [3]})));
        // The comment applies to the innermost field, as in KubeVela's scaler.
        let chain = "// +patchStrategy=retainKeys\npatch: spec: replicas: 2";
        let base = json!({"kind": "A", "spec": {"x": 1, "replicas": 1}});
        check(base, chain, Ok(json!({"kind": "A", "spec": {"x": 1, "replicas": 2}})));
        check(json!({"a": 1}), "// +patchStrategy=open\npatch: {\nb: 2\n}", Ok(json!({"a": 1, "b": 2})));
    }

    #[test]
    fn the_whole_patch_can_be_a_json_patch() {
        let merge = "// +patchStrategy=jsonMergePatch\npatch: {a: null, b: 2}";
        check(json!({"a": 1}), merge, Ok(json!({"b": 2})));
        let json = "// +patchStrategy=jsonPatch\npatch: {operations: [{op: \"remove\", path: \"/a\"}]}";
        check(json!({"a": 1}), json, Ok(json!({})));
    }
}
