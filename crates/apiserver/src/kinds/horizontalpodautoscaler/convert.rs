//! Converts between `autoscaling/v2` and `autoscaling/v1`, which only has fields for CPU.
//!
//! Data without a field in v1 is kept in annotations, as text: metrics, their current values, conditions and behavior,
//! so that nothing is lost in conversion.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{DEFAULT_UTILIZATION, cpu_metric};
use crate::json::{Json, JsonMut};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
pub(super) const CARRIED: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// Converts an `autoscaling/v2` object to `autoscaling/v1`.
pub(super) fn to_v1(autoscaler: &mut Value) {
    let (spec, status) = (autoscaler.at("spec").clone(), autoscaler.at("status").clone());
    drop_carried(autoscaler);
    let metrics = spec.list("metrics").iter();
    let others: Vec<Value> = metrics
        .clone()
        .filter(|metric| !is_utilization(metric))
        .map(|metric| old_metric(metric, &TARGET))
        .collect();
    let current = status.list("currentMetrics").iter().map(|metric| old_metric(metric, &CURRENT)).collect();
    carry_list(autoscaler, METRICS, others);
    carry_list(autoscaler, CURRENT_METRICS, current);
    if spec.has("behavior") {
        carry(autoscaler, BEHAVIOR, &renamed(spec.at("behavior"), capitalized));
    }
    carry_list(autoscaler, CONDITIONS, status.list("conditions").to_vec());
    let mut old_spec = json!({});
    for field in ["scaleTargetRef", "minReplicas", "maxReplicas"] {
        old_spec.restore(field, &spec);
    }
    if let Some(cpu) = metrics.clone().find(|metric| is_utilization(metric)) {
        let utilization = cpu.at("resource").at("target").at("averageUtilization");
        old_spec.set("targetCPUUtilizationPercentage", utilization.clone());
    }
    autoscaler.set("spec", old_spec);
    autoscaler.set("status", old_status(&status));
}

/// Converts an `autoscaling/v1` object to `autoscaling/v2`.
pub(super) fn to_v2(autoscaler: &mut Value) {
    let mut metrics: Vec<Value> = carried(autoscaler, METRICS)
        .and_then(|carried| {
            Some(carried.as_array()?.iter().map(|metric| new_metric(metric, &TARGET)).collect())
        })
        .unwrap_or_default();
    let behavior = carried(autoscaler, BEHAVIOR).map(|behavior| renamed(&behavior, uncapitalized));
    let current = carried(autoscaler, CURRENT_METRICS);
    let conditions = carried(autoscaler, CONDITIONS);
    drop_carried(autoscaler);
    let spec = autoscaler.object_mut("spec");
    if let Some(utilization) = spec.unset("targetCPUUtilizationPercentage").filter(|value| !value.is_null()) {
        metrics.push(cpu_metric(&utilization));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric(&DEFAULT_UTILIZATION.into()));
    }
    spec.set("metrics", metrics);
    if let Some(behavior) =
        behavior.filter(|behavior| behavior.as_object().is_some_and(|rules| !rules.is_empty()))
    {
        spec.set("behavior", behavior);
    }
    let status = new_status(autoscaler.at("status"), current, conditions);
    autoscaler.set("status", status);
}

fn is_utilization(metric: &Value) -> bool {
    let resource = metric.at("resource");
    metric.text("type") == "Resource"
        && resource.text("name") == "cpu"
        && resource.at("target").has("averageUtilization")
}

fn old_status(status: &Value) -> Value {
    let mut old = json!({});
    for field in ["observedGeneration", "lastScaleTime"] {
        old.restore(field, status);
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        old.set(field, status.count(field));
    }
    let cpu = status
        .list("currentMetrics")
        .iter()
        .filter(|metric| metric.text("type") == "Resource" && metric.at("resource").text("name") == "cpu");
    let mut utilization =
        cpu.filter_map(|metric| metric.at("resource").at("current").int("averageUtilization"));
    if let Some(utilization) = utilization.next_back() {
        old.set("currentCPUUtilizationPercentage", utilization);
    }
    old
}

