//! LimitRanges: resource bounds and defaults for the pods and claims in a namespace.

use serde_json::Value;

use super::{CORE, entry, metadata, resources};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};

pub mod admission;
mod validation;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["limits".into()],
        semantics: Semantics {
            counts_generations: false,
            generates_names: true,
            create_on_update: true,
            ..Semantics::default()
        },
        ..entry(&CORE, "LimitRange", "limitranges", LimitRange)
    }
}

struct LimitRange;

impl Lifecycle for LimitRange {
    fn default(&self, range: &mut Value) {
        let Some(spec) = range.at_mut("spec") else { return };
        for limit in spec.list_mut("limits") {
            default_limit(limit);
        }
    }
}

impl Validation for LimitRange {
    fn validate(&self, range: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(range, &mut errors);
        validation::check(range, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        validation::check(new, &mut errors);
        errors
    }
}

/// Sets the defaults. For containers, the default limit is the maximum, and the default request is that limit or else
/// the minimum.
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
    use crate::kinds::check;
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

    #[test]
    fn bounds_are_in_order() {
        let range = |limits: Value| json!({"spec": {"limits": limits}});
        let path = "spec.limits[0]";
        check::create(
            &LimitRange,
            range(json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}])),
            &[],
        );
        check::create(
            &LimitRange,
            range(json!([{"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}}])),
            &[&format!("Invalid {path}.min[cpu]")],
        );
        check::create(
            &LimitRange,
            range(json!([{"type": "Pod", "default": {"cpu": "1"}}])),
            &[&format!("Forbidden {path}.default")],
        );
        check::create(
            &LimitRange,
            range(json!([{"type": "PersistentVolumeClaim"}])),
            &[&format!("Required {path}.limits")],
        );
        check::create(
            &LimitRange,
            range(
                json!([{"type": "Container", "max": {"foo": "1"}}, {"type": "Container"}, {"type": "Odd"}]),
            ),
            &[
                "Invalid spec.limits[0].max[foo]",
                "Invalid spec.limits[0].max[foo]",
                "Invalid spec.limits[0].default[foo]",
                "Invalid spec.limits[0].default[foo]",
                "Invalid spec.limits[0].defaultRequest[foo]",
                "Invalid spec.limits[0].defaultRequest[foo]",
                "Duplicate spec.limits[1].type",
                "Invalid spec.limits[2].type",
            ],
        );
        check::create(
            &LimitRange,
            range(
                json!([{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}}]),
            ),
            &[&format!("Invalid {path}.maxLimitRequestRatio[cpu]")],
        );
    }
}
