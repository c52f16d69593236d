//! Checks properties against the parameters of a definition: invalid values, unknown properties, and a table of the
//! parameters.

use std::sync::Arc;

use serde_json::{Value, json};
use setpoint_cue::{Errors, Instance, Schema};

use crate::definition::model::Definition;
use crate::render::sources::Sources;

/// A parameter of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The path: `ports[].port`.
    pub name: String,
    /// The type in a few words.
    pub kind: String,
    /// Whether it is required.
    pub required: bool,
    /// The default, as JSON.
    pub default: Option<String>,
    /// The description in the template.
    pub description: String,
}

/// The maximum depth of listed parameters.
const DEPTH: usize = 4;
/// The maximum number of listed parameters, and of warnings per definition.
const MOST: usize = 500;

/// The problems of properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// Invalid values.
    pub(crate) wrong: Option<String>,
    /// Missing required parameters. Inputs and policies may still supply them.
    pub(crate) missing: Option<String>,
    /// The paths of unknown properties.
    pub(crate) unknown: Vec<String>,
}

/// Checks properties.
pub(crate) fn check(
    sources: &Sources,
    definition: &Definition,
    properties: &Value,
) -> Result<Findings, String> {
    let empty = json!({});
    let properties = if properties.is_null() { &empty } else { properties };
    let given = instance(sources, definition, Some(properties))?;
    let mut findings = Findings::default();
    if let Err(errors) = given.lookup("parameter").and_then(|parameter| parameter.validate()) {
        findings.wrong = Some(plainly(&errors.first().to_string()));
    }
    if let Some(schema) = schema(sources, definition)? {
        findings.missing =
            missing(&schema, properties, "").map(|path| format!("{path}: a value is required"));
        unknown(&schema, properties, "", &mut findings.unknown);
    }
    Ok(findings)
}

/// An error names the parameter first: `parameter.image: …` becomes `image: …`.
fn plainly(message: &str) -> String {
    message.strip_prefix("parameter.").unwrap_or(message).to_owned()
}

fn instance(
    sources: &Sources,
    definition: &Definition,
    properties: Option<&Value>,
) -> Result<Instance, String> {
    let shown = |errors: Errors| errors.to_string();
    let name = format!("{}.cue", definition.metadata.name);
    let source = sources.parse(&name, definition.template()?).map_err(shown)?;
    let mut builder =
        Instance::builder().source(&source).packages(sources.packages.clone()).expect("context");
    builder = match properties {
        Some(properties) => builder.fill("parameter", properties),
        None => builder.expect("parameter"),
    };
    builder.build().map_err(shown)
}

/// Returns the schema of the parameters. `None` if the template has none.
fn schema(sources: &Sources, definition: &Definition) -> Result<Option<Arc<Schema>>, String> {
    sources.schema(definition.template()?, || {
        let instance = instance(sources, definition, None)?;
        let Ok(parameter) = instance.lookup("parameter") else { return Ok(None) };
        parameter.schema().map(Some).map_err(|errors| errors.to_string())
    })
}

/// Returns the path of the first missing required parameter.
fn missing(schema: &Schema, value: &Value, path: &str) -> Option<String> {
    if !schema.alternatives.is_empty() {
        return None;
    }
    match value {
        Value::Object(given) => schema.fields.iter().find_map(|field| {
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            match given.get(&field.name) {
                None => field.required.then_some(path),
                Some(value) => missing(&field.schema, value, &path),
            }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| missing(schema.items.as_deref()?, item, &format!("{path}[{index}]"))),
        _ => None,
    }
}

/// Collects unknown properties. A struct without declared fields accepts anything.
fn unknown(schema: &Schema, value: &Value, path: &str, found: &mut Vec<String>) {
    if found.len() >= MOST || !schema.alternatives.is_empty() {
        return;
    }
    match value {
        Value::Object(fields) if !schema.fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (schema.field(name), &schema.others) {
                    (Some(field), _) => unknown(&field.schema, value, &path, found),
                    (None, Some(others)) => unknown(others, value, &path, found),
                    (None, None) => found.push(path),
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                unknown(schema, item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Returns the parameters of a definition, in the order of its template.
///
/// ```
/// let definition = setpoint_oam::definition_object("note.cue", r#"
/// "note": {type: "component", attributes: workload: type: "autodetects.core.oam.dev"}
/// template: {
///     output: {apiVersion: "v1", kind: "ConfigMap", data: words: parameter.words}
///     parameter: {
///         // +usage=What it says
///         words: string
///         copies: *1 | int
///     }
/// }
/// "#)?;
/// let parameters = setpoint_oam::parameters(&definition)?;
/// assert_eq!((parameters[0].name.as_str(), parameters[0].required), ("words", true));
/// assert_eq!(parameters[1].default.as_deref(), Some("1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parameters(definition: &Value) -> Result<Vec<Parameter>, String> {
    let definition = Definition::of(definition).map_err(|error| error.to_string())?;
    let mut list = Vec::new();
    if let Some(schema) = schema(&Sources::new(), &definition)? {
        add(&schema, "", 0, &mut list);
    }
    Ok(list)
}

fn add(schema: &Schema, path: &str, depth: usize, list: &mut Vec<Parameter>) {
    for field in &schema.fields {
        if list.len() >= MOST {
            return;
        }
        let name = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        list.push(Parameter {
            kind: field.schema.summary(),
            required: field.required,
            default: field.schema.default.as_ref().map(Value::to_string),
            description: field.schema.marker("usage").unwrap_or_default().to_owned(),
            name: name.clone(),
        });
        let (inner, name) = match &field.schema.items {
            Some(items) => (&**items, format!("{name}[]")),
            None => (&field.schema, name),
        };
        if depth < DEPTH {
            add(inner, &name, depth + 1, list);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        Definition::of(&json!({"metadata": {"name": "d"}, "spec": {"schematic": {"cue": {"template": "
            output: name: context.name
            parameter: {
                image: string
                ports?: [...{port: int}]
                labels?: [string]: string
            }"}}}}))
        .unwrap()
    }

    fn found(properties: Value) -> Findings {
        check(&Sources::new(), &definition(), &properties).unwrap()
    }

    #[test]
    fn wrong_missing_and_unknown_properties_are_told_apart() {
        assert_eq!(found(json!({"image": "a", "labels": {"x": "y"}})), Findings::default());
        let wrong = found(json!({"image": 1}));
        assert!(wrong.wrong.as_deref().is_some_and(|why| why.starts_with("image: ")), "{wrong:?}");
        let missing = found(json!({"ports": [{}]}));
        assert_eq!(missing.missing.as_deref(), Some("image: a value is required"));
        let missing = found(json!({"image": "a", "ports": [{}]}));
        assert_eq!(missing.missing.as_deref(), Some("ports[0].port: a value is required"));
        let unknown = found(json!({"image": "a", "imag": "b", "ports": [{"port": 1, "prot": 2}]})).unknown;
        assert_eq!(unknown, ["imag", "ports[0].prot"]);
    }
}
