//! Pruning: drops fields that a schema does not specify, and nulls that it does not allow.

use std::fmt::Write as _;

use serde_json::Value;

use super::props::{Props, is_meta_field};
use crate::field::{MAX_ERRORS, shown_path};

/// Drops the fields that the schema does not specify and returns the paths of the first ones, sorted. A resource's own
/// kind, version and metadata are kept.
pub(crate) fn prune(object: &mut Value, schema: &Props, is_resource: bool) -> Vec<String> {
    let mut pruning = Pruning { path: String::new(), dropped: Vec::new() };
    pruning.value(object, Some(schema), is_resource || schema.embedded_resource, false);
    pruning.dropped.sort();
    pruning.dropped
}

struct Pruning {
    path: String,
    dropped: Vec<String>,
}

impl Pruning {
    /// Prunes a value. `keeps` preserves all unknown fields: for items of a list that does.
    fn value(&mut self, value: &mut Value, schema: Option<&Props>, is_resource: bool, keeps: bool) {
        let preserves = keeps || schema.is_some_and(Props::preserves_unknown);
        match value {
            Value::Object(fields) => fields.retain(|name, value| {
                if is_resource && is_meta_field(name) {
                    return true;
                }
                let known = schema.is_some_and(|schema| {
                    schema.properties.contains_key(name) || schema.additional_properties.is_some()
                });
                if known {
                    let below = schema.and_then(|schema| schema.field(name));
                    let is_resource = below.is_some_and(|below| below.embedded_resource);
                    self.at_key(name, |pruning| pruning.value(value, below, is_resource, false));
                } else if !preserves {
                    self.drop(name);
                }
                known || preserves
            }),
            Value::Array(items) => {
                let below = schema.and_then(Props::item);
                let is_resource = below.is_some_and(|below| below.embedded_resource);
                for (index, item) in items.iter_mut().enumerate() {
                    // Below a list that preserves unknown fields, only items with a schema are pruned.
                    if preserves && below.is_none() {
                        continue;
                    }
                    self.at_index(index, |pruning| pruning.value(item, below, is_resource, preserves));
                }
            }
            _ => {}
        }
    }

    fn drop(&mut self, name: &str) {
        if is_meta_field(name) && self.path.is_empty() {
            return;
        }
        if self.dropped.len() >= MAX_ERRORS {
            return;
        }
        self.dropped.push(match shown_path(&self.path) {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        });
    }

    fn at_key(&mut self, name: &str, look: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        look(self);
        self.path.truncate(length);
    }

    fn at_index(&mut self, index: usize, look: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let _ = write!(self.path, "[{index}]");
        look(self);
        self.path.truncate(length);
    }
}

/// Drops null fields that are neither nullable nor have a default.
pub(crate) fn prune_nulls(object: &mut Value, schema: Option<&Props>) {
    match object {
        Value::Object(fields) => fields.retain(|name, value| {
            let below = schema.and_then(|schema| schema.field(name));
            let is_dropped =
                value.is_null() && below.is_some_and(|below| !below.nullable && below.default.is_none());
            if !is_dropped {
                prune_nulls(value, below);
            }
            !is_dropped
        }),
        Value::Array(items) => {
            let below = schema.and_then(Props::item);
            items.iter_mut().for_each(|item| prune_nulls(item, below));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, mut object: Value, expected: Value, dropped: &[&str]) {
        let schema = Props::parse(&schema).unwrap();
        assert_eq!(prune(&mut object, &schema, true), dropped);
        assert_eq!(object, expected);
    }

    #[test]
    fn unknown_fields_are_dropped_and_reported() {
        let spec = json!({"type": "object", "properties": {"x": {"type": "string"}, "l": {
            "type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        check(
            schema,
            json!({"kind": "A", "metadata": {"z": 1}, "other": 1, "spec": {"x": "1", "y": 2, "l": [{"a": "", "b": 1}]}}),
            json!({"kind": "A", "metadata": {"z": 1}, "spec": {"x": "1", "l": [{"a": ""}]}}),
            &["other", "spec.l[0].b", "spec.y"],
        );
    }

    #[test]
    fn preserved_fields_are_pruned_where_they_have_a_schema() {
        let known = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let schema = json!({"type": "object", "properties": {"spec": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": known}}}});
        check(
            schema,
            json!({"spec": {"any": [{"b": 1}], "known": {"a": "1", "b": "2"}}}),
            json!({"spec": {"any": [{"b": 1}], "known": {"a": "1"}}}),
            &["spec.known.b"],
        );
    }

    #[test]
    fn a_null_is_dropped_unless_it_is_allowed_or_has_a_default() {
        let schema = Props::parse(&json!({"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string", "nullable": true}, "c": {"type": "string", "default": "x"}}}));
        let mut object = json!({"a": null, "b": null, "c": null, "d": null});
        prune_nulls(&mut object, Some(&schema.unwrap()));
        assert_eq!(object, json!({"b": null, "c": null, "d": null}));
    }
}
