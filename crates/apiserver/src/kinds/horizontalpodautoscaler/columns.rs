//! Table columns of autoscalers.

use std::borrow::Cow;

use serde_json::Value;

use super::v1;
use crate::json::Json;
use crate::table::Column;

const REFERENCE: &str = "scaleTargetRef points to the target resource to scale, and is used to the pods for which metrics should be collected, as well as to actually change the replica count.";
const TARGETS: &str = "metrics contains the specifications for which to use to calculate the desired replica count (the maximum replica count across all metrics will be used).  The desired replica count is calculated multiplying the ratio between the target value and the current value by the current number of pods.  Ergo, metrics used must decrease as the pod count is increased, and vice-versa.  See the individual metric source types for more information about how each type of metric must respond.";
const MIN_PODS: &str = "minReplicas is the lower limit for the number of replicas to which the autoscaler can scale down.  It defaults to 1 pod.  minReplicas is allowed to be 0 if the alpha feature gate HPAScaleToZero is enabled and at least one Object or External metric is configured.  Scaling is active as long as at least one metric value is available.";
const MAX_PODS: &str = "maxReplicas is the upper limit for the number of replicas to which the autoscaler can scale up. It cannot be less that minReplicas.";
const REPLICAS: &str = "currentReplicas is current number of replicas of pods managed by this autoscaler, as last seen by the autoscaler.";
/// How many metrics to show; the others are only counted.
const SHOWN: usize = 2;

pub(super) fn all() -> Vec<Column> {
    vec![
        Column::name(),
        Column::text("Reference", REFERENCE, |autoscaler, _| {
            let target = autoscaler.at("spec").at("scaleTargetRef");
            format!("{}/{}", target.text("kind"), target.text("name")).into()
        }),
        Column::text("Targets", TARGETS, |autoscaler, _| metrics(&stored(autoscaler)).into()),
        Column::text("MinPods", MIN_PODS, |autoscaler, _| match autoscaler.at("spec").int("minReplicas") {
            Some(replicas) => replicas.to_string().into(),
            None => "<unset>".into(),
        }),
        Column::text("MaxPods", MAX_PODS, |autoscaler, _| autoscaler.at("spec").count("maxReplicas").into()),
        Column::text("Replicas", REPLICAS, |autoscaler, _| {
            autoscaler.at("status").count("currentReplicas").into()
        }),
        Column::age(),
    ]
}

/// Returns the autoscaler with its metrics, which only the stored form has.
fn stored(autoscaler: &Value) -> Cow<'_, Value> {
    match autoscaler.at("spec").has("metrics") {
        true => Cow::Borrowed(autoscaler),
        false => Cow::Owned(v1::stored(autoscaler)),
    }
}

fn metrics(autoscaler: &Value) -> String {
    let wanted = autoscaler.at("spec").list("metrics");
    if wanted.is_empty() {
        return "<none>".into();
    }
    let current = autoscaler.at("status").list("currentMetrics");
    let shown = wanted.iter().take(SHOWN).enumerate();
    let shown: Vec<String> =
        shown.map(|(at, metric)| shown_metric(metric, current.get(at).unwrap_or(&Value::Null))).collect();
    match wanted.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} + {more} more...", shown.join(", ")),
    }
}

/// Formats a metric: `cpu: 40%/80%`, `5/10 (avg)`.
fn shown_metric(metric: &Value, current: &Value) -> String {
    let source = match metric.text("type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let (target, now) = (metric.at(source).at("target"), current.at(source).at("current"));
    let amount = |of: &Value, field: &str| of.at(field).as_str().map(str::to_owned);
    let percent = |of: &Value| of.int("averageUtilization").map(|percent| format!("{percent}%"));
    let unknown = || "<unknown>".to_owned();
    match (source, amount(target, "averageValue")) {
        ("external" | "object", Some(average)) => {
            format!("{}/{average} (avg)", amount(now, "averageValue").unwrap_or_else(unknown))
        }
        ("external" | "object", None) => {
            let value = amount(target, "value").unwrap_or_default();
            format!("{}/{value}", amount(now, "value").unwrap_or_else(unknown))
        }
        ("pods", average) => {
            let now = amount(now, "averageValue").unwrap_or_else(unknown);
            format!("{now}/{}", average.unwrap_or_default())
        }
        (_, Some(average)) => {
            let now = amount(now, "averageValue").unwrap_or_else(unknown);
            format!("{}: {now}/{average}", metric.at(source).text("name"))
        }
        (_, None) => {
            let target = percent(target).unwrap_or_else(|| "<auto>".into());
            let now = percent(now).unwrap_or_else(unknown);
            format!("{}: {now}/{target}", metric.at(source).text("name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metrics_are_shown_with_their_names() {
        let cpu =
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let hits = json!({"type": "Pods", "pods": {"target": {"averageValue": "10"}}});
        let queue = json!({"type": "External", "external": {"target": {"averageValue": "5"}}});
        let is =
            json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40}}});
        let of = |wanted: Value| json!({"spec": {"metrics": wanted}, "status": {"currentMetrics": [is]}});
        assert_eq!(metrics(&of(json!([cpu]))), "cpu: 40%/80%");
        assert_eq!(metrics(&of(json!([cpu, hits, queue]))), "cpu: 40%/80%, <unknown>/10 + 1 more...");
        assert_eq!(metrics(&of(json!([queue]))), "<unknown>/5 (avg)");
    }
}
