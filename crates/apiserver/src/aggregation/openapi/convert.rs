//! Converts version 2 documents to version 3, for servers without version 3. As in v1.34, the conversion is lossy.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::spec::Spec;
use crate::json::Json;

/// The maximum size of all body schemas, as text. They are repeated for every media type of their operation, so a short
/// document can become a long one. Kubernetes' own document has 2 MiB of them.
const MAX_BYTES: usize = 32 << 20;
/// The size of a media type without its schema.
const ENTRY_BYTES: usize = 128;

const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];

/// The remaining size for body schemas; `None` if it was exceeded.
struct Room(Cell<Option<usize>>);

impl Room {
    fn take(&self, bytes: usize) -> bool {
        let left = self.0.get().and_then(|left| left.checked_sub(bytes));
        self.0.set(left);
        left.is_some()
    }
}

/// Converts a document.
pub(super) fn to_v3(spec: &Spec) -> Result<Value, String> {
    let room = Room(Cell::new(Some(MAX_BYTES)));
    let paths: Map<String, Value> =
        spec.paths.iter().map(|(path, item)| (path.clone(), path_item(item, &room))).collect();
    if room.0.get().is_none() {
        return Err(format!("the document would be longer than {MAX_BYTES} bytes as version 3"));
    }
    let schemas: Map<String, Value> =
        spec.definitions.iter().map(|(name, value)| (name.clone(), schema(value))).collect();
    Ok(json!({"openapi": "3.0.0", "info": spec.info, "paths": paths, "components": {"schemas": schemas}}))
}

fn path_item(item: &Value, room: &Room) -> Value {
    let mut converted = Map::new();
    for (name, value) in item.as_object().into_iter().flatten() {
        match name.as_str() {
            method if METHODS.contains(&method) => _ = converted.insert(name.clone(), operation(value, room)),
            "parameters" => {
                let parameters = value.as_array().into_iter().flatten().map(parameter).collect();
                converted.insert(name.clone(), parameters);
            }
            "$ref" => _ = converted.insert(name.clone(), value.clone()),
            extension if extension.starts_with("x-") => _ = converted.insert(name.clone(), value.clone()),
            _ => {}
        }
    }
    Value::Object(converted)
}

fn operation(operation: &Value, room: &Room) -> Value {
    let mut converted = Map::new();
    let kept = ["description", "externalDocs", "tags", "summary", "deprecated", "operationId"];
    for (name, value) in operation.as_object().into_iter().flatten() {
        if kept.contains(&name.as_str()) || name.starts_with("x-") {
            converted.insert(name.clone(), value.clone());
        }
    }
    let is_body = |parameter: &&Value| parameter.text("name") == "body" && parameter.has("schema");
    let (bodies, others): (Vec<&Value>, Vec<&Value>) = operation.list("parameters").iter().partition(is_body);
    if let Some(body) = bodies.last() {
        let content = content(operation.list("consumes"), body.at("schema"), room);
        converted.insert("requestBody".into(), json!({"content": content}));
    }
    if !others.is_empty() {
        converted.insert("parameters".into(), others.into_iter().map(parameter).collect());
    }
    let produces = operation.list("produces");
    let responses = operation.map("responses").into_iter().flatten();
    let responses: Map<String, Value> = responses
        .map(|(code, value)| match code.starts_with("x-") {
            true => (code.clone(), value.clone()),
            false => (code.clone(), response(value, produces, room)),
        })
        .collect();
    converted.insert("responses".into(), Value::Object(responses));
    Value::Object(converted)
}

fn response(response: &Value, produces: &[Value], room: &Room) -> Value {
    let mut converted = Map::new();
    for (name, value) in response.as_object().into_iter().flatten() {
        match name.as_str() {
            "$ref" => {
                _ = converted.insert(name.clone(), moved(value, "#/responses/", "#/components/responses/"))
            }
            "description" => _ = converted.insert(name.clone(), value.clone()),
            extension if extension.starts_with("x-") => _ = converted.insert(name.clone(), value.clone()),
            _ => {}
        }
    }
    if response.has("schema") {
        converted.insert("content".into(), content(produces, response.at("schema"), room));
    }
    Value::Object(converted)
}

fn content(types: &[Value], of: &Value, room: &Room) -> Value {
    let schema = json!({"schema": schema(of)});
    let each = schema.to_string().len() + ENTRY_BYTES;
    // The second is not recomputed once the limit is reached.
    let names = || types.iter().filter_map(Value::as_str).map(str::len).sum();
    if !room.take(each.saturating_mul(types.len())) || !room.take(names()) {
        return Value::Null;
    }
    let types = types.iter().filter_map(Value::as_str);
    Value::Object(types.map(|media_type| (media_type.to_owned(), schema.clone())).collect())
}

