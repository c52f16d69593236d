//! The query and path parameters of endpoints.

use std::borrow::Cow;

use crate::kind::Subresource;

/// A parameter of a request besides its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) ty: &'static str,
    pub(super) description: Cow<'static, str>,
}

/// The location of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Path,
    Query,
}

impl Place {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
        }
    }
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Place::Query, ty, description: Cow::Borrowed(description) }
}

const fn in_path(name: &'static str, description: Cow<'static, str>) -> Parameter {
    Parameter { name, place: Place::Path, ty: "string", description }
}

const DRY_RUN: Parameter = query("dryRun", "string", "With the value All, nothing is stored.");
const FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "The name of who makes the change; required for apply.");
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: Ignore, Warn (the default) or Strict.",
);
const FORCE: Parameter =
    query("force", "boolean", "Apply takes over fields that others own instead of reporting a conflict.");
const GRACE_PERIOD: Parameter =
    query("gracePeriodSeconds", "integer", "How long the deletion waits; zero deletes at once.");
const IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Deletes what can no longer be read, with neither preconditions nor finalizers.",
);
const ORPHAN: Parameter = query("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
const PROPAGATION: Parameter =
    query("propagationPolicy", "string", "What becomes of dependents: Orphan, Background or Foreground.");
const BOOKMARKS: Parameter = query("allowWatchBookmarks", "boolean", "A watch may send bookmarks.");
const CONTINUE: Parameter = query("continue", "string", "Where a list that was limited goes on.");
const FIELD_SELECTOR: Parameter = query("fieldSelector", "string", "Selects objects by their fields.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Selects objects by their labels.");
const LIMIT: Parameter = query("limit", "integer", "The most objects that a list returns.");
const VERSION: Parameter = query("resourceVersion", "string", "How recent the answer has to be.");
const VERSION_MATCH: Parameter =
    query("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan.");
const INITIAL_EVENTS: Parameter =
    query("sendInitialEvents", "boolean", "A watch begins with the objects that are there.");
const TIMEOUT: Parameter = query("timeoutSeconds", "integer", "How long the call may take.");
const WATCH: Parameter = query("watch", "boolean", "Changes are sent as they happen.");
const CONTAINER: Parameter = query("container", "string", "The container; needed where a pod has several.");

pub(super) const PRETTY: Parameter = query("pretty", "string", "If true, the output is made for humans.");

/// Returns the parameters for the consistency of a read.
pub(super) fn reading() -> Vec<Parameter> {
    vec![VERSION]
}

pub(super) fn listing() -> Vec<Parameter> {
    let mut parameters = vec![BOOKMARKS, WATCH];
    parameters.extend(selecting());
    parameters
}

fn selecting() -> [Parameter; 8] {
    [CONTINUE, FIELD_SELECTOR, LABEL_SELECTOR, LIMIT, VERSION, VERSION_MATCH, INITIAL_EVENTS, TIMEOUT]
}

pub(super) fn writing() -> Vec<Parameter> {
    vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION]
}

pub(super) fn patching() -> Vec<Parameter> {
    vec![DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE]
}

pub(super) fn deleting() -> Vec<Parameter> {
    vec![DRY_RUN, GRACE_PERIOD, IGNORE_READ_ERROR, ORPHAN, PROPAGATION]
}

pub(super) fn deleting_collection() -> Vec<Parameter> {
    let mut parameters = deleting();
    parameters.extend(selecting());
    parameters
}

/// Returns the parameters of a connection. The description of a proxied path depends on its target.
pub(super) fn connecting(part: Subresource) -> Vec<Parameter> {
    let stream = |name| query(name, "boolean", "Whether this stream is wanted.");
    let terminal = || query("tty", "boolean", "Whether the streams are those of a terminal.");
    let streams = || [CONTAINER, stream("stderr"), stream("stdin"), stream("stdout"), terminal()];
    match part {
        Subresource::Attach => streams().into(),
        Subresource::Exec => {
            let mut parameters = vec![query("command", "string", "What is run; once for each argument.")];
            parameters.extend(streams());
            parameters
        }
        Subresource::PortForward => vec![query("ports", "integer", "The ports that are forwarded.")],
        Subresource::Proxy => vec![query("path", "string", "The path of the proxied request.")],
        Subresource::Log => logs().into(),
        _ => Vec::new(),
    }
}

fn logs() -> [Parameter; 9] {
    [
        CONTAINER,
        query("follow", "boolean", "The log goes on as it grows."),
        query("insecureSkipTLSVerifyBackend", "boolean", "The node's certificate is not verified."),
        query("limitBytes", "integer", "How many bytes are sent at most."),
        query("previous", "boolean", "The log of the container before it was restarted."),
        query("sinceSeconds", "integer", "Only lines that are no older."),
        query("stream", "string", "Which stream: All, Stdout or Stderr."),
        query("tailLines", "integer", "How many lines are sent, counted from the end."),
        query("timestamps", "boolean", "Every line begins with its time."),
    ]
}

/// Returns the parameters in the path itself.
pub(super) fn of_path(path: &str, kind: &str) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    if path.contains("{name}") {
        parameters.push(in_path("name", format!("name of the {kind}").into()));
    }
    if path.contains("{namespace}") {
        parameters.push(in_path("namespace", "the namespace".into()));
    }
    if path.contains("{path}") {
        parameters.push(in_path("path", "path to the resource".into()));
    }
    parameters
}
