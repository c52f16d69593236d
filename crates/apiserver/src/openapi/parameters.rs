//! The query and path parameters of endpoints.

use serde_json::{Value, json};

/// A parameter in the query.
struct Parameter {
    name: &'static str,
    ty: &'static str,
    description: &'static str,
}

const fn parameter(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter { name, ty, description }
}

const DRY_RUN: Parameter = parameter("dryRun", "string", "With the value All, nothing is stored.");
const FIELD_MANAGER: Parameter =
    parameter("fieldManager", "string", "The name of who makes the change; required for apply.");
const FIELD_VALIDATION: Parameter = parameter(
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: Ignore, Warn (the default) or Strict.",
);
const FORCE: Parameter =
    parameter("force", "boolean", "Apply takes over fields that others own instead of reporting a conflict.");
const GRACE_PERIOD: Parameter =
    parameter("gracePeriodSeconds", "integer", "How long the deletion waits; zero deletes at once.");
const ORPHAN: Parameter = parameter("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
const PROPAGATION: Parameter =
    parameter("propagationPolicy", "string", "What becomes of dependents: Orphan, Background or Foreground.");
const BOOKMARKS: Parameter = parameter("allowWatchBookmarks", "boolean", "A watch may send bookmarks.");
const CONTINUE: Parameter = parameter("continue", "string", "Where a list that was limited goes on.");
const FIELD_SELECTOR: Parameter = parameter("fieldSelector", "string", "Selects objects by their fields.");
const LABEL_SELECTOR: Parameter = parameter("labelSelector", "string", "Selects objects by their labels.");
const LIMIT: Parameter = parameter("limit", "integer", "The most objects that a list returns.");
const VERSION: Parameter = parameter("resourceVersion", "string", "How recent the answer has to be.");
const VERSION_MATCH: Parameter =
    parameter("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan.");
const INITIAL_EVENTS: Parameter =
    parameter("sendInitialEvents", "boolean", "A watch begins with the objects that are there.");
const TIMEOUT: Parameter = parameter("timeoutSeconds", "integer", "How long the call may take.");
const WATCH: Parameter = parameter("watch", "boolean", "Changes are sent as they happen.");
const PRETTY: Parameter = parameter("pretty", "string", "If true, the output is made for humans.");

pub(super) fn listing() -> Value {
    all(&[
        BOOKMARKS,
        CONTINUE,
        FIELD_SELECTOR,
        LABEL_SELECTOR,
        LIMIT,
        VERSION,
        VERSION_MATCH,
        INITIAL_EVENTS,
        TIMEOUT,
        WATCH,
    ])
}

pub(super) fn writing() -> Value {
    all(&[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION])
}

pub(super) fn patching() -> Value {
    all(&[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE])
}

pub(super) fn deleting() -> Value {
    all(&[DRY_RUN, GRACE_PERIOD, ORPHAN, PROPAGATION])
}

pub(super) fn deleting_collection() -> Value {
    all(&[
        CONTINUE,
        DRY_RUN,
        FIELD_SELECTOR,
        GRACE_PERIOD,
        LABEL_SELECTOR,
        LIMIT,
        ORPHAN,
        PROPAGATION,
        VERSION,
        VERSION_MATCH,
        INITIAL_EVENTS,
        TIMEOUT,
    ])
}

/// The parameters that all operations of a path have in common.
pub(super) fn of_path(kind: &str, named: bool, namespaced: bool) -> Value {
    let in_path = |name: &str, description: String| {
        json!({"name": name, "in": "path", "required": true, "description": description,
            "schema": {"type": "string", "uniqueItems": true}})
    };
    let mut parameters = Vec::new();
    if named {
        parameters.push(in_path("name", format!("name of the {kind}")));
    }
    if namespaced {
        parameters.push(in_path("namespace", "the namespace".to_owned()));
    }
    parameters.push(query(&PRETTY));
    parameters.into()
}

fn all(parameters: &[Parameter]) -> Value {
    parameters.iter().map(query).collect()
}

fn query(parameter: &Parameter) -> Value {
    let Parameter { name, ty, description } = parameter;
    json!({"name": name, "in": "query", "description": description, "schema": {"type": ty, "uniqueItems": true}})
}
