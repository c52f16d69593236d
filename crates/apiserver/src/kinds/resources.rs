//! Resource lists: quantities by name, as in containers, pods, nodes, claims and limits.

use serde_json::{Map, Value};

use crate::json::{Json, JsonMut};
use crate::quantity::Quantity;

/// Returns the quantities in a list, sorted by name. Skips invalid quantities, which the schema check has already
/// rejected.
pub fn amounts(list: &Value) -> impl Iterator<Item = (&str, Quantity)> {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.as_str(), Quantity::of(amount).ok()?)))
}

/// Returns a quantity in a list.
pub fn amount(list: &Value, name: &str) -> Option<Quantity> {
    list.get(name).and_then(|amount| Quantity::of(amount).ok())
}

/// Rounds every quantity up to thousandths and converts it to canonical form, as for every incoming list.
pub fn default_list(list: &mut Value) {
    for amount in list.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let Ok(mut quantity) = Quantity::of(amount) else { continue };
        quantity.round_up_to_milli();
        match quantity.rewritten(amount.as_str().unwrap_or_default()) {
            Some(text) => *amount = Value::String(text),
            None if amount.is_string() => {}
            None => *amount = Value::String(amount.to_string()),
        }
    }
}

/// Like [`default_list`], for the lists in `requests` and `limits`.
pub fn default_requirements(requirements: &mut Value) {
    for field in ["limits", "requests"] {
        if let Some(list) = requirements.at_mut(field) {
            default_list(list);
        }
    }
}

/// Sets the request of every resource that has only a limit.
pub fn default_requests_to_limits(requirements: &mut Value) {
    let Some(Value::Object(limits)) = requirements.get("limits") else { return };
    let missing = |name: &String| !requirements.at("requests").has(name);
    let missing: Vec<_> =
        limits.iter().filter(|(name, _)| missing(name)).map(|(n, q)| (n.clone(), q.clone())).collect();
    if !missing.is_empty()
        && let Value::Object(requests) = requirements.object_mut("requests")
    {
        requests.extend(missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_become_canonical() {
        let mut list = json!({"cpu": "0.0015", "memory": "1024Mi", "pods": 110, "x/y": "2"});
        default_list(&mut list);
        assert_eq!(list, json!({"cpu": "2m", "memory": "1Gi", "pods": "110", "x/y": "2"}));
    }

    #[test]
    fn requests_default_to_limits() {
        let mut requirements = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}});
        default_requests_to_limits(&mut requirements);
        assert_eq!(requirements["requests"], json!({"cpu": "100m", "memory": "1Gi"}));
    }
}
