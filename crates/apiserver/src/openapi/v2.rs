//! OpenAPI version 2, for clients that support no other: all endpoints and definitions in one document.
//!
//! The document is large, so it is written part by part, and only one part is held at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::endpoint::{Endpoint, Operation, described};
use super::parameters::Parameter;
use super::schemas::{self, Dialect};
use super::{custom, pages, routes};
use crate::aggregation::{Additions, add_kinds};
use crate::registry::Served;
use crate::schema::Schema;

/// The inputs of a document.
#[derive(Default)]
pub(super) struct Source<'a> {
    /// The kinds of each group version.
    pub(super) kinds: Vec<&'a [Arc<Served>]>,
    pub(super) pages: Vec<&'a pages::Page>,
    /// The parts of other servers' documents.
    pub(super) additions: Additions,
}

/// The sections of a document, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Paths,
    Definitions,
    Parameters,
}

impl Section {
    pub(super) const ALL: [Self; 3] = [Self::Paths, Self::Definitions, Self::Parameters];

    const fn name(self) -> &'static str {
        match self {
            Self::Paths => "paths",
            Self::Definitions => "definitions",
            Self::Parameters => "parameters",
        }
    }
}

impl Source<'_> {
    /// Visits the named parts of a section. Definitions and parameters are those that previously visited paths refer
    /// to.
    pub(super) fn each(
        &self,
        section: Section,
        shared: &mut SharedParts,
        each: &mut dyn FnMut(&str, &Value),
    ) {
        match section {
            Section::Paths => {
                let of_pages = self.pages.iter().map(|page| page.endpoint());
                let of_kinds = self.kinds.iter().flat_map(|kinds| routes::of(kinds));
                of_pages.chain(of_kinds).for_each(|endpoint| each(&endpoint.path, &item(&endpoint, shared)));
                self.additions.paths.iter().for_each(|(path, item)| each(path, item));
            }
            Section::Definitions => {
                let kinds = || self.kinds.iter().copied().flatten();
                shared.schemas.extend(custom::roots(kinds()));
                schemas::each(Dialect::V2, &shared.schemas, &mut |name, schema| {
                    self.own_definition(name, schema, each)
                });
                let of_custom = kinds().flat_map(|served| custom::described(Dialect::V2, &served.kind));
                // Built-in names take precedence.
                for (name, schema) in of_custom.filter(|(name, _)| Schema::built_in(name).is_none()) {
                    self.own_definition(&name, &schema, each);
                }
                self.additions.definitions.iter().for_each(|(name, schema)| each(name, schema));
            }
            Section::Parameters => {
                shared.parameters.iter().for_each(|(name, parameter)| each(name, parameter));
                self.additions.parameters.iter().for_each(|(name, parameter)| each(name, parameter));
            }
        }
    }

    /// Visits a definition, with the kinds that other servers give it.
    fn own_definition(&self, name: &str, schema: &Value, each: &mut dyn FnMut(&str, &Value)) {
        match self.additions.kinds.get(name) {
            Some(kinds) if !kinds.is_empty() => {
                let mut schema = schema.clone();
                add_kinds(&mut schema, kinds);
                each(name, &schema);
            }
            _ => each(name, schema),
        }
    }

    /// Writes the document as JSON.
    pub(super) fn json(&self) -> Bytes {
        let mut document = br#"{"swagger":"2.0""#.to_vec();
        put(&mut document, "info", &super::info());
        let mut shared = SharedParts::default();
        for section in Section::ALL {
            document.extend_from_slice(format!(",\"{}\":{{", section.name()).as_bytes());
            let begin = document.len();
            self.each(section, &mut shared, &mut |name, part| {
                if document.len() > begin {
                    document.push(b',');
                }
                // Writing to memory cannot fail.
                _ = write!(document, "{}:{part}", Value::from(name));
            });
            document.push(b'}');
        }
        put(&mut document, "securityDefinitions", &super::security());
        put(&mut document, "security", &json!([{"BearerToken": []}]));
        document.push(b'}');
        document.into()
    }
}

