//! `if` of a step: a CUE expression over the status of other steps, inputs and context.

use serde_json::{Map, Value, json};
use setpoint_cue::{Instance, Source};

use crate::model::{Phase, StepStatus};

/// Evaluates a condition. The error says why it is not a bool.
pub(crate) fn holds(
    expression: &str,
    steps: &[StepStatus],
    inputs: &Map<String, Value>,
    context: &Map<String, Value>,
) -> Result<bool, String> {
    let empty = Source::parse("if.cue", "").map_err(|errors| errors.to_string())?;
    let instance = Instance::builder()
        .source(&empty)
        .fill("status", &statuses(steps))
        .fill("inputs", &Value::Object(inputs.clone()))
        .fill("context", &Value::Object(context.clone()))
        .build()
        .map_err(|errors| errors.to_string())?;
    let value = instance.evaluate(expression).map_err(|errors| errors.to_string())?;
    value.as_bool().ok_or_else(|| {
        value.error().map_or_else(|| format!("{expression:?} is no bool"), |error| error.to_string())
    })
}

fn statuses(steps: &[StepStatus]) -> Value {
    let all = steps.iter().flat_map(|step| std::iter::once(step).chain(&step.sub_steps));
    all.map(|step| (step.name.clone(), status(step))).collect::<Map<_, _>>().into()
}

fn status(step: &StepStatus) -> Value {
    json!({
        "id": step.id, "name": step.name, "type": step.kind, "message": step.message,
        "phase": step.phase, "reason": step.reason,
        "failed": step.phase == Phase::Failed,
        "succeeded": step.phase == Phase::Succeeded,
        "skipped": step.phase == Phase::Skipped,
        "timeout": step.reason == "Timeout",
        "failedAfterRetries": step.reason == "FailedAfterRetries",
        "terminate": step.reason == "Terminate",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_sees_steps_and_inputs() {
        let step = StepStatus {
            name: "notification-1".into(),
            phase: Phase::Failed,
            reason: "Timeout".into(),
            ..StepStatus::default()
        };
        let inputs = json!({"a-b": "x"}).as_object().cloned().unwrap();
        let check = |expression: &str| holds(expression, std::slice::from_ref(&step), &inputs, &Map::new());
        assert_eq!(check("status[\"notification-1\"].timeout"), Ok(true));
        assert_eq!(check("inputs[\"a-b\"] == \"y\""), Ok(false));
        assert!(check("suspend.timeout").is_err());
        assert!(check("status.other.failed").is_err());
    }
}
