//! CEL types of a kind, from the OpenAPI document of the API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint::Kind;
use setpoint_cel::escape::escape;
use setpoint_cel::{Declared, Object, Type};

/// Returns the type of a kind's objects. `None` if the document does not describe it.
pub(super) fn of_kind(document: &Value, kind: &Kind) -> Option<Declared> {
    let schemas = &document["components"]["schemas"];
    let is_it = |schema: &&Value| {
        let named = schema["x-kubernetes-group-version-kind"].as_array();
        named.into_iter().flatten().any(|name| {
            name["group"] == kind.group() && name["version"] == kind.version() && name["kind"] == kind.kind()
        })
    };
    let schema = schemas.as_object()?.values().find(is_it)?;
    let reader = Reader { schemas };
    let mut declared = reader.declared(schema, &mut Vec::new())?;
    if let Type::Object(object) = &declared.ty {
        declared.ty = Type::Object(Arc::new(with_metadata(object)));
    }
    Some(declared)
}

/// Adds kind, version and metadata, which every resource has whatever its schema says.
fn with_metadata(object: &Object) -> Object {
    let text = || Declared::plain(Type::String);
    let mut fields = object.fields.clone();
    let has_names = fields
        .get("metadata")
        .is_some_and(|metadata| ["name", "generateName"].iter().all(|name| metadata.field(name).is_some()));
    if !has_names {
        let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
        let names = Object { name: "object".into(), fields: BTreeMap::from(names) };
        fields.insert("metadata".into(), Declared::plain(Type::Object(Arc::new(names))));
    }
    for name in ["kind", "apiVersion"] {
        fields.entry(name.into()).or_insert_with(text);
    }
    Object { name: object.name.clone(), fields }
}

struct Reader<'a> {
    schemas: &'a Value,
}

impl<'a> Reader<'a> {
    /// Returns the type of a schema's values. `None` for those that expressions cannot access. `path` has the
    /// references that led here; a recursive reference becomes an object of unknown contents.
    fn declared(&self, schema: &'a Value, path: &mut Vec<&'a str>) -> Option<Declared> {
        let Some(name) = reference(schema) else { return self.plain(schema, path) };
        if path.contains(&name) {
            return Some(object(BTreeMap::new()));
        }
        path.push(name);
        let declared = self.plain(self.schemas.get(name)?, path);
        path.pop();
        declared
    }

    fn plain(&self, schema: &'a Value, path: &mut Vec<&'a str>) -> Option<Declared> {
        let is_int_or_string =
            schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true;
        if is_int_or_string {
            return Some(Declared::plain(Type::Dyn));
        }
        match schema["type"].as_str()? {
            "array" => {
                let element = self.declared(schema.get("items")?, path)?;
                let ty = Type::list(element.ty.clone());
                Some(Declared { element: Some(Arc::new(element)), ..Declared::plain(ty) })
            }
            "object" => self.fields(schema, path),
            "string" => Some(Declared::plain(text(schema["format"].as_str().unwrap_or_default()))),
            "boolean" => Some(Declared::plain(Type::Bool)),
            "number" => Some(Declared::plain(Type::Double)),
            "integer" => Some(Declared::plain(Type::Int)),
            _ => None,
        }
    }

    fn fields(&self, schema: &'a Value, path: &mut Vec<&'a str>) -> Option<Declared> {
        if let Some(additional) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
            let element = self.declared(additional, path)?;
            let ty = Type::map(Type::String, element.ty.clone());
            return Some(Declared { element: Some(Arc::new(element)), ..Declared::plain(ty) });
        }
        let mut fields = BTreeMap::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if let (Some(field), Some(name)) = (self.declared(property, path), escape(name)) {
                fields.insert(name, field);
            }
        }
        Some(object(fields))
    }
}

/// Returns the name of the referenced schema.
fn reference(schema: &Value) -> Option<&str> {
    let direct = schema["$ref"].as_str();
    let wrapped = || match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([only]) => only["$ref"].as_str(),
        _ => None,
    };
    direct.or_else(wrapped)?.strip_prefix("#/components/schemas/")
}

fn object(fields: BTreeMap<String, Declared>) -> Declared {
    Declared::plain(Type::Object(Arc::new(Object { name: "object".into(), fields })))
}

fn text(format: &str) -> Type {
    match format {
        "byte" => Type::Bytes,
        "duration" => Type::Duration,
        "date" | "date-time" => Type::Timestamp,
        _ => Type::String,
    }
}
