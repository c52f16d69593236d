//! Merges an apply configuration into an object without tracking who owns its fields, as mutating policies do.

use serde_json::Value;

use super::merge::merge;
use super::schema_node::{Merging, SchemaNode};
use super::validate::validate;
use crate::schema::{Scalar, Shape, Target};

/// Merges a configuration. It must not contain anything that is replaced as a whole: fields that it does not set would be
/// lost.
pub(crate) fn merge_configuration(
    target: &Target,
    live: &Value,
    configuration: &Value,
) -> Result<Value, String> {
    let place = SchemaNode::root(&target.schema);
    validate(place, configuration)
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut found = Vec::new();
    find_atomics(place, "", configuration, &mut found);
    if !found.is_empty() {
        let found = found.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {found}"
        ));
    }
    validate(place, live)
        .map_err(|why| format!("failed to convert original object to typed object: {why}"))?;
    Ok(merge(place, live, configuration))
}

/// The maximum number of atomic values that are reported.
const MAX_ATOMICS: usize = 100;

/// Collects the paths of values that are replaced as a whole.
fn find_atomics(place: SchemaNode<'_>, path: &str, value: &Value, found: &mut Vec<String>) {
    if found.len() >= MAX_ATOMICS {
        return;
    }
    let is_atomic = matches!(place.merging(), Merging::Whole);
    match (value, place.shape()) {
        (Value::Object(fields), Some(Shape::Struct(of))) => {
            if is_atomic {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                if let Some(field) = of.field(name) {
                    find_atomics(place.field(field), &format!("{path}.{name}"), value, found);
                }
            }
        }
        (Value::Array(items), Some(Shape::List(list))) => {
            if is_atomic {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomics(place.item(list), &format!("{path}[{index}]"), item, found);
            }
        }
        (Value::Object(_), Some(Shape::Map(_)))
        | (Value::Object(_) | Value::Array(_), Some(Shape::Scalar(Scalar::Raw)))
            if is_atomic =>
        {
            found.push(path.to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(live: Value, configuration: Value) -> Result<Value, String> {
        let target = Target::built_in("io.k8s.api.core.v1.Pod").expect("a schema");
        merge_configuration(&target, &live, &configuration)
    }

    fn pod(containers: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}})
    }

    #[test]
    fn lists_are_merged_by_their_keys() {
        let live =
            pod(json!([{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]));
        let configuration = pod(json!([{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]));
        let containers = merged(live, configuration).unwrap()["spec"]["containers"].clone();
        let env = json!([{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]);
        assert_eq!(
            containers,
            json!([{"name": "a", "image": "i", "env": env}, {"name": "b"}, {"name": "c"}])
        );
    }

    #[test]
    fn atomic_fields_are_rejected() {
        let configuration = pod(json!([{"name": "a", "command": ["x"], "args": ["y"]}]));
        assert_eq!(
            merged(pod(json!([])), configuration).unwrap_err(),
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args, \
             .spec.containers[0].command"
        );
    }

    #[test]
    fn fields_outside_the_schema_are_rejected() {
        for (configuration, expected) in [
            (json!({"spec": {"oops": 1}}), ".spec.oops: field not declared in schema"),
            (
                json!({"spec": {"nodeName": 1}}),
                ".spec.nodeName: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"spec": {"nodeName": {"a": [1, "x", null]}}}),
                r#".spec.nodeName: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"a":[]interface {}{1, "x", interface {}(nil)}}}"#,
            ),
        ] {
            let why = merged(pod(json!([])), configuration).unwrap_err();
            assert_eq!(why, format!("failed to convert patch object to typed object: {expected}"));
        }
        let twice = pod(json!([{"name": "a"}, {"name": "a"}]));
        let why = merged(twice, pod(json!([{"name": "b"}]))).unwrap_err();
        assert!(why.starts_with("failed to convert original object to typed object: "), "{why}");
    }
}
