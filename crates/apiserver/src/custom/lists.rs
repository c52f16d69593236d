//! Checks that list sets and list maps have no duplicates.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::props::Props;
use crate::field::{Errors, Path, shown_path};

/// Reports duplicates in an object and its parts.
pub(super) fn validate(value: &Value, schema: &Props, path: &str, errors: &mut Errors) {
    let path = shown_path(path);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (schema.properties.get(name), schema.additional()) {
                    (Some(property), _) => {
                        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                        validate(value, property, &path, errors);
                    }
                    (None, Some(additional)) => {
                        validate(value, additional, &format!("{path}[{name}]"), errors)
                    }
                    (None, None) => {}
                }
            }
        }
        Value::Array(items) => {
            validate_items(items, schema, path, errors);
            let Some(item) = schema.item() else { return };
            for (index, value) in items.iter().enumerate() {
                validate(value, item, &format!("{path}[{index}]"), errors);
            }
        }
        _ => {}
    }
}

fn validate_items(items: &[Value], schema: &Props, path: &str, errors: &mut Errors) {
    let path = Path::root(path);
    match schema.list_type.as_deref() {
        Some("set") => report(items, items, &path, errors),
        Some("map") => {
            let wrong = items.iter().position(|item| !item.is_null() && !item.is_object());
            if let Some(index) = wrong {
                let detail = "must be an object for an array of list-type map";
                return errors.invalid(&path.index(index), items[index].clone(), detail);
            }
            let keys: Vec<Value> = items.iter().map(|item| key(item, &schema.list_map_keys)).collect();
            report(&keys, &keys, &path, errors);
        }
        _ => {}
    }
}

fn key(item: &Value, names: &[String]) -> Value {
    let found = names.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
    Value::Object(Map::from_iter(found))
}

/// Reports each duplicate once, at its second occurrence.
fn report(identities: &[Value], shown: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, identity) in identities.iter().enumerate() {
        let times = seen.entry(identity.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.duplicate(&path.index(index), shown[index].clone());
        }
    }
}
