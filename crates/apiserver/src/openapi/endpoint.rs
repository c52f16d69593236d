//! Endpoints as data, independent of the OpenAPI version.

use super::parameters::{Parameter, ParameterLocation};

/// A path and its operations.
pub(super) struct Endpoint {
    pub(super) path: String,
    pub(super) operations: Vec<Operation>,
}

pub(super) struct Operation {
    /// As in documents: `get`.
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) description: String,
    pub(super) tag: String,
    pub(super) consumes: &'static [&'static str],
    pub(super) produces: &'static [&'static str],
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    /// The success codes. All operations also return 401 to unauthenticated users.
    pub(super) codes: &'static [u16],
    pub(super) answer: Content,
    /// `None` for pages without a kind.
    pub(super) about: Option<OperationTarget>,
}

pub(super) struct Body {
    pub(super) schema: String,
    pub(super) required: bool,
}

pub(super) enum Content {
    /// An object of the schema with this name.
    Object(String),
    Text,
}

/// The action and the kind of an operation.
pub(super) struct OperationTarget {
    pub(super) action: &'static str,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl Endpoint {
    /// Returns the parameters of all operations, which are written once.
    pub(super) fn common(&self) -> Vec<&Parameter> {
        let Some((first, others)) = self.operations.split_first() else { return Vec::new() };
        let is_common = |parameter: &&Parameter| others.iter().all(|other| other.has(parameter));
        sorted(first.parameters.iter().filter(is_common))
    }

    /// Returns the names of the schemas used.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().flat_map(|operation| {
            let answer = match &operation.answer {
                Content::Object(name) => Some(name.as_str()),
                Content::Text => None,
            };
            answer.into_iter().chain(operation.body.as_ref().map(|body| body.schema.as_str()))
        })
    }

    /// Returns the parameters that only some operations have.
    pub(super) fn own<'a>(&'a self, operation: &'a Operation) -> Vec<&'a Parameter> {
        let is_own = |parameter: &&Parameter| !self.operations.iter().all(|other| other.has(parameter));
        sorted(operation.parameters.iter().filter(is_own))
    }
}

impl Operation {
    fn has(&self, wanted: &Parameter) -> bool {
        self.parameters.iter().any(|own| key(own) == key(wanted))
    }
}

fn key(parameter: &Parameter) -> (&str, ParameterLocation) {
    (parameter.name, parameter.place)
}

fn sorted<'a>(parameters: impl Iterator<Item = &'a Parameter>) -> Vec<&'a Parameter> {
    let mut parameters: Vec<&Parameter> = parameters.collect();
    parameters.sort_by_key(|parameter| key(parameter));
    parameters
}

/// Returns the description of a status code.
pub(super) const fn described(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        _ => "Accepted",
    }
}
