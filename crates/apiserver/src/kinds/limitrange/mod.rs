//! LimitRanges: what pods and claims of a namespace may ask for, and what they ask for by default.

use serde_json::Value;

use super::{CORE, entry, resources};
use crate::json::{Json, JsonMut};
use crate::kind::Kind;
use crate::strategy::Strategy;

pub fn kind() -> Kind {
    Kind { short_names: vec!["limits".into()], ..entry(&CORE, "LimitRange", "limitranges", LimitRange) }
}

struct LimitRange;

impl Strategy for LimitRange {
    fn default(&self, range: &mut Value) {
        let Some(spec) = range.at_mut("spec") else { return };
        for limit in spec.list_mut("limits") {
            default_limit(limit);
        }
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

/// For containers the default limit is the maximum, the default request that limit, failing that the
/// minimum.
fn default_limit(limit: &mut Value) {
    for list in ["default", "defaultRequest", "max", "maxLimitRequestRatio", "min"] {
        if let Some(list) = limit.at_mut(list) {
            resources::default_list(list);
        }
    }
    if limit.text("type") == "Container" {
        fill(limit, "default", "max");
        fill(limit, "defaultRequest", "default");
        fill(limit, "defaultRequest", "min");
    }
}

fn fill(limit: &mut Value, list: &str, from: &str) {
    let Some(Value::Object(from)) = limit.get(from).cloned() else { return };
    for (name, amount) in from {
        limit.object_mut(list).or_insert(&name, amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_of_containers_follow_from_their_bounds() {
        let mut range = json!({"spec": {"limits": [
            {"type": "Container", "max": {"cpu": "2"}, "default": {"memory": "1Gi"}, "min": {"x/y": "1"}},
            {"type": "Pod", "max": {"cpu": "2"}}]}});
        LimitRange.default(&mut range);
        assert_eq!(
            range["spec"]["limits"][0],
            json!({"type": "Container", "max": {"cpu": "2"}, "min": {"x/y": "1"}, "default": {"cpu": "2", "memory": "1Gi"},
                "defaultRequest": {"cpu": "2", "memory": "1Gi", "x/y": "1"}})
        );
        assert_eq!(range["spec"]["limits"][1], json!({"type": "Pod", "max": {"cpu": "2"}}));
    }
}
