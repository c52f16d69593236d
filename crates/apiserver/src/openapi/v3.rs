//! OpenAPI version 3: one document per group version, and one per page.

use serde_json::{Map, Value, json};

use super::endpoint::{Content, Endpoint, Operation, described};
use super::parameters::Parameter;
use super::schemas::Dialect;

/// Builds a document from endpoints and schemas.
pub(super) fn document(info: Value, endpoints: &[Endpoint], schemas: Map<String, Value>) -> Value {
    let paths: Map<String, Value> =
        endpoints.iter().map(|endpoint| (endpoint.path.clone(), item(endpoint))).collect();
    let mut components = json!({"securitySchemes": super::security()});
    if !schemas.is_empty() {
        components["schemas"] = Value::Object(schemas);
    }
    json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": components})
}

fn item(endpoint: &Endpoint) -> Value {
    let mut item = Map::new();
    let common = endpoint.common();
    if !common.is_empty() {
        item.insert("parameters".into(), parameters(&common));
    }
    for one in &endpoint.operations {
        item.insert(one.method.into(), operation(endpoint, one));
    }
    Value::Object(item)
}

fn operation(endpoint: &Endpoint, operation: &Operation) -> Value {
    let mut written = super::operation(operation);
    let own = endpoint.own(operation);
    if !own.is_empty() {
        written.insert("parameters".into(), parameters(&own));
    }
    if let Some(body) = &operation.body {
        let schema = Content::Object(body.schema.clone());
        let mut written_body = json!({"content": content(operation.consumes, &schema)});
        if body.required {
            written_body["required"] = true.into();
        }
        written.insert("requestBody".into(), written_body);
    }
    written.insert("responses".into(), responses(operation));
    Value::Object(written)
}

fn responses(operation: &Operation) -> Value {
    let answer = |code: &u16| {
        let content = content(operation.produces, &operation.answer);
        (code.to_string(), json!({"description": described(*code), "content": content}))
    };
    let mut responses: Map<String, Value> = operation.codes.iter().map(answer).collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}

fn content(forms: &[&str], content: &Content) -> Value {
    let schema = json!({"schema": super::schema_of(Dialect::V3, content)});
    Value::Object(forms.iter().map(|form| ((*form).to_owned(), schema.clone())).collect())
}

fn parameters(parameters: &[&Parameter]) -> Value {
    parameters.iter().map(|parameter| self::parameter(parameter)).collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut written = super::parameter(parameter);
    written.insert("schema".into(), json!({"type": parameter.ty, "uniqueItems": true}));
    Value::Object(written)
}