fn new_status(old: &Value, current: Option<Value>, conditions: Option<Value>) -> Value {
    let mut status = json!({"desiredReplicas": old.count("desiredReplicas"), "currentMetrics": null});
    for field in ["observedGeneration", "lastScaleTime"] {
        status.restore(field, old);
    }
    if old.count("currentReplicas") != 0 {
        status.restore("currentReplicas", old);
    }
    if let Some(utilization) = old.int("currentCPUUtilizationPercentage") {
        let resource = json!({"name": "cpu", "current": {"averageUtilization": utilization}});
        status.set("currentMetrics", json!([{"type": "Resource", "resource": resource}]));
    }
    if let Some(Value::Array(current)) = current {
        let current: Vec<Value> = current.iter().map(|metric| new_metric(metric, &CURRENT)).collect();
        status.set("currentMetrics", current);
    }
    if let Some(conditions @ Value::Array(_)) = conditions {
        status.set("conditions", conditions);
    }
    status
}

/// A metric's target or its current value: both have the same structure under different names.
struct Side {
    field: &'static str,
    value: &'static str,
    average_value: &'static str,
    utilization: &'static str,
    /// Amounts that the old version always writes, by source.
    always: &'static [(&'static str, &'static str)],
}

const TARGET: Side = Side {
    field: "target",
    value: "targetValue",
    average_value: "targetAverageValue",
    utilization: "targetAverageUtilization",
    always: &[("object", "targetValue"), ("pods", "targetAverageValue")],
};
const CURRENT: Side = Side {
    field: "current",
    value: "currentValue",
    average_value: "currentAverageValue",
    utilization: "currentAverageUtilization",
    always: &[
        ("object", "currentValue"),
        ("pods", "currentAverageValue"),
        ("resource", "currentAverageValue"),
        ("containerResource", "currentAverageValue"),
        ("external", "currentValue"),
    ],
};

impl Side {
    /// Returns the amounts: their names in the old and the new version.
    fn amounts(&self, source: &str) -> [(&'static str, &'static str); 3] {
        let average = if source == "object" { "averageValue" } else { self.average_value };
        [(self.value, "value"), (average, "averageValue"), (self.utilization, "averageUtilization")]
    }

    fn is_always(&self, source: &str, name: &str) -> bool {
        self.always.contains(&(source, name))
    }
}

fn old_metric(metric: &Value, side: &Side) -> Value {
    each_source(metric, |name, source| {
        let mut old = json!({});
        let amounts = source.at(side.field);
        for (before, now) in side.amounts(name) {
            match amounts.at(now) {
                Value::Null if side.is_always(name, before) => old.set(before, "0"),
                Value::Null => {}
                amount => old.set(before, amount.clone()),
            }
        }
        for (before, now) in names_of(name) {
            let value = now.iter().fold(source, |at, field| at.at(field));
            if !value.is_null() {
                old.set(before, value.clone());
            }
        }
        old
    })
}

fn new_metric(metric: &Value, side: &Side) -> Value {
    each_source(metric, |name, old| {
        let mut source = json!({});
        let mut amounts = json!({});
        for (before, now) in side.amounts(name) {
            match old.at(before) {
                Value::Null if side.is_always(name, before) => amounts.set(now, "0"),
                Value::Null => {}
                amount => amounts.set(now, amount.clone()),
            }
        }
        if side.field == "target" {
            amounts.set("type", target_type(name, &amounts));
        }
        source.set(side.field, amounts);
        for (before, now) in names_of(name) {
            let value = old.at(before);
            match now {
                _ if value.is_null() => {}
                [outer, inner] => source.object_mut(outer).set(inner, value.clone()),
                _ => source.set(now[0], value.clone()),
            }
        }
        source
    })
}

/// Returns the metric with each of its sources changed.
fn each_source(metric: &Value, change: impl Fn(&str, &Value) -> Value) -> Value {
    let mut changed = json!({"type": metric.text("type")});
    for name in SOURCES {
        if metric.has(name) {
            changed.set(name, change(name, metric.at(name)));
        }
    }
    changed
}

/// Returns the identifying fields of a source: the name in the old version, and the path in the new one.
fn names_of(source: &str) -> &'static [(&'static str, &'static [&'static str])] {
    match source {
        "object" => &[
            ("target", &["describedObject"]),
            ("metricName", &["metric", "name"]),
            ("selector", &["metric", "selector"]),
        ],
        "pods" => &[("metricName", &["metric", "name"]), ("selector", &["metric", "selector"])],
        "external" => &[("metricName", &["metric", "name"]), ("metricSelector", &["metric", "selector"])],
        "containerResource" => &[("name", &["name"]), ("container", &["container"])],
        _ => &[("name", &["name"])],
    }
}

/// Infers the target type from its amounts, as the old version does not state it.
fn target_type(source: &str, amounts: &Value) -> &'static str {
    let has = |amount: &str| amounts.has(amount);
    match source {
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    }
}

