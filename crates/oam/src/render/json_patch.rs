//! Patches that replace values: RFC 6902 (JSON patch) and RFC 7396 (merge patch).

use serde_json::{Map, Value};

/// The maximum number of operations in a patch.
const MAX_OPERATIONS: usize = 10_000;

/// The maximum size that the copies of a patch may add. Each copy can double the document, so without a limit 35
/// operations could exceed any memory.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// The maximum nesting of a patched document: the API server's limit. Copies could double the depth with every
/// operation.
const MAX_DEPTH: usize = 127;

/// Merges a patch into a value: null deletes, objects are merged, everything else is replaced.
pub(crate) fn merge(base: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        base.clone_from(patch);
        return;
    };
    if !base.is_object() {
        *base = Value::Object(Map::new());
    }
    let Value::Object(target) = base else { return };
    for (name, value) in fields {
        match value {
            Value::Null => drop(target.remove(name)),
            _ => merge(target.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

/// Applies the operations of a JSON patch in order. The error names the operation.
pub(crate) fn apply(base: &mut Value, operations: &[Value]) -> Result<(), String> {
    if operations.len() > MAX_OPERATIONS {
        return Err(format!("operations: {}, expected at most {MAX_OPERATIONS}", operations.len()));
    }
    let mut copied = 0;
    for (index, operation) in operations.iter().enumerate() {
        one(base, operation, &mut copied).map_err(|why| format!("operations[{index}]: {why}"))?;
    }
    Ok(())
}

fn one(base: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let text = |field: &str| operation[field].as_str().ok_or_else(|| format!("{field}: expected a string"));
    let value = || operation.get("value").cloned().ok_or_else(|| "value is missing".to_owned());
    let path = text("path")?;
    match text("op")? {
        "add" => add(base, path, value()?),
        "remove" => remove(base, path).map(drop),
        "replace" => {
            let value = value()?;
            check_depth(path, &value)?;
            *base.pointer_mut(path).ok_or_else(|| missing(path))? = value;
            Ok(())
        }
        "move" => {
            let moved = remove(base, text("from")?)?;
            add(base, path, moved)
        }
        "copy" => {
            let from = text("from")?;
            let source = base.pointer(from).ok_or_else(|| missing(from))?;
            *copied += source.to_string().len();
            if *copied > MAX_COPIED_BYTES {
                return Err(format!("copies add more than {MAX_COPIED_BYTES} bytes"));
            }
            let source = source.clone();
            add(base, path, source)
        }
        "test" => match base.pointer(path) == Some(&value()?) {
            true => Ok(()),
            false => Err(format!("test of {path} failed")),
        },
        other => Err(format!("op is {other:?}, expected add, remove, replace, move, copy or test")),
    }
}

/// Rejects a value that would nest too deeply at a path.
fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    match path.matches('/').count() + depth(value) > MAX_DEPTH {
        true => Err(format!("nesting at {path} is deeper than {MAX_DEPTH} levels")),
        false => Ok(()),
    }
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    1 + inner.unwrap_or(0)
}

fn missing(path: &str) -> String {
    format!("{path} does not exist")
}

/// Splits a pointer into the container and the unescaped last key.
fn parent<'a>(base: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (container, key) = path.rsplit_once('/').ok_or_else(|| format!("{path:?} does not start with /"))?;
    let container = base.pointer_mut(container).ok_or_else(|| missing(container))?;
    Ok((container, key.replace("~1", "/").replace("~0", "~")))
}

fn add(base: &mut Value, path: &str, value: Value) -> Result<(), String> {
    check_depth(path, &value)?;
    if path.is_empty() {
        *base = value;
        return Ok(());
    }
    match parent(base, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
            Ok(())
        }
        (Value::Array(items), key) => {
            let index = if key == "-" { items.len() } else { key.parse().map_err(|_| missing(path))? };
            if index > items.len() {
                return Err(missing(path));
            }
            items.insert(index, value);
            Ok(())
        }
        _ => Err(missing(path)),
    }
}

fn remove(base: &mut Value, path: &str) -> Result<Value, String> {
    let removed = match parent(base, path)? {
        (Value::Object(fields), key) => fields.remove(&key),
        (Value::Array(items), key) => {
            let index = key.parse::<usize>().ok().filter(|index| *index < items.len());
            index.map(|index| items.remove(index))
        }
        _ => None,
    };
    removed.ok_or_else(|| missing(path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_apply_in_order() {
        let mut base = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let operations = json!([
            {"op": "add", "path": "/l/1", "value": 9},
            {"op": "replace", "path": "/a/b~1c", "value": 2},
            {"op": "copy", "from": "/a/b~1c", "path": "/l/-"},
            {"op": "remove", "path": "/a"},
            {"op": "test", "path": "/l/3", "value": 2},
        ]);
        apply(&mut base, operations.as_array().unwrap()).unwrap();
        assert_eq!(base, json!({"l": [1, 9, 2, 2]}));
    }

    #[test]
    fn a_failed_operation_is_named() {
        let error = apply(&mut json!({}), &[json!({"op": "remove", "path": "/a/b"})]).unwrap_err();
        assert_eq!(error, "operations[0]: /a does not exist");
    }

    #[test]
    fn copies_are_bounded_in_size_and_depth() {
        let doubled = |nth: usize| json!({"op": "copy", "from": "", "path": format!("/a{nth}")});
        let operations: Vec<Value> = (0..40).map(doubled).collect();
        let error = apply(&mut json!({"b": "text"}), &operations).unwrap_err();
        assert!(error.ends_with("copies add more than 3145728 bytes"), "{error}");
        let nested = |nth: usize| json!({"op": "copy", "from": "", "path": "/a".repeat(1 << nth)});
        let operations: Vec<Value> = (0..20).map(nested).collect();
        let error = apply(&mut json!({"b": 1}), &operations).unwrap_err();
        assert!(error.ends_with("is deeper than 127 levels"), "{error}");
    }

    #[test]
    fn null_deletes_in_a_merge_patch() {
        let mut base = json!({"a": 1, "b": {"c": 2, "d": 3}});
        merge(&mut base, &json!({"a": null, "b": {"c": [1]}}));
        assert_eq!(base, json!({"b": {"c": [1], "d": 3}}));
    }
}
