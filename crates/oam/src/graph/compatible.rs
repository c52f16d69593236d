//! Whether a new schema of instances accepts what the old one accepted.

use serde_json::Value;

/// Returns the first change that breaks instances: a removed field, a different type, a new required field.
pub(super) fn breaking(old: &Value, new: &Value, path: &str) -> Option<String> {
    if old["type"] != new["type"] {
        return Some(format!(
            "{path}: the type changes from {} to {}",
            shown(&old["type"]),
            shown(&new["type"])
        ));
    }
    let required = |schema: &Value, name: &Value| {
        schema["required"].as_array().is_some_and(|names| names.contains(name))
    };
    let newly = new["required"].as_array().into_iter().flatten().find(|name| {
        let is_defaulted = name.as_str().is_some_and(|name| new["properties"][name].get("default").is_some());
        !required(old, name) && !is_defaulted
    });
    if let Some(name) = newly {
        return Some(format!("{path}.{}: becomes required", shown(name)));
    }
    if let (Some(old), Some(new)) = (old["enum"].as_array(), new["enum"].as_array())
        && let Some(gone) = old.iter().find(|value| !new.contains(value))
    {
        return Some(format!("{path}: {} is no longer allowed", shown(gone)));
    }
    for (name, before) in old["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match new["properties"].get(name) {
            None => return Some(format!("{path}: the field is gone")),
            Some(after) => {
                if let Some(found) = breaking(before, after, &path) {
                    return Some(found);
                }
            }
        }
    }
    ["items", "additionalProperties"].iter().find_map(|part| match (old.get(part), new.get(part)) {
        (Some(before), Some(after)) => breaking(before, after, &format!("{path}[]")),
        _ => None,
    })
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_changes_that_break_instances_are_found() {
        let of = |fields: Value| json!({"type": "object", "properties": fields});
        let old = of(json!({"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}}));
        let check = |new: Value, expected: Option<&str>| {
            let found = breaking(&old, &new, "spec");
            assert_eq!(found.is_some(), expected.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()));
        };
        check(old.clone(), None);
        let mut more = old.clone();
        more["properties"]["c"] = json!({"type": "string"});
        check(more.clone(), None);
        more["required"] = json!(["c"]);
        check(more.clone(), Some("spec.c: becomes required"));
        more["properties"]["c"]["default"] = "x".into();
        check(more, None);
        check(of(json!({"a": {"type": "integer"}})), Some("spec.b: the field is gone"));
        let mut other = old.clone();
        other["properties"]["b"]["items"]["type"] = "integer".into();
        check(other, Some("spec.b[]: the type changes from string to integer"));
    }
}