fn parameter(parameter: &Value) -> Value {
    if parameter.has("$ref") {
        return json!({"$ref": moved(parameter.at("$ref"), "#/parameters/", "#/components/parameters/")});
    }
    let mut converted = Map::new();
    let kept = ["name", "description", "in", "required", "allowEmptyValue"];
    for (name, value) in parameter.as_object().into_iter().flatten() {
        if kept.contains(&name.as_str()) || name.starts_with("x-") {
            converted.insert(name.clone(), value.clone());
        }
    }
    let of = match parameter.has("schema") {
        true => schema(parameter.at("schema")),
        false => {
            let simple = ["type", "format", "uniqueItems"].iter().filter(|name| parameter.has(name));
            simple.map(|name| ((*name).to_owned(), parameter.at(name).clone())).collect::<Map<_, _>>().into()
        }
    };
    converted.insert("schema".into(), of);
    Value::Object(converted)
}

/// Converts a schema. Version 3 ignores siblings of a reference, so a reference with siblings is wrapped.
fn schema(of: &Value) -> Value {
    let Value::Object(fields) = of else { return of.clone() };
    let mut converted: Map<String, Value> =
        fields.iter().map(|(name, value)| (name.clone(), schema_field(name, value))).collect();
    if converted.len() > 1
        && let Some(reference) = converted.remove("$ref")
    {
        converted.insert("allOf".into(), json!([{"$ref": reference}]));
    }
    Value::Object(converted)
}

fn schema_field(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("$ref", _) => moved(value, "#/definitions/", "#/components/schemas/"),
        ("properties", Value::Object(fields)) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), schema(value))).collect())
        }
        ("items", Value::Array(items)) => items.iter().map(schema).collect(),
        ("items" | "additionalProperties" | "additionalItems", value) => schema(value),
        _ => value.clone(),
    }
}

fn moved(reference: &Value, from: &str, to: &str) -> Value {
    let text = reference.as_str().unwrap_or_default();
    text.strip_prefix(from).map_or_else(|| reference.clone(), |name| format!("{to}{name}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_responses_and_references_move_to_their_new_places() {
        let document = json!({"info": {"title": "t"},
            "paths": {"/apis/a/v1/x": {
                "parameters": [{"name": "pretty", "in": "query", "type": "string", "uniqueItems": true}],
                "post": {"operationId": "create", "consumes": ["*/*"], "produces": ["application/json"],
                    "schemes": ["https"], "x-kubernetes-action": "post",
                    "parameters": [{"name": "body", "in": "body", "schema": {"$ref": "#/definitions/X"}}],
                    "responses": {"201": {"description": "Created", "schema": {"$ref": "#/definitions/X"}}}}}},
            "definitions": {"X": {"type": "object", "properties": {
                "meta": {"description": "d", "$ref": "#/definitions/M"}, "list": {"items": {"$ref": "#/definitions/M"}}}},
                "M": {"type": "object"}}});
        let spec = Spec::read(document.to_string().as_bytes(), "/", String::new()).unwrap();
        let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let expected = json!({"openapi": "3.0.0", "info": {"title": "t"},
            "paths": {"/apis/a/v1/x": {
                "parameters": [{"name": "pretty", "in": "query", "schema": {"type": "string", "uniqueItems": true}}],
                "post": {"operationId": "create", "x-kubernetes-action": "post",
                    "requestBody": {"content": {"*/*": {"schema": reference("X")}}},
                    "responses": {"201": {"description": "Created",
                        "content": {"application/json": {"schema": reference("X")}}}}}}},
            "components": {"schemas": {"M": {"type": "object"}, "X": {"type": "object", "properties": {
                "meta": {"description": "d", "allOf": [reference("M")]}, "list": {"items": reference("M")}}}}}});
        assert_eq!(to_v3(&spec).unwrap(), expected);
    }

    #[test]
    fn a_schema_is_not_repeated_without_end() {
        let check = |types: usize, is_fine: bool| {
            let types: Vec<String> = (0..types).map(|number| format!("a/{number}")).collect();
            let schema = json!({"description": "x".repeat(1 << 20)});
            let document = json!({"paths": {"/x": {"get": {
                "produces": types, "responses": {"200": {"description": "", "schema": schema}}}}}});
            let spec = Spec::read(document.to_string().as_bytes(), "/", String::new()).unwrap();
            assert_eq!(to_v3(&spec).is_ok(), is_fine, "{} types", types.len());
        };
        check(5, true);
        check(40, false);
        check(100_000, false);
    }

    #[test]
    fn a_long_media_type_is_not_repeated_without_end() {
        let check = |responses: usize, is_fine: bool| {
            let responses: Map<String, Value> =
                (0..responses).map(|code| (code.to_string(), json!({"schema": {}}))).collect();
            let document = json!({"paths": {"/x": {"get": {"produces": ["x".repeat(1 << 20)], "responses": responses}}}});
            let spec = Spec::read(document.to_string().as_bytes(), "/", String::new()).unwrap();
            assert_eq!(to_v3(&spec).is_ok(), is_fine);
        };
        check(5, true);
        check(40, false);
    }
}
