//! Checks that a manifest is an object: templates can return anything.

use serde_json::Value;

/// Checks that a manifest has a kind, and metadata that labels can be added to. The error names the field and what was
/// expected.
pub(crate) fn check(manifest: &Value) -> Result<(), String> {
    if !manifest.is_object() {
        return Err(format!("expected an object, found {}", shown(manifest)));
    }
    for field in ["apiVersion", "kind"] {
        if manifest[field].as_str().is_none_or(str::is_empty) {
            return Err(format!("{field}: expected a text, found {}", shown(&manifest[field])));
        }
    }
    let meta = &manifest["metadata"];
    is_map(meta, "metadata")?;
    is_map(&meta["labels"], "metadata.labels")?;
    is_map(&meta["annotations"], "metadata.annotations")?;
    for field in ["name", "namespace"] {
        if !meta[field].is_null() && !meta[field].is_string() {
            return Err(format!("metadata.{field}: expected a text, found {}", shown(&meta[field])));
        }
    }
    Ok(())
}

fn is_map(value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::Null | Value::Object(_) => Ok(()),
        other => Err(format!("{path}: expected an object, found {}", shown(other))),
    }
}

fn shown(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(text) if text.is_empty() => "an empty text",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn odd_manifests_are_refused_with_the_field() {
        let of = |meta: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta});
        for good in [json!(null), json!({}), json!({"name": "a", "labels": null, "annotations": {}})] {
            assert_eq!(check(&of(good.clone())), Ok(()), "{good}");
        }
        for (manifest, expected) in [
            (json!("text"), "expected an object, found a text"),
            (json!([1]), "expected an object, found a list"),
            (json!({"kind": "ConfigMap"}), "apiVersion: expected a text, found nothing"),
            (json!({"apiVersion": "v1", "kind": 7}), "kind: expected a text, found a number"),
            (of(json!("a")), "metadata: expected an object, found a text"),
            (of(json!({"labels": []})), "metadata.labels: expected an object, found a list"),
            (of(json!({"annotations": true})), "metadata.annotations: expected an object, found a boolean"),
            (of(json!({"name": 1})), "metadata.name: expected a text, found a number"),
        ] {
            assert_eq!(check(&manifest), Err(expected.to_owned()), "{manifest}");
        }
    }
}
