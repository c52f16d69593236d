//! The query and path parameters of endpoints.

use std::borrow::Cow;

use crate::kind::Subresource;

/// A parameter of a request besides its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) place: ParameterLocation,
    pub(super) ty: &'static str,
    pub(super) description: Cow<'static, str>,
}

/// The location of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ParameterLocation {
    Path,
    Query,
}

impl ParameterLocation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
        }
    }
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: ParameterLocation::Query, ty, description: Cow::Borrowed(description) }
}

const fn in_path(name: &'static str, description: Cow<'static, str>) -> Parameter {
    Parameter { name, place: ParameterLocation::Path, ty: "string", description }
}

const DRY_RUN: Parameter =
    query("dryRun", "string", "Set to All to process the request without storing anything.");
const FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "The name of the field manager; required for apply.");
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "How to handle unknown and duplicate fields: Ignore, Warn (the default) or Strict.",
);
const FORCE: Parameter =
    query("force", "boolean", "Take ownership of conflicting fields instead of reporting a conflict.");
const GRACE_PERIOD: Parameter =
    query("gracePeriodSeconds", "integer", "The grace period in seconds; zero deletes immediately.");
const IGNORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "boolean",
    "Delete an object that cannot be read, ignoring preconditions and finalizers.",
);
const ORPHAN: Parameter = query("orphanDependents", "boolean", "Deprecated: use propagationPolicy.");
const PROPAGATION: Parameter =
    query("propagationPolicy", "string", "How to handle dependents: Orphan, Background or Foreground.");
const BOOKMARKS: Parameter = query("allowWatchBookmarks", "boolean", "Allow bookmark events in a watch.");
const CONTINUE: Parameter = query("continue", "string", "The continue token of the previous page of a list.");
const FIELD_SELECTOR: Parameter = query("fieldSelector", "string", "Restrict the objects by their fields.");
const LABEL_SELECTOR: Parameter = query("labelSelector", "string", "Restrict the objects by their labels.");
const LIMIT: Parameter = query("limit", "integer", "The maximum number of objects to return.");
const VERSION: Parameter =
    query("resourceVersion", "string", "The resource version constraint of the response.");
const VERSION_MATCH: Parameter =
    query("resourceVersionMatch", "string", "How to apply resourceVersion: Exact or NotOlderThan.");
const INITIAL_EVENTS: Parameter =
    query("sendInitialEvents", "boolean", "Start a watch with synthetic events for the existing objects.");
const TIMEOUT: Parameter = query("timeoutSeconds", "integer", "The timeout of the call.");
const WATCH: Parameter = query("watch", "boolean", "Watch for changes instead of listing.");
const CONTAINER: Parameter = query("container", "string", "The container; required if the pod has several.");

pub(super) const PRETTY: Parameter = query("pretty", "string", "If true, the output is pretty-printed.");

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
    let stream = |name| query(name, "boolean", "Whether to attach this stream.");
    let terminal = || query("tty", "boolean", "Whether to allocate a TTY.");
    let streams = || [CONTAINER, stream("stderr"), stream("stdin"), stream("stdout"), terminal()];
    match part {
        Subresource::Attach => streams().into(),
        Subresource::Exec => {
            let mut parameters =
                vec![query("command", "string", "The command to run; one parameter per argument.")];
            parameters.extend(streams());
            parameters
        }
        Subresource::PortForward => vec![query("ports", "integer", "The ports to forward.")],
        Subresource::Proxy => vec![query("path", "string", "The path of the proxied request.")],
        Subresource::Log => logs().into(),
        _ => Vec::new(),
    }
}

fn logs() -> [Parameter; 9] {
    [
        CONTAINER,
        query("follow", "boolean", "Follow the log."),
        query("insecureSkipTLSVerifyBackend", "boolean", "Skip verification of the node's certificate."),
        query("limitBytes", "integer", "The maximum number of bytes to return."),
        query("previous", "boolean", "Return the log of the previous container instance."),
        query("sinceSeconds", "integer", "Only return lines newer than this."),
        query("stream", "string", "The stream to return: All, Stdout or Stderr."),
        query("tailLines", "integer", "The number of lines to return from the end of the log."),
        query("timestamps", "boolean", "Prefix each line with a timestamp."),
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
