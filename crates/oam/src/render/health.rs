//! Health, message and details of live objects, evaluated with a definition's templates.

use serde_json::{Map, Value, json};
use setpoint_cue::{Input, Instance};

use super::sources::Sources;
use crate::definition::model::Status;
use crate::model::bounded;

/// The maximum length of a detail's name.
const MAX_NAME: usize = 31;

/// The maximum number of details of a component or trait. With the longest names and messages they take 32 kB.
const MAX_DETAILS: usize = 32;

/// The result of a definition's status templates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Health {
    pub(crate) healthy: bool,
    pub(crate) message: String,
    pub(crate) details: Map<String, Value>,
}

impl Default for Health {
    /// Without a policy, everything is healthy.
    fn default() -> Self {
        Self { healthy: true, message: String::new(), details: Map::new() }
    }
}

/// Evaluates the status templates. `context` holds the live objects as `output` and `outputs`.
pub(crate) fn judge(sources: &Sources, status: &Status, context: &Input, parameter: &Value) -> Health {
    if status.is_empty() {
        return Health::default();
    }
    let (hidden, details) = details(sources, status, context, parameter);
    let context = with_status(context, &json!({"details": hidden}));
    let (healthy, problem) = match status.health_policy.trim() {
        "" => (true, String::new()),
        policy => match is_health(sources, policy, &context, parameter) {
            Ok(healthy) => (healthy, String::new()),
            Err(why) => (false, why),
        },
    };
    let context = with_status(&context, &json!({"details": hidden, "healthy": healthy}));
    let message = match status.custom_status.trim() {
        "" => problem,
        custom => message(sources, custom, &context, parameter).unwrap_or(problem),
    };
    Health { healthy, message: bounded(message), details }
}

/// Adds the status. Details come from templates, so they can be converted back to data.
fn with_status(context: &Input, status: &Value) -> Input {
    Input::new(status).map_or_else(|_| context.clone(), |status| context.with("status", &status))
}

fn instance(
    sources: &Sources,
    template: &str,
    context: &Input,
    parameter: &Value,
) -> Result<Instance, String> {
    let source = sources.parse("status.cue", template).map_err(|errors| errors.to_string())?;
    let parameter = if parameter.is_null() { &json!({}) } else { parameter };
    Instance::builder()
        .source(&source)
        .packages(sources.packages.clone())
        .input("context", context)
        .fill("parameter", parameter)
        .build()
        .map_err(|errors| errors.to_string())
}

fn is_health(sources: &Sources, policy: &str, context: &Input, parameter: &Value) -> Result<bool, String> {
    let instance = instance(sources, policy, context, parameter)?;
    let value = instance.lookup("isHealth").map_err(|errors| errors.to_string())?;
    match value.as_bool() {
        Some(healthy) => Ok(healthy),
        None => {
            Err(value.error().map_or_else(|| "isHealth is no bool".to_owned(), |error| error.to_string()))
        }
    }
}

fn message(sources: &Sources, custom: &str, context: &Input, parameter: &Value) -> Option<String> {
    let instance = instance(sources, custom, context, parameter).ok()?;
    instance.lookup("message").ok()?.as_text()
}

/// Returns all details, for other templates, and the details for users: strings, except those whose names start with
/// `$` or are too long, and those marked `@local` or `@private`.
fn details(
    sources: &Sources,
    status: &Status,
    context: &Input,
    parameter: &Value,
) -> (Value, Map<String, Value>) {
    let (mut all, mut shown) = (Map::new(), Map::new());
    if status.details.trim().is_empty() {
        return (Value::Object(all), shown);
    }
    let Ok(instance) = instance(sources, &status.details, context, parameter) else {
        return (Value::Object(all), shown);
    };
    for (name, _, value) in instance.root().fields() {
        if name == "context" || name == "parameter" {
            continue;
        }
        let Ok(json) = value.to_json() else { continue };
        let hidden = value.attributes().iter().any(|mark| mark.name == "local" || mark.name == "private");
        if !hidden && !name.starts_with('$') && name.len() <= MAX_NAME && shown.len() < MAX_DETAILS {
            let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
            shown.insert(name.clone(), bounded(text).into());
        }
        all.insert(name, json);
    }
    (Value::Object(all), shown)
}
