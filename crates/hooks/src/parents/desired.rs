//! The desired children in a hook's response.

use serde_json::{Value, json};
use setpoint::{Key, Kind, LabelSelector, Labels, Metadata};

use super::setup::Setup;
use crate::names::{CONTROLLER_UID, DECORATED_BY};
use crate::wire::{Objects, Shape};

/// The children, and the errors of individual ones, which are left out.
pub(super) struct Desired {
    pub(super) objects: Objects,
    pub(super) problems: Vec<String>,
}

/// Reads the children in a response. An error concerns all of them: a child that does not match the selector would be
/// released immediately.
pub(super) fn desired(
    setup: &Setup,
    parent: &Metadata,
    selector: &LabelSelector,
    children: &[Value],
) -> Result<Desired, String> {
    let mut desired = Desired { objects: Objects::default(), problems: Vec::new() };
    setup.children.iter().for_each(|declared| desired.objects.declare(&declared.kind));
    for (nth, child) in children.iter().enumerate() {
        let list = if setup.shape == Shape::Composite { "children" } else { "attachments" };
        let problem = |why: String| format!("{list}[{nth}], {}: {why}", described(child));
        match identify(setup, parent, child) {
            Err(why) => desired.problems.push(problem(why)),
            Ok((kind, key)) => {
                let child = prepared(setup, parent, &kind, &key, child);
                if setup.shape == Shape::Composite && !selector.matches(&labels(&child)) {
                    return Err(problem("its labels do not match the parent's selector".into()));
                }
                desired.objects.insert(&kind, key, child);
            }
        }
    }
    Ok(desired)
}

/// Returns the kind and the key of a child.
pub(super) fn identify(setup: &Setup, parent: &Metadata, child: &Value) -> Result<(Kind, Key), String> {
    let list = if setup.shape == Shape::Composite { "childResources" } else { "attachments" };
    let kind = setup.child_kind(child).ok_or_else(|| format!("spec.{list} does not have its kind"))?;
    let name = child["metadata"]["name"].as_str().unwrap_or_default();
    if !kind.namespaced() {
        return Ok((kind.clone(), Key::cluster(name)));
    }
    let given = child["metadata"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    match (parent.namespace.as_deref(), given) {
        (Some(own), Some(other)) if own != other => {
            Err(format!("it is in the namespace {other}, and its parent in {own}: only that can own it"))
        }
        (None, None) => Err("metadata.namespace: expected one, because the parent has none".into()),
        (own, given) => Ok((kind.clone(), Key::in_namespace(given.or(own), name))),
    }
}

/// Adds the namespace and the ownership markers to a child.
fn prepared(setup: &Setup, parent: &Metadata, kind: &Kind, key: &Key, child: &Value) -> Value {
    let mut child = child.clone();
    let Some(metadata) = child["metadata"].as_object_mut() else { return child };
    match key.namespace() {
        Some(namespace) if kind.namespaced() => _ = metadata.insert("namespace".into(), namespace.into()),
        _ => _ = metadata.remove("namespace"),
    }
    if setup.generate_selector {
        let labels = metadata.entry("labels").or_insert(Value::Null);
        if labels[CONTROLLER_UID].is_null() {
            labels[CONTROLLER_UID] = json!(parent.uid);
        }
    }
    if setup.shape == Shape::Decorator {
        metadata.entry("annotations").or_insert(Value::Null)[DECORATED_BY] = setup.name.as_str().into();
    }
    child
}

fn labels(object: &Value) -> Labels {
    let fields = object["metadata"]["labels"].as_object();
    let pairs =
        fields.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
    pairs.collect()
}

fn described(child: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {} of {}", text(&child["kind"]), text(&child["metadata"]["name"]), text(&child["apiVersion"]))
}