fn carried(autoscaler: &Value, annotation: &str) -> Option<Value> {
    serde_json::from_str(autoscaler.at("metadata").at("annotations").text(annotation)).ok()
}

/// Removes the annotations that only `autoscaling/v1` has.
pub(super) fn drop_carried(autoscaler: &mut Value) {
    let metadata = autoscaler.object_mut("metadata");
    let Some(annotations) = metadata.at_mut("annotations") else { return };
    for annotation in CARRIED {
        annotations.unset(annotation);
    }
    if annotations.as_object().is_some_and(Map::is_empty) {
        metadata.unset("annotations");
    }
}

fn carry_list(autoscaler: &mut Value, annotation: &str, list: Vec<Value>) {
    if !list.is_empty() {
        carry(autoscaler, annotation, &list.into());
    }
}

fn carry(autoscaler: &mut Value, annotation: &str, value: &Value) {
    let mut text = String::new();
    write_in_order(value, &mut text);
    autoscaler.object_mut("metadata").object_mut("annotations").set(annotation, text);
}

/// The order in which v1.34 writes the fields in annotations.
const ORDER: [&str; 39] = [
    "type",
    "status",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetValue",
    "currentValue",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetAverageValue",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "lastTransitionTime",
    "reason",
    "message",
    "ScaleUp",
    "ScaleDown",
    "StabilizationWindowSeconds",
    "SelectPolicy",
    "Policies",
    "Tolerance",
    "Type",
    "Value",
    "PeriodSeconds",
];

fn write_in_order(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name));
            for (at, (name, value)) in fields.iter().enumerate() {
                text.push(if at == 0 { '{' } else { ',' });
                _ = write!(text, "{}:", Value::from(name.as_str()));
                match name.as_str() {
                    // Labels are sorted by their own names.
                    "matchLabels" => _ = write!(text, "{value}"),
                    _ => write_in_order(value, text),
                }
            }
            text.push_str(if fields.is_empty() { "{}" } else { "}" });
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_in_order(item, text);
            }
            text.push(']');
        }
        scalar => _ = write!(text, "{scalar}"),
    }
}

/// Renames the fields of behavior, which has other names in annotations, with all fields of its rules.
fn renamed(value: &Value, rename: fn(&str) -> String) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.iter().filter(|(_, value)| !value.is_null());
            let mut object: Map<String, Value> =
                renamed.map(|(name, value)| (rename(name), renamed_in(value, rename))).collect();
            if object.contains_key("Policies") {
                object.entry("StabilizationWindowSeconds").or_insert(Value::Null);
                object.entry("Tolerance").or_insert(Value::Null);
            }
            Value::Object(object)
        }
        other => other.clone(),
    }
}

fn renamed_in(value: &Value, rename: fn(&str) -> String) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| renamed(item, rename)).collect(),
        other => renamed(other, rename),
    }
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn uncapitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Value {
        json!({"metadata": {"name": "a"}, "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "100Mi"}}},
                {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"},
                    "metric": {"name": "hits", "selector": {"matchLabels": {"z": "1", "a": "2"}}}, "target": {"type": "Value", "value": "10"}}},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
            "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}}},
          "status": {"desiredReplicas": 2, "currentReplicas": 1,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": "5", "averageUtilization": 40}}}],
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "R"}]}})
    }

    #[test]
    fn converting_there_and_back_loses_nothing() {
        let mut autoscaler = full();
        to_v1(&mut autoscaler);
        to_v2(&mut autoscaler);
        assert_eq!(autoscaler, full());
    }

    #[test]
    fn the_old_version_carries_the_rest_in_annotations() {
        let mut autoscaler = full();
        to_v1(&mut autoscaler);
        assert_eq!(autoscaler["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(
            autoscaler["status"],
            json!({"currentReplicas": 1, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 40})
        );
        let annotations = &autoscaler["metadata"]["annotations"];
        assert_eq!(
            annotations[METRICS],
            r#"[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"100Mi"}},{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"hits","targetValue":"10","selector":{"matchLabels":{"a":"2","z":"1"}}}}]"#
        );
        assert_eq!(
            annotations[BEHAVIOR],
            r#"{"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}"#
        );
    }

    #[test]
    fn without_metrics_the_cpu_metric_is_the_default() {
        let mut autoscaler = json!({"spec": {"maxReplicas": 3}});
        to_v2(&mut autoscaler);
        assert_eq!(autoscaler["spec"]["metrics"], json!([cpu_metric(&80.into())]));
    }
}
