//! HorizontalPodAutoscalers: `autoscaling/v2`, the form they are stored in, and [`v1`].

use serde_json::{Value, json};

use super::{AUTOSCALING_V2, entry};
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::Strategy;

mod convert;
pub mod v1;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["hpa".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Status],
        ..entry(
            &AUTOSCALING_V2,
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            HorizontalPodAutoscaler,
        )
    }
}

/// How busy pods are meant to be where nobody says.
const DEFAULT_UTILIZATION: i64 = 80;

/// A metric of the pods' CPU.
fn cpu_metric(utilization: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

struct HorizontalPodAutoscaler;

impl Strategy for HorizontalPodAutoscaler {
    fn default(&self, autoscaler: &mut Value) {
        let spec = autoscaler.object_mut("spec");
        spec.or_insert("minReplicas", 1);
        if spec.list("metrics").is_empty() {
            spec.set("metrics", json!([cpu_metric(&DEFAULT_UTILIZATION.into())]));
        }
        if let Some(behavior) = spec.at_mut("behavior") {
            default_rules(behavior.object_mut("scaleUp"), Direction::Up);
            default_rules(behavior.object_mut("scaleDown"), Direction::Down);
        }
    }

    fn prepare_for_create(&self, autoscaler: &mut Value) {
        autoscaler.set("status", json!({"desiredReplicas": 0, "currentMetrics": null}));
        drop_tolerance(autoscaler, &Value::Null);
    }

    fn validate(&self, autoscaler: &Value) -> Errors {
        let mut errors = Errors::default();
        super::metadata::new(autoscaler, &mut errors);
        errors
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
        drop_tolerance(new, old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }

    fn counts_generations(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// What a rule leaves out: how it was before there were rules.
fn default_rules(rules: &mut Value, direction: Direction) {
    rules.or_insert("selectPolicy", "Max");
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let policies = match direction {
        Direction::Up => {
            rules.or_insert("stabilizationWindowSeconds", 0);
            json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent])
        }
        Direction::Down => json!([percent]),
    };
    rules.or_insert("policies", policies);
}

/// Tolerance of its own is off in v1.34: the field stays only where one is in use already.
fn drop_tolerance(new: &mut Value, old: &Value) {
    let rules = ["scaleUp", "scaleDown"];
    if rules.iter().any(|rule| old.at("spec").at("behavior").at(rule).has("tolerance")) {
        return;
    }
    let Some(behavior) = new.object_mut("spec").at_mut("behavior") else { return };
    for rule in rules {
        if let Some(rules) = behavior.at_mut(rule) {
            rules.unset("tolerance");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_metrics_pods_are_kept_four_fifths_busy() {
        let mut autoscaler = json!({"spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"policies": []}}}});
        HorizontalPodAutoscaler.default(&mut autoscaler);
        let spec = &autoscaler["spec"];
        assert_eq!(spec["minReplicas"], 1);
        assert_eq!(spec["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!(spec["behavior"]["scaleUp"]["policies"].as_array().map(Vec::len), Some(2));
        assert_eq!(spec["behavior"]["scaleDown"], json!({"selectPolicy": "Max", "policies": []}));
    }
}
