//! The kinds of `flowcontrol.apiserver.k8s.io`: how much of the server's capacity requests may use.

use serde_json::Value;

use super::Api;
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::Seen;

pub mod bootstrap;
pub mod flowschema;
pub mod prioritylevelconfiguration;

pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const FLOW_CONTROL: Api = Api { group: GROUP, version: "v1", schemas: "io.k8s.api.flowcontrol.v1" };

const EXEMPT: &str = "exempt";

/// Checks that condition types are unique.
fn check_status(object: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.child("conditions");
    let mut seen = Seen::new();
    for (index, condition) in object.at("status").list("conditions").iter().enumerate() {
        let path = path.index(index);
        let kind = condition.text("type");
        if seen.again(kind) {
            errors.duplicate(&path.child("type"), kind);
        }
        if kind.is_empty() {
            errors.required(&path.child("type"), "");
        }
    }
}

/// Whether two specs are equivalent: an absent field equals an empty list or `false`.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let field = |map: &'_ serde_json::Map<String, Value>, key: &str| {
                map.get(key).cloned().unwrap_or_default()
            };
            one.keys().chain(other.keys()).all(|key| is_same(&field(one, key), &field(other, key)))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Array(list), Value::Null) | (Value::Null, Value::Array(list)) => list.is_empty(),
        (Value::Bool(false), Value::Null) | (Value::Null, Value::Bool(false)) => true,
        (one, other) => one == other,
    }
}
