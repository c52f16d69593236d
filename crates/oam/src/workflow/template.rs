//! A step's template: determines its next call from the results of the earlier ones.
//!
//! The template is evaluated from the start for every call. That keeps the engine free of state, and a step makes only a
//! few calls.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use setpoint_cue::{Instance, Source, Tree, Value as Cue};

use crate::render::sources::Sources;

/// The maximum nesting of calls in structs.
const DEPTH: usize = 8;
/// The maximum number of calls of a step: each costs an evaluation.
pub(crate) const MAX_CALLS: usize = 200;

/// A step's template with its data.
pub(crate) struct StepTemplate<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) source: Source,
    pub(crate) parameter: Value,
    pub(crate) context: Map<String, Value>,
}

/// A call of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) provider: String,
    pub(crate) action: String,
    pub(crate) params: Value,
    /// The patch among the parameters, with the strategies in its comments.
    pub(crate) patch: Option<Tree>,
    /// Whether results are fields of the call itself.
    pub(super) flat: bool,
}

impl Call {
    /// Returns whether results are fields of the call itself.
    pub(crate) fn is_flat(&self) -> bool {
        self.flat
    }
}

/// The results of calls, by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returned(BTreeMap<String, Value>);

impl Returned {
    /// Records the result of a call.
    pub(crate) fn add(&mut self, call: &Call, result: Value) {
        let result = if call.flat { result } else { json!({"$returns": result}) };
        self.0.insert(call.path.clone(), result);
    }
}

impl StepTemplate<'_> {
    fn instance(&self, returned: &Returned) -> Result<Instance, String> {
        let parameter = if self.parameter.is_null() { &json!({}) } else { &self.parameter };
        let mut builder = Instance::builder()
            .source(&self.source)
            .packages(self.sources.packages.clone())
            .fill("parameter", parameter)
            .fill("context", &Value::Object(self.context.clone()));
        for (path, result) in &returned.0 {
            builder = builder.fill(path, result);
        }
        builder.build().map_err(|errors| errors.to_string())
    }

    /// Returns the next call, in the order of fields. `None` if all have been made.
    pub(crate) fn next(&self, returned: &Returned) -> Result<Option<Call>, String> {
        let instance = self.instance(returned)?;
        let checked = instance.lookup("parameter").and_then(|parameter| parameter.validate());
        checked.map_err(|errors| errors.to_string())?;
        let mut problem = None;
        let found = find(&instance.root(), "", 0, returned, &mut problem);
        match (found, problem) {
            (Some(call), _) => Ok(Some(call)),
            (None, Some(problem)) => Err(problem),
            (None, None) => Ok(None),
        }
    }

    /// Evaluates an expression over the template's values. Old expressions without `$returns` are retried with it.
    pub(crate) fn value(&self, returned: &Returned, expression: &str) -> Result<Value, String> {
        let instance = self.instance(returned)?;
        let evaluate = |expression: &str| {
            instance
                .evaluate(expression)
                .and_then(|value| value.to_json())
                .map_err(|errors| errors.to_string())
        };
        evaluate(expression).or_else(|error| match expression.split_once('.') {
            Some((first, rest)) => evaluate(&format!("{first}.$returns.{rest}")).map_err(|_| error),
            None => Err(error),
        })
    }
}

/// Finds the first call that has not returned. Calls whose parameters are incomplete wait for later ones.
fn find(
    value: &Cue<'_>,
    path: &str,
    depth: usize,
    returned: &Returned,
    problem: &mut Option<String>,
) -> Option<Call> {
    if depth > DEPTH {
        return None;
    }
    for (name, presence, field) in value.fields() {
        if presence != setpoint_cue::Presence::Set
            || (depth == 0 && (name == "parameter" || name == "context"))
        {
            continue;
        }
        let path = joined(path, &name);
        let action = text(&field, "#do");
        let found = match action.as_deref() {
            None | Some("steps") => find(&field, &path, depth + 1, returned, problem),
            Some(_) if returned.0.contains_key(&path) => None,
            Some(action) => match call(&field, &path, action) {
                Ok(call) => Some(call),
                Err(why) => {
                    problem.get_or_insert(why);
                    None
                }
            },
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn text(value: &Cue<'_>, path: &str) -> Option<String> {
    value.lookup(path).ok()?.as_text()
}

fn call(value: &Cue<'_>, path: &str, action: &str) -> Result<Call, String> {
    let flat = value.lookup("#flat").ok().and_then(|flat| flat.as_bool()).unwrap_or(false);
    let params = match (flat, action) {
        (_, "wait") => wait_params(value, flat),
        (true, _) => flat_params(value)?,
        (false, _) => match value.lookup("$params") {
            Ok(params) if params.is_absent() => json!({}),
            Ok(params) => params.to_json().map_err(|errors| errors.to_string())?,
            Err(_) => json!({}),
        },
    };
    let provider = text(value, "#provider").unwrap_or_default();
    let patch = match (provider.as_str(), action) {
        ("oam", _) | (_, "patch-k8s-object") => patch(value, if flat { "patch" } else { "$params.patch" })?,
        _ => None,
    };
    Ok(Call { path: path.to_owned(), provider, action: action.to_owned(), params, patch, flat })
}

fn patch(value: &Cue<'_>, path: &str) -> Result<Option<Tree>, String> {
    match value.lookup(path) {
        Ok(patch) if !patch.is_absent() && value.has(path) => {
            patch.to_tree().map(Some).map_err(|errors| errors.to_string())
        }
        _ => Ok(None),
    }
}

/// A condition that cannot be evaluated yet counts as false.
fn wait_params(value: &Cue<'_>, flat: bool) -> Value {
    let prefix = if flat { "" } else { "$params." };
    let continues = value.lookup(&format!("{prefix}continue")).ok().and_then(|value| value.as_bool());
    let message = text(value, &format!("{prefix}message"));
    json!({"continue": continues.unwrap_or(false), "message": message.unwrap_or_default()})
}

/// Takes the fields of a call that have values. Its results do not yet.
fn flat_params(value: &Cue<'_>) -> Result<Value, String> {
    let mut params = Map::new();
    for (name, presence, field) in value.fields() {
        if presence != setpoint_cue::Presence::Set {
            continue;
        }
        match field.to_json() {
            Ok(json) => drop(params.insert(name, json)),
            Err(errors) if matches!(name.as_str(), "value" | "resource" | "patch" | "url") => {
                return Err(errors.to_string());
            }
            Err(_) => {}
        }
    }
    Ok(Value::Object(params))
}

fn joined(path: &str, name: &str) -> String {
    let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '$');
    let name = if plain { name.to_owned() } else { json!(name).to_string() };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
