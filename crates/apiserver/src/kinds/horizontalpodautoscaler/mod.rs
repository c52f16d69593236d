//! HorizontalPodAutoscalers: `autoscaling/v2`, the stored form, and [`v1`].

use serde_json::{Value, json};

use super::{AUTOSCALING_V2, entry, metadata};
use crate::features::Features;
use crate::field::Errors;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, Semantics, Validation};

mod columns;
mod convert;
pub mod v1;
mod validation;

pub fn kind(features: &Features) -> Kind {
    Kind {
        short_names: vec!["hpa".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Status],
        columns: columns::all(),
        semantics: semantics(),
        ..entry(
            &AUTOSCALING_V2,
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            HorizontalPodAutoscaler::of(features),
        )
    }
}

/// Returns the semantics of both versions; [`v1`] applies them to the stored form.
fn semantics() -> Semantics {
    let initial = || json!({"desiredReplicas": 0, "currentMetrics": null});
    Semantics { counts_generations: false, ..Semantics::with_status(initial) }
}

/// The default target utilization.
const DEFAULT_UTILIZATION: i64 = 80;

/// Builds a CPU metric.
fn cpu_metric(utilization: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": utilization});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

#[derive(Clone, Copy)]
struct HorizontalPodAutoscaler {
    /// Whether tolerances may be set.
    tolerances: bool,
    /// Whether scaling to zero is allowed.
    to_zero: bool,
}

impl HorizontalPodAutoscaler {
    #[cfg(test)]
    const DEFAULT: Self = Self { tolerances: false, to_zero: false };

    fn of(features: &Features) -> Self {
        Self { tolerances: features.has("HPAConfigurableTolerance"), to_zero: features.has("HPAScaleToZero") }
    }

    /// Drops the tolerance if the feature is disabled, unless the field is already in use.
    fn drop_tolerance(self, new: &mut Value, old: &Value) {
        if !self.tolerances {
            drop_tolerance(new, old);
        }
    }
}

impl Lifecycle for HorizontalPodAutoscaler {
    fn default(&self, autoscaler: &mut Value) {
        // Data that the other version keeps in annotations has fields here.
        convert::drop_carried(autoscaler);
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
        self.drop_tolerance(autoscaler, &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        self.drop_tolerance(new, old);
    }
}

impl Validation for HorizontalPodAutoscaler {
    fn validate(&self, autoscaler: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(autoscaler, &mut errors);
        validation::check_spec(autoscaler.at("spec"), &Value::Null, self.to_zero, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        validation::check_spec(new.at("spec"), old.at("spec"), self.to_zero, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        validation::check_status(new.at("status"), &mut errors);
        errors
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Sets a rule's defaults, which match the behavior before rules existed.
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
    use crate::kinds::check;

    #[test]
    fn without_metrics_pods_are_kept_four_fifths_busy() {
        let mut autoscaler = json!({"spec": {"maxReplicas": 3, "behavior": {"scaleDown": {"policies": []}}}});
        HorizontalPodAutoscaler::DEFAULT.default(&mut autoscaler);
        let spec = &autoscaler["spec"];
        assert_eq!(spec["minReplicas"], 1);
        assert_eq!(spec["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        assert_eq!(spec["behavior"]["scaleUp"]["policies"].as_array().map(Vec::len), Some(2));
        assert_eq!(spec["behavior"]["scaleDown"], json!({"selectPolicy": "Max", "policies": []}));
    }

    fn autoscaler(change: impl FnOnce(&mut Value)) -> Value {
        let mut autoscaler = json!({"spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
        change(autoscaler.object_mut("spec"));
        autoscaler
    }

    #[test]
    fn bounds_and_target_make_sense() {
        check::create(&HorizontalPodAutoscaler::DEFAULT, autoscaler(|_| ()), &[]);
        check::create(
            &HorizontalPodAutoscaler::DEFAULT,
            json!({"spec": {"minReplicas": 0, "scaleTargetRef": {"apiVersion": "v1"}}}),
            &[
                "Invalid spec.minReplicas",
                "Invalid spec.maxReplicas",
                "Required spec.scaleTargetRef.kind",
                "Required spec.scaleTargetRef.name",
                "Invalid spec.scaleTargetRef.apiVersion",
                "Forbidden spec.metrics",
            ],
        );
    }

    #[test]
    fn a_metric_has_the_source_of_its_type_with_an_amount() {
        let metric = |metric: Value| autoscaler(|spec| spec.set("metrics", json!([metric])));
        check::create(
            &HorizontalPodAutoscaler::DEFAULT,
            metric(json!({"type": "X"})),
            &["NotSupported spec.metrics[0].type", "NotSupported spec.metrics[0].type"],
        );
        check::create(
            &HorizontalPodAutoscaler::DEFAULT,
            metric(
                json!({"type": "Pods", "resource": {"name": "cpu", "target": {"type": "X", "averageUtilization": 0}}}),
            ),
            &[
                "Invalid spec.metrics[0].resource.target.type",
                "Invalid spec.metrics[0].resource.target.averageUtilization",
                "Required spec.metrics[0].pods",
            ],
        );
    }

    #[test]
    fn rules_have_policies_within_bounds() {
        let rules = json!({"scaleUp": {"stabilizationWindowSeconds": 3601, "selectPolicy": "X",
            "policies": [{"type": "X", "value": 0, "periodSeconds": 1801}]}, "scaleDown": {"policies": []}});
        let path = "spec.behavior.scaleUp";
        check::create(
            &HorizontalPodAutoscaler::DEFAULT,
            autoscaler(|spec| spec.set("behavior", rules)),
            &[
                &format!("Invalid {path}.stabilizationWindowSeconds"),
                &format!("NotSupported {path}.selectPolicy"),
                &format!("NotSupported {path}.policies[0].type"),
                &format!("Invalid {path}.policies[0].value"),
                &format!("Invalid {path}.policies[0].periodSeconds"),
                "Required spec.behavior.scaleDown.policies",
            ],
        );
    }
}
