//! Definition files: a header that describes the definition, and its template.
//!
//! ```cue
//! import "strconv"
//!
//! "scaler": {
//!     type: "trait"
//!     description: "Sets the number of pods"
//!     attributes: podDisruptive: false
//! }
//!
//! template: {
//!     parameter: replicas: *1 | int
//! }
//! ```
//!
//! The template is kept as text: imports come first, then what is inside `template`.

use serde_json::{Map, Value, json};
use setpoint_cue::{Errors, Instance};

use crate::names::SYSTEM_NAMESPACE;

/// Why a file is not a valid definition.
#[derive(Debug, thiserror::Error)]
pub enum BadDefinition {
    /// There is no `template: {` at the start of a line, or nothing closes it.
    #[error("{0}: expected a field `template: {{…}}` at the end of the file")]
    NoTemplate(String),
    /// The header is not valid CUE.
    #[error("{file}: {source}")]
    Header {
        /// The name of the file.
        file: String,
        /// The error.
        source: Errors,
    },
    /// The header does not have one field, the name of the definition.
    #[error("{0}: expected one field beside `template`, named like the definition")]
    NoName(String),
    /// The header has an unknown type.
    #[error("{file}: type is {given:?}, expected component, trait, policy or workflow-step")]
    UnknownType {
        /// The name of the file.
        file: String,
        /// The type in the header.
        given: String,
    },
}

/// Turns a definition file into the definition's object.
///
/// ```
/// let object = setpoint_oam::definition_object("note.cue", r#"
/// "note": {
///     type: "component"
///     description: "A ConfigMap"
///     attributes: workload: type: "autodetects.core.oam.dev"
/// }
/// template: {
///     output: {apiVersion: "v1", kind: "ConfigMap"}
/// }
/// "#)?;
/// assert_eq!(object["kind"], "ComponentDefinition");
/// # Ok::<(), setpoint_oam::BadDefinition>(())
/// ```
pub fn definition_object(file: &str, text: &str) -> Result<Value, BadDefinition> {
    let (head, template) = split(text).ok_or_else(|| BadDefinition::NoTemplate(file.to_owned()))?;
    let (imports, header) = without_imports(head);
    let (name, header) = evaluated(file, &header)?;
    let kind = kind_of(file, &header)?;
    let mut spec = attributes(&header);
    spec.insert("schematic".into(), json!({"cue": {"template": format!("{imports}{template}")}}));
    Ok(json!({
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": kind,
        "metadata": metadata(&name, &header),
        "spec": spec,
    }))
}

/// Splits a file into the part before the template and the template's content.
fn split(text: &str) -> Option<(&str, String)> {
    let text = text.trim();
    let start = if text.starts_with("template: {") { 0 } else { text.find("\ntemplate: {")? + 1 };
    let inside = text[start..].strip_prefix("template: {")?.strip_suffix('}')?;
    let lines = inside.trim_matches('\n').lines().map(|line| line.strip_prefix('\t').unwrap_or(line));
    Some((&text[..start], lines.collect::<Vec<_>>().join("\n") + "\n"))
}

/// Removes the imports from a header: the template uses them, the header does not.
fn without_imports(head: &str) -> (String, String) {
    let (mut imports, mut header, mut inside) = (String::new(), String::new(), false);
    for line in head.lines() {
        inside |= line.starts_with("import");
        let target = if inside { &mut imports } else { &mut header };
        target.push_str(line);
        target.push('\n');
        inside &= line.starts_with("import (") || !(line.starts_with("import") || line.starts_with(')'));
    }
    (imports, header)
}

fn evaluated(file: &str, header: &str) -> Result<(String, Value), BadDefinition> {
    let wrap = |source| BadDefinition::Header { file: file.to_owned(), source };
    let value = Instance::of(file, header).and_then(|instance| instance.root().to_json()).map_err(wrap)?;
    match value {
        Value::Object(fields) if fields.len() == 1 => {
            fields.into_iter().next().ok_or_else(|| BadDefinition::NoName(file.to_owned()))
        }
        _ => Err(BadDefinition::NoName(file.to_owned())),
    }
}

fn kind_of(file: &str, header: &Value) -> Result<&'static str, BadDefinition> {
    let given = header["type"].as_str().unwrap_or_default();
    match given {
        "component" => Ok("ComponentDefinition"),
        "trait" => Ok("TraitDefinition"),
        "policy" => Ok("PolicyDefinition"),
        "workflow-step" => Ok("WorkflowStepDefinition"),
        _ => Err(BadDefinition::UnknownType { file: file.to_owned(), given: given.to_owned() }),
    }
}

fn attributes(header: &Value) -> Map<String, Value> {
    header["attributes"].as_object().cloned().unwrap_or_default()
}

fn metadata(name: &str, header: &Value) -> Value {
    let mut annotations = header["annotations"].as_object().cloned().unwrap_or_default();
    if let Some(description) = header["description"].as_str() {
        annotations.insert("definition.oam.dev/description".into(), description.into());
    }
    let mut metadata = json!({"name": name, "namespace": SYSTEM_NAMESPACE, "annotations": annotations});
    if let Some(labels) = header.get("labels") {
        metadata["labels"] = labels.clone();
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALER: &str = "import (\n\t\"strconv\"\n)\n\nscaler: {\n\ttype: \"trait\"\n\tdescription: \"x\"\n\tattributes: stage: \"PreDispatch\"\n}\n\ntemplate: {\n\ta: strconv.FormatInt(1, 10)\n}\n";

    #[test]
    fn imports_and_the_inside_of_the_template_become_the_template() {
        let object = definition_object("scaler.cue", SCALER).unwrap();
        let template = object["spec"]["schematic"]["cue"]["template"].as_str().unwrap();
        assert_eq!(template, "import (\n\t\"strconv\"\n)\na: strconv.FormatInt(1, 10)\n");
        assert_eq!(object["spec"]["stage"], "PreDispatch");
    }

    #[test]
    fn a_file_without_a_template_or_with_another_type_is_refused() {
        let error = definition_object("a.cue", "x: {type: \"trait\"}").unwrap_err();
        assert!(error.to_string().contains("template"), "{error}");
        let error = definition_object("a.cue", "x: {type: \"cat\"}\ntemplate: {\n}").unwrap_err();
        assert!(error.to_string().contains("expected component"), "{error}");
    }
}
