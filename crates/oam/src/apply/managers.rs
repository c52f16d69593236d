//! Field ownership (`metadata.managedFields`).
//!
//! Objects are created with a plain create, because that fails if another application was faster; a server-side apply
//! would overwrite the object. The fields then belong to an update, and a later apply could not remove them.

use serde_json::{Map, Value};

/// Returns the entries with the fields that `manager` owns through updates moved to its server-side apply. `None` if
/// there is nothing to move.
pub(super) fn taken(entries: &[Value], manager: &str) -> Option<Vec<Value>> {
    let is_of = |entry: &&Value, operation: &str| {
        entry["manager"] == manager
            && entry["operation"] == operation
            && entry["subresource"].as_str().unwrap_or_default().is_empty()
    };
    let updates: Vec<&Value> = entries.iter().filter(|entry| is_of(entry, "Update")).collect();
    let first = updates.first()?;
    let applied = entries.iter().find(|entry| is_of(entry, "Apply"));
    let mut moved = applied.unwrap_or(first).as_object().cloned().unwrap_or_default();
    moved.insert("operation".into(), "Apply".into());
    for update in &updates {
        let fields = moved.entry("fieldsV1").or_insert_with(|| Map::new().into());
        join(fields, &update["fieldsV1"]);
    }
    let others = entries.iter().filter(|entry| !is_of(entry, "Update") && !is_of(entry, "Apply"));
    Some(others.cloned().chain([moved.into()]).collect())
}

/// Adds the fields of one set to another.
fn join(all: &mut Value, more: &Value) {
    let (Value::Object(all), Value::Object(more)) = (all, more) else { return };
    for (name, field) in more {
        join(all.entry(name.clone()).or_insert_with(|| Map::new().into()), field);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    #[test]
    fn created_fields_become_applied_ones() {
        let created = entry("me", "Update", json!({"f:data": {"f:a": {}}}));
        let other = entry("kubectl", "Update", json!({"f:data": {"f:b": {}}}));
        let applied = entry("me", "Apply", json!({"f:data": {"f:a": {}}}));
        assert_eq!(
            taken(&[created.clone(), other.clone()], "me"),
            Some(vec![other.clone(), applied.clone()])
        );
        assert_eq!(taken(&[applied.clone(), other.clone()], "me"), None);
        let more = entry("me", "Apply", json!({"f:data": {"f:c": {}}}));
        let both = entry("me", "Apply", json!({"f:data": {"f:a": {}, "f:c": {}}}));
        assert_eq!(taken(&[created, more], "me"), Some(vec![both]));
        let status = json!({"manager": "me", "operation": "Update", "subresource": "status", "fieldsV1": {}});
        assert_eq!(taken(&[status], "me"), None);
    }
}
