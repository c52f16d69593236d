//! `setpoint def`: definitions, for platform teams.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Arg, Args, Subcommand};
use serde_json::{Value, json};
use setpoint::client::{Optional, Subresource};
use setpoint::{Client, Key, Kind};
use setpoint_oam::{Parameter, parameters};

use crate::app::connection::{Connection, Namespaced};
use crate::app::output::{Format, print, print_objects, reference, table};
use crate::app::render::definitions;

/// The namespace of shared definitions.
const SHARED: &str = "vela-system";

#[derive(Debug, Subcommand)]
pub(crate) enum Def {
    /// Check definitions without a cluster: syntax, template and parameters.
    Vet(Vet),
    /// Create or update definitions; without a namespace they are shared by all.
    Apply(Apply),
    /// Show the parameters of a definition.
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct Vet {
    /// Files with definitions: CUE or YAML.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(mut_args(with_shared_namespace))]
pub(crate) struct Apply {
    /// File with definitions: CUE or YAML.
    #[arg(long = "filename", short = 'f', value_name = "FILE", required = true)]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    target: Namespaced,
}

/// Changes the description of the namespace, which has another default here.
fn with_shared_namespace(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "namespace" => arg.help("Namespace [default: vela-system, shared by all namespaces]"),
        _ => arg,
    }
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of the definition.
    #[arg(value_name = "NAME", required_unless_present = "filename")]
    name: Option<String>,
    /// File with the definition, instead of one in the cluster.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "name")]
    filename: Option<PathBuf>,
    #[command(flatten)]
    target: Namespaced,
    /// Output format.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Returns the kinds of definitions.
pub(crate) fn kinds() -> [Kind; 4] {
    let kind = |kind: &str, plural: &str| Kind::new("core.oam.dev", "v1beta1", kind, plural, true);
    [
        kind("ComponentDefinition", "componentdefinitions"),
        kind("TraitDefinition", "traitdefinitions"),
        kind("PolicyDefinition", "policydefinitions"),
        kind("WorkflowStepDefinition", "workflowstepdefinitions"),
    ]
}

pub(crate) async fn run(command: Def) -> anyhow::Result<()> {
    match command {
        Def::Vet(arguments) => vet(&arguments.files),
        Def::Apply(arguments) => apply(&arguments).await,
        Def::Show(arguments) => show(&arguments).await,
    }
}

/// Checks every file, and fails if one of them is wrong.
fn vet(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut wrong = 0;
    for file in files {
        match vetted(file) {
            Ok(lines) => print(&lines)?,
            Err(error) => {
                wrong += 1;
                eprintln!("{}: {error:#}", file.display());
            }
        }
    }
    if wrong > 0 {
        bail!("{wrong} of {} files are invalid", files.len());
    }
    Ok(())
}

fn vetted(file: &Path) -> anyhow::Result<String> {
    let mut lines = String::new();
    for object in definitions(file)? {
        let found = parameters(&object).map_err(|why| anyhow::anyhow!("{}: {why}", reference(&object)))?;
        lines += &format!("{} has {} parameters\n", reference(&object), found.len());
    }
    Ok(lines)
}

async fn apply(arguments: &Apply) -> anyhow::Result<()> {
    let connection = arguments.target.connect().await?;
    let usual = if arguments.target.is_given() { connection.namespace.as_str() } else { SHARED };
    for file in &arguments.filenames {
        for mut object in definitions(file)? {
            parameters(&object)
                .map_err(|why| anyhow::anyhow!("{}: {}: {why}", file.display(), reference(&object)))?;
            if arguments.target.is_given() || object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = usual.into();
            }
            apply_one(&connection.client, &object).await?;
        }
    }
    Ok(())
}

async fn apply_one(client: &Client, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = kinds().into_iter().find(|kind| object["kind"] == kind.kind());
    let Some(kind) = kind else { bail!("{}: not a definition", reference(object)) };
    let key = Key::namespaced(text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    let before = client.get(&kind, &key).await.optional()?;
    let applied = client.apply(&kind, &key, Subresource::None, "setpoint", object.clone()).await;
    let applied = applied.with_context(|| format!("cannot apply {}", reference(object)))?;
    let done = match before {
        None => "created",
        Some(before) if before.meta().resource_version == applied.meta().resource_version => "unchanged",
        Some(_) => "configured",
    };
    print(&format!("{} {done}\n", reference(object)))
}

async fn show(arguments: &Show) -> anyhow::Result<()> {
    let found = match (&arguments.filename, &arguments.name) {
        (Some(file), _) => definitions(file)?,
        (None, name) => {
            named(&arguments.target.connect().await?, name.as_deref().unwrap_or_default()).await?
        }
    };
    if let Some(format) = arguments.output.filter(|format| *format != Format::Wide) {
        return print_objects(&found, format, false);
    }
    for object in &found {
        let found = parameters(object).map_err(|why| anyhow::anyhow!("{}: {why}", reference(object)))?;
        print(&shown(object, &found))?;
    }
    Ok(())
}

/// Finds definitions of any type by name, in the namespace and among the shared ones.
async fn named(connection: &Connection, name: &str) -> anyhow::Result<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    for kind in kinds() {
        for namespace in [connection.namespace.as_str(), SHARED] {
            let object = connection.client.get(&kind, &Key::namespaced(namespace, name)).await.optional()?;
            let Some(object) = object else { continue };
            let mut object: Value = object.decode()?;
            object["apiVersion"] = json!(kind.api_version());
            object["kind"] = json!(kind.kind());
            found.push(object);
            break;
        }
    }
    if found.is_empty() {
        bail!("no definition {name:?} in namespace {} or {SHARED}", connection.namespace);
    }
    Ok(found)
}

fn shown(object: &Value, parameters: &[Parameter]) -> String {
    let description =
        object["metadata"]["annotations"]["definition.oam.dev/description"].as_str().unwrap_or_default();
    let row = |parameter: &Parameter| {
        vec![
            parameter.name.clone(),
            parameter.kind.clone(),
            (if parameter.required { "yes" } else { "no" }).to_owned(),
            parameter.default.clone().unwrap_or_default(),
            parameter.description.clone(),
        ]
    };
    let rows: Vec<_> = parameters.iter().map(row).collect();
    let head = format!("{}\n{description}\n\n", reference(object));
    head + &table(&["PARAMETER", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_checked_and_its_parameters_are_a_table() {
        let directory = tempfile::tempdir().unwrap();
        let (good, bad) = (directory.path().join("note.cue"), directory.path().join("bad.cue"));
        let text = "\"note\": {type: \"component\", description: \"A note\", attributes: workload: type: \"autodetects.core.oam.dev\"}\n\
                    template: {\n\toutput: {apiVersion: \"v1\", kind: \"ConfigMap\"}\n\tparameter: {\n\t\t// +usage=What it says\n\t\twords: string\n\t}\n}\n";
        std::fs::write(&good, text).unwrap();
        std::fs::write(&bad, text.replace("words: string", "words: strin")).unwrap();
        assert_eq!(vetted(&good).unwrap(), "componentdefinition.core.oam.dev/note has 1 parameters\n");
        assert!(format!("{:#}", vetted(&bad).unwrap_err()).contains("strin"));
        assert!(vet(&[good.clone(), bad]).unwrap_err().to_string().contains("1 of 2"));
        let object = &definitions(&good).unwrap()[0];
        let table = shown(object, &parameters(object).unwrap());
        assert!(table.contains("words       string   yes"), "{table}");
    }
}
