//! Lists of resources: amounts by name, as containers, pods, nodes, claims and limits carry them.

use serde_json::{Map, Value};

use crate::json::{Json, JsonMut};
use crate::quantity::Quantity;

/// The amounts of a list, in the order of their names. What is no quantity is left out; the schema check
/// has refused it before.
pub fn amounts(list: &Value) -> impl Iterator<Item = (&str, Quantity)> {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.as_str(), Quantity::of(amount).ok()?)))
}

/// One amount of a list.
pub fn amount(list: &Value, name: &str) -> Option<Quantity> {
    list.get(name).and_then(|amount| Quantity::of(amount).ok())
}

/// Rounds every amount up to thousandths and writes it in canonical form, as every list is on its way in.
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

/// The same for the lists inside `requests` and `limits`.
pub fn default_requirements(requirements: &mut Value) {
    for field in ["limits", "requests"] {
        if let Some(list) = requirements.at_mut(field) {
            default_list(list);
        }
    }
}

/// Every limit without a request is a request too.
pub fn request_what_is_limited(requirements: &mut Value) {
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
    fn limits_become_requests_where_there_are_none() {
        let mut requirements = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}});
        request_what_is_limited(&mut requirements);
        assert_eq!(requirements["requests"], json!({"cpu": "100m", "memory": "1Gi"}));
    }
}
