//! Shortcut: the call of a step that applies a component, without evaluating a template.
//!
//! Most steps are of this type, each runs a few times until its component is healthy, and its template is always the
//! built-in one. A step with further properties or outputs is evaluated like any other.

use serde_json::{Value, json};

use super::steps::APPLY_COMPONENT;
use super::template::Call;
use crate::model::Step;

/// Returns the call of a step with these parameters, if it is known.
pub(super) fn call(step: &Step, parameter: &Value) -> Option<Call> {
    let given = parameter.as_object().filter(|_| step.kind == APPLY_COMPONENT)?;
    let is_known = |name: &str| matches!(name, "component" | "cluster" | "namespace");
    if given.iter().any(|(name, value)| !is_known(name) || !value.is_string()) {
        return None;
    }
    let text = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default();
    Some(Call {
        path: "apply".to_owned(),
        provider: "oam".to_owned(),
        action: "apply-component".to_owned(),
        params: json!({
            "value": given.get("component")?, "cluster": text("cluster"), "namespace": text("namespace"),
            "waitHealthy": true,
        }),
        patch: None,
        flat: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::builtin;
    use crate::render::sources::Sources;
    use crate::workflow::template::{Returned, StepTemplate};

    fn evaluated(parameter: &Value) -> Result<Option<Call>, String> {
        let (sources, definition) = (Sources::new(), builtin::apply_component().unwrap());
        let source = sources.parse("apply-component.cue", definition.template().unwrap()).unwrap();
        let context = serde_json::Map::new();
        let template = StepTemplate { sources: &sources, source, parameter: parameter.clone(), context };
        template.next(&Returned::default())
    }

    #[test]
    fn a_known_call_is_that_of_the_template() {
        let step = Step { kind: APPLY_COMPONENT.into(), ..Step::default() };
        for parameter in [
            json!({"component": "web"}),
            json!({"component": "web", "cluster": "", "namespace": "live"}),
            json!({"component": "web", "cluster": "west"}),
        ] {
            let known = call(&step, &parameter).unwrap();
            assert_eq!(evaluated(&parameter), Ok(Some(known)), "{parameter}");
        }
    }

    #[test]
    fn other_steps_and_parameters_are_left_to_the_template() {
        let step = |kind: &str| Step { kind: kind.into(), ..Step::default() };
        assert_eq!(call(&step("deploy"), &json!({"component": "web"})), None);
        for parameter in
            [json!({}), json!({"component": 1}), json!({"component": "web", "more": "x"}), json!(null)]
        {
            assert_eq!(call(&step(APPLY_COMPONENT), &parameter), None, "{parameter}");
        }
    }
}