fn put(document: &mut Vec<u8>, name: &str, value: &Value) {
    // Writing to memory cannot fail.
    _ = write!(document, ",\"{name}\":{value}");
}

/// The parameters and schemas that endpoints refer to.
#[derive(Default)]
pub(super) struct SharedParts {
    /// Parameters that many endpoints share, by reference name.
    parameters: BTreeMap<String, Value>,
    /// The names of schemas.
    schemas: BTreeSet<String>,
}

impl SharedParts {
    /// Returns a reference to a shared parameter, or the parameter itself.
    fn refer(&mut self, parameter: Value) -> Value {
        if !is_shared(&parameter) {
            return parameter;
        }
        let name = format!("{}-{}", parameter["name"].as_str().unwrap_or_default(), short_hash(&parameter));
        let known = self.parameters.entry(name.clone()).or_insert_with(|| parameter.clone());
        // Two parameters with the same hash cannot share the name.
        if *known != parameter { parameter } else { json!({"$ref": format!("#/parameters/{name}")}) }
    }
}

/// Whether a parameter can be shared: names and bodies differ by kind, and clients look for two others inline.
fn is_shared(parameter: &Value) -> bool {
    match parameter["name"].as_str() {
        Some("name" | "dryRun" | "fieldValidation") => false,
        Some("body") => parameter["schema"]["$ref"]
            .as_str()
            .is_some_and(|schema| schema.starts_with("#/definitions/io.k8s.apimachinery")),
        _ => true,
    }
}

/// Returns eight letters derived from a parameter's contents.
fn short_hash(parameter: &Value) -> String {
    use base64::Engine;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: u8| hash.wrapping_mul(PRIME) ^ u64::from(byte);
    let hash = parameter.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step).to_be_bytes();
    base64::engine::general_purpose::URL_SAFE.encode(&hash[..6])
}

fn item(endpoint: &Endpoint, shared: &mut SharedParts) -> Value {
    shared.schemas.extend(endpoint.schemas().map(str::to_owned));
    let mut item = Map::new();
    let common = endpoint.common();
    if !common.is_empty() {
        let common = common.into_iter().map(|parameter| shared.refer(self::parameter(parameter))).collect();
        item.insert("parameters".into(), common);
    }
    for one in &endpoint.operations {
        item.insert(one.method.into(), operation(endpoint, one, shared));
    }
    Value::Object(item)
}

fn operation(endpoint: &Endpoint, operation: &Operation, shared: &mut SharedParts) -> Value {
    let mut written = super::operation(operation);
    let texts = |texts: &[&str]| texts.iter().copied().map(Value::from).collect::<Value>();
    if !operation.consumes.is_empty() {
        written.insert("consumes".into(), texts(operation.consumes));
    }
    written.insert("produces".into(), texts(operation.produces));
    written.insert("schemes".into(), texts(&["https"]));
    let own = endpoint.own(operation).into_iter().map(parameter);
    let parameters: Vec<Value> =
        body(operation).into_iter().chain(own).map(|one| shared.refer(one)).collect();
    if !parameters.is_empty() {
        written.insert("parameters".into(), parameters.into());
    }
    written.insert("responses".into(), responses(operation));
    Value::Object(written)
}

/// Returns the body as a parameter, as in version 2.
fn body(operation: &Operation) -> Option<Value> {
    let body = operation.body.as_ref()?;
    let mut written = json!({"name": "body", "in": "body", "schema": Dialect::V2.reference(&body.schema)});
    if body.required {
        written["required"] = true.into();
    }
    Some(written)
}

fn parameter(parameter: &Parameter) -> Value {
    let mut written = super::parameter(parameter);
    written.insert("type".into(), parameter.ty.into());
    written.insert("uniqueItems".into(), true.into());
    Value::Object(written)
}

fn responses(operation: &Operation) -> Value {
    let schema = || super::schema_of(Dialect::V2, &operation.answer);
    let answer =
        |code: &u16| (code.to_string(), json!({"description": described(*code), "schema": schema()}));
    let mut responses: Map<String, Value> = operation.codes.iter().map(answer).collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}
