//! Tests of `deploy/`: the chart and the manifests generated from it, their roles, and the handover between managers.
//!
//! `SETPOINT_WRITE_DEPLOY=1 cargo test --workspace --test user deploy` regenerates the generated files.

mod chart;
mod generated;
mod handover;
mod manager;
#[cfg(feature = "prometheus-tests")]
mod monitoring;
mod rights;
mod shadow;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::binary::{Answer, kubectl};

/// The release that manifests are rendered for, and its service account.
const RELEASE: &str = "setpoint-controller-manager";
const NAMESPACE: &str = "kube-system";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").canonicalize().expect("it exists")
}

fn chart() -> PathBuf {
    deploy().join("charts/setpoint-controller-manager")
}

/// Returns the values file of an example: `alongside`, …
fn values(example: &str) -> String {
    deploy().join("values").join(example).with_extension("yaml").display().to_string()
}

/// Helm, which is installed with kubectl.
fn helm() -> PathBuf {
    kubectl().with_file_name("../helm/helm")
}

/// Runs `helm template` on the chart with these arguments.
fn try_render(arguments: &[&str]) -> Answer {
    let mut command = Command::new(helm());
    command.args(["template", RELEASE]).arg(chart()).args(["--namespace", NAMESPACE]).args(arguments);
    command.output().expect("helm starts").into()
}

fn render(arguments: &[&str]) -> String {
    let answer = try_render(arguments);
    assert!(answer.ok, "helm template {arguments:?}: {}", answer.err);
    answer.out
}

/// Parses a stream of YAML documents.
fn objects(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("\n---\n").map(|text| text.trim_start_matches("---\n"));
    let read = |text: &str| -> Value {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
    };
    documents.map(read).filter(|object| !object.is_null()).collect()
}

/// Returns the only object of this kind.
fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let one = found.next().unwrap_or_else(|| panic!("no {kind} is rendered"));
    assert!(found.next().is_none(), "one {kind} only");
    one
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Returns the arguments of the container.
fn arguments(deployment: &Value) -> Vec<String> {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let list = container["args"].as_array().expect("it has arguments");
    list.iter().map(|argument| argument.as_str().expect("a text").to_owned()).collect()
}
